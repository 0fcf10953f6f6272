"""Logistic regression on concatenated embeddings: the white box whose true reasons are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.errors import number, whole
from cfeval_cli.seeding import integer, stream
from cfeval_cli.types import ABSENT, Access, Codes, Dataset, Floats, Ints

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Linear:
    """A trained model: logit(x) = b + Σ_j w_j · e_j(x_j)."""

    bias: float
    weights: Floats  # (M, d)
    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values
    means: Floats  # (M, d) mean embedding of each feature over the training set

    access = Access.WHITE_BOX

    @cached_property
    def _effects(self) -> Floats:
        """c_j(v) = w_j · e_j(v) as (M, V + 1); the last column is zero, which is where ABSENT = -1 points."""
        widest = max(len(table) for table in self.tables)
        effects = np.zeros((len(self.tables), widest + 1))
        for j, table in enumerate(self.tables):
            effects[j, : len(table)] = table @ self.weights[j]
        return effects

    def _logits(self, codes: Codes) -> Floats:
        logits = np.full(len(codes), self.bias)
        for j, effects in enumerate(self._effects):  # one gather a column is the fastest NumPy has
            logits += effects[codes[:, j]]
        return logits

    def _edited_logits(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        rest = self._logits(codes) - sum(self._effects[j][codes[:, j]] for j in features)
        edits = sum((self._effects[j][values[:, i]] for i, j in enumerate(features)), start=np.zeros(len(values)))
        return np.asarray(rest)[:, None] + edits

    def labels(self, codes: Codes) -> Ints:
        """Predicted classes of (n, M) codes: 1 exactly where P(1|x) > 0.5."""
        return (self.proba(codes) > 0.5).astype(np.int64)

    def proba(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""
        return _sigmoid(self._logits(codes))

    def edited_labels(self, codes: Codes, features: Ints, values: Codes) -> Ints:
        """Predicted classes (n, C) of each row under each of C edits (C, k) of the same k features."""
        return (self.edited_proba(codes, features, values) > 0.5).astype(np.int64)

    def edited_proba(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """P(1|x) (n, C) of each row under each of C edits (C, k) of the same k features."""
        return _sigmoid(self._edited_logits(codes, features, values))

    def vectors(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature; zero where absent."""
        return np.where((codes == ABSENT)[:, None], 0.0, self.tables[feature][codes])

    def embed(self, codes: Codes) -> Floats:
        """Embeddings (n, M, d) of whole rows."""
        return np.stack([self.vectors(j, codes[:, j]) for j in range(codes.shape[1])], axis=1)

    def proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """P(1|x) of embeddings (n, M, d), differentiable."""
        import torch

        return torch.sigmoid(torch.einsum("nmd,md->n", vectors, torch.as_tensor(self.weights)) + self.bias)

    def effects(self, codes: Codes) -> Floats:
        """Effects (n, M) of the values on the logit."""
        return np.stack([self._effects[j][codes[:, j]] for j in range(codes.shape[1])], axis=1)

    def value_effects(self, feature: int) -> Floats:
        """Effects of every value of one feature."""
        return self._effects[feature, : len(self.tables[feature])]

    def mean_effects(self) -> Floats:
        """Mean effect (M,) of each feature over the training set."""
        return np.asarray((self.means * self.weights).sum(axis=1))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is stored, as plain arrays; `from_arrays` takes them back."""
        sizes = np.array([len(table) for table in self.tables])
        return {
            "bias": np.array(self.bias),
            "weights": self.weights,
            "embeddings": np.concatenate(self.tables),
            "sizes": sizes,
            "means": self.means,
        }

    @staticmethod
    def from_arrays(arrays: Any) -> Linear:
        """The model that `arrays` describes."""
        tables = np.split(arrays["embeddings"], np.cumsum(arrays["sizes"])[:-1])
        return Linear(float(arrays["bias"]), arrays["weights"], tuple(tables), arrays["means"])


@dataclass(frozen=True)
class Logistic:
    """How the white box is trained."""

    dim: int = 4
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    batch_size: int = 256
    max_epochs: int = 100
    patience: int = 5

    def __post_init__(self) -> None:
        for name in ("dim", "batch_size", "max_epochs", "patience"):
            whole(name, getattr(self, name), 1)
        number("learning_rate", self.learning_rate, 0, open_low=True)
        number("weight_decay", self.weight_decay, 0)

    def fit(self, dataset: Dataset, seed: int) -> Linear:
        """Train by Adam until the validation loss has not fallen for `patience` epochs, and keep the best."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums in a fixed order: the same model on any number of cores
        try:
            return self._fit(dataset, torch.Generator().manual_seed(integer(stream(seed, "model"))))
        finally:
            torch.set_num_threads(threads)

    def _fit(self, dataset: Dataset, generator: torch.Generator) -> Linear:
        import torch

        sizes = [len(feature.values) for feature in dataset.features]
        offsets = torch.tensor(np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        # every table in one, row by row: feature j's value v is row offsets[j] + v
        table = torch.randn(sum(sizes), self.dim, generator=generator, dtype=torch.float64)
        weights = torch.randn(len(sizes), self.dim, generator=generator, dtype=torch.float64)
        weights /= (len(sizes) * self.dim) ** 0.5
        bias = torch.zeros((), dtype=torch.float64)
        parameters = [table.requires_grad_(), weights.requires_grad_(), bias.requires_grad_()]
        adam = torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

        def loss(codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = (table[codes + offsets] * weights).sum(dim=(1, 2)) + bias
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

        codes, labels = _tensors(dataset.train)
        held_out = _tensors(dataset.validation)
        best, waited, kept = float("inf"), 0, [p.detach().clone() for p in parameters]
        for _ in range(self.max_epochs):
            for rows in torch.split(torch.randperm(len(codes), generator=generator), self.batch_size):
                adam.zero_grad()
                loss(codes[rows], labels[rows]).backward()  # type: ignore[no-untyped-call]
                adam.step()
            with torch.no_grad():
                now = float(loss(*held_out))
            if now < best:
                best, waited, kept = now, 0, [p.detach().clone() for p in parameters]
            else:
                waited += 1
                if waited == self.patience:
                    break
        tables = tuple(part.numpy() for part in torch.split(kept[0], sizes))
        means = np.stack([freq @ part for freq, part in zip(dataset.frequencies, tables, strict=True)])
        return Linear(float(kept[2]), kept[1].numpy(), tables, means)


def _tensors(split: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return torch.as_tensor(split.codes.astype(np.int64)), torch.as_tensor(split.labels.astype(np.float64))


def _sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(logits))
