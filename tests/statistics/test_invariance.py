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
from cfeval_cli.statistics.invariance import ALL_CHANGES, ReparametrisedValues
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from tests.statistics.tables import EXPLAINERS, KINDS, build, conclude, summarise

SETTINGS = Bootstrap(0, n_resamples=0)
ROWS = [(metric, variant) for metric, variant, _ in KINDS]


def make_reparametrised(seed, draws=4, gaps=False):
    """Values of a run's rows under two changes and both; small whole numbers, so that ties are real."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (len(ROWS), len(EXPLAINERS))).astype(float)
    if gaps:
        values[rng.integers(len(ROWS)), rng.integers(len(EXPLAINERS))] = np.nan
    changed = {}
    for name in (ALL_CHANGES, "constant", "scale"):
        changed[name] = np.repeat(values[None], draws, axis=0)
        mask = rng.random(changed[name].shape) < 0.1
        changed[name] += mask * rng.integers(-2, 3, mask.shape)
    return ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 7)


@cache
def compute_values():
    scores, order = build(0)
    return ResampledValues.compute(Scores.from_frame(scores), summarise(scores, order), SETTINGS)


def compute_tau_by_hand(u, v, better):
    """Concordant less discordant pairs, over all pairs of explainers with both values."""
    valid = [e for e in range(len(u)) if not np.isnan(u[e] + v[e])]
    pairs = list(combinations(valid, 2))
    if not pairs:
        return np.nan
    sign = -1 if better == "lower" else 1
    return sum(sign * np.sign(u[a] - u[b]) * np.sign(v[a] - v[b]) for a, b in pairs) / len(pairs)


@given(st.integers(0, 100_000), st.booleans())
def test_ranges_equal_those_over_all_draws(seed, gaps):
    changes, resampled = make_reparametrised(seed, gaps=gaps), compute_values()
    table = invariance.build_tau_ranges(changes, resampled, list(list_families(resampled, "")))
    lines = table.set_index(["metric", "variant"])
    for row, (metric, variant, better) in enumerate(KINDS[:2]):
        real = compute_tau_by_hand(changes.values[row], changes.values[2], better)
        taus = {
            name: [compute_tau_by_hand(draw[row], draw[2], better) for draw in draws]
            for name, draws in changes.changed.items()
        }
        if np.isnan(real):
            assert (metric, variant) not in lines.index
            continue
        line = lines.loc[(metric, variant)]
        all_taus = [real, *(tau for mask in taus.values() for tau in mask)]
        assert line["tau"] == pytest.approx(real) and (line["truth"], line["agreement"]) == ("signed", "recall")
        assert line["tau_lowest"] == pytest.approx(min(all_taus))
        assert line["tau_highest"] == pytest.approx(max(all_taus))
        movers = [name for name, mask in taus.items() if any(abs(tau - real) > 1e-9 for tau in mask)]
        assert line["not_identifiable"] == bool(movers)
        assert line["changed_by"] == " ".join([name for name in movers if name != ALL_CHANGES] or movers)
        assert (line["reparametrisations"], line["instances"]) == (4, 7)


@given(st.integers(0, 100_000))
def test_tau_of_a_subset_of_explainers(seed):
    changes, resampled = make_reparametrised(seed), compute_values()
    (family,) = list_families(resampled, "")
    stacked, _ = changes.stack(resampled)
    mask = np.array([0, 2, 3])
    tau = correlation.compute_kendall_tau(stacked, replace(family, explainers=mask))
    for j, (_, _, better) in enumerate(KINDS[:2]):
        for draw, values in enumerate(stacked.values):
            at = [resampled.metrics.index(row) for row in ROWS]
            assert tau[draw, j, 0] == pytest.approx(
                compute_tau_by_hand(values[at[j]][mask], values[at[2]][mask], better)
            )


def test_changed_values_and_taus_are_marked_and_rounding_is_ignored():
    scores, order = build(1)
    values = make_reparametrised(1).values
    values[0] = [1, 2, 3, 4]
    changed = {name: np.repeat(values[None], 2, axis=0) for name in (ALL_CHANGES, "scale")}
    changed["scale"][1, 0] = [2, 1, 3, 4]  # C of a and b
    changed["scale"][0, 1] *= 1 + 1e-13
    changes = ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 3)
    result = conclude(scores, order, SETTINGS, reparametrised=changes)
    moves = result.metrics.groupby("metric")["not_identifiable"].agg(list)
    assert moves["c"] == [True, True, False, False]
    assert moves["sufficiency"] == moves["recall"] == [False] * 4
    assert moves["coverage"] == [None] * 4  # not computed for other parameters
    for subset in (ALL_EXPLAINERS, WITHOUT_CONTROLS):
        table = select_subset(result.invariance, subset).set_index("metric")
        is_moved = select_subset(result.correlations, subset).set_index("metric")["not_identifiable"]
        assert is_moved["c"] == table.loc["c", "not_identifiable"] and is_moved["sufficiency"] is False
    table = select_subset(result.invariance).set_index("metric")
    assert table.loc["sufficiency", "changed_by"] == ""


def test_without_reparametrisations_nothing_is_marked():
    scores, order = build(2)
    result = conclude(scores, order, SETTINGS)
    assert result.invariance is None
    assert result.metrics["not_identifiable"].isna().all() and result.correlations["not_identifiable"].isna().all()
    assert isinstance(result.metrics, pd.DataFrame) and list(result.metrics)[-4:] == [
        "not_identifiable",
        "note",
        "method",
        "remark",
    ]


def test_graded_controls_are_judged_by_their_known_order():
    resampled = compute_values()
    graded = ResampledValues(**{**vars(resampled), "quality_levels": np.array([0.0, 0.3, 0.6, 1.0])})
    values = np.array([[1.0, 2, 3, 4], [1, 2, 3, 4], [4, 3, 2, 1]])
    changed = {"scale": np.stack([values, values[:, [1, 0, 2, 3]]])}
    changes = ReparametrisedValues(ROWS, list(EXPLAINERS), values, changed, 5)
    table = invariance.build_tau_ranges(changes, graded, list(list_families(graded, "signed"))).set_index("metric")
    assert set(table["agreement"]) == {"order"} and set(table["changed_by"]) == {"scale"}
    assert table.loc["c", ["tau", "tau_lowest", "tau_highest"]].tolist() == pytest.approx([1, 2 / 3, 1])
    assert table.loc["sufficiency", ["tau", "tau_lowest", "tau_highest"]].tolist() == pytest.approx([-1, -1, -2 / 3])
