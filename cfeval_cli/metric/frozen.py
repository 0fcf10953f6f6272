"""Frozen: whether the label can be changed while the selected features keep their values (Mothilal et al. 2021)."""

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
from cfeval_cli.core.counterfactual import FittedConstant, Search, select_changeable
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.single_edit import find_best_edit, find_single_edit
from cfeval_cli.errors import check_int

_BATCH_SETS = 1 << 16  # feature sets that one call of the search covers


@dataclass(frozen=True)
class Frozen(Metric):
    """Share of instances whose label still changes when the k selected features are fixed and k others are edited.

    All sets of k other features are searched if they have few enough candidates. Otherwise one set grows by the feature
    that lowers p(ŷ) most.
    """

    search: Search  # decides whether some values of a feature set change the label
    max_candidates: int = 10_000  # of one instance, over all sets; with more candidates, one set grows
    values: int = (
        1000  # the largest number of values of a feature to evaluate for a growing set, the most frequent ones
    )

    name = "frozen"
    title = "Frozen"
    better = "lower"
    range = (0.0, 1.0)
    access = Access.LABEL
    max_access = Access.PROBABILITY
    block = "features"
    display_order = 37

    def __post_init__(self) -> None:
        check_int("max_candidates", self.max_candidates, 1)
        check_int("values", self.values, 1)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """Yield a score from all sets of other features, or from one growing set."""
        size = min(inputs.k, inputs.dataset.n_features - inputs.k)  # there may be fewer than k other features
        if not size:
            yield Score("all sets", np.zeros(len(inputs)), np.ones(len(inputs)))
        elif self._count_candidates(inputs, size) <= self.max_candidates:
            yield Score("all sets", self._search_all_sets(inputs, size), np.ones(len(inputs)))
        elif size > 1 and (inputs.model.access < Access.PROBABILITY or inputs.probability is None):
            reason = "has too many feature sets to search all, and a growing set needs probabilities"
            yield AbsentScore("greedy", reason)
        else:
            yield Score("greedy", self._search_growing_set(inputs, size), np.ones(len(inputs)))

    def _count_candidates(self, inputs: MetricInput, size: int) -> int:
        """Return the number of candidates of all feature sets of a size: an elementary symmetric polynomial."""
        sums = [1] + [0] * size
        for values in inputs.dataset.candidates:
            for i in range(size, 0, -1):
                sums[i] += sums[i - 1] * (len(values) + (size > 1))
            if sums[size] > self.max_candidates:
                break
        return sums[size]

    def _search_all_sets(self, inputs: MetricInput, size: int) -> Floats:
        """Return 1 for each instance whose label some set without selected features changes."""
        sets = np.array(list(combinations(range(inputs.dataset.n_features), size)), dtype=np.int64).reshape(-1, size)
        is_selected = mark_selected(inputs.codes, inputs.features)
        topic = f"sets of {size} that flip"
        can_flip = (
            inputs.memory.get_or_compute(
                topic, inputs.ids, lambda new_indices: self._find_flips(inputs, new_indices, sets).astype(float)
            )
            > 0
        )
        is_free = ~is_selected[:, sets].any(axis=2)
        return np.asarray((can_flip & is_free).any(axis=1), dtype=np.float64)

    def _find_flips(self, inputs: MetricInput, positions: Ints, sets: Ints) -> Bools:
        """Return which feature sets (S, k) can change the label of the instances at some positions: (n, S)."""
        flips = np.zeros((len(positions), len(sets)), dtype=bool)
        step = max(1, _BATCH_SETS // max(1, len(sets)))
        for start in range(0, len(positions), step):
            batch = positions[start : start + step]
            instances, columns = np.repeat(batch, len(sets)), np.tile(sets, (len(batch), 1))
            features = np.where(inputs.codes[instances[:, None], columns] == ABSENT, NO_FEATURE, columns)
            features = np.take_along_axis(features, np.argsort(features == NO_FEATURE, axis=1, kind="stable"), axis=1)
            task = SearchTask(
                inputs.ids[instances], inputs.codes[instances], inputs.predicted_classes[instances],
                seed=0, component=self.name,
                features=select_changeable(inputs.dataset, features), dataset=inputs.dataset, model=inputs.model,
                distance=FittedConstant(1.0),
            )  # fmt: skip
            flips[start : start + step] = self.search.find(task).flipped.reshape(len(batch), len(sets))
        return flips

    def _search_growing_set(self, inputs: MetricInput, size: int) -> Floats:
        """Return 1 for each instance whose label changes within `size` steps of a growing set."""
        is_selected = mark_selected(inputs.codes, inputs.features)
        return inputs.memory.get_or_compute(
            f"{self!r}, growing to {size}",
            make_set_keys(is_selected, inputs.ids),
            lambda new_indices: self._grow_sets(inputs, new_indices, is_selected[new_indices], size),
        )

    def _grow_sets(self, inputs: MetricInput, positions: Ints, is_selected: Bools, size: int) -> Floats:
        is_open = ~is_selected & (inputs.codes[positions] != ABSENT)
        codes, has_flipped = inputs.codes[positions].copy(), np.zeros(len(positions), dtype=bool)
        for step in range(size):
            indices, features = np.nonzero(is_open & ~has_flipped[:, None])
            if not len(indices):
                break
            if step:
                own_codes = inputs.codes[positions[indices], features]
                labels = inputs.predicted_classes[positions[indices]]
                edit = find_best_edit(
                    inputs.dataset, inputs.model, codes[indices], labels, own_codes, features, self.values
                )
            else:
                edit = find_single_edit(inputs, positions[indices], features, self.values)
            np.logical_or.at(has_flipped, indices, edit.flips)
            probability = np.full(is_open.shape, np.inf)
            probability[indices, features] = edit.probability
            best = probability.argmin(axis=1)
            values = np.zeros(is_open.shape, dtype=codes.dtype)
            values[indices, features] = edit.value
            growing = np.flatnonzero(np.isfinite(probability.min(axis=1)) & ~has_flipped)
            codes[growing, best[growing]] = values[growing, best[growing]]
            is_open[growing, best[growing]] = False
        return has_flipped.astype(np.float64)
