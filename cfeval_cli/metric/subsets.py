"""What the metrics on random feature sets share: the sets, their scores, and the effect of removing them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Bools, FittedRemoval, Floats, Ints, MetricInput
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.metric.erasure import ErasureMetric, compute_erasure
from cfeval_cli.seeding import make_stream


@dataclass(frozen=True)
class RandomSubsetMetric(ErasureMetric):
    """Base of the metrics that compare sums of scores with the effect of removing random feature sets."""

    subsets: int = 50  # feature sets of each instance
    share: float = 0.25  # share of the features of the instance in each set, at least one feature
    seed: int = 0

    block = "scores"
    access = Access.PROBABILITY
    needs = "scores"

    def __post_init__(self) -> None:
        check_int("subsets", self.subsets, 2)
        check_float("share", self.share, 0, 1, open_low=True)
        check_int("seed", self.seed, 0)

    def compute_sums_and_drops(self, inputs: MetricInput, fitted: FittedRemoval) -> tuple[Floats, Floats]:
        """Return for each instance and set (n, R) the sum of its scores, and p(ŷ|x) - p(ŷ|x without the set).

        Scores are divided by the largest absolute score of the instance, because their scale is arbitrary.
        """
        if inputs.explanation is None or inputs.probability is None:
            raise ValueError("needs scores and probabilities")
        ids, first_positions, id_positions = np.unique(inputs.ids, return_index=True, return_inverse=True)
        sets = self._draw_sets(inputs, ids, first_positions)
        positions = np.repeat(first_positions, self.subsets)
        probability = compute_erasure(
            inputs, fitted, positions, sets.reshape(-1, inputs.dataset.n_features)
        ).probability
        if probability is None:
            raise ValueError("needs probabilities after the edit")
        drops = (inputs.probability[positions] - probability).reshape(len(ids), self.subsets)[id_positions.ravel()]
        scores = inputs.explanation.to_dense(inputs.dataset.n_features)
        scores = np.where(np.isfinite(scores), scores, 0.0)
        largest = np.abs(scores).max(axis=1, keepdims=True, initial=0.0)
        scores = scores / np.where(largest > 0, largest, 1.0)
        return np.einsum("nrm,nm->nr", sets[id_positions.ravel()], scores), drops

    def _draw_sets(self, inputs: MetricInput, ids: Ints, first_positions: Ints) -> Bools:
        """Return the feature sets (n, R, M) of each instance, which do not depend on the explainer or the metric."""

        def draw(new_indices: Ints) -> Bools:
            sets = np.zeros((len(new_indices), self.subsets, inputs.dataset.n_features), dtype=bool)
            for position, i in enumerate(new_indices.tolist()):
                sets[position] = self._draw_sets_of(inputs.codes[first_positions[i]] != ABSENT, int(ids[i]))
            return sets

        return inputs.memory.get_or_compute(f"subsets {self.subsets} {self.share} {self.seed}", ids, draw)

    def _draw_sets_of(self, is_present: Bools, instance: int) -> Bools:
        """Draw uniform sets (R, M) of one size from the present features of an instance."""
        draws = make_stream(self.seed, "metric.subsets", instance).random((self.subsets, len(is_present)))
        draws[:, ~is_present] = 2.0
        size = max(1, round(self.share * int(is_present.sum())))
        ranks = np.argsort(np.argsort(draws, axis=1), axis=1)
        return np.asarray((ranks < size) & is_present)
