"""Decision boundary: the smallest sampled edit that flips the label."""

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

# From a feature, the value of the instance and uniform numbers to other values.
DrawOther = Callable[[int, int, Floats], Codes]


@dataclass(frozen=True)
class DecisionBoundary(Explainer):
    """Sample edits, and select the features of the flipping edit with the fewest edited features.

    Ties are broken by the Euclidean distance between embeddings, if the model has them, else by the order of the
    samples. Features are sorted by the drop in p(ŷ) that each edit causes alone; with label access, features that flip
    the label alone come first. The explanation is empty if no sample flips.
    """

    n_samples: int = 1000
    max_edits: int | None = None  # None: all features
    n_neighbours: int = 15  # number of nearest words that may replace a word of a text

    access = Access.GRADIENT  # for embeddings, which break ties
    min_access = Access.LABEL
    title = "DecisionBoundary"
    display_order = 50

    def __post_init__(self) -> None:
        check_int("n_samples", self.n_samples, 1)
        if self.max_edits is not None:
            check_int("max_edits", self.max_edits, 1)
        check_int("n_neighbours", self.n_neighbours, 1)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of samples; each takes one model evaluation."""
        return Workload(self.n_samples, ("n_samples",))

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return the metrics of whether, and after how many edits, the prediction flips: it selects for flips."""
        return CircularRelation(metrics={("validity", ""), ("edits_to_flip", "")})

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Prepare the values that may replace a value: the training distribution, or the nearest words."""
        draw_other = (
            _prepare_neighbours(dataset, model, self.n_neighbours)
            if dataset.padded and model.has_embeddings
            else _prepare_distribution(dataset)
        )

        def explain(batch: Batch) -> Explanation:
            explanations: list[list[tuple[int, float]]] = []
            for i in range(len(batch)):
                codes = batch.codes[i]
                samples = self._draw_edits(codes, draw_other, batch.make_rng(i), dataset.is_changeable)
                flips = samples[model.predict_labels(samples) != batch.predicted_classes[i]]
                explanations.append(
                    _explain_by_flips(codes, int(batch.predicted_classes[i]), flips, model) if len(flips) else []
                )
            return Explanation.from_lists(explanations)

        return explain

    def _draw_edits(self, codes: Codes, draw_other: DrawOther, rng: np.random.Generator, is_changeable: Bools) -> Codes:
        """Return edits (n_samples, M): first how many features change, then which, then the other value of each."""
        present = np.flatnonzero((codes != ABSENT) & is_changeable)
        if not len(present):
            return codes[None]
        max_edits = len(present) if self.max_edits is None else min(self.max_edits, len(present))
        n_edits = rng.integers(1, max_edits + 1, self.n_samples)
        order = rng.random((self.n_samples, len(present))).argsort(axis=1).argsort(axis=1)
        uniforms = rng.random((self.n_samples, len(present)))
        samples = np.tile(codes, (self.n_samples, 1))
        for position, j in enumerate(present):
            is_edited = order[:, position] < n_edits
            samples[is_edited, j] = draw_other(int(j), int(codes[j]), uniforms[is_edited, position])
        return samples


def _prepare_distribution(dataset: Dataset) -> DrawOther:
    """Draw values from the training distribution of the feature."""
    cumulative = [np.cumsum(frequency) for frequency in dataset.frequencies]
    # Rounding may carry a point past the end, which is then the last value.
    last = [int(np.flatnonzero(frequency)[-1]) for frequency in dataset.frequencies]
    is_constrained = [feature.allowed_change != "any" for feature in dataset.features]

    def draw_other(feature: int, own: int, uniforms: Floats) -> Codes:
        if is_constrained[feature]:
            return _draw_allowed_value(dataset, feature, own, uniforms)
        return _draw_other_value(own, cumulative[feature], last[feature], uniforms)

    return draw_other


def _draw_allowed_value(dataset: Dataset, feature: int, own: int, uniforms: Floats) -> Codes:
    """Return values from the training distribution of those that are permitted; the own value if there are none."""
    frequency = dataset.frequencies[feature].copy()
    codes = np.arange(len(frequency), dtype=np.int32)
    frequency[~dataset.features[feature].allows(np.array(own, dtype=np.int32), codes)] = 0.0
    frequency[own] = 0.0
    allowed = np.flatnonzero(frequency)
    if not len(allowed):
        return np.full(len(uniforms), own, dtype=np.int32)
    cumulative = np.cumsum(frequency[allowed])
    positions = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
    return np.asarray(allowed[np.minimum(positions, len(allowed) - 1)], dtype=np.int32)


def _draw_other_value(own: int, cumulative: Floats, last: int, uniforms: Floats) -> Codes:
    """Return values from a distribution without `own`: its share is cut out of the unit interval."""
    low = cumulative[own - 1] if own else 0.0
    share = cumulative[own] - low
    if share > 1.0 - 1e-9:
        return np.full(len(uniforms), own, dtype=np.int32)  # the training set has no other value
    points = uniforms * (1.0 - share)
    points = np.where(points >= low, points + share, points)
    return np.asarray(np.minimum(np.searchsorted(cumulative, points, side="right"), last), dtype=np.int32)


def _prepare_neighbours(dataset: Dataset, model: ModelClient, n_neighbours: int) -> DrawOther:
    """Draw from the words with the nearest embeddings, without the mask token."""
    words = dataset.get_values(0)
    vectors = model.embed_values(0, words)
    norms = (vectors**2).sum(axis=1)
    neighbours: dict[int, Codes] = {}

    def find_neighbours(own: int) -> Codes:
        if own not in neighbours:
            vector = model.embed_values(0, np.array([own], dtype=np.int32))[0]
            distances = np.where(words == own, np.inf, norms - 2.0 * vectors @ vector)
            size = min(n_neighbours, int(np.isfinite(distances).sum()))
            nearest = np.argpartition(distances, size - 1)[:size]
            neighbours[own] = words[nearest[np.argsort(distances[nearest], kind="stable")]]
        return neighbours[own]

    def draw_other(feature: int, own: int, uniforms: Floats) -> Codes:
        nearest = find_neighbours(own)
        return nearest[(uniforms * len(nearest)).astype(np.int64)]

    return draw_other


def _explain_by_flips(codes: Codes, label: int, flips: Codes, model: ModelClient) -> list[tuple[int, float]]:
    """Return the edited features of the best flip, sorted by the drop in p(ŷ) that each edit causes alone."""
    n_edits = (flips != codes).sum(axis=1)
    smallest = flips[n_edits == n_edits.min()]
    best = smallest[_find_nearest(smallest, codes, model)]
    features = np.flatnonzero(best != codes)
    edits = np.tile(codes, (len(features) + 1, 1))  # the last row is the instance itself
    edits[np.arange(len(features)), features] = best[features]
    labels, probability = model.predict_with_proba(edits, np.full(len(edits), label))
    outcome = (labels == label).astype(float) if probability is None else probability
    drops = outcome[-1] - outcome[:-1]
    order = np.argsort(-drops, kind="stable")
    return [(int(features[i]), float(drops[i])) for i in order]


def _find_nearest(edits: Codes, codes: Codes, model: ModelClient) -> int:
    """Return the number of the edit with the nearest embeddings; of a model without embeddings, the first."""
    if not model.has_embeddings:
        return 0
    return int(((model.embed_rows(edits) - model.embed_rows(codes[None])) ** 2).sum(axis=(1, 2)).argmin())
