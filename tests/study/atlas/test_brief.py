"""The table of an atlas for the screen."""

import numpy as np
import pytest

from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.atlas.brief import build_brief
from cfeval_cli.study.atlas.summary import LEADING_TAU, AtlasSummary
from tests.study.atlas.synthetic import SETS, make_atlas, summarise_default


@pytest.fixture(scope="module")
def table():
    return build_brief(summarise_default())


def test_compared_metrics_have_mean_tau_and_interval_by_question(table):
    rows = summarise_default().rows
    rows = rows[~rows["arbitrary"]]
    questions = ["contribution", "change"]
    assert sorted(row.title.name for row in table.rows) == sorted(set(rows["title"]))
    assert [title.text for title in table.header[1:]] == questions
    # every data set and judge has as many rows, so that the mean of means is the mean
    for row in table.rows:
        for question, cell in zip(questions, row.cells, strict=True):
            of_metric = rows[(rows["title"] == row.title.name) & (rows["question"] == question)]
            assert cell.value == pytest.approx(of_metric[LEADING_TAU].mean())
            assert cell.low <= cell.value <= cell.high and cell.high - cell.low < 0.2
            assert (cell.marks == "◦") == of_metric["circular"].any()
    # the best metric for contribution is circular in all rows, which is no evidence of its lead
    best = [[row.title.name for row in table.rows], ["validity_soft (probability)"]]
    for i, names in enumerate(best):
        assert [row.title.name for row in table.rows if row.cells[i].bold] == names


def test_table_fits_80_columns_and_keeps_numbers_whole(table):
    lines = [text.plain for text in render_narrow(table, 80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    for row in table.rows:
        (line,) = [line for line in lines if line.startswith(f"{row.title.name} ")]
        assert all(text in line for text in row.texts)


def test_few_data_sets_give_no_interval_and_no_best_metric():
    summary = AtlasSummary(make_atlas(sets=SETS[:2]))
    assert all(np.isnan(metric.tau.low) for question in summary.questions for metric in question.metrics)
    cells = [cell for row in build_brief(summary).rows for cell in row.cells]
    assert cells and not any(cell.interval_text or cell.bold for cell in cells)
