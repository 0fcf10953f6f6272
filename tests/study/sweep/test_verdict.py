"""What seeds say together, in words: by the figures, and no more."""

import pandas as pd
import pytest

from cfeval_cli.study.sweep.runs import most_ranked
from cfeval_cli.study.sweep.verdict import over_seeds
from tests.records import make_metric, make_record

NAMES = {"a": "A", "b": "B", "c": "C"}
RECORD = make_record(metrics={name: make_metric(title, detail="") for name, title in NAMES.items()})


def lines(**changed):
    """Three metrics over five seeds, A the best."""
    told = {
        "metric": [*NAMES], "variant": "all", "seeds": 5, "mean": [0.6, 0.4, -0.1], "low": [0.2, 0.0, -0.5],
        "high": [0.9, 0.8, 0.3], "p": [0.01, 0.2, 0.9], "p_holm": [0.03, 0.4, 0.9], "needed": [5, 40, 900],
        "behind": [0.0, 0.2, 0.7], "p_behind": [float("nan"), 0.3, 0.02], "moves": pd.array([0, None, 5], "Int64"),
        "ranked": "lime omission shap",
    }  # fmt: skip
    return pd.DataFrame(told | changed)


def test_what_is_sure_is_said_and_what_is_not_is_not():
    headline, points = over_seeds(lines(), RECORD)
    assert headline == "A agrees with the truth better than chance over 5 seeds"
    assert "mean τ 0.600 [0.200, 0.900]" in points[0] and "p = 0.010, p = 0.030 after Holm" in points[0]
    assert points[1:] == ["Further from the truth for sure: C.", "Not told apart from A: B."]
    headline, _ = over_seeds(lines(p_holm=[0.03, 0.04, 0.01]), RECORD)  # C is surely below zero
    assert headline == "A and B agree with the truth better than chance over 5 seeds"


def test_what_it_would_take_is_told_where_nothing_is_sure():
    headline, points = over_seeds(lines(p_holm=0.2, needed=[11, 40, 900]), RECORD)
    assert headline == "no metric can be told from chance with 5 seeds; A comes closest"
    assert points[1] == "To tell it from chance would take about 11 seeds of this spread."


def test_that_the_best_depends_on_an_arbitrary_constant_is_said():
    _, points = over_seeds(lines(moves=pd.array([2, 0, 0], "Int64")), RECORD)
    assert points[1] == "A depends on an arbitrary constant of the model, not on its predictions, in 2 of 5 seeds."


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"mean": [-0.1, -0.2, -0.3], "p_holm": 0.01}, "no metric ranks the explainers as the truth does over 5 seeds"),
        ({"p": float("nan")}, "these seeds cannot tell which metric agrees with the truth"),
    ],
)
def test_where_there_is_nothing_to_say(changed, told):
    assert over_seeds(lines(**changed), RECORD)[0] == told


def test_metrics_that_rank_other_explainers_are_told_apart_and_not_compared():
    """A of fewer explainers does not win over B and C, which rank more; nor does one over a set of its own seeds."""
    headline, points = over_seeds(
        lines(ranked=["lime", "lime omission", "lime omission"], behind=[0.0, 0.0, 0.5], p_holm=[0.01, 0.4, 0.9]),
        RECORD,
    )
    assert headline == "no metric can be told from chance with 5 seeds; B comes closest"
    assert points[0].startswith("B: mean τ 0.400") and "Further from the truth for sure: C." in points
    assert points[-1] == "A ranks other explainers and cannot be compared with these: mean τ 0.600."
    _, points = over_seeds(lines(ranked=["lime omission", "lime shap | lime", "lime"]), RECORD)
    assert points[-1] == "B and C rank other explainers and cannot be compared with these: mean τ -0.100 to 0.400."


@pytest.mark.parametrize(
    ("who", "most"),
    [
        (["a b", "a b c", "a b"], "a b c"),
        (["a b", "a c", "a c"], "a c"),
        (["a b c | a", "a b"], "a b"),  # in one of the seeds it ranks one only
        (["a"], "a"),
    ],
)
def test_those_are_compared_that_rank_the_most(who, most):
    assert most_ranked(who) == most
