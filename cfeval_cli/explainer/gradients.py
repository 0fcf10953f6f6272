"""What explainers by gradients share: the baselines that a removal stands for, and the sums over embeddings."""

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


class ByGradient(Explainer):
    """An explainer of the logit of ŷ by its gradient, from a baseline that is what a removal puts into the place of x.

    A feature has the sum over its embedding.
    """

    ways: Mapping[str, Removal]  # that can be chosen, by name
    removal: str

    access = Access.GRADIENT

    def check_removal(self) -> None:
        """Refuse a removal that there is not."""
        check_option("removal", self.removal, ("auto", *self.ways))

    def check(self, spec: ModelSpec) -> None:
        """Refuse a removal that does not go with the data."""
        if reason := self._way(spec.dataset).not_applicable_reason(spec):
            raise ValueError(f"removal={self.removal}: {reason}. Use removal=auto.")

    def _way(self, dataset: Dataset) -> Removal:
        auto = "mean" if dataset.mask_code is None else "mask"
        return self.ways[auto if self.removal == "auto" else self.removal]

    @abstractmethod
    def slope(self, model: ModelClient, vectors: Floats, baselines: Floats, label: int) -> Floats:
        """The gradient (s, M, d) by which the way from each baseline (s, M, d) to an instance (M, d) is multiplied."""

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Find the baselines."""
        baselines, weights = _baselines(self._way(dataset).fit(dataset, model), dataset, model)

        def explain(batch: Batch) -> Explanation:
            scores, there = np.zeros(batch.codes.shape), batch.codes != ABSENT
            with use_one_thread():
                for i, vectors in enumerate(
                    model.embed_rows(batch.codes)
                ):  # one by one: who else is asked changes no bit
                    starts = np.where(there[i][:, None], baselines, 0.0)
                    slope = self.slope(model, vectors, starts, int(batch.labels[i]))
                    scores[i] = weights @ (slope * (vectors - starts)).sum(axis=2)
            return Explanation.from_scores(scores, there)

        return explain


def _baselines(replacement: Replacement, dataset: Dataset, model: ModelClient) -> tuple[Floats, Floats]:
    """Embeddings (s, M, d) in which all features are removed, and their weights (s,)."""
    if replacement.vectors is not None:
        return replacement.vectors[None], np.ones(1)
    codes, weights = replacement.sample(np.arange(dataset.n_features))
    return model.embed_rows(codes), weights
