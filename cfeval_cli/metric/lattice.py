"""The lattice of feature sets up to a size: the drop without each set, and the extreme AOPC over all orders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import comb, prod

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Bools,
    Codes,
    Dataset,
    FittedRemoval,
    Floats,
    Ints,
    MetricInput,
    ModelClient,
    Replacement,
)
from cfeval_cli.metric.erasure import compute_erasure

_MAX_ARRAY_ELEMENTS = 1 << 22  # numbers in an array, to bound memory
_MAX_DISTINCT_ROWS = 2**62  # rows of values that a 64-bit integer can number
_MAX_EDITS = 1 << 23  # edited rows that are numbered together, to bound memory
_N_SAMPLED_ROWS = 20  # test rows from which the number of evaluations of an instance is estimated


def count_sets(width: int, longest: int) -> int:
    """Return how many sets of 1 to `longest` of `width` features there are."""
    return sum(comb(width, size) for size in range(1, longest + 1))


@dataclass(frozen=True)
class Lattice:
    """All sets of 1 to `longest` features of a dataset, and the edits by which one removal removes them."""

    levels: list[
        tuple[Ints, Ints]
    ]  # by size: sets (C, size), and the positions (C, size) of their subsets with one feature less
    is_removed: Bools  # (S, M) the sets of all sizes, one after the other
    edits: NumberedEdits | None  # None: the removal moves embeddings, or there are too many rows to number

    @staticmethod
    def build(dataset: Dataset, replacement: Replacement, longest: int) -> Lattice:
        """Return the lattice of a dataset, which all instances share."""
        levels = [_list_sets(dataset.n_features, size) for size in range(1, longest + 1)]
        is_removed = np.zeros((sum(len(sets) for sets, _ in levels), dataset.n_features), dtype=bool)
        start = 0
        for sets, _ in levels:
            is_removed[start + np.arange(len(sets))[:, None], sets] = True
            start += len(sets)
        return Lattice(levels, is_removed, NumberedEdits.build(dataset, replacement, is_removed))

    def estimate_evaluations(self, dataset: Dataset, replacement: Replacement) -> float:
        """Estimate how many distinct rows the model evaluates for one instance."""
        if self.edits is None:
            return len(self.is_removed) * len(replacement.sample(np.arange(dataset.n_features))[1])
        return float(np.mean([self.edits.count_distinct(row) for row in dataset.test.codes[:_N_SAMPLED_ROWS]]))

    def compute_extremes(self, inputs: MetricInput, fitted: FittedRemoval, positions: Ints, n_removed: Ints) -> Floats:
        """Return the smallest and the largest AOPC (n, 2) over all orders; `n_removed` (n, P) are the curve's points.

        AOPC is a sum over the prefixes of an order. The best order of a set is therefore the best order of one of its
        subsets with one feature less, followed by that feature. This is dynamic programming over sets, size by size.
        """
        if inputs.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        longest, n_points = n_removed.max(axis=1, initial=0), np.count_nonzero(n_removed, axis=1)
        totals = np.zeros((len(positions), 2))
        step = max(1, _MAX_ARRAY_ELEMENTS // self.is_removed.size)
        for start in range(0, len(positions), step):
            batch = np.arange(start, min(start + step, len(positions)))
            is_possible = ~((inputs.codes[positions[batch]] == ABSENT) @ self.is_removed.T)
            # How many points of the curve remove as many features as a set has: shares of short texts can coincide.
            multiplicity = (n_removed[batch][:, None] == self.is_removed.sum(axis=1)[:, None]).sum(axis=2)
            is_needed = is_possible & (multiplicity > 0)
            remaining = self._compute_probabilities(inputs, fitted, positions[batch], is_needed)
            drops = np.where(is_needed, inputs.probability[positions[batch]][:, None] - remaining, 0)
            low, high, first = np.zeros((len(batch), 1)), np.zeros((len(batch), 1)), 0
            for size, (sets, parents) in enumerate(self.levels, start=1):
                level = slice(first, first := first + len(sets))
                valid, added = is_possible[:, level], multiplicity[:, level] * drops[:, level]
                low = np.where(valid, low[:, parents].min(axis=2) + added, np.inf)
                high = np.where(valid, high[:, parents].max(axis=2) + added, -np.inf)
                ends = longest[batch] == size
                totals[batch[ends]] = np.stack([low[ends].min(axis=1), high[ends].max(axis=1)], axis=1)
        return np.asarray(totals / np.maximum(1, n_points)[:, None])

    def _compute_probabilities(
        self, inputs: MetricInput, fitted: FittedRemoval, positions: Ints, is_needed: Bools
    ) -> Floats:
        """Return p(ŷ) (n, S) without each needed set, and 0 for other sets."""
        remaining = np.zeros(is_needed.shape)
        if self.edits is None:
            instances, sets = np.nonzero(is_needed)
            probability = compute_erasure(inputs, fitted, positions[instances], self.is_removed[sets]).probability
            if probability is None:
                raise ValueError("a drop needs probabilities before and after the edit")
            remaining[instances, sets] = probability
            return remaining
        for i, position in enumerate(positions):
            label = int(inputs.predicted_classes[position])
            remaining[i, is_needed[i]] = self.edits.compute_probabilities(
                inputs.model, inputs.codes[position], label, is_needed[i]
            )
        return remaining


@dataclass(frozen=True)
class NumberedEdits:
    """The rows that replace an instance without some features, as integers: equal rows have equal integers.

    Many rows are equal, because removed features often get the value that they have. For 12 features of Adults, the
    4,082 sets with 100 draws each make 9,000 distinct rows on average, and the model evaluates each row once.
    """

    is_removed: Bools  # (S, M) the feature sets
    digits: Ints  # (M,) number of values of each feature, with one more for an absent feature
    units: Ints  # (M,) what one step of a feature's code adds to the integer
    numbers: Ints  # (R,) what the values of removed features add to the integer, set by set
    weights: Floats  # (R,)
    counts: Ints  # (S,) number of rows of each set

    @staticmethod
    def build(dataset: Dataset, replacement: Replacement, is_removed: Bools) -> NumberedEdits | None:
        """Number the rows; None if the removal moves embeddings or there are too many rows."""
        digits = [len(feature.values) + 1 for feature in dataset.features]
        if replacement.vectors is not None or prod(digits) > _MAX_DISTINCT_ROWS or not len(is_removed):
            return None
        if len(is_removed) * len(replacement.sample(np.arange(dataset.n_features))[1]) > _MAX_EDITS:
            return None
        units = np.array([prod(digits[:j]) for j in range(len(digits))], dtype=np.int64)
        samples = [replacement.sample(np.flatnonzero(features)) for features in is_removed]
        numbers = [
            (values.astype(np.int64) + 1) @ units[features]
            for (values, _), features in zip(samples, is_removed, strict=True)
        ]
        weights = np.concatenate([weights for _, weights in samples])
        counts = np.array([len(weights) for _, weights in samples])
        return NumberedEdits(is_removed, np.array(digits), units, np.concatenate(numbers), weights, counts)

    def count_distinct(self, row: Codes) -> int:
        """Return the number of distinct rows that replace a row (M,) without one of the sets."""
        return len(np.unique(self._number_rows(row, self._all_sets)))

    def compute_probabilities(self, model: ModelClient, row: Codes, label: int, is_needed: Bools) -> Floats:
        """Return the mean probability of the label without each needed set."""
        import pandas as pd

        positions, numbers = pd.factorize(self._number_rows(row, is_needed))
        codes = (numbers[:, None] // self.units % self.digits - 1).astype(np.int32)
        _, probability = model.predict_with_proba(codes, np.full(len(codes), label))
        if probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        weights = self.weights if is_needed.all() else self.weights[np.repeat(is_needed, self.counts)]
        starts = np.cumsum(self.counts[is_needed]) - self.counts[is_needed]
        return np.asarray(np.add.reduceat(probability[positions] * weights, starts))

    @cached_property
    def _all_sets(self) -> Bools:
        return np.ones(len(self.is_removed), dtype=bool)

    def _number_rows(self, row: Codes, is_needed: Bools) -> Ints:
        """Return the integers (r,) of the rows that replace a row without each needed set."""
        terms = (row.astype(np.int64) + 1) * self.units
        remaining = np.repeat(terms.sum() - self.is_removed @ terms, self.counts)
        numbers = np.asarray(self.numbers + remaining)
        return numbers if is_needed.all() else numbers[np.repeat(is_needed, self.counts)]


def _list_sets(width: int, size: int) -> tuple[Ints, Ints]:
    """Return all sets (C, size) of features, and the positions (C, size) of their subsets with one feature less.

    Sets are in colexicographic order: the position of a set {c_1 < c_2 < …} is the sum of the binomials (c_i, i).
    """
    binomials = np.array([[comb(feature, i + 1) for i in range(size)] for feature in range(width)])
    combined = np.fromiter(chain.from_iterable(combinations(range(width), size)), dtype=np.int64).reshape(-1, size)
    columns = np.arange(size)
    sets = combined[np.argsort(binomials[combined, columns].sum(axis=1))]
    subsets = [np.delete(sets, i, axis=1) for i in range(size)]
    return sets, np.stack([binomials[subset, columns[:-1]].sum(axis=1) for subset in subsets], axis=1)
