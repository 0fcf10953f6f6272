"""The one table of an atlas on a screen."""

import numpy as np
import pytest

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
    assert sorted(made.rows) == sorted(set(rows["title"]))
    assert [column.heading for column in made.columns] == [["contribution"], ["change"]]
    # every data set and judge has as many rows, so that the mean of means is the mean
    for column in made.columns:
        for title, one in zip(made.rows, column.fields, strict=True):
            mine = rows[(rows["title"] == title) & (rows["question"] == column.heading[0])]
            shown, _, ends = one.lines[0].partition(" [")
            assert abs(float(shown) - mine[LEAD].mean()) <= 0.0051
            low, high = (float(end) for end in ends.rstrip("]◦").split(","))
            assert low <= float(shown) <= high and high - low < 0.2
            assert one.lines[0].endswith("◦") == mine["circular"].any()
    # the best for contribution is right by construction in all rows, which is no evidence that it is better
    best = {"contribution": made.rows, "change": ["validity_soft (probability)"]}
    for column in made.columns:
        bold = [title for title, one in zip(made.rows, column.fields, strict=True) if one.bold]
        assert bold == best[column.heading[0]]


def test_it_fits_a_screen_and_no_number_is_parted(made):
    lines = [text.plain for text in made.texts(80)]
    assert max(map(len, lines)) <= 80 and sum(set(line) == {"─"} for line in lines) == 2
    for title, *fields in zip(made.rows, *(column.fields for column in made.columns), strict=True):
        (line,) = [line for line in lines if line.startswith(f"{title} ")]
        assert all(one.lines[0] in line for one in fields)


def test_of_few_data_sets_no_interval_is_told_and_nothing_is_the_best():
    summary = Summary(world(sets=SETS[:2]))
    assert all(np.isnan(one.lead.low) for answer in summary.answers for one in answer.metrics)
    fields = [one for column in of_atlas(summary).columns for one in column.fields]
    assert fields and not any("[" in one.lines[0] or one.bold for one in fields)
