"""Rankings of fewer than four explainers that are not controls have no τ in reports."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.small_rankings import SMALL_RANKING_REASON, drop_small_rankings
from tests.statistics.tables import build, conclude


def compute(controls=(), graded=False):
    scores, order = build(4, n=30, controls=controls)
    if graded:
        order["quality_level"] = order["explainer"].map({"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.0})
    return conclude(scores, order, Bootstrap(0, n_resamples=50, min_instances=1), "signed")


def test_four_explainers_keep_their_correlations():
    statistics = compute()
    assert drop_small_rankings(statistics) is statistics and statistics.correlations["tau"].notna().any()


def test_three_explainers_and_a_control_have_no_correlations_and_a_reason():
    statistics = compute(controls=("d",))
    dropped = drop_small_rankings(statistics)
    coefficients = [name for name in dropped.correlations if "tau" in name or "rho" in name]
    assert len(coefficients) == 10 and dropped.correlations[coefficients].isna().all(axis=None)
    had_tau = statistics.correlations["tau"].notna()
    assert had_tau.any() and (dropped.correlations.loc[had_tau, "note"] == SMALL_RANKING_REASON).all()
    assert dropped.differences.empty and len(statistics.differences)
    assert dropped.metrics is statistics.metrics and dropped.instance_agreement is statistics.instance_agreement


def test_metric_that_ranks_three_of_four_explainers_is_dropped_alone():
    statistics = compute()
    correlations = statistics.correlations.copy()
    correlations.loc[correlations["metric"] == "c", "explainers"] = 3
    invariance = correlations[["metric", "variant", "truth", "agreement", "subset"]].assign(tau=0.5)
    dropped = drop_small_rankings(replace(statistics, correlations=correlations, invariance=invariance))
    by_metric = dropped.correlations.groupby("metric")["tau"].count()
    assert by_metric["c"] == 0 and by_metric["sufficiency"] == 2
    for frame in (dropped.differences[["metric"]], dropped.invariance):
        assert "c" not in set(frame["metric"])
    assert set(dropped.invariance["metric"]) == {"sufficiency"}


def test_graded_controls_keep_their_correlations():
    statistics = compute(graded=True)
    pd.testing.assert_frame_equal(drop_small_rankings(statistics).correlations, statistics.correlations)
    assert np.isfinite(statistics.correlations["tau"]).any()


@pytest.mark.parametrize("count", [2, 3])
def test_reason_is_given_for_any_smaller_number(count):
    dropped = drop_small_rankings(compute(controls=("a", "b", "c", "d")[count:]))
    assert SMALL_RANKING_REASON in set(dropped.correlations["note"])
