"""`cfeval judge check`: runs of judges are read from their folders."""

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
from cfeval_cli.study.regret import check as checking
from cfeval_cli.study.regret.check import check, headline, tables
from cfeval_cli.study.regret.regret import STRATEGIES, summary

DOCS = Path(__file__).parents[3] / "docs"


def test_runs_are_read_and_the_regret_written(toy, made, tmp_path):
    chosen = (
        "explainer=[random,omission,decision_boundary]", "resamples=0", "n_explain=20", "gold=[shapley,contrast]",
        "metric=[comprehensiveness,validity_soft,c_soft,recall]", "removal=[marginal]",
    )  # fmt: skip
    folders = [made(toy, *chosen, "model=tree"), made(toy, *chosen, "model.max_epochs=10")]
    shutil.copytree(folders[0], tmp_path / "again")
    done = check([*folders, tmp_path / "again"], tmp_path)
    assert done.said == "2 runs of judges on 1 data set; 1 left out (not complete, of unknown truth, or there twice)"
    lost = pd.read_parquet(tmp_path / "regret.parquet")
    assert set(lost["judge"]) == {"Tree", "Logistic"}
    assert set(lost["question"]) == {"contribution", "change"} and set(lost["data"]) == {"toy"}
    assert "| chance |" in (tmp_path / "regret.md").read_text()
    metrics = pd.read_csv(folders[0] / "metrics.csv")
    true = metrics[(metrics["metric"] == "recall") & (metrics["variant"] == "shapley") & ~metrics["control"]]["value"]
    mine = lost[(lost["strategy"] == "chance") & (lost["question"] == "contribution") & (lost["circular"] == "keep")]
    assert 0 < true.max() - true.mean() == pytest.approx(mine["regret"].iloc[0])


FULL = pd.read_parquet(DOCS / "judges" / "regret.parquet")


@cache
def summed():
    return summary(FULL)


@cache
def shown():
    return checking._tables(FULL, summed())


def test_the_answer_is_the_range_of_the_means_and_who_surely_loses_less():
    every = FULL[FULL["circular"] == "keep"]
    by_set = every.groupby(["strategy", "question", "k", "data", "seed"])["regret"].mean()
    means = by_set.groupby(["strategy", "question", "k", "data"]).mean().groupby(["strategy", "question", "k"]).mean()
    rule, chance = means["rule"], means["chance"]
    told = headline(summed())
    assert f"the rule chooses is {rule.min():.3f} to {rule.max():.3f} below the best" in told
    assert f"by chance {chance.min():.3f} to {chance.max():.3f};" in told
    # a way that never loses anything surely loses less, and of two data sets nothing is sure
    few = every[(every["seed"] < 2) & (every["k"] == 1)]
    right = few.assign(regret=few["regret"].where(few["strategy"] != "c_soft", -1.0))
    assert headline(summary(right)).endswith("always C_soft, as the paper would loses significantly less")
    two = right[right["data"].isin(["pima", "german"])]
    assert headline(summary(two)).endswith("fewer than 3 data sets say nothing of others")
    assert not any(cell.marks for table in tables(two) for row in table.rows for cell in row.cells)


def test_a_screen_of_80_columns_has_one_table_with_the_means_of_the_page():
    lines = [text.plain for text in render_narrow(checking._brief(summed(), "400 runs"), 80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    page = shown()[0]
    for row in page.rows:
        values = [cell.value_text + cell.marks for cell in row.cells]
        assert any(line.split()[-4:] == values for line in lines), row.title.text


def test_folders_without_a_run_are_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        check([tmp_path], tmp_path)


@pytest.mark.parametrize("key", ["model", "removals", "data"])
def test_a_folder_that_does_not_tell_enough_is_named(toy, made, tmp_path, key):
    folder = made(toy, "explainer=[random,omission]", "model=tree", "metric=[c,recall]", "resamples=0", copy=True)
    record = json.loads((folder / "run.json").read_text())
    del record[key]
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"{re.escape(str(folder))} is damaged.*{key}"):
        check([folder], tmp_path)
    record |= {"status": "stopped"}
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="none of these runs is complete"):
        check([folder], tmp_path)


def test_a_file_that_was_changed_is_named(toy, made, tmp_path):
    folder = made(toy, "explainer=[random,omission]", "model=tree", "metric=[c,recall]", "resamples=0", copy=True)
    with (folder / "metrics.csv").open("a") as file:
        file.write("x")
    with pytest.raises(UserError, match=r"metrics\.csv"):
        check([folder], tmp_path)


def test_the_page_has_what_came_out_of_the_full_check():
    lost = FULL
    assert set(lost["data"]) == {"adults", "german", "compas", "heloc", "pima"} and set(lost["seed"]) == set(range(10))
    assert lost["judge"].nunique() == 4 and set(lost["k"]) == {1, 3}
    assert len(lost[["data", "judge", "seed", "k"]].drop_duplicates()) == 400
    page = (DOCS / "judges.md").read_text()
    for table in shown():
        assert render_markdown(table).strip() in page
    # the means, by themselves
    for (question, k, circular), some in lost.groupby(["question", "k", "circular"]):
        sets = some.groupby(["strategy", "data", "seed"])["regret"].mean().groupby(["strategy", "data"]).mean()
        for name, mean in sets.groupby("strategy").mean().items():
            line = next(
                line for line in page.splitlines() if line.startswith(f"| {STRATEGIES[name]}".replace("_", "\\_"))
            )
            assert circular == "drop" or re.search(rf"\b{mean:.3f} ", line), (question, k, name)
