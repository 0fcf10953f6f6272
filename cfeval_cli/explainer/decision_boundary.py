"""Decision Boundary: the smallest sampled edit that crosses the boundary."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    Bools,
    CircularRelation,
    Codes,
    Dataset,
    Explainer,
    Explanation,
    Floats,
    ModelClient,
    ModelSpec,
    Workload,
)
from cfeval_cli.errors import check_int

# From a feature, its own value and uniform numbers to other values.
Another = Callable[[int, int, Floats], Codes]


@dataclass(frozen=True)
class DecisionBoundary(Explainer):
    """Sample edits, keep those that flip the label, take the one with the fewest edited features.

    Ties go to the smaller Euclidean distance between embeddings, of a model that has them, else to the first. The
    edited features, by the drop in p(ŷ) that each causes alone, are the explanation; where only labels are seen, those
    that flip alone come first. It is empty if no sample flips.
    """

    n_samples: int = 1000
    max_edits: int | None = None  # None: up to all features
    n_neighbours: int = 15  # nearest words that a word of a text may be exchanged for

    access = Access.GRADIENT  # for the embeddings that break ties
    min_access = Access.LABEL
    title = "DecisionBoundary"
    display_order = 50

    def __post_init__(self) -> None:
        check_int("n_samples", self.n_samples, 1)
        if self.max_edits is not None:
            check_int("max_edits", self.max_edits, 1)
        check_int("n_neighbours", self.n_neighbours, 1)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of samples, each of which is one model evaluation."""
        return Workload(self.n_samples, ("n_samples",))

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return the metrics of whether, and after how many edits, the prediction flips: it selects for flips."""
        return CircularRelation(metrics={("validity", ""), ("edits_to_flip", "")})

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Lay out what a value may be exchanged for: the training distribution, or the nearest words."""
        another = (
            _nearest(dataset, model, self.n_neighbours) if dataset.padded and model.has_embeddings else _drawn(dataset)
        )

        def explain(batch: Batch) -> Explanation:
            rows: list[list[tuple[int, float]]] = []
            for i in range(len(batch)):
                codes = batch.codes[i]
                samples = self._samples(codes, another, batch.rng(i), dataset.is_changeable)
                flips = samples[model.predict_labels(samples) != batch.labels[i]]
                rows.append(_explained(codes, int(batch.labels[i]), flips, model) if len(flips) else [])
            return Explanation.from_lists(rows)

        return explain

    def _samples(self, codes: Codes, another: Another, rng: np.random.Generator, free: Bools) -> Codes:
        """Edits (n_samples, M): first how many features, then which, then another value for each of them.

        Only features that are `free` to change are edited.
        """
        present = np.flatnonzero((codes != ABSENT) & free)
        if not len(present):
            return codes[None]
        most = len(present) if self.max_edits is None else min(self.max_edits, len(present))
        how_many = rng.integers(1, most + 1, self.n_samples)
        order = rng.random((self.n_samples, len(present))).argsort(axis=1).argsort(axis=1)
        draws = rng.random((self.n_samples, len(present)))
        samples = np.tile(codes, (self.n_samples, 1))
        for place, j in enumerate(present):
            rows = order[:, place] < how_many
            samples[rows, j] = another(int(j), int(codes[j]), draws[rows, place])
        return samples


def _drawn(dataset: Dataset) -> Another:
    """Values from the feature's training distribution."""
    cumulative = [np.cumsum(frequency) for frequency in dataset.frequencies]
    # where rounding may carry a point past the end
    last = [int(np.flatnonzero(frequency)[-1]) for frequency in dataset.frequencies]
    one_way = {j for j, feature in enumerate(dataset.features) if feature.allowed_change != "any"}

    def another(feature: int, own: int, uniform: Floats) -> Codes:
        if feature in one_way:
            return _one_way(dataset, feature, own, uniform)
        return _another_value(own, cumulative[feature], last[feature], uniform)

    return another


def _one_way(dataset: Dataset, feature: int, own: int, uniform: Floats) -> Codes:
    """Values from the training distribution of those that the own may be exchanged for; itself if there are none."""
    frequency = dataset.frequencies[feature].copy()
    codes = np.arange(len(frequency), dtype=np.int32)
    frequency[~dataset.features[feature].allows(np.array(own, dtype=np.int32), codes)] = 0.0
    frequency[own] = 0.0
    there = np.flatnonzero(frequency)
    if not len(there):
        return np.full(len(uniform), own, dtype=np.int32)
    cumulative = np.cumsum(frequency[there])
    place = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return np.asarray(there[np.minimum(place, len(there) - 1)], dtype=np.int32)


def _nearest(dataset: Dataset, model: ModelClient, size: int) -> Another:
    """Words among the nearest in the embedding space, never the mask."""
    words = dataset.get_values(0)
    vectors = model.embed_values(0, words)
    norms = (vectors**2).sum(axis=1)
    known: dict[int, Codes] = {}

    def neighbours(own: int) -> Codes:
        if own not in known:
            vector = model.embed_values(0, np.array([own], dtype=np.int32))[0]
            gaps = np.where(words == own, np.inf, norms - 2.0 * vectors @ vector)
            few = min(size, int(np.isfinite(gaps).sum()))
            near = np.argpartition(gaps, few - 1)[:few]
            known[own] = words[near[np.argsort(gaps[near], kind="stable")]]
        return known[own]

    def another(feature: int, own: int, uniform: Floats) -> Codes:
        near = neighbours(own)
        return near[(uniform * len(near)).astype(np.int64)]

    return another


def _another_value(own: int, cumulative: Floats, last: int, uniform: Floats) -> Codes:
    """Values drawn from a distribution without `own`: its share is cut out of the unit interval."""
    low = cumulative[own - 1] if own else 0.0
    share = cumulative[own] - low
    if share > 1.0 - 1e-9:
        return np.full(len(uniform), own, dtype=np.int32)  # the training set has no other value
    points = uniform * (1.0 - share)
    points = np.where(points >= low, points + share, points)
    return np.asarray(np.minimum(np.searchsorted(cumulative, points, side="right"), last), dtype=np.int32)


def _explained(codes: Codes, label: int, flips: Codes, model: ModelClient) -> list[tuple[int, float]]:
    """The edited features of the best flip, by the drop in p(ŷ) that each edit causes alone."""
    edited = (flips != codes).sum(axis=1)
    fewest = flips[edited == edited.min()]
    best = fewest[_nearest_of(fewest, codes, model)]
    features = np.flatnonzero(best != codes)
    alone = np.tile(codes, (len(features) + 1, 1))  # the last row is x itself
    alone[np.arange(len(features)), features] = best[features]
    labels, probability = model.predict_with_proba(alone, np.full(len(alone), label))
    kept = (labels == label).astype(float) if probability is None else probability
    drops = kept[-1] - kept[:-1]
    order = np.argsort(-drops, kind="stable")
    return [(int(features[i]), float(drops[i])) for i in order]


def _nearest_of(edits: Codes, codes: Codes, model: ModelClient) -> int:
    """The edit whose embeddings are nearest to those of the instance; the first, without embeddings."""
    if not model.has_embeddings:
        return 0
    return int(((model.embed_rows(edits) - model.embed_rows(codes[None])) ** 2).sum(axis=(1, 2)).argmin())
