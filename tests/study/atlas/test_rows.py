"""Rows of run folders equal an independent recomputation, and damaged folders are excluded."""

import ast
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas.rows import COLUMNS, compute_pair_signs, read_rows
from cfeval_cli.study.atlas.store import Atlas, add_runs, collect_runs, write_atlas
from cfeval_cli.study.atlas.summary import AtlasSummary
from tests.conftest import reseal
from tests.study.atlas import recomputation


@pytest.fixture(scope="module")
def atlas(judge_runs):
    """The atlas of both judges."""
    return collect_runs(judge_runs)


def test_rows_and_means_equal_independent_recomputation(judge_runs, atlas, tmp_path):
    assert atlas.n_runs == 2 and not atlas.excluded and list(atlas.rows.columns) == COLUMNS
    assert set(atlas.rows["judge"]) == {"Logistic", "Tree"} and set(atlas.rows["truth"]) >= {
        "signed",
        "shapley",
        "contrast",
    }
    write_atlas(atlas, tmp_path / "atlas.parquet")
    differences, means = recomputation.compare(tmp_path / "atlas.parquet", judge_runs)
    assert differences == []
    for question in AtlasSummary(atlas).questions:
        for metric in question.metrics:
            assert metric.tau.mean == pytest.approx(means[question.question, *metric.pair], abs=1e-6)


def test_recomputation_imports_nothing_of_cfeval():
    tree = ast.parse(Path(recomputation.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= {"json", "itertools", "math", "sys", "collections", "pathlib", "pandas"}


def test_recomputation_detects_a_wrong_value(judge_runs, atlas, tmp_path):
    changed_rows = atlas.rows.copy()
    changed_rows.loc[3, "tau_without_controls"] = 0.123
    write_atlas(Atlas(changed_rows), tmp_path / "atlas.parquet")
    assert len(recomputation.compare(tmp_path / "atlas.parquet", judge_runs)[0]) == 1
    assert (
        len(recomputation.compare(tmp_path / "atlas.parquet", judge_runs[:1])[0])
        >= (atlas.rows["judge"] == "Tree").sum()
    )


def test_row_describes_truth_explainers_and_cost(judge_runs):
    rows = read_rows(judge_runs[0]).set_index(["truth", "metric", "variant"])
    record = json.loads((judge_runs[0] / "run.json").read_text())
    line = rows.loc["contrast", "validity_soft", "probability"]
    assert (line["question"], line["block"], line["instances"]) == ("change", "counterfactual", 20)
    assert line["circular"] and not line["arbitrary"] and line["exact"] and line["run"] == record["inputs"][:16]
    assert line["ranked"] == "decision_boundary lime omission shap" and line["explainers"] == 6
    assert rows.loc["shapley", "comprehensiveness", "del"]["arbitrary"]
    costs = pd.read_csv(judge_runs[0] / "costs.csv").set_index(["part", "name"])
    search = costs.loc["search"].query("access == 'probability'")["model_rows"].sum()
    assert line["model_rows"] == pytest.approx(
        (search + costs.loc[("metric", "validity_soft"), "model_rows"]) / (20 * 6)
    )


def test_pair_signs_are_those_of_differences():
    values = np.array([[3.0, 1.0, 1.0, np.nan], [0.0, 1e-17, -2.0, 5.0]])
    assert compute_pair_signs(values) == pytest.approx(
        np.array([[1, 1, np.nan, 0, np.nan, np.nan], [0, 1, -1, 1, -1, -1]]), nan_ok=True
    )


def rewrite_table(folder, name, change):
    table = pd.read_csv(folder / name)
    change(table).to_csv(folder / name, index=False)
    reseal(folder)


def change_record_file(folder, **changes):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({key: value for key, value in (record | changes).items() if value != "gone"})
    )


DAMAGES = {
    "a value": (lambda f: (f / "metrics.csv").write_text((f / "metrics.csv").read_text() + "\n"), "sha256"),
    "a figure": (lambda f: rewrite_table(f, "correlations.csv", lambda t: t.assign(tau=0.5)), "does not follow"),
    "a column": (lambda f: rewrite_table(f, "correlations.csv", lambda t: t.drop(columns="circular")), "no column"),
    "twice": (lambda f: rewrite_table(f, "metrics.csv", lambda t: pd.concat([t, t.iloc[:1]])), "two lines of the same"),
    "odd subset": (
        lambda f: rewrite_table(f, "correlations.csv", lambda t: t.replace({"subset": {"all": "some"}})),
        "subset is one of all, without_controls",
    ),
    "a file": (lambda f: (f / "correlations.csv").unlink(), "missing"),
    "half a run": (lambda f: change_record_file(f, status="failed"), "not complete: its status is failed"),
    "no truth": (lambda f: change_record_file(f, truths={}), "has no ground truth"),
    "no model": (lambda f: change_record_file(f, model="gone"), "has no entry model"),
    "odd levels": (lambda f: change_record_file(f, levels=3), "damaged"),
    "odd costs": (lambda f: rewrite_table(f, "costs.csv", lambda t: t.assign(model_rows="many")), "could not convert"),
    "no record": (lambda f: (f / "run.json").write_text("{"), "damaged"),
}  # fmt: skip


def test_damaged_folders_are_excluded_with_reason(judge_runs, tmp_path):
    for damage, (change, reason) in DAMAGES.items():
        shutil.copytree(judge_runs[1], tmp_path / damage)
        change(tmp_path / damage)
        with pytest.raises(UserError, match=reason):
            read_rows(tmp_path / damage)
    atlas = collect_runs(
        [judge_runs[0], *(tmp_path / damage for damage in DAMAGES)], {"pima/atlas_tree/0-1": "it failed"}
    )
    assert len(atlas.excluded) == 1 + len(DAMAGES) and atlas.description.excluded == atlas.excluded
    for damage, line in zip(DAMAGES, atlas.excluded[1:], strict=True):
        assert str(tmp_path / damage) in line and re.search(DAMAGES[damage][1], line)
    pd.testing.assert_frame_equal(atlas.rows, collect_runs(judge_runs[:1]).rows)


def test_duplicate_run_is_excluded_and_empty_atlas_refused(judge_runs, tmp_path):
    shutil.copytree(judge_runs[0], tmp_path / "again")
    atlas = collect_runs([*judge_runs, tmp_path / "again"])
    assert len(atlas.excluded) == 1 and "the same data, judge, seed, k and truth" in atlas.excluded[0]
    with pytest.raises(UserError, match="no run can be added"):
        collect_runs([tmp_path])


def test_rows_are_added_once_and_refused_for_other_explainers(judge_runs, atlas):
    first = collect_runs(judge_runs[:1])
    joined, message = add_runs(first, judge_runs)
    assert "Excluded" not in message and f"{len(first.rows):,} rows were there and are unchanged" in message
    pd.testing.assert_frame_equal(joined.rows, atlas.rows)
    with pytest.raises(UserError, match="already"):
        add_runs(joined, judge_runs)
    other = Atlas(first.rows.assign(ranked="lime shap"))
    with pytest.raises(UserError, match="ranks other explainers"):
        add_runs(other, judge_runs)
