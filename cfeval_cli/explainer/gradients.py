"""Base class of explainers by gradients: baselines by removal, and sums over embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    Dataset,
    Explainer,
    Explanation,
    Floats,
    ModelClient,
    ModelSpec,
    Removal,
    Replacement,
)
from cfeval_cli.errors import check_option
from cfeval_cli.seeding import use_one_thread


class GradientExplainer(Explainer):
    """Explains the logit of ŷ by gradients, relative to a baseline: the removal of all features.

    The score of a feature is the sum over its embedding.
    """

    removals: Mapping[str, Removal]  # the options of `removal`, by name
    removal: str

    access = Access.GRADIENT

    def check_removal(self) -> None:
        """Raise an error for an unknown removal."""
        check_option("removal", self.removal, ("auto", *self.removals))

    def check(self, spec: ModelSpec) -> None:
        """Raise an error for a removal that does not apply."""
        if reason := self._choose_removal(spec.dataset).not_applicable_reason(spec):
            raise ValueError(f"removal={self.removal}: {reason}. Use removal=auto.")

    def _choose_removal(self, dataset: Dataset) -> Removal:
        auto = "mean" if dataset.mask_code is None else "mask"
        return self.removals[auto if self.removal == "auto" else self.removal]

    @abstractmethod
    def compute_slope(self, model: ModelClient, vectors: Floats, baselines: Floats, label: int) -> Floats:
        """Return the gradients (s, M, d) for the differences of an instance (M, d) from its baselines (s, M, d)."""

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Compute the baselines."""
        baselines, weights = _compute_baselines(self._choose_removal(dataset).fit(dataset, model), dataset, model)

        def explain(batch: Batch) -> Explanation:
            scores, is_present = np.zeros(batch.codes.shape), batch.codes != ABSENT
            with use_one_thread():
                # One instance at a time, so that scores do not depend on the batch to the last bit.
                for i, vectors in enumerate(model.embed_rows(batch.codes)):
                    starts = np.where(is_present[i][:, None], baselines, 0.0)
                    slope = self.compute_slope(model, vectors, starts, int(batch.predicted_classes[i]))
                    scores[i] = weights @ (slope * (vectors - starts)).sum(axis=2)
            return Explanation.from_scores(scores, is_present)

        return explain


def _compute_baselines(replacement: Replacement, dataset: Dataset, model: ModelClient) -> tuple[Floats, Floats]:
    """Return embeddings (s, M, d) in which all features are removed, and their weights (s,)."""
    if replacement.vectors is not None:
        return replacement.vectors[None], np.ones(1)
    codes, weights = replacement.sample(np.arange(dataset.n_features))
    return model.embed_rows(codes), weights
