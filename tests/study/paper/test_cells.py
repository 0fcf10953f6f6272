"""Single checks of the audit, against what one computes by hand from the printed figures."""

import pandas as pd
import pytest

from cfeval_cli.study.paper import cells, claims
from cfeval_cli.study.paper.published import load, read

PAPER = read(load())


def printed(metric, variant, dataset="movie_reviews", table="1"):
    """The figures of one row as they were meant, by explainer."""
    wanted = (table, dataset, metric, variant)
    found = next(s for s in PAPER.series if (s.table, s.dataset, s.metric, s.variant) == wanted)
    return {name: figure.value for name, figure in found.figures.items() if figure.meant}


def findings(check):
    return {one.id: one for one in check(PAPER) if one is not None}


def test_a_quotient_that_is_not_one_is_found_and_one_that_is_is_not():
    soft, near, c_soft = (printed(name, "gradient") for name in ("validity_soft", "proximity", "c_soft"))
    wrong = {name for name in c_soft if abs(soft[name] / near[name] - c_soft[name]) > 0.01}
    told = {key.rpartition(".")[2] for key in findings(cells.quotients) if "c_soft_gradient" in key}
    assert wrong == set(c_soft) == told - {"c_soft_gradient"}  # and one finding of what they all are
    assert all(1 / near[name] == pytest.approx(c_soft[name], rel=2e-3) for name in c_soft)


def test_ranks_that_are_not_those_of_the_values():
    values = pd.Series(printed("sufficiency", "del"))
    by_value = values.rank().astype(int)
    assert by_value["omission"] == 6 and by_value["decision_boundary"] == 5
    (one,) = (found for key, found in findings(cells.rank_order).items() if key.endswith("sufficiency_del"))
    assert "Omission 6" in one.recomputed and "DecisionBoundary 5" in one.recomputed


def test_the_average_improvement_divides_by_the_new_value():
    told = findings(claims.improvement)["improvement"]
    assert told.printed == "17.83 %" and "22.26%" in told.recomputed
