import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.statistics import metric_summary
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import select_subset
from tests.statistics.tables import EXPLAINERS, build, conclude, summarise

QUICK = Bootstrap(0, n_resamples=3, min_instances=1)


def parts(scores):
    """(numerator, denominator) of each score, by metric and explainer."""
    result = {}
    for row in scores.itertuples():
        result.setdefault((row.metric, row.explainer), []).append((row.numerator, row.denominator))
    return result


@given(st.integers(0, 10_000))
def test_values_are_ratios_of_sums_and_correlations_follow_from_them(seed):
    scores, order = build(seed)
    metrics = summarise(scores, order)
    value, own_parts = {}, parts(scores)
    for row in metrics.itertuples():
        numerators, denominators = zip(*own_parts[row.metric, row.explainer], strict=True)
        value[row.metric, row.explainer] = sum(numerators) / sum(denominators)
        assert row.value == pytest.approx(value[row.metric, row.explainer])
        assert row.n == 5 and row.coverage == pytest.approx(0.8)
    for row in select_subset(conclude(scores, order, QUICK).correlations).itertuples():
        sign = -1 if row.metric == "sufficiency" else 1
        total = 0
        for i, first in enumerate(EXPLAINERS):
            for second in EXPLAINERS[i + 1 :]:
                u = sign * (value[row.metric, first] - value[row.metric, second])
                true = value["recall", first] - value["recall", second]
                u, true = (0 if abs(gap) < 1e-12 else gap for gap in (u, true))
                total += np.sign(u) * np.sign(true)
        assert row.tau == pytest.approx(total / 6)
        u, true = (
            [round(sign * value[m, e], 12) for e in EXPLAINERS] for m, sign in ((row.metric, sign), ("recall", 1))
        )
        if len(set(u)) > 1 and len(set(true)) > 1:
            assert row.rho == pytest.approx(stats.spearmanr(u, true).statistic)
        else:
            assert np.isnan(row.rho)
        assert row.explainers == 4 and (row.truth, row.agreement) == ("signed", "recall")


def test_an_explainer_without_usable_explanations_has_no_value_and_no_rank_but_a_reason():
    scores, order = build(1)
    missing = scores[~((scores["explainer"] == "b") & (scores["metric"] != "coverage"))]
    metrics = summarise(missing, order)
    row = metrics[(metrics["metric"] == "c") & (metrics["explainer"] == "b")].iloc[0]
    assert np.isnan(row["value"]) and np.isnan(row["rank"]) and row["note"] == "no usable explanation" and row["n"] == 0
    assert metrics[metrics["metric"] == "c"]["rank"].max() <= 3
    correlations = conclude(missing, order, QUICK).correlations
    assert (correlations["explainers"] == 3).all()
    assert (correlations["note"].str.contains("without b")).all()


def test_one_explainer_gives_metrics_and_a_reason_why_there_are_no_correlations():
    scores, order = build(2)
    result = conclude(scores[scores["explainer"] == "a"], order[order["explainer"] == "a"], QUICK)
    assert result.metrics["value"].notna().all()
    correlations = result.correlations
    assert correlations["tau"].isna().all()
    assert (correlations["note"] == "a ranking needs two explainers").all()


def test_zero_distances_have_no_value():
    scores, order = build(3)
    scores.loc[scores["metric"] == "c", "denominator"] = 0.0
    metrics = summarise(scores, order)
    assert (metrics[metrics["metric"] == "c"]["note"] == "every distance is zero").all()
    assert metrics[metrics["metric"] == "c"]["value"].isna().all()
    assert conclude(scores, order, QUICK).correlations.query("metric == 'c'")["tau"].isna().all()


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_values_do_not_depend_on_the_size_of_batches(seed, max_scores):
    scores, order = build(seed)
    scores["numerator"] = np.random.default_rng(seed).lognormal(0, 8, len(scores))
    table = summarise(scores, order)
    assert table.equals(metric_summary.summarise_scores(Scores.from_frame(scores), order, max_scores=max_scores))
    own_scores = parts(scores)
    for row in table[table["n"] > 0].itertuples():
        numerators, denominators = zip(*own_scores[row.metric, row.explainer], strict=True)
        assert row.value == pytest.approx(math.fsum(numerators) / math.fsum(denominators), rel=1e-15, abs=0)
