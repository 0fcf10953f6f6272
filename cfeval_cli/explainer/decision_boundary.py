"""Decision Boundary: the smallest sampled edit that crosses the boundary."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import whole
from cfeval_cli.model.gate import probability_of
from cfeval_cli.types import ABSENT, Access, Batch, Codes, Dataset, Explanation, Floats


@dataclass(frozen=True)
class DecisionBoundary:
    """Sample edits, keep those that flip the label, take the one with the fewest edited features.

    Ties go to the smaller Euclidean distance between embeddings. The edited features, by the drop in p(ŷ) that
    each causes alone, are the explanation; it is empty if no sample flips.
    """

    n_samples: int = 1000
    max_edits: int | None = None  # None: up to all features

    access = Access.GRADIENT  # for the embeddings that break ties
    title = "DecisionBoundary"
    place = 50

    def __post_init__(self) -> None:
        whole("n_samples", self.n_samples, 1)
        if self.max_edits is not None:
            whole("max_edits", self.max_edits, 1)

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Lay out the training distribution for sampling."""
        cumulative = [np.cumsum(frequency) for frequency in dataset.frequencies]

        def explain(batch: Batch) -> Explanation:
            rows: list[list[tuple[int, float]]] = []
            for i in range(len(batch)):
                codes = batch.codes[i]
                samples = self._samples(codes, cumulative, batch.rng(i))
                flips = samples[model.labels(samples) != batch.labels[i]]
                rows.append(_explained(codes, int(batch.labels[i]), flips, model) if len(flips) else [])
            return Explanation.ragged(rows)

        return explain

    def _samples(self, codes: Codes, cumulative: list[Floats], rng: np.random.Generator) -> Codes:
        """Edits (n_samples, M): first how many features, then which, then another value for each of them."""
        present = np.flatnonzero(codes != ABSENT)
        most = len(present) if self.max_edits is None else min(self.max_edits, len(present))
        how_many = rng.integers(1, most + 1, self.n_samples)
        order = rng.random((self.n_samples, len(present))).argsort(axis=1).argsort(axis=1)
        draws = rng.random((self.n_samples, len(present)))
        samples = np.tile(codes, (self.n_samples, 1))
        for place, j in enumerate(present):
            rows = order[:, place] < how_many
            samples[rows, j] = _another_value(int(codes[j]), cumulative[j], draws[rows, place])
        return samples


def _another_value(own: int, cumulative: Floats, uniform: Floats) -> Codes:
    """Values drawn from a distribution without `own`: its share is cut out of the unit interval."""
    low = cumulative[own - 1] if own else 0.0
    share = cumulative[own] - low
    if share > 1.0 - 1e-9:
        return np.full(len(uniform), own, dtype=np.int32)  # the training set has no other value
    points = uniform * (1.0 - share)
    points = np.where(points >= low, points + share, points)
    last = np.flatnonzero(np.diff(cumulative, prepend=0.0))[-1]  # where rounding may carry a point past the end
    return np.asarray(np.minimum(np.searchsorted(cumulative, points, side="right"), last), dtype=np.int32)


def _explained(codes: Codes, label: int, flips: Codes, model: Any) -> list[tuple[int, float]]:
    """The edited features of the best flip, by the drop in p(ŷ) that each edit causes alone."""
    edited = (flips != codes).sum(axis=1)
    fewest = flips[edited == edited.min()]
    gaps = ((model.embed(fewest) - model.embed(codes[None])) ** 2).sum(axis=(1, 2))
    best = fewest[gaps.argmin()]
    features = np.flatnonzero(best != codes)
    alone = np.tile(codes, (len(features) + 1, 1))  # the last row is x itself
    alone[np.arange(len(features)), features] = best[features]
    probability = probability_of(np.full(len(alone), label), model.proba(alone))
    drops = probability[-1] - probability[:-1]
    order = np.argsort(-drops, kind="stable")
    return [(int(features[i]), float(drops[i])) for i in order]
