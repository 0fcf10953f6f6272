"""Logistic regression on concatenated embeddings: the white box whose true reasons are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Dataset, Ints, Restorable, SupportsFeatureSubset
from cfeval_cli.errors import UserError, check_int
from cfeval_cli.model import embedding, reparametrisation
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.seeding import draw_seed, make_stream, use_one_thread

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Logistic(SupportsFeatureSubset, Restorable):
    """How the white box is trained. Settings that differ between tables and text are given for each kind."""

    learning_rate: Mapping[str, float]
    batch_size: Mapping[str, int]
    dim: int = 4  # of embeddings that are trained from nothing
    bins: int = 4  # of equally many training rows, into which numbers are put: all of a bin have one embedding
    fine_tune: bool = True  # pretrained embeddings are trained further; else they stay as they are
    max_epochs: int = 100
    patience: int = 5
    blind: Blind = ()  # features that it is not shown: names, or a share of them

    def __post_init__(self) -> None:
        check_blind(self.blind)
        for name in ("dim", "bins", "max_epochs", "patience"):
            check_int(name, getattr(self, name), 1)
        embedding.check_settings_by_kind(self.learning_rate, self.batch_size)

    def fit(self, dataset: Dataset, seed: int) -> LinearModel:
        """Train by Adam until the validation loss has not fallen for `patience` epochs, and keep the best."""
        import torch

        if len(dataset.classes) != 2:
            raise UserError(
                f"model=logistic tells two classes apart, and {dataset.name} has {len(dataset.classes)}. "
                "Choose another model."
            )
        reads = choose_read_features(dataset, self.blind, seed)
        with use_one_thread():
            seen = keep_features(dataset, reads)
            model = self._fit(seen, torch.Generator().manual_seed(draw_seed(make_stream(seed, "model"))))
        return model if len(reads) == dataset.n_features else _widened(model, dataset, reads, seed)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LinearModel:
        """The model that was trained before, from what it said of itself; ValueError if that is not so."""
        return LinearModel.restored(arrays)

    def _fit(self, dataset: Dataset, generator: torch.Generator) -> LinearModel:
        import torch

        bins = embedding.bin_numbers(dataset, self.bins)
        table, starts = embedding.initialise_embeddings(dataset, bins, self.dim, generator)
        width, dim = dataset.n_features, table.shape[1]
        weights = torch.randn(width, dim, generator=generator, dtype=torch.float64) / (width * dim) ** 0.5
        bias = torch.zeros((), dtype=torch.float64)
        tuned = dataset.pretrained is None or self.fine_tune
        parameters = [weights.requires_grad_(), bias.requires_grad_(), *([table.requires_grad_()] if tuned else [])]
        step = embedding.make_adam_step(parameters, self.learning_rate[dataset.kind])

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = (torch.nn.functional.embedding(rows, table, padding_idx=0) * weights).sum(dim=(1, 2)) + bias
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

        rows, labels = embedding.make_tensors(dataset.train, starts, bins)
        held_out = embedding.make_tensors(dataset.validation, starts, bins)
        kept = [p.detach().clone() for p in (weights, bias, table)]
        best, waited = float("inf"), 0
        for _ in range(self.max_epochs):
            for batch in torch.split(torch.randperm(len(rows), generator=generator), self.batch_size[dataset.kind]):
                step(torch.autograd.grad(loss(rows[batch], labels[batch]), parameters))
            with torch.no_grad():
                now = float(loss(*held_out))
            if now < best:
                best, waited, kept = now, 0, [p.detach().clone() for p in (weights, bias, table)]
            else:
                waited += 1
                if waited == self.patience:
                    break
        tables = embedding.split_table(dataset, kept[2].numpy(), starts, bins)
        means = reparametrisation.compute_mean_vectors(tables, dataset.train.codes)
        return LinearModel(float(kept[1]), kept[0].numpy(), tables, means)


def _widened(model: LinearModel, dataset: Dataset, reads: Ints, seed: int) -> LinearModel:
    """The model among all features; those that it was not shown keep the embeddings that training would start from."""
    rng, dim = make_stream(seed, "model.blind.embeddings"), model.weights.shape[1]
    tables = [rng.normal(size=(len(feature.values), dim)) for feature in dataset.features]
    weights = np.zeros((dataset.n_features, dim))
    weights[reads] = model.weights
    for place, j in enumerate(reads.tolist()):
        tables[j] = model.tables[place]
    return LinearModel(
        model.bias, weights, tuple(tables), reparametrisation.compute_mean_vectors(tables, dataset.train.codes)
    )
