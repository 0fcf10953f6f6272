"""Multilayer perceptron on concatenated embeddings: a model with gradients and without closed-form attributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Bools, Codes, Dataset, Floats, HasArrays, HasGradient, HasUsedFeatures, Probabilistic
from cfeval_cli.errors import check_int
from cfeval_cli.model import embedding
from cfeval_cli.model.blind import choose_read_features, keep_features, make_mask
from cfeval_cli.seeding import draw_seed, make_stream, use_one_thread

if TYPE_CHECKING:
    import torch

_BLOCK_ROWS = 64  # rows in each matrix product: a fixed number, so that no sum depends on how rows are batched
_BATCH_ROWS = 1 << 12  # rows whose embeddings are in memory at a time


@dataclass(frozen=True)
class MlpModel(Probabilistic, embedding.EmbeddingTables, HasGradient, HasUsedFeatures, HasArrays):
    """A trained model: layers of max(0, Wx + b) over concatenated embeddings, then softmax."""

    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values
    layers: tuple[tuple[Floats, Floats], ...]  # weights (in, out) and biases (out,)
    is_read: Bools  # (M,) whether the model uses each feature

    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, C) of codes (n, M)."""
        parts = [self._predict_batch(codes[start : start + _BATCH_ROWS]) for start in range(0, len(codes), _BATCH_ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.layers[-1][1])))

    def _predict_batch(self, codes: Codes) -> Floats:
        """Return the probabilities of a batch, computed in blocks of the same size."""
        n_blocks = -(-len(codes) // _BLOCK_ROWS)
        padded = np.zeros((n_blocks * _BLOCK_ROWS, len(self.layers[0][0])))
        features = np.flatnonzero(self.is_read).tolist()
        padded[: len(codes)] = np.concatenate([self.embed_values(j, codes[:, j]) for j in features], axis=1)
        values: Floats = padded.reshape(n_blocks, _BLOCK_ROWS, padded.shape[1])
        for i, (weights, biases) in enumerate(self.layers):
            values = np.matmul(values, weights) + biases
            if i < len(self.layers) - 1:
                values = np.maximum(values, 0.0)
        return embedding.compute_softmax(values.reshape(n_blocks * _BLOCK_ROWS, values.shape[2])[: len(codes)])

    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the probabilities (n, C) of embeddings (n, M, d), differentiable."""
        import torch

        layers = [(torch.as_tensor(weights), torch.as_tensor(biases)) for weights, biases in self.layers]
        visible = vectors if self.is_read.all() else vectors[:, torch.as_tensor(np.flatnonzero(self.is_read))]
        return torch.softmax(_compute_logits(visible, layers), dim=1)

    def get_used_features(self) -> Bools:
        """Return whether the model uses each feature (M,)."""
        return self.is_read

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""
        layers = {f"weights_{i}": weights for i, (weights, _) in enumerate(self.layers)}
        layers |= {f"biases_{i}": biases for i, (_, biases) in enumerate(self.layers)}
        return {**self.store_tables(), "shown": self.is_read, **layers}


@dataclass(frozen=True)
class Mlp(embedding.EmbeddingModelSettings):
    """Settings of the multilayer perceptron."""

    bins: int = 8  # of numbers, with equally many training rows; all values of a bin have the same embedding
    hidden: Sequence[int] = (32,)  # units of each hidden layer

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.hidden, list | tuple) or not self.hidden:
            raise ValueError(f"hidden must be a list of sizes such as [32], not {self.hidden!r}")
        for size in self.hidden:
            check_int("hidden", size, 1)

    def fit(self, dataset: Dataset, seed: int) -> MlpModel:
        """Train embeddings and layers by Adam, and return the model with the lowest validation loss."""
        import torch

        reads = choose_read_features(dataset, self.blind, seed)
        with use_one_thread():
            generator = torch.Generator().manual_seed(draw_seed(make_stream(seed, "model")))
            tables, layers = self._fit(keep_features(dataset, reads), generator)
        all_tables = embedding.extend_tables(tables, dataset, reads, seed)
        return MlpModel(all_tables, layers, make_mask(dataset.n_features, reads))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> MlpModel:
        """Return the trained model."""
        tables = embedding.restore_tables(arrays["embeddings"], arrays["starts"], arrays["sizes"])
        n_layers = sum(name.startswith("weights_") for name in arrays)
        layers = tuple((arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in range(n_layers))
        return MlpModel(tables, layers, arrays["shown"])

    def _fit(
        self, dataset: Dataset, generator: torch.Generator
    ) -> tuple[tuple[Floats, ...], tuple[tuple[Floats, Floats], ...]]:
        """Return the tables and layers, trained on a dataset with the features that the model reads."""
        import torch

        bins = embedding.bin_numbers(dataset, self.bins)
        table, starts = embedding.initialise_embeddings(dataset, bins, self.dim, generator)
        sizes = [dataset.n_features * table.shape[1], *self.hidden, len(dataset.classes)]
        layers = [
            (torch.randn(a, b, generator=generator, dtype=torch.float64) * (2 / a) ** 0.5, torch.zeros(b).double())
            for a, b in pairwise(sizes)
        ]
        parameters = [parameter.requires_grad_() for layer in layers for parameter in layer]
        state = [*parameters, table]
        if self.needs_embedding_training(dataset):
            parameters.append(table.requires_grad_())

        def compute_loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = _compute_logits(torch.nn.functional.embedding(rows, table, padding_idx=0), layers)
            return torch.nn.functional.cross_entropy(logits, labels.long())

        *best, best_table = (
            tensor.numpy()
            for tensor in embedding.train(self, dataset, compute_loss, parameters, state, (starts, bins), generator)
        )
        tables = embedding.split_table(dataset, best_table, starts, bins)
        return tables, tuple(zip(best[::2], best[1::2], strict=True))


def _compute_logits(vectors: torch.Tensor, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return the logits (n, C) of embeddings (n, m, d)."""
    values = vectors.flatten(1)
    for weights, biases in layers[:-1]:
        values = (values @ weights + biases).clamp(min=0)
    weights, biases = layers[-1]
    return values @ weights + biases
