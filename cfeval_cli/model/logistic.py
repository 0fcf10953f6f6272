"""Logistic regression on concatenated embeddings, whose effects on the logit are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Dataset
from cfeval_cli.errors import UserError
from cfeval_cli.model import embedding
from cfeval_cli.model.blind import choose_read_features, keep_features
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.reparametrisation import compute_mean_vectors
from cfeval_cli.seeding import draw_seed, make_stream, use_one_thread

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Logistic(embedding.EmbeddingModelSettings):
    """Settings of logistic regression."""

    def fit(self, dataset: Dataset, seed: int) -> LinearModel:
        """Train embeddings and weights by Adam, and return the model with the lowest validation loss."""
        import torch

        if len(dataset.classes) != 2:
            raise UserError(
                f"model=logistic is for two classes, and {dataset.name} has {len(dataset.classes)}. "
                "Choose another model."
            )
        reads = choose_read_features(dataset, self.blind, seed)
        with use_one_thread():
            visible = keep_features(dataset, reads)
            model = self._fit(visible, torch.Generator().manual_seed(draw_seed(make_stream(seed, "model"))))
        if len(reads) == dataset.n_features:
            return model
        tables = embedding.extend_tables(model.tables, dataset, reads, seed)
        weights = np.zeros((dataset.n_features, model.weights.shape[1]))
        weights[reads] = model.weights
        return LinearModel(model.bias, weights, tables, compute_mean_vectors(tables, dataset.train.codes))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LinearModel:
        """Return the trained model."""
        return LinearModel.from_arrays(arrays)

    def _fit(self, dataset: Dataset, generator: torch.Generator) -> LinearModel:
        """Train on a dataset with the features that the model reads."""
        import torch

        bins = embedding.bin_numbers(dataset, self.bins)
        table, starts = embedding.initialise_embeddings(dataset, bins, self.dim, generator)
        width, dim = dataset.n_features, table.shape[1]
        weights = torch.randn(width, dim, generator=generator, dtype=torch.float64) / (width * dim) ** 0.5
        bias = torch.zeros((), dtype=torch.float64)
        parameters = [weights.requires_grad_(), bias.requires_grad_()]
        if self.needs_embedding_training(dataset):
            parameters.append(table.requires_grad_())

        def compute_loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = (torch.nn.functional.embedding(rows, table, padding_idx=0) * weights).sum(dim=(1, 2)) + bias
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

        state = embedding.train(
            self, dataset, compute_loss, parameters, [weights, bias, table], (starts, bins), generator
        )
        best_weights, best_bias, best_table = (tensor.numpy() for tensor in state)
        tables = embedding.split_table(dataset, best_table, starts, bins)
        return LinearModel(float(best_bias), best_weights, tables, compute_mean_vectors(tables, dataset.train.codes))
