"""`cfeval judge check`: stored runs are read from their folders, and the tables follow from their regret."""

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
from cfeval_cli.study.regret.tables import build_brief, build_table, write_verdict

DOCS = Path(__file__).parents[3] / "docs"
REGRETS = pd.read_parquet(DOCS / "judges" / "regret.parquet")
QUICK_RUN = ("explainer=[random,omission,lime]", "metric=[c,recall]", "resamples=0", "+dataset.split=[0.6,0.2,0.2]")
LARGE_RUN = (*QUICK_RUN, "n_explain=60")


@cache
def published_summary():
    return summarise_regrets(REGRETS)


@cache
def published_table():
    return build_table(REGRETS, published_summary())


def test_runs_are_read_and_regret_is_written(toy, make_run, tmp_path):
    folders = [make_run(toy, *LARGE_RUN, "model=tree"), make_run(toy, *LARGE_RUN, "model.max_epochs=10")]
    shutil.copytree(folders[0], tmp_path / "again")
    small_run = make_run(toy, *QUICK_RUN, "model=tree")
    comparison = compare_strategies([*folders, tmp_path / "again", small_run], tmp_path)
    assert comparison.scope == (
        "2 runs on 1 data set; 2 skipped (incomplete, duplicates, or fewer than 60 instances with reference "
        "attributions)"
    )
    regrets = pd.read_parquet(tmp_path / "regret.parquet")
    assert set(regrets["model"]) == {"Tree", "Logistic"}
    assert set(regrets["question"]) == {"contribution", "change"} and set(regrets["data"]) == {"toy"}
    assert "| chance |" in (tmp_path / "regret.md").read_text()


def test_verdict_has_ranges_of_means_and_strategies_with_significantly_less_regret():
    means = (
        REGRETS.groupby(["strategy", "question", "k", "data"])["regret"].mean().groupby(["strategy", "question", "k"])
    )
    means = means.mean()
    verdict = write_verdict(published_summary())
    for name, title in (("best", "the answer"), ("chance", "chance")):
        assert f"{means[name].min():.3f} to {means[name].max():.3f} by {title}" in verdict
    # a strategy without any regret has significantly less, unless there are only two data sets
    perfect = REGRETS.assign(regret=REGRETS["regret"].where(REGRETS["strategy"] != "first", -1.0))
    assert write_verdict(summarise_regrets(perfect)).endswith("first in the table has significantly less")
    two_sets = perfect[perfect["data"].isin(["pima", "german"])]
    summary = summarise_regrets(two_sets)
    assert write_verdict(summary).endswith("3 data sets are needed to test for differences")
    assert not any(cell.marks for row in build_table(two_sets, summary).rows for cell in row.cells)


def test_brief_table_fits_80_columns_and_has_means_of_full_table():
    lines = [text.plain for text in render_narrow(build_brief(published_summary(), "26 runs"), 80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    for row in published_table().rows[:-1]:
        values = [cell.value_text + cell.marks for cell in row.cells]
        assert any(line.split()[-len(values) :] == values for line in lines), row.title.text


def test_folder_without_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"contains a run\.json"):
        compare_strategies([tmp_path], tmp_path)


@pytest.mark.parametrize("key", ["model", "data"])
def test_record_without_required_key_is_reported(toy, make_run, tmp_path, key):
    folder = make_run(toy, *LARGE_RUN, "model=tree", copy=True)
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
    folder = make_run(toy, *LARGE_RUN, "model=tree", copy=True)
    with (folder / "metrics.csv").open("a") as file:
        file.write("x")
    with pytest.raises(UserError, match=r"metrics\.csv"):
        compare_strategies([folder], tmp_path)


def test_docs_page_has_tables_of_published_regrets():
    assert set(REGRETS["data"]) == {"adults_raw", "german", "compas", "heloc", "pima"}
    assert REGRETS["model"].nunique() == 2 and set(REGRETS["k"]) == {3} and (REGRETS["instances"] == 100).all()
    page = (DOCS / "judges.md").read_text()
    assert render_markdown(published_table()).strip() in page
    # the means are recomputed independently
    means = REGRETS.groupby(["question", "strategy", "data"])["regret"].mean().groupby(["question", "strategy"]).mean()
    for (_, name), mean in means.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {STRATEGIES[name]}"))
        assert re.search(rf"\b{mean:.3f} ", line), name
