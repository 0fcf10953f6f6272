"""The one table of an atlas on a screen."""

import numpy as np
import pytest

from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.atlas.brief import of_atlas
from cfeval_cli.study.atlas.summary import LEAD, Summary
from tests.study.atlas.worlds import SETS, usual, world


@pytest.fixture(scope="module")
def atlas():
    return usual().atlas


@pytest.fixture(scope="module")
def made():
    return of_atlas(usual())


def test_it_has_the_mean_tau_of_every_metric_that_can_be_compared_by_question(atlas, made):
    rows = Summary(atlas).rows
    rows = rows[~rows["arbitrary"]]
    questions = ["contribution", "change"]
    assert sorted(row.title.name for row in made.rows) == sorted(set(rows["title"]))
    assert [title.text for title in made.header[1:]] == questions
    # every data set and judge has as many rows, so that the mean of means is the mean
    for row in made.rows:
        for question, cell in zip(questions, row.cells, strict=True):
            mine = rows[(rows["title"] == row.title.name) & (rows["question"] == question)]
            assert cell.value == pytest.approx(mine[LEAD].mean())
            assert cell.low <= cell.value <= cell.high and cell.high - cell.low < 0.2
            assert (cell.marks == "◦") == mine["circular"].any()
    # the best for contribution is right by construction in all rows, which is no evidence that it is better
    best = [[row.title.name for row in made.rows], ["validity_soft (probability)"]]
    for i, names in enumerate(best):
        assert [row.title.name for row in made.rows if row.cells[i].bold] == names


def test_it_fits_a_screen_and_no_number_is_parted(made):
    lines = [text.plain for text in render_narrow(made, 80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    for row in made.rows:
        (line,) = [line for line in lines if line.startswith(f"{row.title.name} ")]
        assert all(text in line for text in row.texts)


def test_of_few_data_sets_no_interval_is_told_and_nothing_is_the_best():
    summary = Summary(world(sets=SETS[:2]))
    assert all(np.isnan(one.lead.low) for answer in summary.answers for one in answer.metrics)
    cells = [cell for row in of_atlas(summary).rows for cell in row.cells]
    assert cells and not any(cell.interval_text or cell.bold for cell in cells)
