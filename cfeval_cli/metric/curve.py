"""What the metrics of erasure curves share: removing the first 1, 2, … features of an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Bools, FittedRemoval, Floats, Ints, MetricInput
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.metric.erasure import NO_ORDER, ErasureMetric, compute_erasure


@dataclass(frozen=True)
class ErasureCurveMetric(ErasureMetric):
    """Base of the metrics that remove a growing number of features."""

    max_features: int = 10  # tables: the curve has the points 1, 2, … up to this number of features
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.5)  # texts: points as shares of the words

    block = "order"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    needs = "order"

    def __post_init__(self) -> None:
        check_int("max_features", self.max_features, 1)
        if not self.shares:
            raise ValueError("shares is empty. Give at least one share of the words of a text, such as [0.2]")
        for share in self.shares:
            check_float("shares", share, 0, 1, open_low=True)

    def count_removals_per_point(self, inputs: MetricInput, positions: Ints) -> Ints:
        """Return how many features (n, P) are removed at each point of the curve; 0 where an instance lacks a point."""
        n_present = (inputs.codes[positions] != ABSENT).sum(axis=1)[:, None]
        if inputs.dataset.padded:
            # The tolerance keeps a product such as 0.1 * 30 = 3.0000000000000004 from being rounded up to 4.
            return np.asarray(np.ceil(np.asarray(self.shares) * n_present - 1e-9), dtype=np.int64)
        steps = np.arange(1, min(self.max_features, inputs.dataset.n_features) + 1)
        return np.where(steps <= n_present, steps, 0)

    def compute_mean_drops(
        self, inputs: MetricInput, fitted: FittedRemoval, positions: Ints, ranks: Ints, *, keep: bool = False
    ) -> Floats:
        """Return the mean drop (n,) in p(ŷ) over the points of the curve.

        At a point of i features, the first i are removed, or with `keep` all others. `ranks` (n, M) are the positions
        of the features in the order. If the order has fewer features than a point, all of them are removed.
        """
        n_removed = self.count_removals_per_point(inputs, positions)
        instances, points = np.nonzero(n_removed)
        is_first: Bools = ranks[instances] < n_removed[instances, points][:, None]
        probability = compute_erasure(inputs, fitted, positions[instances], ~is_first if keep else is_first).probability
        if inputs.probability is None or probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        totals = np.bincount(
            instances, inputs.probability[positions[instances]] - probability, minlength=len(positions)
        )
        return np.asarray(totals / np.maximum(1, np.count_nonzero(n_removed, axis=1)))


def rank_features(inputs: MetricInput) -> Ints:
    """Return the position (n, M) of each feature in the explanation, from 0."""
    if inputs.explanation is None:
        raise ValueError(NO_ORDER)
    return inputs.explanation.to_ranks(inputs.dataset.n_features)
