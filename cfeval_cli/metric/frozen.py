"""Whether the prediction can be flipped without the named features (Mothilal et al. 2021, sufficiency)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    AbsentScore,
    Access,
    Bools,
    Floats,
    Ints,
    Metric,
    MetricInput,
    Score,
    SearchTask,
)
from cfeval_cli.core.counterfactual import ConstantMeasure, Search, editable
from cfeval_cli.core.explanation import named
from cfeval_cli.core.memory import keys_of
from cfeval_cli.core.single import alone, tried
from cfeval_cli.errors import check_int

_AT_ONCE = 1 << 16  # sets searched at a time


@dataclass(frozen=True)
class Frozen(Metric):
    """Share of instances that still flip when the k named features keep their values and k others may change.

    All sets of k others are searched, if that takes few enough candidates; else a set grows by the feature that takes
    most from p(ŷ).
    """

    search: Search  # that tells whether some values of a set flip
    max_candidates: int = 10_000  # for one instance, over all sets; beyond, sets grow
    values: int = 1000  # of one feature that are tried there, the most frequent ones if there are more

    name = "frozen"
    title = "Frozen"
    better = "lower"
    range = (0.0, 1.0)
    access = Access.LABEL
    most = Access.PROBABILITY
    block = "features"
    place = 37

    def __post_init__(self) -> None:
        check_int("max_candidates", self.max_candidates, 1)
        check_int("values", self.values, 1)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """By all sets, or by one that grows."""
        size = min(inputs.k, inputs.dataset.width - inputs.k)  # there may not be as many others
        if not size:
            yield Score("all sets", np.zeros(len(inputs)), np.ones(len(inputs)))
        elif self._candidates(inputs, size) <= self.max_candidates:
            yield Score("all sets", self._by_sets(inputs, size), np.ones(len(inputs)))
        elif size > 1 and (inputs.model.access < Access.PROBABILITY or inputs.probability is None):
            yield AbsentScore("greedy", "too many sets to try all, and labels do not tell which feature to begin with")
        else:
            yield Score("greedy", self._growing(inputs, size), np.ones(len(inputs)))

    def _candidates(self, inputs: MetricInput, size: int) -> int:
        """How many candidates all sets of so many features have together: the elementary symmetric polynomial."""
        sums = [1] + [0] * size
        for values in inputs.dataset.candidates:
            for i in range(size, 0, -1):
                sums[i] += sums[i - 1] * (len(values) + (size > 1))
            if sums[size] > self.max_candidates:
                break
        return sums[size]

    def _by_sets(self, inputs: MetricInput, size: int) -> Floats:
        """Whether one of the sets without any named feature flips."""
        sets = np.array(list(combinations(range(inputs.dataset.width), size)), dtype=np.int64).reshape(-1, size)
        explained = named(inputs.codes, inputs.features)
        about = f"sets of {size} that flip"
        able = inputs.memory.ask(about, inputs.ids, lambda new: self._flipping(inputs, new, sets).astype(float)) > 0
        free = ~explained[:, sets].any(axis=2)
        return np.asarray((able & free).any(axis=1), dtype=np.float64)

    def _flipping(self, inputs: MetricInput, rows: Ints, sets: Ints) -> Bools:
        """Which sets (S, k) flip some rows: (n, S)."""
        found = np.zeros((len(rows), len(sets)), dtype=bool)
        step = max(1, _AT_ONCE // max(1, len(sets)))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            which, of = np.repeat(some, len(sets)), np.tile(sets, (len(some), 1))
            features = np.where(inputs.codes[which[:, None], of] == ABSENT, NO_FEATURE, of)
            features = np.take_along_axis(features, np.argsort(features == NO_FEATURE, axis=1, kind="stable"), axis=1)
            task = SearchTask(
                inputs.ids[which], inputs.codes[which], inputs.labels[which], seed=0, component=self.name,
                features=editable(inputs.dataset, features), dataset=inputs.dataset, model=inputs.model,
                measure=ConstantMeasure(1.0),
            )  # fmt: skip
            found[start : start + step] = self.search.find(task).flipped.reshape(len(some), len(sets))
        return found

    def _growing(self, inputs: MetricInput, size: int) -> Floats:
        """Whether a set flips that grows by one feature after the other."""
        explained = named(inputs.codes, inputs.features)
        about = f"{self!r}, growing to {size}"
        keys = keys_of(explained, inputs.ids)
        return inputs.memory.ask(about, keys, lambda new: self._grown(inputs, new, explained[new], size))

    def _grown(self, inputs: MetricInput, rows: Ints, explained: Bools, size: int) -> Floats:
        open_ = ~explained & (inputs.codes[rows] != ABSENT)
        codes, done = inputs.codes[rows].copy(), np.zeros(len(rows), dtype=bool)
        for step in range(size):
            where, features = np.nonzero(open_ & ~done[:, None])
            if not len(where):
                break
            own = inputs.codes[rows[where], features]
            if step:
                told = tried(
                    inputs.dataset, inputs.model, codes[where], inputs.labels[rows[where]], own, features, self.values
                )
            else:
                told = alone(inputs, rows[where], features, self.values)
            np.logical_or.at(done, where, told.flips)
            left = np.full(open_.shape, np.inf)
            left[where, features] = told.left
            best = left.argmin(axis=1)
            value = np.zeros(open_.shape, dtype=codes.dtype)
            value[where, features] = told.value
            grow = np.flatnonzero(np.isfinite(left.min(axis=1)) & ~done)
            codes[grow, best[grow]] = value[grow, best[grow]]
            open_[grow, best[grow]] = False
        return done.astype(np.float64)
