"""Omission: the drop in probability when a feature is removed."""

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
    Floats,
    ModelClient,
    ModelSpec,
    Removal,
    Workload,
)
from cfeval_cli.core.removal_effect import compute_removal_effect
from cfeval_cli.errors import check_option


@dataclass(frozen=True)
class Omission(Explainer):
    """The drop in p(ŷ) when a feature is removed."""

    removals: Mapping[str, Removal]  # the options of `removal`, by name
    removal: str = "auto"  # one of the removals; auto: mask if the data have a mask token, else marginal
    inapplicable: str = "refuse"  # an error if the removal does not apply; skip: the explainer is not applicable
    title: str = "Omission"

    access = Access.GRADIENT  # for removal by mean, which changes embeddings
    min_access = Access.PROBABILITY
    display_order = 20

    def __post_init__(self) -> None:
        check_option("removal", self.removal, ("auto", *self.removals))
        check_option("inapplicable", self.inapplicable, ("refuse", "skip"))

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without probabilities, and with `skip` for a removal that does not apply."""
        reason = super().not_applicable_reason(spec)
        if reason is None and self.inapplicable == "skip":
            reason = self._choose_removal(spec.dataset).not_applicable_reason(spec)
        return reason

    def check(self, spec: ModelSpec) -> None:
        """Raise an error for a removal that does not apply."""
        if reason := self._choose_removal(spec.dataset).not_applicable_reason(spec):
            raise ValueError(f"removal={self.removal}: {reason}. Use removal=auto.")

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return comprehensiveness with the same removal, and the truth that this removal approximates."""
        removal = self._choose_removal(spec.dataset)
        truths = {removal.circular_truth} - {""}
        return CircularRelation(truths=truths, metrics={("comprehensiveness", removal.variant)})

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the expected model evaluations: the input itself, and each replacement of each feature."""
        dataset, removal = spec.dataset, self._choose_removal(spec.dataset)
        settings = tuple(f"removals.{removal.name}.{key}" for key in removal.cost_settings)
        return Workload(1 + float(dataset.test_lengths.mean()) * removal.count_replacements(dataset, 1), settings)

    def _choose_removal(self, dataset: Dataset) -> Removal:
        auto = "marginal" if dataset.mask_code is None else "mask"
        return self.removals[auto if self.removal == "auto" else self.removal]

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Fit the removal, and return the function that explains a batch."""
        replacement = self._choose_removal(dataset).fit(dataset, model)
        samples = [replacement.sample(np.array([j])) for j in range(dataset.n_features)]

        def explain(batch: Batch) -> Explanation:
            before = model.predict_class_proba(batch.codes, batch.predicted_classes)
            drops = np.zeros(batch.codes.shape)
            if replacement.vectors is not None:
                for j in range(dataset.n_features):
                    is_removed = np.arange(dataset.n_features)[None] == np.full((len(batch), 1), j)
                    after = compute_removal_effect(model, batch, is_removed, replacement).probability
                    drops[:, j] = before - _require_probability(after)
                return Explanation.from_scores(drops, batch.codes != ABSENT)
            for j, (values, weights) in enumerate(samples):
                positions = np.flatnonzero(batch.codes[:, j] != ABSENT)
                n, size = len(positions), len(values)
                edits = (np.full((n, 1), j), np.repeat(np.arange(n), size), np.tile(values, (n, 1)))
                _, after = model.evaluate_edits(batch.codes[positions], *edits, batch.predicted_classes[positions])
                # A matrix product would make the sum of a row depend on the batch, to the last bit.
                weighted = np.ascontiguousarray(_require_probability(after).reshape(n, size) * weights)
                drops[positions, j] = before[positions] - weighted.sum(axis=1)
            return Explanation.from_scores(drops, batch.codes != ABSENT)

        return explain


def _require_probability(probability: Floats | None) -> Floats:
    """Return the probability; raise a ValueError if there is none, because then no drop is defined."""
    if probability is None:
        raise ValueError("omission needs probabilities")
    return probability
