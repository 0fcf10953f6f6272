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
    HasReadFeatures,
    Ints,
    ParameterChange,
    Reparametrisable,
    SupportsBatchedEmbedding,
    SupportsEdits,
)
from cfeval_cli.model import reparametrisation
from cfeval_cli.model.reparametrisation import Group

if TYPE_CHECKING:
    import torch


_FEW = 50_000  # codes that are gathered at once; more are gathered column by column
_MOST = 1 << 30  # effects of values
_ARRAYS = {"bias": 0, "weights": 2, "embeddings": 2, "starts": 1, "sizes": 1, "means": 2}  # with their dimensions


@dataclass(frozen=True)
class LinearModel(
    SupportsEdits,
    HasAnalyticGradient,
    SupportsBatchedEmbedding,
    HasLogits,
    Reparametrisable,
    HasAdditiveEffects,
    HasReadFeatures,
    HasArrays,
):
    """A trained model: logit(x) = b + Σ_j w_j · e_j(x_j)."""

    bias: float
    weights: Floats  # (M, d)
    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values
    means: Floats  # (M, d) mean embedding of each feature over the training set

    @cached_property
    def _effects(self) -> Floats:
        """c_j(v) = w_j · e_j(v) as (M, V + 1); the last column is zero, which is where ABSENT = -1 points."""
        widest = max(len(table) for table in self.tables)
        effects = np.zeros((len(self.tables), widest + 1))
        for j, table in enumerate(self.tables):
            effects[j, : len(table)] = table @ self.weights[j]
        return effects

    @cached_property
    def _starts(self) -> Ints:
        """Where each feature's effects begin in the flat table (M, 1); before each lies a zero, for ABSENT = -1."""
        return np.asarray(np.arange(len(self.tables)) * self._effects.shape[1])[:, None]

    def _logits(self, codes: Codes) -> Floats:
        if codes.size <= _FEW:  # the same sums in the same order, with fewer calls
            gathered = self._effects.take(codes.T + self._starts)
            if len(codes) == 1:  # NumPy adds up a single column in another order
                gathered = np.repeat(gathered, 2, axis=1)
            return np.asarray(np.add.reduce(gathered, axis=0, initial=self.bias))[: len(codes)]
        logits = np.full(len(codes), self.bias)
        for j, effects in enumerate(self._effects):  # one gather a column is the fastest NumPy has
            logits += effects[codes[:, j]]
        return logits

    def _edited_logits(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Floats:
        rest = self._logits(codes)
        starts = []
        for named in features.T:
            begin = self._starts[:, 0].take(np.where(named == NO_FEATURE, 0, named))
            own = np.where(named == NO_FEATURE, ABSENT, codes[np.arange(len(codes)), named])
            rest -= self._effects.take(begin + own)
            starts.append(begin)
        logits = rest.take(rows)
        for i, begin in enumerate(starts):
            logits = logits + self._effects.take(begin.take(rows) + values[:, i])  # rows may be (1,)
        return np.asarray(logits)

    def predict_positive(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""
        return _sigmoid(self._logits(codes))

    def predict_edited(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Floats:
        """P(1|x) (m,) of edits: the features (n, k) of some rows (m,) get the values (m, k)."""
        return _sigmoid(self._edited_logits(codes, features, rows, values))

    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature; zero where absent."""
        return np.where((codes == ABSENT)[:, None], 0.0, self.tables[feature][codes])

    @cached_property
    def _table(self) -> tuple[Floats, Ints]:
        """The embeddings of all features in one array, the last row zero, and where each feature's begin."""
        shared = {id(table): table for table in self.tables}
        ends = dict(zip(shared, np.cumsum([len(table) for table in shared.values()]).tolist(), strict=True))
        starts = np.array([ends[id(table)] - len(table) for table in self.tables])
        return np.concatenate([*shared.values(), np.zeros((1, self.weights.shape[1]))]), starts

    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Embeddings (n, d) of one value (n,) each, of any features (n,); zero where absent."""
        table, starts = self._table
        return np.asarray(table.take(np.where(codes == ABSENT, -1, starts.take(features) + codes), axis=0))

    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, 2) of embeddings (n, M, d), differentiable."""
        import torch

        positive = torch.sigmoid(self._logit_embedded(vectors))
        return torch.stack([1.0 - positive, positive], dim=1)

    def compute_logits_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Logits (n, 2), of class 0 always zero."""
        import torch

        logit = self._logit_embedded(vectors)
        return torch.stack([torch.zeros_like(logit), logit], dim=1)

    def _logit_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.einsum("nmd,md->n", vectors, torch.as_tensor(self.weights)) + self.bias

    def make_gradient_function(self, codes: Codes, features: Ints) -> Callable[[Ints, Floats], tuple[Floats, Floats]]:
        """A function of (rows, vectors (n, k, d)): P(1|x) with those rows' features moved there, and its gradient."""
        named = features != NO_FEATURE
        weights = self.weights[features] * named[:, :, None]
        rest = self._logits(codes) - (np.take_along_axis(self._own_effects(codes), features, axis=1) * named).sum(
            axis=1
        )

        def slope(rows: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            gradient = weights.take(rows, axis=0)
            positive = _sigmoid(np.einsum("nkd,nkd->n", vectors, gradient) + rest[rows])
            gradient *= (positive * (1.0 - positive))[:, None, None]
            return positive, gradient

        return slope

    def compute_logits(self, codes: Codes) -> Floats:
        """log P(1|x) - log P(0|x), exact where P rounds to 0 or 1."""
        return self._logits(codes)

    def get_slopes(self) -> Floats:
        """∂ logit / ∂ embedding (M, d), the same everywhere: what makes a model linear."""
        return self.weights

    def _own_effects(self, codes: Codes) -> Floats:
        """Effects (n, M) of the values on the logit of class 1."""
        return np.stack([self._effects[j][codes[:, j]] for j in range(codes.shape[1])], axis=1)

    def compute_effects(self, codes: Codes, of: Ints) -> Floats:
        """Effects (n, M) of the values on the logit of each row's class."""
        return np.asarray(np.where(of == 1, 1.0, -1.0)[:, None] * self._own_effects(codes))

    def compute_value_effects(self, feature: int, of: int) -> Floats:
        """Effects of every value of one feature on the logit of one class."""
        effects = self._effects[feature, : len(self.tables[feature])]
        return effects if of == 1 else -effects

    def compute_mean_effects(self) -> Floats:
        """Mean effect (2, M) of each feature on each class over the training set."""
        means = (self.means * self.weights).sum(axis=1)
        return np.stack([-means, means])

    def get_used_features(self) -> Bools:
        """The features (M,) that have a weight."""
        return np.asarray(self.weights.any(axis=1))

    @cached_property
    def _groups(self) -> list[Group]:
        """The features by the table that they have."""
        return Group.all(self.tables, self.weights, self.means)

    def list_changes(self, *, padded: bool) -> tuple[ParameterChange, ...]:
        """What can be changed without changing a prediction."""
        return reparametrisation.changes(self._groups, padded=padded)

    def reparametrise(
        self, dataset: Dataset, changes: Collection[ParameterChange], rng: np.random.Generator
    ) -> LinearModel:
        """The same predictions from other parameters."""
        tables, weights, means, bias = list(self.tables), self.weights.copy(), self.means.copy(), self.bias
        for group in self._groups:
            made = reparametrisation.redraw(group, changes, rng, dataset)
            weights[group.features], means[group.features] = made.weights, made.means
            for j in group.features.tolist():
                tables[j] = made.table
            bias -= made.constant
        model = LinearModel(bias, weights, tuple(tables), means)
        if "constant" not in changes:  # then every effect is what it was, which for texts are a million numbers
            vars(model)["_effects"] = self._effects
        return model

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is stored, as plain arrays; a table that features share is stored once."""
        table, starts = self._table
        return {
            "bias": np.array(self.bias),
            "weights": self.weights,
            "embeddings": table[:-1],
            "starts": starts,
            "sizes": np.array([len(table) for table in self.tables]),
            "means": self.means,
        }

    @staticmethod
    def from_arrays(arrays: Any) -> LinearModel:
        """The model that `arrays` describes."""
        spans = list(zip(arrays["starts"].tolist(), arrays["sizes"].tolist(), strict=True))
        # copies, as training leaves them: the same bits from the same sums
        tables = {(start, size): arrays["embeddings"][start : start + size].copy() for start, size in spans}
        return LinearModel(
            float(arrays["bias"]), arrays["weights"], tuple(tables[span] for span in spans), arrays["means"]
        )

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> LinearModel:
        """The same of arrays from outside; ValueError if they are not a model's."""
        _check(arrays)
        return LinearModel.from_arrays(arrays)


def _check(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that do not fit together, or hold what training cannot give."""
    if set(arrays) != set(_ARRAYS):
        raise ValueError(f"it has {', '.join(sorted(arrays)) or 'nothing'} where {', '.join(_ARRAYS)} are expected")
    for name, array in arrays.items():
        wanted = np.int64 if name in ("starts", "sizes") else np.float64
        if array.dtype != wanted or array.ndim != _ARRAYS[name] or not array.dtype.isnative:
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite")
    weights, embeddings, starts, sizes = (arrays[name] for name in ("weights", "embeddings", "starts", "sizes"))
    width, dim = weights.shape
    if not (width and dim) or arrays["means"].shape != weights.shape or embeddings.shape[1] != dim:
        raise ValueError(f"weights {weights.shape}, means {arrays['means'].shape} and embeddings {embeddings.shape}")
    if len(starts) != width or len(sizes) != width:
        raise ValueError(f"{width} features have {len(starts)} starts and {len(sizes)} sizes")
    rows = len(embeddings)
    if (starts < 0).any() or (sizes < 1).any() or (sizes > rows).any() or (starts > rows - sizes).any():
        raise ValueError("starts and sizes lie outside the embeddings")
    spans = np.unique(np.stack([starts, sizes], axis=1), axis=0)  # a feature has a table, its own or a shared one
    if (spans[1:, 0] < spans[:-1].sum(axis=1)).any() or width * int(sizes.max()) > _MOST:
        raise ValueError("tables lie across each other, or are larger than can be")


def _sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(logits))
