"""`cfeval judge check`: runs of judges are read from their folders, and the tables follow from their regret."""

import json
import re
import shutil
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.regret.check import compare_strategies
from cfeval_cli.study.regret.regret import STRATEGIES, summarise_regrets
from cfeval_cli.study.regret.tables import build_brief, build_tables, write_verdict

DOCS = Path(__file__).parents[3] / "docs"
REGRETS = pd.read_parquet(DOCS / "judges" / "regret.parquet")
QUICK_RUN = ("explainer=[random,omission]", "model=tree", "metric=[c,recall]", "resamples=0")


@cache
def published_summary():
    return summarise_regrets(REGRETS)


@cache
def published_tables():
    return build_tables(REGRETS, published_summary())


def test_runs_are_read_and_regret_is_written(toy, make_run, tmp_path):
    overrides = (
        "explainer=[random,omission,decision_boundary]", "resamples=0", "n_explain=20", "truth=[shapley,contrast]",
        "metric=[comprehensiveness,validity_soft,c_soft,recall]", "removal=[marginal]",
    )  # fmt: skip
    folders = [make_run(toy, *overrides, "model=tree"), make_run(toy, *overrides, "model.max_epochs=10")]
    shutil.copytree(folders[0], tmp_path / "again")
    comparison = compare_strategies([*folders, tmp_path / "again"], tmp_path)
    assert comparison.scope == (
        "2 runs of judges on 1 data set; 1 skipped (incomplete, without ground truth, or duplicates)"
    )
    regrets = pd.read_parquet(tmp_path / "regret.parquet")
    assert set(regrets["judge"]) == {"Tree", "Logistic"}
    assert set(regrets["question"]) == {"contribution", "change"} and set(regrets["data"]) == {"toy"}
    assert "| chance |" in (tmp_path / "regret.md").read_text()
    metrics = pd.read_csv(folders[0] / "metrics.csv")
    is_true_score = (metrics["metric"] == "recall") & (metrics["variant"] == "shapley") & ~metrics["control"]
    true_scores = metrics[is_true_score]["value"]
    rows = regrets[(regrets["question"] == "contribution") & (regrets["circular"] == "keep")]
    by_chance = rows.loc[rows["strategy"] == "chance", "regret"].iloc[0]
    assert 0 < true_scores.max() - true_scores.mean() == pytest.approx(by_chance)


def test_verdict_has_ranges_of_means_and_strategies_with_significantly_less_regret():
    rows = REGRETS[REGRETS["circular"] == "keep"]
    by_set = rows.groupby(["strategy", "question", "k", "data", "seed"])["regret"].mean()
    means = by_set.groupby(["strategy", "question", "k", "data"]).mean().groupby(["strategy", "question", "k"]).mean()
    rule, chance = means["rule"], means["chance"]
    verdict = write_verdict(published_summary())
    assert f"mean regret {rule.min():.3f} to {rule.max():.3f} by the metric-based ranking" in verdict
    assert f", {chance.min():.3f} to {chance.max():.3f} by chance;" in verdict
    # a strategy without any regret has significantly less, unless there are only two data sets
    few_rows = rows[(rows["seed"] < 2) & (rows["k"] == 1)]
    perfect = few_rows.assign(regret=few_rows["regret"].where(few_rows["strategy"] != "c_soft", -1.0))
    assert write_verdict(summarise_regrets(perfect)).endswith("always C_soft (paper) has significantly less")
    two_sets = perfect[perfect["data"].isin(["pima", "german"])]
    summary = summarise_regrets(two_sets)
    assert write_verdict(summary).endswith("3 data sets are needed to test for differences")
    assert not any(cell.marks for table in build_tables(two_sets, summary) for row in table.rows for cell in row.cells)


def test_brief_table_fits_80_columns_and_has_means_of_full_table():
    lines = [text.plain for text in render_narrow(build_brief(published_summary(), "400 runs"), 80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    for row in published_tables()[0].rows:
        values = [cell.value_text + cell.marks for cell in row.cells]
        assert any(line.split()[-4:] == values for line in lines), row.title.text


def test_folder_without_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"contains a run\.json"):
        compare_strategies([tmp_path], tmp_path)


@pytest.mark.parametrize("key", ["model", "removals", "data"])
def test_record_without_required_key_is_reported(toy, make_run, tmp_path, key):
    folder = make_run(toy, *QUICK_RUN, copy=True)
    record = json.loads((folder / "run.json").read_text())
    del record[key]
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"{re.escape(str(folder))} is damaged.*{key}"):
        compare_strategies([folder], tmp_path)
    record |= {"status": "stopped"}
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="no folder has a complete run"):
        compare_strategies([folder], tmp_path)


def test_changed_file_is_reported(toy, make_run, tmp_path):
    folder = make_run(toy, *QUICK_RUN, copy=True)
    with (folder / "metrics.csv").open("a") as file:
        file.write("x")
    with pytest.raises(UserError, match=r"metrics\.csv"):
        compare_strategies([folder], tmp_path)


def test_docs_page_has_tables_of_published_regrets():
    assert set(REGRETS["data"]) == {"adults", "german", "compas", "heloc", "pima"}
    assert set(REGRETS["seed"]) == set(range(10)) and REGRETS["judge"].nunique() == 4 and set(REGRETS["k"]) == {1, 3}
    assert len(REGRETS[["data", "judge", "seed", "k"]].drop_duplicates()) == 400
    page = (DOCS / "judges.md").read_text()
    for table in published_tables():
        assert render_markdown(table).strip() in page
    # the means are recomputed independently
    for (question, k, circular), rows in REGRETS.groupby(["question", "k", "circular"]):
        by_set = rows.groupby(["strategy", "data", "seed"])["regret"].mean().groupby(["strategy", "data"]).mean()
        for name, mean in by_set.groupby("strategy").mean().items():
            title = STRATEGIES[name].replace("_", "\\_")
            line = next(line for line in page.splitlines() if line.startswith(f"| {title}"))
            assert circular == "drop" or re.search(rf"\b{mean:.3f} ", line), (question, k, name)
