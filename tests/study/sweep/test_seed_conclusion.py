"""Conclusions over seeds: their words follow from the statistics."""

import pandas as pd
import pytest

from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.study.sweep.runs import RankedExplainers, select_largest_ranking
from cfeval_cli.study.sweep.seed_conclusion import conclude_over_seeds
from tests.records import make_metric, make_record

NAMES = {"a": "A", "b": "B", "c": "C"}
RECORD = make_record(metrics={name: make_metric(title, details=[]) for name, title in NAMES.items()})


def parse_ranking(text):
    """Return explainers from their names; a bar separates runs."""
    return RankedExplainers(tuple(tuple(names.split()) for names in text.split(" | ")))


def make_correlations(**changes):
    """Make the rows of three metrics over five seeds; A has the highest mean."""
    columns = {
        "metric": [*NAMES], "variant": "all", "seeds": 5, "mean": [0.6, 0.4, -0.1], "low": [0.2, 0.0, -0.5],
        "high": [0.9, 0.8, 0.3], "p": [0.01, 0.2, 0.9], "p_holm": [0.03, 0.4, 0.9], "needed": [5, 40, 900],
        "behind": [0.0, 0.2, 0.7], "p_behind": [float("nan"), 0.3, 0.02], "not_identifiable": pd.array([0, None, 5],
        "Int64"),
        "ranked": parse_ranking("lime omission shap"),
    }  # fmt: skip
    return pd.DataFrame(columns | changes)


def test_significant_metrics_are_in_headline_and_ties_in_points():
    conclusion = conclude_over_seeds(make_correlations(), RECORD)
    better = "with the ground truth significantly better than chance over 5 seeds"
    assert conclusion.headline == f"A agrees {better}"
    first, *points = conclusion.points
    assert "mean τ 0.600, 95 % CI [0.200, 0.900]" in first
    assert "p = 0.010, Holm-adjusted over the metrics p = 0.030" in first
    assert points == ["Significantly lower τ: C.", "Not significantly different from A: B."]
    # C is significantly below zero, which is no agreement
    conclusion = conclude_over_seeds(make_correlations(p_holm=[0.03, 0.04, 0.01]), RECORD)
    assert conclusion.headline == f"A and B agree {better}"


def test_required_sample_size_is_stated_if_nothing_is_significant():
    conclusion = conclude_over_seeds(make_correlations(p_holm=0.2, needed=[11, 40, 900]), RECORD)
    assert conclusion.headline == (
        "inconclusive with 5 seeds: no metric is significantly better than chance; A has the highest mean τ"
    )
    assert conclusion.points[1] == "Required sample size: about 11 seeds with this mean and spread."


def test_dependence_on_parametrisation_is_stated():
    conclusion = conclude_over_seeds(make_correlations(not_identifiable=pd.array([2, 0, 0], "Int64")), RECORD)
    assert conclusion.points[1] == f"A {NOT_IDENTIFIABLE_NOTE}, in 2 of 5 seeds."


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        (
            {"mean": [-0.1, -0.2, -0.3], "p_holm": 0.01},
            "no metric has a positive mean τ with the ground truth over 5 seeds",
        ),
        ({"p": float("nan")}, "inconclusive: no metric has a τ in every seed"),
    ],
)
def test_absence_of_agreement_is_stated(changes, headline):
    assert conclude_over_seeds(make_correlations(**changes), RECORD).headline == headline


def test_metrics_that_rank_other_explainers_are_not_compared():
    """A ranks fewer explainers, so it does not win over B and C; nor does a metric with a ranking of its own."""
    rankings = [parse_ranking(text) for text in ("lime", "lime omission", "lime omission")]
    rows = make_correlations(ranked=rankings, behind=[0.0, 0.0, 0.5], p_holm=[0.01, 0.4, 0.9])
    conclusion = conclude_over_seeds(rows, RECORD)
    assert conclusion.headline.endswith("no metric is significantly better than chance; B has the highest mean τ")
    assert conclusion.points[0].startswith("B: mean τ 0.400") and "Significantly lower τ: C." in conclusion.points
    assert conclusion.points[-1] == "Not compared: A ranks other explainers (mean τ 0.600)."
    rankings = [parse_ranking(text) for text in ("lime omission", "lime shap | lime", "lime")]
    rows = make_correlations(ranked=rankings)
    points = conclude_over_seeds(rows, RECORD).points
    assert points[-1] == "Not compared: B and C rank other explainers (mean τ -0.100 to 0.400)."


@pytest.mark.parametrize(
    ("rankings", "largest"),
    [
        (["a b", "a b c", "a b"], "a b c"),
        (["a b", "a c", "a c"], "a c"),
        (["a b c | a", "a b"], "a b"),  # in one of the seeds only one explainer is ranked
        (["a"], "a"),
    ],
)
def test_metrics_with_most_ranked_explainers_are_compared(rankings, largest):
    assert str(select_largest_ranking([parse_ranking(text) for text in rankings])) == largest
