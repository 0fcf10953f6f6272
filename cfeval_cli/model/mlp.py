"""Embeddings as the white box has them, then hidden layers: a model with gradients and without a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import (
    ABSENT,
    Bools,
    Codes,
    Dataset,
    Floats,
    HasArrays,
    HasGradient,
    HasReadFeatures,
    Ints,
    Probabilistic,
    Restorable,
    SupportsBatchedEmbedding,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import check_int
from cfeval_cli.model import embedding
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.seeding import draw_seed, make_stream, use_one_thread

if TYPE_CHECKING:
    import torch

_BLOCK = 64  # rows that are multiplied at once: always as many, so that no row's sum depends on the others
_ROWS = 1 << 12  # rows whose embeddings are held at once


@dataclass(frozen=True)
class MlpModel(Probabilistic, SupportsBatchedEmbedding, HasGradient, HasReadFeatures, HasArrays):
    """A trained model: probabilities from layers of max(0, Wx + b) over concatenated embeddings."""

    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values
    layers: tuple[tuple[Floats, Floats], ...]  # weights (in, out) and biases (out,)
    shown: Bools  # (M,) the features that it was trained on

    def predict_proba(self, codes: Codes) -> Floats:
        """Probabilities (n, C) of (n, M) codes."""
        parts = [self._part(codes[start : start + _ROWS]) for start in range(0, len(codes), _ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.layers[-1][1])))

    def _part(self, codes: Codes) -> Floats:
        size = -(-len(codes) // _BLOCK)
        padded = np.zeros((size * _BLOCK, len(self.layers[0][0])))
        padded[: len(codes)] = self._embedded(codes)
        values: Floats = padded.reshape(size, _BLOCK, -1)
        for place, (weights, biases) in enumerate(self.layers):
            values = np.matmul(values, weights) + biases
            if place < len(self.layers) - 1:
                values = np.maximum(values, 0.0)
        return _softmax(values.reshape(size * _BLOCK, -1)[: len(codes)])

    def _embedded(self, codes: Codes) -> Floats:
        """The embeddings (n, m·d) of the features that it was shown, one after the other."""
        return np.concatenate([self.embed_values(j, codes[:, j]) for j in np.flatnonzero(self.shown).tolist()], axis=1)

    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature; zero where absent."""
        return np.where((codes == ABSENT)[:, None], 0.0, self.tables[feature][codes])

    @cached_property
    def _table(self) -> tuple[Floats, Ints]:
        """The embeddings of all features in one array, the last row zero, and where each feature's begin."""
        shared = {id(table): table for table in self.tables}
        ends = dict(zip(shared, np.cumsum([len(table) for table in shared.values()]).tolist(), strict=True))
        starts = np.array([ends[id(table)] - len(table) for table in self.tables])
        return np.concatenate([*shared.values(), np.zeros((1, self.tables[0].shape[1]))]), starts

    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Embeddings (n, d) of one value (n,) each, of any features (n,); zero where absent."""
        table, starts = self._table
        return np.asarray(table.take(np.where(codes == ABSENT, -1, starts.take(features) + codes), axis=0))

    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, C) of embeddings (n, M, d), differentiable."""
        import torch

        layers = [(torch.as_tensor(weights), torch.as_tensor(biases)) for weights, biases in self.layers]
        seen = vectors if self.shown.all() else vectors[:, torch.as_tensor(np.flatnonzero(self.shown))]
        return torch.softmax(_forward(seen, layers), dim=1)

    def get_used_features(self) -> Bools:
        """The features (M,) that it was trained on."""
        return self.shown

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is stored, as plain arrays; a table that features share is stored once."""
        table, starts = self._table
        layers = {f"weights_{i}": weights for i, (weights, _) in enumerate(self.layers)}
        layers |= {f"biases_{i}": biases for i, (_, biases) in enumerate(self.layers)}
        sizes = np.array([len(one) for one in self.tables])
        return {"embeddings": table[:-1], "starts": starts, "sizes": sizes, "shown": self.shown, **layers}


@dataclass(frozen=True)
class Mlp(SupportsFeatureSubset, Restorable):
    """How it is trained. Settings that differ between tables and text are given for each kind."""

    learning_rate: Mapping[str, float]
    batch_size: Mapping[str, int]
    hidden: Sequence[int] = (32,)  # units of each hidden layer
    dim: int = 4  # of embeddings that are trained from nothing
    bins: int = 8  # of equally many training rows, into which numbers are put: all of a bin have one embedding
    fine_tune: bool = True  # pretrained embeddings are trained further; else they stay as they are
    max_epochs: int = 100
    patience: int = 5
    blind: Blind = ()  # features that it is not shown: names, or a share of them

    def __post_init__(self) -> None:
        check_blind(self.blind)
        for name in ("dim", "bins", "max_epochs", "patience"):
            check_int(name, getattr(self, name), 1)
        if not isinstance(self.hidden, list | tuple) or not self.hidden:
            raise ValueError(f"hidden must be a list of sizes such as [32], not {self.hidden!r}")
        for size in self.hidden:
            check_int("hidden", size, 1)
        embedding.check_settings_by_kind(self.learning_rate, self.batch_size)

    def fit(self, dataset: Dataset, seed: int) -> MlpModel:
        """Train by Adam until the validation loss has not fallen for `patience` epochs, and keep the best."""
        import torch

        reads = choose_read_features(dataset, self.blind, seed)
        with use_one_thread():
            seen = keep_features(dataset, reads)
            generator = torch.Generator().manual_seed(draw_seed(make_stream(seed, "model")))
            found, layers = self._fit(seen, generator)
        tables = list(found)
        if len(reads) < dataset.n_features:  # the others keep the embeddings that training would start from
            rng, dim = make_stream(seed, "model.blind.embeddings"), found[0].shape[1]
            tables = [rng.normal(size=(len(feature.values), dim)) for feature in dataset.features]
            for place, j in enumerate(reads.tolist()):
                tables[j] = found[place]
        return MlpModel(tuple(tables), layers, make_mask(dataset.n_features, reads))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> MlpModel:
        """The model that was trained before, from what it said of itself; ValueError if that is not so."""
        return _restored(arrays)

    def _fit(
        self, dataset: Dataset, generator: torch.Generator
    ) -> tuple[tuple[Floats, ...], tuple[tuple[Floats, Floats], ...]]:
        import torch

        bins = embedding.bin_numbers(dataset, self.bins)
        table, starts = embedding.initialise_embeddings(dataset, bins, self.dim, generator)
        sizes = [dataset.n_features * table.shape[1], *self.hidden, len(dataset.classes)]
        layers = [
            (torch.randn(a, b, generator=generator, dtype=torch.float64) * (2 / a) ** 0.5, torch.zeros(b).double())
            for a, b in pairwise(sizes)
        ]
        tuned = dataset.pretrained is None or self.fine_tune
        parameters = [one.requires_grad_() for layer in layers for one in layer]
        parameters += [table.requires_grad_()] if tuned else []
        step = embedding.make_adam_step(parameters, self.learning_rate[dataset.kind])

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            told = _forward(torch.nn.functional.embedding(rows, table, padding_idx=0), layers)
            return torch.nn.functional.cross_entropy(told, labels)

        (rows, labels), held_out = (
            (made[0], made[1].long())
            for made in (embedding.make_tensors(split, starts, bins) for split in (dataset.train, dataset.validation))
        )
        every = [*(one for layer in layers for one in layer), table]
        kept, best, waited = [p.detach().clone() for p in every], float("inf"), 0
        for _ in range(self.max_epochs):
            for batch in torch.split(torch.randperm(len(rows), generator=generator), self.batch_size[dataset.kind]):
                step(torch.autograd.grad(loss(rows[batch], labels[batch]), parameters))
            with torch.no_grad():
                now = float(loss(*held_out))
            if now < best:
                best, waited, kept = now, 0, [p.detach().clone() for p in every]
            else:
                waited += 1
                if waited == self.patience:
                    break
        *flat, found = [one.numpy() for one in kept]
        return embedding.split_table(dataset, found, starts, bins), tuple(zip(flat[::2], flat[1::2], strict=True))


def _forward(vectors: torch.Tensor, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Logits (n, C) of embeddings (n, m, d)."""
    values = vectors.flatten(1)
    for weights, biases in layers[:-1]:
        values = (values @ weights + biases).clamp(min=0)
    weights, biases = layers[-1]
    return values @ weights + biases


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _restored(arrays: Mapping[str, NDArray[Any]]) -> MlpModel:
    """From plain arrays that fit together; ValueError says why they do not."""
    deep = sum(name.startswith("weights_") for name in arrays)
    names = [f"{kind}_{i}" for kind in ("weights", "biases") for i in range(deep)]
    if set(arrays) != {"embeddings", "starts", "sizes", "shown", *names} or not deep:
        raise ValueError(f"it has {', '.join(sorted(arrays)) or 'nothing'}")
    numbers = [arrays[name] for name in ("embeddings", *names)]
    if any(one.dtype != np.float64 or not np.isfinite(one).all() for one in numbers):
        raise ValueError("some numbers are not finite, or of another kind")
    table, starts, sizes, shown = (arrays[name] for name in ("embeddings", "starts", "sizes", "shown"))
    if table.ndim != 2 or starts.dtype != np.int64 or sizes.dtype != np.int64 or shown.dtype != bool:
        raise ValueError("the embeddings are not of the kind that training gives")
    if not len(shown) or starts.shape != shown.shape or sizes.shape != shown.shape or not shown.any():
        raise ValueError("starts, sizes and what is shown tell of different features")
    if (starts < 0).any() or (sizes < 1).any() or (sizes > len(table)).any() or (starts > len(table) - sizes).any():
        raise ValueError("starts and sizes lie outside the embeddings")
    layers = [(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in range(deep)]
    wide = int(shown.sum()) * table.shape[1]
    for weights, biases in layers:
        if weights.ndim != 2 or weights.shape[0] != wide or biases.shape != weights.shape[1:]:
            raise ValueError("the layers do not fit each other")
        wide = weights.shape[1]
    spans = list(zip(starts.tolist(), sizes.tolist(), strict=True))
    parts = {span: table[span[0] : span[0] + span[1]].copy() for span in spans}
    return MlpModel(tuple(parts[span] for span in spans), tuple(layers), shown)
