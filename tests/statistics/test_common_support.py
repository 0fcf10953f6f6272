"""Common support against sets of instances written out, and what follows from it against scores filtered by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.common_support import NO_COMMON_INSTANCE, find_common_instances
from cfeval_cli.statistics.metric_summary import summarise_scores
from cfeval_cli.statistics.run_statistics import compute_statistics
from cfeval_cli.statistics.scores import Scores
from tests.statistics.tables import EXPLAINERS, build

QUICK = Bootstrap(0, n_resamples=20, confidence=0.8, min_instances=1)


def build_incomplete(seed, n=12, graded=(), missing_share=0.3):
    """Return scores of which some are missing; one explainer may have none, and one only denominators of zero."""
    rng = np.random.default_rng(seed)
    scores, order = build(seed, n=n)
    order["quality_level"] = (
        order["explainer"].map(dict(zip(graded, np.linspace(1, 0, len(graded)), strict=True))).astype(float)
    )
    missing = {(name, i) for name in EXPLAINERS for i in range(n) if rng.random() < missing_share * rng.random() * 2}
    if rng.random() < 0.3:
        missing |= {("d", i) for i in range(n)}
    present = [row.metric == "coverage" or (row.explainer, row.instance) not in missing for row in scores.itertuples()]
    scores = scores[present].reset_index(drop=True)
    if rng.random() < 0.4:  # an explainer without a value does not limit the others
        scores.loc[(scores["metric"] == "c") & (scores["explainer"] == "c"), "denominator"] = 0.0
    return scores.sample(frac=1, random_state=int(seed)).reset_index(drop=True), order


def mark_common(scores, order):
    """Return the scores with their common instances marked."""
    complete = Scores.from_frame(scores)
    return complete.with_common(find_common_instances(complete, order))


def find_common_by_hand(scores, order):
    """Return metric, explainer and instance of the common scores, by sets."""
    graded = set(order[order["quality_level"].notna()]["explainer"])
    included_rows = set()
    for metric, included_scores in scores.groupby("metric"):
        covered_instances = {
            name: set(part["instance"])
            for name, part in included_scores.groupby("explainer")
            if name not in graded and part["denominator"].sum() != 0
        }
        shared = (
            set.intersection(*covered_instances.values()) if covered_instances else set(included_scores["instance"])
        )
        for row in included_scores.itertuples():
            if row.explainer in graded or row.instance in shared:
                included_rows.add((metric, row.explainer, row.instance))
    return included_rows


@given(st.integers(0, 100_000), st.sampled_from([(), ("d",), ("a", "c")]))
def test_common_instances_are_the_intersection_of_covered_instances(seed, graded):
    scores, order = build_incomplete(seed, graded=graded)
    result = mark_common(scores, order).to_frame()
    assert len(result) == len(scores)
    keys = zip(result["metric"], result["explainer"], result["instance"], strict=True)
    assert {key for key, counts in zip(keys, result["common"], strict=True) if counts} == find_common_by_hand(
        scores, order
    )


@given(st.integers(0, 100_000), st.sampled_from([(), ("d",)]))
def test_values_use_common_instances_and_own_values_use_all(seed, graded):
    scores, order = build_incomplete(seed, graded=graded)
    included_rows = find_common_by_hand(scores, order)
    result = compute_statistics(mark_common(scores, order), order, QUICK, "signed", common=True).metrics
    rows = list(scores.itertuples())
    for row in result.itertuples():
        own = [score for score in rows if (score.metric, score.explainer) == (row.metric, row.explainer)]
        included_scores = [score for score in own if (row.metric, row.explainer, score.instance) in included_rows]
        assert (row.n, row.own_n) == (len(included_scores), len(own))
        for value, part in ((row.value, included_scores), (row.own_value, own)):
            below = sum(score.denominator for score in part)
            expected = sum(score.numerator for score in part) / below if below else np.nan
            assert value == pytest.approx(expected, nan_ok=True)
        if len(own) and not len(included_scores):
            assert row.note == NO_COMMON_INSTANCE and np.isnan(row.value)
        elif not len(own):
            assert row.note == "no usable explanation"


@pytest.mark.parametrize("drop_coverage", [False, True])
def test_statistics_equal_those_of_filtered_scores(drop_coverage):
    scores, order = build_incomplete(3, n=40)
    if drop_coverage:  # coverage has a score for each instance
        scores, order = (table[table["metric"] != "coverage"].reset_index(drop=True) for table in (scores, order))
    complete = mark_common(scores, order)
    frame = complete.to_frame()
    assert 0 < frame["common"].sum() < len(scores)
    filtered = Scores.from_frame(frame[frame["common"]])
    assert (filtered.n_instances < complete.n_instances) == drop_coverage
    actual, expected_result = (
        compute_statistics(complete, order, QUICK, common=True),
        compute_statistics(filtered, order, QUICK),
    )
    for name in ("correlations", "differences", "instance_agreement", "metric_agreement"):
        pd.testing.assert_frame_equal(getattr(actual, name), getattr(expected_result, name), check_exact=True)
    columns = [name for name in actual.metrics if not name.startswith("own_")]
    pd.testing.assert_frame_equal(actual.metrics[columns], expected_result.metrics[columns], check_exact=True)


def test_an_explainer_that_covers_nothing_leaves_the_others_their_values():
    scores, order = build(1, n=30)
    without = scores[(scores["explainer"] != "b") | (scores["metric"] == "coverage")]
    assert not find_common_instances(Scores.from_frame(without), order)  # all is common
    result = summarise_scores(Scores.from_frame(without), order).set_index(["metric", "explainer"])
    assert result.loc[("c", "a"), "n"] == 30 and result.loc[("c", "b"), "note"] == "no usable explanation"


def test_explainers_without_common_instance_have_own_values_and_a_reason():
    scores, order = build(1, n=30)
    part = scores["explainer"].isin(["a", "b"]) == (scores["instance"] < 15)
    scores = scores[part | (scores["metric"] == "coverage")]
    result = compute_statistics(mark_common(scores, order), order, QUICK, common=True)
    judged_rows = result.metrics[result.metrics["metric"] != "coverage"]
    assert (
        judged_rows["value"].isna().all()
        and judged_rows["own_value"].notna().all()
        and (judged_rows["note"] == NO_COMMON_INSTANCE).all()
    )
    assert result.correlations["tau"].isna().all() and (result.correlations["note"] == NO_COMMON_INSTANCE).all()


def test_equal_coverage_changes_nothing():
    scores, order = build(7, n=30)
    actual = compute_statistics(mark_common(scores, order), order, QUICK, common=True)
    expected_result = compute_statistics(Scores.from_frame(scores), order, QUICK)
    assert actual.metrics.to_csv() == expected_result.metrics.to_csv()
    assert (actual.metrics["own_value"] == actual.metrics["value"]).all()
