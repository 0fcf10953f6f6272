"""Common support against sets of instances written out, and what follows from it against scores filtered by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.common_support import NO_COMMON_INSTANCE, find_common_instances
from cfeval_cli.statistics.findings import compute_findings
from cfeval_cli.statistics.metric_summary import summarise_scores
from cfeval_cli.statistics.scores import Scores
from tests.statistics.tables import EXPLAINERS, build

QUICK = Bootstrap(0, resamples=20, confidence=0.8, min_instances=1)


def thinned(seed, n=12, rungs=(), lost=0.3):
    """Scores of which each explainer lacks some by chance; one may have none, and one denominators of zero only."""
    rng = np.random.default_rng(seed)
    scores, order = build(seed, n=n)
    order["quality_level"] = (
        order["explainer"].map(dict(zip(rungs, np.linspace(1, 0, len(rungs)), strict=True))).astype(float)
    )
    gone = {(name, i) for name in EXPLAINERS for i in range(n) if rng.random() < lost * rng.random() * 2}
    if rng.random() < 0.3:
        gone |= {("d", i) for i in range(n)}
    kept = [row.metric == "coverage" or (row.explainer, row.instance) not in gone for row in scores.itertuples()]
    scores = scores[kept].reset_index(drop=True)
    if rng.random() < 0.4:  # who has no value does not limit the others
        scores.loc[(scores["metric"] == "c") & (scores["explainer"] == "c"), "denominator"] = 0.0
    return scores.sample(frac=1, random_state=int(seed)).reset_index(drop=True), order


def marked(scores, order):
    """The same scores, with what is common."""
    whole = Scores.from_frame(scores)
    return whole.with_common(find_common_instances(whole, order))


def by_hand(scores, order):
    """(metric, explainer, instance) of the scores that count, by sets."""
    rungs = set(order[order["quality_level"].notna()]["explainer"])
    counted = set()
    for metric, mine in scores.groupby("metric"):
        covered = {
            name: set(part["instance"])
            for name, part in mine.groupby("explainer")
            if name not in rungs and part["denominator"].sum() != 0
        }
        shared = set.intersection(*covered.values()) if covered else set(mine["instance"])
        for row in mine.itertuples():
            if row.explainer in rungs or row.instance in shared:
                counted.add((metric, row.explainer, row.instance))
    return counted


@given(st.integers(0, 100_000), st.sampled_from([(), ("d",), ("a", "c")]))
def test_what_all_explainers_cover_is_the_intersection_of_their_instances(seed, rungs):
    scores, order = thinned(seed, rungs=rungs)
    found = marked(scores, order).to_frame()
    assert len(found) == len(scores)
    keys = zip(found["metric"], found["explainer"], found["instance"], strict=True)
    assert {key for key, counts in zip(keys, found["common"], strict=True) if counts} == by_hand(scores, order)


@given(st.integers(0, 100_000), st.sampled_from([(), ("d",)]))
def test_values_are_over_the_common_instances_and_own_ones_stand_beside_them(seed, rungs):
    scores, order = thinned(seed, rungs=rungs)
    counted = by_hand(scores, order)
    found = compute_findings(marked(scores, order), order, QUICK, "signed", common=True).metrics
    everything = list(scores.itertuples())
    for row in found.itertuples():
        own = [one for one in everything if (one.metric, one.explainer) == (row.metric, row.explainer)]
        mine = [one for one in own if (row.metric, row.explainer, one.instance) in counted]
        assert (row.n, row.own_n) == (len(mine), len(own))
        for value, part in ((row.value, mine), (row.own_value, own)):
            below = sum(one.denominator for one in part)
            expected = sum(one.numerator for one in part) / below if below else np.nan
            assert value == pytest.approx(expected, nan_ok=True)
        if len(own) and not len(mine):
            assert row.note == NO_COMMON_INSTANCE and np.isnan(row.value)
        elif not len(own):
            assert row.note == "no usable explanation"


@pytest.mark.parametrize("nobody", [False, True])
def test_everything_else_is_that_of_scores_filtered_by_hand(nobody):
    scores, order = thinned(3, n=40)
    if nobody:  # tells of all instances
        scores, order = (table[table["metric"] != "coverage"].reset_index(drop=True) for table in (scores, order))
    whole = marked(scores, order)
    told = whole.to_frame()
    assert 0 < told["common"].sum() < len(scores)
    filtered = Scores.from_frame(told[told["common"]])
    assert (filtered.n_instances < whole.n_instances) == nobody
    ours, theirs = compute_findings(whole, order, QUICK, common=True), compute_findings(filtered, order, QUICK)
    for name in ("correlations", "differences", "instance_agreement", "metric_agreement"):
        pd.testing.assert_frame_equal(getattr(ours, name), getattr(theirs, name), check_exact=True)
    columns = [name for name in ours.metrics if not name.startswith("own_")]
    pd.testing.assert_frame_equal(ours.metrics[columns], theirs.metrics[columns], check_exact=True)


def test_an_explainer_that_covers_nothing_leaves_the_others_their_values():
    scores, order = build(1, n=30)
    without = scores[(scores["explainer"] != "b") | (scores["metric"] == "coverage")]
    assert not find_common_instances(Scores.from_frame(without), order)  # all is common
    found = summarise_scores(Scores.from_frame(without), order).set_index(["metric", "explainer"])
    assert found.loc[("c", "a"), "n"] == 30 and found.loc[("c", "b"), "note"] == "no usable explanation"


def test_explainers_that_share_no_instance_have_own_values_and_a_reason_why_there_are_no_others():
    scores, order = build(1, n=30)
    part = scores["explainer"].isin(["a", "b"]) == (scores["instance"] < 15)
    scores = scores[part | (scores["metric"] == "coverage")]
    found = compute_findings(marked(scores, order), order, QUICK, common=True)
    judged = found.metrics[found.metrics["metric"] != "coverage"]
    assert (
        judged["value"].isna().all()
        and judged["own_value"].notna().all()
        and (judged["note"] == NO_COMMON_INSTANCE).all()
    )
    assert found.correlations["tau"].isna().all() and (found.correlations["note"] == NO_COMMON_INSTANCE).all()


def test_where_all_cover_the_same_nothing_changes():
    scores, order = build(7, n=30)
    ours = compute_findings(marked(scores, order), order, QUICK, common=True)
    theirs = compute_findings(Scores.from_frame(scores), order, QUICK)
    assert ours.metrics.to_csv() == theirs.metrics.to_csv()
    assert (ours.metrics["own_value"] == ours.metrics["value"]).all()
