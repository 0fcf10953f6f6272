"""Random sets of features that are removed together: what scores are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Bools, FittedRemoval, Floats, Ints, MetricInput
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.metric.erasure import Erasure, erased
from cfeval_cli.seeding import make_stream


@dataclass(frozen=True)
class Subsets(Erasure):
    """What both share: the sum of the scores of random sets, and what removing these does."""

    subsets: int = 50  # for each instance
    share: float = 0.25  # of its features that a set has, at least one
    seed: int = 0

    block = "scores"
    access = Access.PROBABILITY
    needs = "scores"

    def __post_init__(self) -> None:
        check_int("subsets", self.subsets, 2)
        check_float("share", self.share, 0, 1, open_low=True)
        check_int("seed", self.seed, 0)

    def sums(self, inputs: MetricInput, way: FittedRemoval) -> tuple[Floats, Floats]:
        """For each instance and set (n, R): the sum of its scores, and p(ŷ|x) - p(ŷ|x without it).

        Scores are in units of the instance's largest: their scale says nothing.
        """
        if inputs.explanation is None or inputs.probability is None:
            raise ValueError("needs scores and probabilities")
        ids, first, which = np.unique(inputs.ids, return_index=True, return_inverse=True)
        sets = self._sets(inputs, ids, first)
        rows = np.repeat(first, self.subsets)
        left = erased(inputs, way, rows, sets.reshape(-1, inputs.dataset.width)).left
        if left is None:
            raise ValueError("needs probabilities after the edit")
        drops = (inputs.probability[rows] - left).reshape(len(ids), self.subsets)[which.ravel()]
        told = inputs.explanation.table(inputs.dataset.width)
        told = np.where(np.isfinite(told), told, 0.0)  # an infinite score is of no use in a sum
        largest = np.abs(told).max(axis=1, keepdims=True, initial=0.0)
        told = told / np.where(largest > 0, largest, 1.0)  # squares are neither too large nor too small
        return np.einsum("nrm,nm->nr", sets[which.ravel()], told), drops

    def _sets(self, inputs: MetricInput, ids: Ints, first: Ints) -> Bools:
        """The sets (n, R, M) of each instance, the same whoever explains it and whatever is made of them."""
        about = f"subsets {self.subsets} {self.share} {self.seed}"

        def drawn(new: Ints) -> Bools:
            sets = np.zeros((len(new), self.subsets, inputs.dataset.width), dtype=bool)
            for place, i in enumerate(new.tolist()):
                sets[place] = self._drawn(inputs.codes[first[i]] != ABSENT, int(ids[i]))
            return sets

        return inputs.memory.ask(about, ids, drawn)

    def _drawn(self, there: Bools, instance: int) -> Bools:
        """Sets (R, M) of the features that are there, uniformly, all of one size."""
        draws = make_stream(self.seed, "metric.subsets", instance).random((self.subsets, len(there)))
        draws[:, ~there] = 2.0
        size = max(1, round(self.share * int(there.sum())))
        ranks = np.argsort(np.argsort(draws, axis=1), axis=1)
        return np.asarray((ranks < size) & there)
