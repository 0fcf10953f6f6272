"""All sets of up to so many features: what a prediction loses without each, and the orders that lose most and least."""

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
from cfeval_cli.metric.erasure import erased

_CELLS = 1 << 22  # numbers of a table in memory
_LARGEST = 2**62  # rows that a whole number can number
_MOST_EDITS = 1 << 23  # rows that are numbered at once
_TYPICAL_ROWS = 20  # test rows by which the evaluations of an instance are estimated


def count_sets(width: int, longest: int) -> int:
    """Return how many sets of 1 to `longest` of `width` features there are."""
    return sum(comb(width, size) for size in range(1, longest + 1))


@dataclass(frozen=True)
class Lattice:
    """The sets of 1 to `longest` of the features of a dataset, and the edits that remove them in one way."""

    levels: list[tuple[Ints, Ints]]  # by size: sets (C, size), and the places (C, size) of those with one feature less
    gone: Bools  # (S, M) the sets of all sizes, one after the other
    edits: Edits | None  # None: removal moves embeddings, or rows are too many to be numbered

    @staticmethod
    def of(dataset: Dataset, stand_ins: Replacement, longest: int) -> Lattice:
        """Prepare what all instances share."""
        levels = [_subsets(dataset.width, size) for size in range(1, longest + 1)]
        gone = np.zeros((sum(len(sets) for sets, _ in levels), dataset.width), dtype=bool)
        start = 0
        for sets, _ in levels:
            gone[start + np.arange(len(sets))[:, None], sets] = True
            start += len(sets)
        return Lattice(levels, gone, Edits.of(dataset, stand_ins, gone))

    def evaluations(self, dataset: Dataset, stand_ins: Replacement) -> float:
        """Return about how many different rows the model is asked about for one instance."""
        if self.edits is None:
            return len(self.gone) * len(stand_ins.sample(np.arange(dataset.width))[1])
        return float(np.mean([self.edits.count(row) for row in dataset.test.codes[:_TYPICAL_ROWS]]))

    def extremes(self, inputs: MetricInput, way: FittedRemoval, rows: Ints, sizes: Ints) -> Floats:
        """Return the smallest and the largest AOPC (n, 2) of all orders; `sizes` (n, P) are the points of the curve.

        AOPC is a sum over the prefixes of an order, so that the best order of a set is the best order of one of its
        subsets with one feature less, and then that feature: dynamic programming over sets, size by size.
        """
        if inputs.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        longest, points = sizes.max(axis=1, initial=0), np.count_nonzero(sizes, axis=1)
        totals = np.zeros((len(rows), 2))
        step = max(1, _CELLS // self.gone.size)
        for start in range(0, len(rows), step):
            part = np.arange(start, min(start + step, len(rows)))
            possible = ~((inputs.codes[rows[part]] == ABSENT) @ self.gone.T)
            # how often the curve has a point after so many features as a set has
            counted = (sizes[part][:, None] == self.gone.sum(axis=1)[:, None]).sum(axis=2)
            wanted = possible & (counted > 0)
            loss = np.where(
                wanted, inputs.probability[rows[part]][:, None] - self._left(inputs, way, rows[part], wanted), 0
            )
            low, high, first = np.zeros((len(part), 1)), np.zeros((len(part), 1)), 0
            for size, (sets, parents) in enumerate(self.levels, start=1):
                level = slice(first, first := first + len(sets))
                there, lost = possible[:, level], counted[:, level] * loss[:, level]
                low = np.where(there, low[:, parents].min(axis=2) + lost, np.inf)
                high = np.where(there, high[:, parents].max(axis=2) + lost, -np.inf)
                ends = longest[part] == size
                totals[part[ends]] = np.stack([low[ends].min(axis=1), high[ends].max(axis=1)], axis=1)
        return np.asarray(totals / np.maximum(1, points)[:, None])

    def _left(self, inputs: MetricInput, way: FittedRemoval, rows: Ints, wanted: Bools) -> Floats:
        """Return what is left of p(ŷ) (n, S) without each set that is wanted."""
        left = np.zeros(wanted.shape)
        if self.edits is None:
            which, sets = np.nonzero(wanted)
            told = erased(inputs, way, rows[which], self.gone[sets]).left
            if told is None:
                raise ValueError("a drop needs probabilities before and after the edit")
            left[which, sets] = told
            return left
        for i, row in enumerate(rows):
            left[i, wanted[i]] = self.edits.left(inputs.model, inputs.codes[row], int(inputs.labels[row]), wanted[i])
        return left


@dataclass(frozen=True)
class Edits:
    """The rows that stand for an instance without some features, as numbers: equal rows have equal numbers.

    Many are equal, since removed features often get the value that they have: of 12 features of Adults the 4,082 sets
    with 100 draws each make 9,000 different rows on average, of which the model is asked once.
    """

    gone: Bools  # (S, M)
    digits: Ints  # (M,) values of each feature, and none
    units: Ints  # (M,) what one step of a feature's value adds to a number
    numbers: Ints  # (R,) what the values of removed features add, set by set
    weights: Floats  # (R,)
    counts: Ints  # (S,) how many rows stand for a set

    @staticmethod
    def of(dataset: Dataset, stand_ins: Replacement, gone: Bools) -> Edits | None:
        """Number the rows, if they are edits of values and not too many."""
        digits = [len(feature.values) + 1 for feature in dataset.features]
        if stand_ins.vectors is not None or prod(digits) > _LARGEST or not len(gone):
            return None
        if len(gone) * len(stand_ins.sample(np.arange(dataset.width))[1]) > _MOST_EDITS:
            return None
        units = np.array([prod(digits[:j]) for j in range(len(digits))], dtype=np.int64)
        drawn = [stand_ins.sample(np.flatnonzero(one)) for one in gone]
        numbers = [(values.astype(np.int64) + 1) @ units[one] for (values, _), one in zip(drawn, gone, strict=True)]
        weights = np.concatenate([weights for _, weights in drawn])
        counts = np.array([len(weights) for _, weights in drawn])
        return Edits(gone, np.array(digits), units, np.concatenate(numbers), weights, counts)

    def count(self, row: Codes) -> int:
        """Return how many different rows stand for a row (M,) without one of the sets."""
        return len(np.unique(self._numbered(row, self._everything)))

    def left(self, model: ModelClient, row: Codes, label: int, wanted: Bools) -> Floats:
        """Return what is left of the label's probability without each set that is wanted, on average."""
        import pandas as pd

        which, different = pd.factorize(self._numbered(row, wanted))
        codes = (different[:, None] // self.units % self.digits - 1).astype(np.int32)
        _, probability = model.predict_with_proba(codes, np.full(len(codes), label))
        if probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        weights = self.weights if wanted.all() else self.weights[np.repeat(wanted, self.counts)]
        starts = np.cumsum(self.counts[wanted]) - self.counts[wanted]
        return np.asarray(np.add.reduceat(probability[which] * weights, starts))

    @cached_property
    def _everything(self) -> Bools:
        return np.ones(len(self.gone), dtype=bool)

    def _numbered(self, row: Codes, wanted: Bools) -> Ints:
        """Return the numbers (r,) of the rows that stand for a row without each set that is wanted."""
        own = (row.astype(np.int64) + 1) * self.units
        kept = np.repeat(own.sum() - self.gone @ own, self.counts)
        numbers = np.asarray(self.numbers + kept)
        return numbers if wanted.all() else numbers[np.repeat(wanted, self.counts)]


def _subsets(width: int, size: int) -> tuple[Ints, Ints]:
    """Return all sets (C, size) of features, and the places (C, size) of their subsets with one feature less.

    Sets are in colexicographic order, in which the place of a set {c_1 < c_2 < …} is the sum of all binomials (c_i, i).
    """
    binomials = np.array([[comb(feature, i + 1) for i in range(size)] for feature in range(width)])
    listed = np.fromiter(chain.from_iterable(combinations(range(width), size)), dtype=np.int64).reshape(-1, size)
    columns = np.arange(size)
    sets = listed[np.argsort(binomials[listed, columns].sum(axis=1))]
    smaller = [np.delete(sets, i, axis=1) for i in range(size)]
    return sets, np.stack([binomials[one, columns[:-1]].sum(axis=1) for one in smaller], axis=1)
