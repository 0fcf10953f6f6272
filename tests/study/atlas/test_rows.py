"""Rows of real run folders: against an outsider's loops, and folders that are damaged or of another hand."""

import ast
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas.rows import COLUMNS, read_rows, signs
from cfeval_cli.study.atlas.store import added, gathered, write
from cfeval_cli.study.atlas.summary import Summary
from tests.conftest import reseal
from tests.study.atlas import outsider


@pytest.fixture(scope="module")
def atlas(judged):
    """Of both judges."""
    return gathered(judged)


def test_an_outsider_finds_the_same_rows_and_means(judged, atlas, tmp_path):
    assert atlas.runs == 2 and not atlas.left and list(atlas.rows.columns) == COLUMNS
    assert set(atlas.rows["judge"]) == {"Logistic", "Tree"} and set(atlas.rows["truth"]) >= {
        "signed",
        "shapley",
        "contrast",
    }
    write(atlas, tmp_path / "atlas.parquet")
    wrong, means = outsider.compare(tmp_path / "atlas.parquet", judged)
    assert wrong == []
    for answer in Summary(atlas).answers:
        for one in answer.metrics:
            assert one.lead.mean == pytest.approx(means[answer.question, *one.pair], abs=1e-6)


def test_the_outsider_imports_nothing_of_cfeval():
    tree = ast.parse(Path(outsider.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= {"json", "itertools", "math", "sys", "collections", "pathlib", "pandas"}


def test_a_wrong_figure_is_seen_by_the_outsider(judged, atlas, tmp_path):
    wrong = atlas.rows.copy()
    wrong.loc[3, "tau_without_controls"] = 0.123
    write(type(atlas)(wrong), tmp_path / "atlas.parquet")
    assert len(outsider.compare(tmp_path / "atlas.parquet", judged)[0]) == 1
    assert len(outsider.compare(tmp_path / "atlas.parquet", judged[:1])[0]) >= (atlas.rows["judge"] == "Tree").sum()


def test_what_a_row_says_of_itself(judged):
    found = read_rows(judged[0]).set_index(["truth", "metric", "variant"])
    record = json.loads((judged[0] / "run.json").read_text())
    line = found.loc["contrast", "validity_soft", "probability"]
    assert (line["question"], line["block"], line["instances"]) == ("change", "counterfactual", 20)
    assert line["circular"] and not line["arbitrary"] and line["exact"] and line["run"] == record["inputs"][:16]
    assert line["ranked"] == "decision_boundary lime omission shap" and line["explainers"] == 6
    assert found.loc["shapley", "comprehensiveness", "del"]["arbitrary"]
    search = sum(
        rows_
        for name, rows_ in record["model_rows"].items()
        if name.startswith("search.") and name.endswith(".probability")
    )
    assert line["model_rows"] == pytest.approx((search + record["model_rows"]["metric.validity_soft"]) / (20 * 6))


def test_signs_are_those_of_differences():
    values = np.array([[3.0, 1.0, 1.0, np.nan], [0.0, 1e-17, -2.0, 5.0]])
    assert signs(values) == pytest.approx(
        np.array([[1, 1, np.nan, 0, np.nan, np.nan], [0, 1, -1, 1, -1, -1]]), nan_ok=True
    )


def rewritten(folder, name, change):
    table = pd.read_csv(folder / name)
    change(table).to_csv(folder / name, index=False)
    reseal(folder)


def told(folder, **changes):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({key: value for key, value in (record | changes).items() if value != "gone"})
    )


DAMAGES = {
    "a value": (lambda f: (f / "metrics.csv").write_text((f / "metrics.csv").read_text() + "\n"), "sha256"),
    "a figure": (lambda f: rewritten(f, "correlations.csv", lambda t: t.assign(tau=0.5)), "another tau of"),
    "a column": (lambda f: rewritten(f, "correlations.csv", lambda t: t.drop(columns="circular")), "no column"),
    "twice": (lambda f: rewritten(f, "metrics.csv", lambda t: pd.concat([t, t.iloc[:1]])), "two lines of the same"),
    "odd subset": (
        lambda f: rewritten(f, "correlations.csv", lambda t: t.replace({"subset": {"all": "some"}})),
        "subset is one of all, without_controls",
    ),
    "a file": (lambda f: (f / "correlations.csv").unlink(), "missing"),
    "half a run": (lambda f: told(f, status="failed"), "not complete: its status is failed"),
    "no truth": (lambda f: told(f, truths={}), "has no ground truth"),
    "no model": (lambda f: told(f, model="gone"), "has no entry model"),
    "odd levels": (lambda f: told(f, levels=3), "damaged"),
    "odd costs": (lambda f: told(f, model_rows={"metric.c_soft": "many"}), "metric.c_soft must be a whole number"),
    "no record": (lambda f: (f / "run.json").write_text("{"), "damaged"),
}  # fmt: skip


def test_damaged_folders_are_named_left_out_and_counted_and_change_no_mean(judged, tmp_path):
    for damage, (change, reason) in DAMAGES.items():
        shutil.copytree(judged[1], tmp_path / damage)
        change(tmp_path / damage)
        with pytest.raises(UserError, match=reason):
            read_rows(tmp_path / damage)
    atlas = gathered([judged[0], *(tmp_path / damage for damage in DAMAGES)], {"pima/atlas_tree/0-1": "it failed"})
    assert len(atlas.left) == 1 + len(DAMAGES) and atlas.about["left"] == atlas.left
    for damage, line in zip(DAMAGES, atlas.left[1:], strict=True):
        assert str(tmp_path / damage) in line and re.search(DAMAGES[damage][1], line)
    pd.testing.assert_frame_equal(atlas.rows, gathered(judged[:1]).rows)


def test_the_same_run_counts_once_and_nothing_is_refused(judged, tmp_path):
    shutil.copytree(judged[0], tmp_path / "again")
    atlas = gathered([*judged, tmp_path / "again"])
    assert len(atlas.left) == 1 and "the same data, judge, seed, k and truth" in atlas.left[0]
    with pytest.raises(UserError, match="no run can be taken"):
        gathered([tmp_path])


def test_rows_are_added_once_and_not_where_other_explainers_are_ranked(judged, atlas):
    one = gathered(judged[:1])
    both, said = added(one, judged)
    assert "Not taken" not in said and f"{len(one.rows):,} were there" in said
    pd.testing.assert_frame_equal(both.rows, atlas.rows)
    with pytest.raises(UserError, match="already"):
        added(both, judged)
    other = type(one)(one.rows.assign(ranked="lime shap"))
    with pytest.raises(UserError, match="ranks other explainers"):
        added(other, judged)
