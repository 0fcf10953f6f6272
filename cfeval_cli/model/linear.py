"""A trained model whose logit is linear in its embeddings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Bools,
    Codes,
    Dataset,
    Floats,
    HasAdditiveEffects,
    HasAnalyticGradient,
    HasArrays,
    HasLogits,
    HasUsedFeatures,
    Ints,
    ParameterChange,
    Reparametrisable,
    SupportsEdits,
)
from cfeval_cli.model import reparametrisation
from cfeval_cli.model.embedding import EmbeddingTables, restore_tables
from cfeval_cli.model.reparametrisation import Group

if TYPE_CHECKING:
    import torch


_MAX_GATHERED_CODES = 50_000  # codes that are looked up at once; more are looked up column by column


@dataclass(frozen=True)
class LinearModel(
    SupportsEdits,
    HasAnalyticGradient,
    EmbeddingTables,
    HasLogits,
    Reparametrisable,
    HasAdditiveEffects,
    HasUsedFeatures,
    HasArrays,
):
    """A trained model: logit(x) = b + Σ_j w_j · e_j(x_j)."""

    bias: float
    weights: Floats  # (M, d)
    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values
    means: Floats  # (M, d) mean embedding of each feature over the training set

    @cached_property
    def _effects(self) -> Floats:
        """The effects w_j · e_j(v) as (M, V + 1); the last column, which ABSENT = -1 indexes, is zero."""
        widest = max(len(table) for table in self.tables)
        effects = np.zeros((len(self.tables), widest + 1))
        for j, table in enumerate(self.tables):
            effects[j, : len(table)] = table @ self.weights[j]
        return effects

    @cached_property
    def _starts(self) -> Ints:
        """The start (M, 1) of each feature's effects in the flat table; the entry before it is zero, for ABSENT."""
        return np.asarray(np.arange(len(self.tables)) * self._effects.shape[1])[:, None]

    def _compute_logits(self, codes: Codes) -> Floats:
        """Return the logits (n,); the order of the sum does not depend on the number of rows."""
        if codes.size <= _MAX_GATHERED_CODES:
            gathered = self._effects.take(codes.T + self._starts)
            if len(codes) == 1:  # NumPy sums a single column in another order
                gathered = np.repeat(gathered, 2, axis=1)
            return np.asarray(np.add.reduce(gathered, axis=0, initial=self.bias))[: len(codes)]
        logits = np.full(len(codes), self.bias)
        for j, effects in enumerate(self._effects):  # for many rows the fastest way in NumPy
            logits += effects[codes[:, j]]
        return logits

    def _compute_edited_logits(self, codes: Codes, features: Ints, positions: Ints, values: Codes) -> Floats:
        """Return the logits (m,) of edits: the effects of edited features are exchanged."""
        partial_logits = self._compute_logits(codes)
        starts = []
        for selected in features.T:
            begin = self._starts[:, 0].take(np.where(selected == NO_FEATURE, 0, selected))
            own_codes = np.where(selected == NO_FEATURE, ABSENT, codes[np.arange(len(codes)), selected])
            partial_logits -= self._effects.take(begin + own_codes)
            starts.append(begin)
        logits = partial_logits.take(positions)
        for i, begin in enumerate(starts):
            logits = logits + self._effects.take(begin.take(positions) + values[:, i])  # positions may be (1,)
        return np.asarray(logits)

    def predict_positive(self, codes: Codes) -> Floats:
        """Return P(1|x) (n,) of codes (n, M)."""
        return _compute_sigmoid(self._compute_logits(codes))

    def predict_edited(self, codes: Codes, features: Ints, positions: Ints, values: Codes) -> Floats:
        """Return P(1|x) (m,) of edits: the features (n, k) of the rows at positions (m,) get the values (m, k)."""
        return _compute_sigmoid(self._compute_edited_logits(codes, features, positions, values))

    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the probabilities (n, 2) of embeddings (n, M, d), differentiable."""
        import torch

        positive = torch.sigmoid(self._compute_logit_embedded(vectors))
        return torch.stack([1.0 - positive, positive], dim=1)

    def compute_logits_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, 2); the logit of class 0 is zero."""
        import torch

        logit = self._compute_logit_embedded(vectors)
        return torch.stack([torch.zeros_like(logit), logit], dim=1)

    def _compute_logit_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.einsum("nmd,md->n", vectors, torch.as_tensor(self.weights)) + self.bias

    def make_gradient_function(self, codes: Codes, features: Ints) -> Callable[[Ints, Floats], tuple[Floats, Floats]]:
        """Return a function of (positions, vectors (n, k, d)): P(1|x) with these embeddings, and its gradient."""
        is_feature = features != NO_FEATURE
        weights = self.weights[features] * is_feature[:, :, None]
        effects = np.take_along_axis(self._compute_own_effects(codes), features, axis=1) * is_feature
        partial_logits = self._compute_logits(codes) - effects.sum(axis=1)

        def compute_gradient(positions: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            gradient = weights.take(positions, axis=0)
            positive = _compute_sigmoid(np.einsum("nkd,nkd->n", vectors, gradient) + partial_logits[positions])
            gradient *= (positive * (1.0 - positive))[:, None, None]
            return positive, gradient

        return compute_gradient

    def compute_logits(self, codes: Codes) -> Floats:
        """Return log P(1|x) - log P(0|x), exact where P rounds to 0 or 1."""
        return self._compute_logits(codes)

    def get_slopes(self) -> Floats:
        """Return ∂ logit / ∂ embedding (M, d), which is the same for all inputs."""
        return self.weights

    def _compute_own_effects(self, codes: Codes) -> Floats:
        """Return the effects (n, M) of the values on the logit of class 1."""
        return np.stack([self._effects[j][codes[:, j]] for j in range(codes.shape[1])], axis=1)

    def compute_effects(self, codes: Codes, classes: Ints) -> Floats:
        """Return the effects (n, M) of the values on the logit of one class (n,) for each row."""
        return np.asarray(np.where(classes == 1, 1.0, -1.0)[:, None] * self._compute_own_effects(codes))

    def compute_value_effects(self, feature: int, target: int) -> Floats:
        """Return the effects (V,) of all values of a feature on the logit of a class."""
        effects = self._effects[feature, : len(self.tables[feature])]
        return effects if target == 1 else -effects

    def compute_mean_effects(self) -> Floats:
        """Return the mean effects (2, M) of the features on each class over the training set."""
        means = (self.means * self.weights).sum(axis=1)
        return np.stack([-means, means])

    def get_used_features(self) -> Bools:
        """Return whether each feature (M,) has a weight."""
        return np.asarray(self.weights.any(axis=1))

    @cached_property
    def _groups(self) -> list[Group]:
        """Groups of features that share a table."""
        return Group.from_tables(self.tables, self.weights, self.means)

    def list_changes(self, *, padded: bool) -> tuple[ParameterChange, ...]:
        """Return the changes of parameters that keep all predictions."""
        return reparametrisation.list_changes(self._groups, padded=padded)

    def reparametrise(
        self, dataset: Dataset, changes: Collection[ParameterChange], rng: np.random.Generator
    ) -> LinearModel:
        """Return a model with other parameters and the same predictions."""
        tables, weights, means, bias = list(self.tables), self.weights.copy(), self.means.copy(), self.bias
        for group in self._groups:
            redrawn = reparametrisation.redraw_group(group, changes, rng, dataset)
            weights[group.features], means[group.features] = redrawn.weights, redrawn.means
            for j in group.features.tolist():
                tables[j] = redrawn.table
            bias -= redrawn.constant
        model = LinearModel(bias, weights, tuple(tables), means)
        if "constant" not in changes:  # The effects stay the same; for texts these are a million numbers.
            vars(model)["_effects"] = self._effects
        return model

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""
        return {"bias": np.array(self.bias), "weights": self.weights, **self.store_tables(), "means": self.means}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> LinearModel:
        """Return the model from the arrays of `to_arrays`."""
        tables = restore_tables(arrays["embeddings"], arrays["starts"], arrays["sizes"])
        return LinearModel(float(arrays["bias"]), arrays["weights"], tables, arrays["means"])


def _compute_sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(logits))
