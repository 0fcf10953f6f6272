"""Explainers compared pair by pair, on the instances that all of them have, corrected for all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np

from cfeval_cli.core import Floats
from cfeval_cli.statistics.bootstrap import (
    MIN_INSTANCES,
    Bootstrap,
    choose_n_resamples,
    compute_percentile_interval,
    compute_resampled_sums,
    compute_standard_deviation,
    divide_or_nan,
)
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, adjust_holm, compute_bootstrap_p_values
from cfeval_cli.statistics.scores import MetricKey, Scores

_SAME = 1e-12  # values that differ by no more are the same: sums in another order
_POWER = 0.8  # how often a difference of this size would be seen with as many instances as are told


@dataclass(frozen=True)
class PairwiseDifference:
    """How much better one explainer is than another, in the same instances."""

    better: str
    worse: str
    difference: float
    low: float
    high: float
    p: float  # after Holm's correction over all pairs of the contest
    needed: int | None  # instances with which such a difference would be seen; None: there is none to be seen

    @property
    def sure(self) -> bool:
        """Whether other instances would hardly undo it."""
        return self.p < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class ExplainerComparison:
    """Who is best by one metric or truth."""

    metric: str
    variant: str
    instances: int
    values: dict[str, float]  # by explainer, the best first
    duels: list[PairwiseDifference]
    left_out: list[str] = field(default_factory=list)  # explainers with a value for under half of the instances

    @property
    def best(self) -> str:
        """The first; of equal ones the first of the tables."""
        return next(iter(self.values))

    def against_best(self) -> dict[str, PairwiseDifference]:
        """The best against each other one, by the other's name."""
        return {duel.worse: duel for duel in self.duels if duel.better == self.best}

    @property
    def tied(self) -> list[str]:
        """The best, and those that cannot be told from it."""
        return [self.best, *(name for name, duel in self.against_best().items() if not duel.sure)]

    @property
    def decides(self) -> bool:
        """Whether anybody is told from the best."""
        return len(self.tied) < len(self.values)

    @property
    def needed(self) -> int | None:
        """Instances with which the first difference from the best would be seen."""
        return min((duel.needed for duel in self.against_best().values() if duel.needed), default=None)

    def told(self) -> dict[str, Any]:
        """As it is written down."""
        against = self.against_best()
        return {
            "metric": self.metric, "variant": self.variant, "instances": self.instances, "values": self.values,
            "tied": self.tied, "decides": self.decides, "needed": self.needed, "left_out": self.left_out,
            "duels": {name: _line(duel) for name, duel in against.items()},
        }  # fmt: skip


def _line(duel: PairwiseDifference) -> dict[str, float | None]:
    ends = {"low": duel.low, "high": duel.high, "p": duel.p}
    return {"difference": duel.difference} | {name: _plain(value) for name, value in ends.items()}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def compare_explainers(
    scores: Scores, row: MetricKey, explainers: Sequence[str], better: str, how: Bootstrap
) -> ExplainerComparison | None:
    """By one metric and variant; None if fewer than two explainers have a value on instances that all of these have."""
    wide = {name: scores.series[row, name] for name in explainers if (row, name) in scores.series}
    most = max((len(part) for part in wide.values()), default=0)
    # who is silent about most instances would leave nobody anything to be compared on
    there = [name for name, part in wide.items() if 2 * len(part) >= most > 0 and part.denominator.sum() != 0]
    shared = reduce(np.intersect1d, [wide[name].positions for name in there]) if there else np.zeros(0, dtype=np.int64)
    if len(there) < 2 or not len(shared):
        return None
    places = [np.searchsorted(wide[name].positions, shared) for name in there]
    both = [
        np.stack([part.numerator[at], part.denominator[at]], axis=1)
        for part, at in zip((wide[name] for name in there), places, strict=True)
    ]
    parts = np.stack(both, axis=1)  # (n, E, 2)
    scores.scratch.release()
    total = parts.sum(axis=0)
    real = divide_or_nan(total[:, 0], total[:, 1])
    if np.isnan(real).any():
        return None
    sign = 1.0 if better == "higher" else -1.0
    drawn = _resampled(parts, how)
    order = np.argsort(-sign * np.round(real, 12), kind="stable").tolist()
    pairs = list(combinations(order, 2))
    gaps = np.stack([sign * (drawn[:, a] - drawn[:, b]) for a, b in pairs], axis=1)
    gaps[np.abs(gaps) < _SAME] = 0.0
    duels = _duels(there, pairs, sign * real, gaps, len(shared), how)
    values = {there[e]: float(real[e]) for e in order}
    return ExplainerComparison(*row, len(shared), values, duels, [name for name in explainers if name not in there])


def _resampled(parts: Floats, how: Bootstrap) -> Floats:
    """Values (B, E) in as many resamples as some pair needs to be told apart."""
    size, many = parts.shape[:2]
    times = max(how.resamples, choose_n_resamples(many, 0, 0)) if how.resamples else 0
    flat = parts.transpose(0, 2, 1).reshape(size, -1)
    (whole,) = compute_resampled_sums([flat.__getitem__], size, times, how.seed)
    return divide_or_nan(whole[:, :many], whole[:, many:])


def _duels(
    names: Sequence[str], pairs: Sequence[tuple[int, int]], real: Floats, gaps: Floats, size: int, how: Bootstrap
) -> list[PairwiseDifference]:
    able = bool(len(gaps)) and size >= MIN_INSTANCES
    blank = np.full(len(pairs), np.nan)
    low, high = compute_percentile_interval(gaps, how.confidence) if able else (blank, blank)
    p = adjust_holm(compute_bootstrap_p_values(gaps)) if able else np.ones(len(pairs))
    spread = compute_standard_deviation(gaps) if len(gaps) > 1 else blank
    found = []
    for i, (a, b) in enumerate(pairs):
        difference = float(real[a] - real[b])
        needed = _needed(difference, float(spread[i]), size, len(pairs))
        found.append(
            PairwiseDifference(names[a], names[b], difference, float(low[i]), float(high[i]), float(p[i]), needed)
        )
    return found


def _needed(difference: float, spread: float, size: int, pairs: int) -> int | None:
    """How many instances would show this difference four times in five, at the smallest level of Holm's correction."""
    from scipy.special import ndtri

    if np.isnan(spread) or spread == 0 or abs(difference) < 1e-12:
        return None
    wanted = float(ndtri(1 - SIGNIFICANCE_LEVEL / (2 * pairs)) + ndtri(_POWER))
    return max(MIN_INSTANCES, ceil(size * (wanted * spread / difference) ** 2))
