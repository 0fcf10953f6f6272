"""Ranges of τ against pairs of explainers counted one by one."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics import correlation, invariance
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.correlation import list_families
from cfeval_cli.statistics.invariance import TOGETHER, ReparametrisedValues
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from tests.statistics.tables import EXPLAINERS, KINDS, build, conclude, summarise

HOW = Bootstrap(0, resamples=0)
ROWS = [(metric, variant) for metric, variant, _ in KINDS]


def made(seed, draws=4, gaps=False):
    """Values of a run's rows under two changes and both; small whole numbers, so that ties are real."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (len(ROWS), len(EXPLAINERS))).astype(float)
    if gaps:
        values[rng.integers(len(ROWS)), rng.integers(len(EXPLAINERS))] = np.nan
    changed = {}
    for name in (TOGETHER, "constant", "scale"):
        changed[name] = np.repeat(values[None], draws, axis=0)
        some = rng.random(changed[name].shape) < 0.1
        changed[name] += some * rng.integers(-2, 3, some.shape)
    return ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 7)


@cache
def drawn():
    scores, order = build(0)
    return ResampledValues.compute(Scores.from_frame(scores), summarise(scores, order), HOW)


def by_hand(ours, theirs, better):
    """Concordant less discordant pairs, over all pairs of explainers with both values."""
    there = [e for e in range(len(ours)) if not np.isnan(ours[e] + theirs[e])]
    pairs = list(combinations(there, 2))
    if not pairs:
        return np.nan
    sign = -1 if better == "lower" else 1
    return sum(sign * np.sign(ours[a] - ours[b]) * np.sign(theirs[a] - theirs[b]) for a, b in pairs) / len(pairs)


@given(st.integers(0, 100_000), st.booleans())
def test_ranges_are_those_of_all_draws_counted_one_by_one(seed, gaps):
    found, like = made(seed, gaps=gaps), drawn()
    table = invariance.build_tau_ranges(found, like, list(list_families(like, "")))
    lines = table.set_index(["metric", "variant"])
    for row, (metric, variant, better) in enumerate(KINDS[:2]):
        real = by_hand(found.values[row], found.values[2], better)
        taus = {
            name: [by_hand(one[row], one[2], better) for one in values] for name, values in found.changed.items()
        }  # fmt: skip
        if np.isnan(real):
            assert (metric, variant) not in lines.index
            continue
        line = lines.loc[(metric, variant)]
        everything = [real, *(tau for some in taus.values() for tau in some)]
        assert line["tau"] == pytest.approx(real) and (line["truth"], line["agreement"]) == ("signed", "recall")
        assert line["tau_lowest"] == pytest.approx(min(everything))
        assert line["tau_highest"] == pytest.approx(max(everything))
        movers = [name for name, some in taus.items() if any(abs(tau - real) > 1e-9 for tau in some)]
        assert line["not_identifiable"] == bool(movers)
        assert line["changed_by"] == " ".join([name for name in movers if name != TOGETHER] or movers)
        assert (line["reparametrisations"], line["instances"]) == (4, 7)


@given(st.integers(0, 100_000))
def test_tau_can_be_had_among_some_of_the_explainers(seed):
    found, like = made(seed), drawn()
    (family,) = list_families(like, "")
    whole, _ = found.stack(like)
    some = np.array([0, 2, 3])
    tau = correlation.compute_kendall_tau(whole, replace(family, explainers=some))
    for j, (_, _, better) in enumerate(KINDS[:2]):
        for draw, values in enumerate(whole.values):
            at = [like.metrics.index(row) for row in ROWS]
            assert tau[draw, j, 0] == pytest.approx(by_hand(values[at[j]][some], values[at[2]][some], better))


def test_what_moves_stands_beside_values_and_correlations_and_rounding_moves_nothing():
    scores, order = build(1)
    values = made(1).values
    values[0] = [1, 2, 3, 4]
    changed = {name: np.repeat(values[None], 2, axis=0) for name in (TOGETHER, "scale")}
    changed["scale"][1, 0] = [2, 1, 3, 4]  # C of a and b
    changed["scale"][0, 1] *= 1 + 1e-13
    found = ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 3)
    done = conclude(scores, order, HOW, reparametrised=found)
    moves = done.metrics.groupby("metric")["not_identifiable"].agg(list)
    assert moves["c"] == [True, True, False, False]
    assert moves["sufficiency"] == moves["recall"] == [False] * 4
    assert moves["coverage"] == [None] * 4  # of which nothing was said
    for subset in (ALL_EXPLAINERS, WITHOUT_CONTROLS):
        table = select_subset(done.invariance, subset).set_index("metric")
        told = select_subset(done.correlations, subset).set_index("metric")["not_identifiable"]
        assert told["c"] == table.loc["c", "not_identifiable"] and told["sufficiency"] is False
    table = select_subset(done.invariance).set_index("metric")
    assert table.loc["sufficiency", "changed_by"] == ""


def test_without_reparametrisations_nothing_is_said():
    scores, order = build(2)
    done = conclude(scores, order, HOW)
    assert done.invariance is None
    assert done.metrics["not_identifiable"].isna().all() and done.correlations["not_identifiable"].isna().all()
    assert isinstance(done.metrics, pd.DataFrame) and list(done.metrics)[-4:] == [
        "not_identifiable",
        "note",
        "method",
        "remark",
    ]


def test_a_ladder_is_judged_by_its_known_order():
    like = drawn()
    rungs = ResampledValues(**{**vars(like), "rungs": np.array([0.0, 0.3, 0.6, 1.0])})
    values = np.array([[1.0, 2, 3, 4], [1, 2, 3, 4], [4, 3, 2, 1]])
    changed = {"scale": np.stack([values, values[:, [1, 0, 2, 3]]])}
    found = ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 5)
    table = invariance.build_tau_ranges(found, rungs, list(list_families(rungs, "signed"))).set_index("metric")
    assert set(table["agreement"]) == {"order"} and set(table["changed_by"]) == {"scale"}
    assert table.loc["c", ["tau", "tau_lowest", "tau_highest"]].tolist() == pytest.approx([1, 2 / 3, 1])
    assert table.loc["sufficiency", ["tau", "tau_lowest", "tau_highest"]].tolist() == pytest.approx([-1, -1, -2 / 3])
