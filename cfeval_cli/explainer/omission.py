"""Omission: remove one feature at a time and see what is lost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    CircularRelation,
    Dataset,
    Explainer,
    Explanation,
    ModelClient,
    ModelSpec,
    Removal,
    Workload,
)
from cfeval_cli.core.without import compute_removal_effect
from cfeval_cli.errors import check_option


@dataclass(frozen=True)
class Omission(Explainer):
    """The drop in p(ŷ) when a feature is removed."""

    ways: Mapping[str, Removal]  # that can be chosen, by name
    removal: str = "auto"  # one of the ways, or auto: mask where there is one, marginal elsewhere
    inapplicable: str = "refuse"  # a way that does not go with the data or the model; or sit_out, with the reason
    title: str = "Omission"

    access = Access.GRADIENT  # for removal by mean, which moves embeddings
    min_access = Access.PROBABILITY
    display_order = 20

    def __post_init__(self) -> None:
        check_option("removal", self.removal, ("auto", *self.ways))
        check_option("inapplicable", self.inapplicable, ("refuse", "sit_out"))

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """No probabilities, or, if that is the setting, a way that does not apply."""
        reason = super().not_applicable_reason(spec)
        if reason is None and self.inapplicable == "sit_out":
            reason = self._way(spec.dataset).not_applicable_reason(spec)
        return reason

    def check(self, spec: ModelSpec) -> None:
        """Refuse a way that does not go with the data or the model."""
        if reason := self._way(spec.dataset).not_applicable_reason(spec):
            raise ValueError(f"removal={self.removal}: {reason}. Use removal=auto.")

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return comprehensiveness with the same removal, and the truth that this removal approximates."""
        removal = self._way(spec.dataset)
        truths = {removal.circular_truth} - {""}
        return CircularRelation(truths=truths, metrics={("comprehensiveness", removal.variant)})

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of values that take the place of all features, one feature after the other."""
        dataset, way = spec.dataset, self._way(spec.dataset)
        settings = tuple(f"ways.{way.name}.{key}" for key in way.cost_settings)
        return Workload(1 + float(dataset.test_lengths.mean()) * way.count_replacements(dataset, 1), settings)

    def _way(self, dataset: Dataset) -> Removal:
        auto = "marginal" if dataset.mask_code is None else "mask"
        return self.ways[auto if self.removal == "auto" else self.removal]

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Settle which values stand for a removed feature, and with which weights."""
        ready = self._way(dataset).fit(dataset, model)
        replacements = [ready.sample(np.array([j])) for j in range(dataset.n_features)]

        def explain(batch: Batch) -> Explanation:
            before = model.predict_class_proba(batch.codes, batch.labels)
            drops = np.zeros(batch.codes.shape)
            if ready.vectors is not None:
                for j in range(dataset.n_features):
                    gone = np.arange(dataset.n_features)[None] == np.full((len(batch), 1), j)
                    left = compute_removal_effect(model, batch, gone, ready).probability
                    drops[:, j] = before - (before if left is None else left)
                return Explanation.from_scores(drops, batch.codes != ABSENT)
            for j, (values, weights) in enumerate(replacements):
                rows = np.flatnonzero(batch.codes[:, j] != ABSENT)
                n, size = len(rows), len(values)
                edits = (np.full((n, 1), j), np.repeat(np.arange(n), size), np.tile(values, (n, 1)))
                _, after = model.evaluate_edits(batch.codes[rows], *edits, batch.labels[rows])
                if after is None:
                    raise ValueError("omission needs probabilities")
                weighted = after.reshape(n, size) * weights
                expected = np.ascontiguousarray(weighted).sum(axis=1)  # each row by itself, unlike a matrix product
                drops[rows, j] = before[rows] - expected
            return Explanation.from_scores(drops, batch.codes != ABSENT)

        return explain
