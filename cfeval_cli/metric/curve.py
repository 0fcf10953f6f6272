"""Erasure down the whole list: features are removed one after the other, or all but these (DeYoung et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Bools, FittedRemoval, Floats, Ints, MetricInput
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.metric.erasure import Erasure, erased


@dataclass(frozen=True)
class Curve(Erasure):
    """What both share: how many features are removed at each point of the curve."""

    longest: int = 10  # of a table: the first 1, 2 … features, so many at most
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.5)  # of a text: these shares of its words, rounded up

    block = "order"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    needs = "order"

    def __post_init__(self) -> None:
        check_int("longest", self.longest, 1)
        if not self.shares:
            raise ValueError("shares must name at least one share of a text's words")
        for share in self.shares:
            check_float("shares", share, 0, 1, open_low=True)

    def sizes(self, inputs: MetricInput, rows: Ints) -> Ints:
        """How many features (n, S) are removed at each point; 0 where an instance has no such point."""
        there = (inputs.codes[rows] != ABSENT).sum(axis=1)[:, None]
        if inputs.dataset.padded:
            # a share such as 0.1 of 30 words is 3, whatever its last digit
            return np.asarray(np.ceil(np.asarray(self.shares) * there - 1e-9), dtype=np.int64)
        steps = np.arange(1, min(self.longest, inputs.dataset.width) + 1)
        return np.where(steps <= there, steps, 0)

    def drops(self, inputs: MetricInput, way: FittedRemoval, rows: Ints, places: Ints, *, keep: bool = False) -> Floats:
        """The mean over all points of p(ŷ|x) - p(ŷ|x without the first), or with only those: (n,).

        `places` (n, M) says at which place of the order each feature stands. Where fewer are named than are to be
        removed, all that are named are.
        """
        sizes = self.sizes(inputs, rows)
        which, points = np.nonzero(sizes)
        gone: Bools = places[which] < sizes[which, points][:, None]
        left = erased(inputs, way, rows[which], ~gone if keep else gone).left
        if inputs.probability is None or left is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        total = np.bincount(which, inputs.probability[rows[which]] - left, minlength=len(rows))
        return np.asarray(total / np.maximum(1, np.count_nonzero(sizes, axis=1)))


def places(inputs: MetricInput) -> Ints:
    """At which place (n, M) of the explanation each feature stands."""
    if inputs.explanation is None:
        raise ValueError("a set of features has no order")
    return inputs.explanation.places(inputs.dataset.width)
