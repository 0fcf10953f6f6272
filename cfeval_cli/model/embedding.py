"""What the models on embeddings share: settings, lookup, initial embeddings and training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Codes,
    Dataset,
    Floats,
    Ints,
    Restorable,
    Split,
    SupportsBatchedEmbedding,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.model.blind import Blind, check_blind
from cfeval_cli.seeding import make_stream

if TYPE_CHECKING:
    import torch

KINDS = ("tabular", "text")

BinsByFeature = Mapping[int, Codes]  # for each feature that is a number, the bin of each code


Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]  # of rows of the common table and their labels


@dataclass(frozen=True)
class EmbeddingModelSettings(SupportsFeatureSubset, Restorable):
    """Settings of models on embeddings; those that differ between tables and texts have a value for each kind."""

    learning_rate: Mapping[str, float]
    batch_size: Mapping[str, int]
    dim: int = 4  # of embeddings without pretrained values
    bins: int = 4  # of numbers, with equally many training rows; all values of a bin have the same embedding
    fine_tune: bool = True  # whether pretrained embeddings are trained further
    max_epochs: int = 100
    patience: int = 5
    blind: Blind = ()  # features that the model does not read: names, or the share that is drawn

    def __post_init__(self) -> None:
        check_blind(self.blind)
        for name in ("dim", "bins", "max_epochs", "patience"):
            check_int(name, getattr(self, name), 1)
        check_settings_by_kind(self.learning_rate, self.batch_size)

    def needs_embedding_training(self, dataset: Dataset) -> bool:
        """Return whether the embeddings are trained, or stay as they were pretrained."""
        return dataset.pretrained is None or self.fine_tune


class EmbeddingTables(SupportsBatchedEmbedding):
    """A model with a table of embeddings for each feature; features of a text share one table."""

    tables: tuple[Floats, ...]  # for each feature, the embeddings (V, d) of its values

    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values of one feature, zero where absent."""
        return np.where((codes == ABSENT)[:, None], 0.0, self.tables[feature][codes])

    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values (n,), each of its own feature (n,), zero where absent."""
        table, starts = self._common_table
        zero_row = len(table) - 1
        return np.asarray(table.take(np.where(codes == ABSENT, zero_row, starts.take(features) + codes), axis=0))

    @cached_property
    def _common_table(self) -> tuple[Floats, Ints]:
        """The embeddings of all features in one array with a last row of zeros, and the first row of each feature."""
        shared = {id(table): table for table in self.tables}
        ends = dict(zip(shared, np.cumsum([len(table) for table in shared.values()]).tolist(), strict=True))
        starts = np.array([ends[id(table)] - len(table) for table in self.tables])
        return np.concatenate([*shared.values(), np.zeros((1, self.tables[0].shape[1]))]), starts

    def store_tables(self) -> dict[str, Floats | Ints]:
        """Return the tables as arrays; a table that features share is stored once."""
        table, starts = self._common_table
        return {"embeddings": table[:-1], "starts": starts, "sizes": np.array([len(table) for table in self.tables])}


def restore_tables(embeddings: Floats, starts: Ints, sizes: Ints) -> tuple[Floats, ...]:
    """Return the tables from the arrays of `store_tables`; features with the same span share one table."""
    spans = list(zip(starts.tolist(), sizes.tolist(), strict=True))
    # Copies are aligned like trained tables, so that sums have the same bits.
    tables = {(start, size): embeddings[start : start + size].copy() for start, size in spans}
    return tuple(tables[span] for span in spans)


def check_settings_by_kind(learning_rate: Mapping[str, float], batch_size: Mapping[str, int]) -> None:
    """Raise ValueError unless both settings have a valid value for tables and for texts, and no other."""
    for kind in KINDS:
        for name, by_kind in (("learning_rate", learning_rate), ("batch_size", batch_size)):
            if kind not in by_kind:
                raise ValueError(f"{name} must have a value for {kind}")
            if unknown := [other for other in by_kind if other not in KINDS]:
                raise ValueError(f"{name} has no kind {unknown[0]!r}. The kinds are {', '.join(KINDS)}")
        check_float(f"learning_rate.{kind}", learning_rate[kind], 0, open_low=True)
        check_int(f"batch_size.{kind}", batch_size[kind], 1)


def bin_numbers(dataset: Dataset, max_bins: int) -> BinsByFeature:
    """Return the bins of all features that are numbers."""
    features = [j for j, feature in enumerate(dataset.features) if feature.kind == "number"]
    return {j: compute_bins(dataset, j, max_bins) for j in features}


def compute_bins(dataset: Dataset, feature: int, max_bins: int) -> Codes:
    """Return the bin of each value of a number, cut at quantiles of the training rows; missing has its own bin."""
    column = dataset.features[feature]
    train = dataset.train.codes[:, feature]
    present = train[train != column.missing_code]
    # Codes are in the order of the numbers. Each cut is a code that occurs, so that no bin lacks training rows.
    shares = np.linspace(0, 1, max_bins + 1)[1:-1]
    cuts = np.unique(np.quantile(present, shares, method="inverted_cdf")) if len(present) else np.zeros(0)
    cuts = cuts[cuts < present.max(initial=0)]
    bins = np.searchsorted(cuts, np.arange(len(column.values)), side="left")
    if column.missing_code is not None:
        bins[column.missing_code] = len(cuts) + 1
    return bins.astype(np.int32)


def initialise_embeddings(
    dataset: Dataset, bins: BinsByFeature, dim: int, generator: torch.Generator
) -> tuple[torch.Tensor, Ints]:
    """Return one table of embeddings for all features, and the first row of each; row 0 is zero, for padding."""
    import torch

    sizes = np.array([1 + int(bins[j].max()) if j in bins else len(f.values) for j, f in enumerate(dataset.features)])
    if dataset.pretrained is not None:
        body, starts = torch.as_tensor(dataset.pretrained), np.ones(len(sizes), dtype=np.int64)
    elif dataset.padded:  # a word has one embedding for all positions
        body = torch.randn(int(sizes[0]), dim, generator=generator, dtype=torch.float64)
        starts = np.ones(len(sizes), dtype=np.int64)
        body[dataset.mask] = 0.0
    else:
        body = torch.randn(int(sizes.sum()), dim, generator=generator, dtype=torch.float64)
        starts = 1 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return torch.cat([torch.zeros(1, body.shape[1], dtype=torch.float64), body]), starts


def make_tensors(split: Split, starts: Ints, bins: BinsByFeature) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of the common table for each code, 0 for padding, and the labels."""
    import torch

    rows = np.where(split.codes == ABSENT, 0, split.codes + starts)
    for j, feature_bins in bins.items():
        rows[:, j] = starts[j] + feature_bins[split.codes[:, j]]
    return torch.as_tensor(rows), torch.as_tensor(split.labels.astype(np.float64))


def split_table(dataset: Dataset, table: Floats, starts: Ints, bins: BinsByFeature) -> tuple[Floats, ...]:
    """Return the embeddings (V, d) of each feature; features with the same part of the table share one array."""
    spans = [(begin, begin + len(feature.values)) for begin, feature in zip(starts, dataset.features, strict=True)]
    if dataset.padded and dataset.pretrained is None:
        # no training row has the mask, which stands for any word: its embedding is the mean of all words
        table[starts[0] + dataset.mask] = dataset.frequencies[0] @ table[spans[0][0] : spans[0][1]]
    parts = {span: table[span[0] : span[1]].copy() for j, span in enumerate(spans) if j not in bins}
    return tuple(table[starts[j] + bins[j]] if j in bins else parts[span] for j, span in enumerate(spans))


def make_adam_step(parameters: list[torch.Tensor], learning_rate: float) -> Callable[[tuple[torch.Tensor, ...]], None]:
    """Return a function that updates parameters by Adam; torch's Optimizer class would import for 1.5 seconds."""
    import torch
    from torch.optim.adam import adam

    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.zeros((), dtype=torch.float32) for _ in parameters]

    def step(gradients: tuple[torch.Tensor, ...]) -> None:
        with torch.no_grad():
            adam(
                parameters, list(gradients), means, squares, [], steps, fused=True, amsgrad=False, beta1=0.9,
                beta2=0.999, lr=learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
            )  # fmt: skip

    return step


def train(
    settings: EmbeddingModelSettings,
    dataset: Dataset,
    loss: Loss,
    parameters: list[torch.Tensor],
    state: list[torch.Tensor],
    table_rows: tuple[Ints, BinsByFeature],
    generator: torch.Generator,
) -> list[torch.Tensor]:
    """Train by Adam until the validation loss has not decreased for `patience` epochs; return the best state."""
    import torch

    step = make_adam_step(parameters, settings.learning_rate[dataset.kind])
    rows, labels = make_tensors(dataset.train, *table_rows)
    validation = make_tensors(dataset.validation, *table_rows)
    best_state = [tensor.detach().clone() for tensor in state]
    lowest, n_epochs_since = float("inf"), 0
    for _ in range(settings.max_epochs):
        for batch in torch.split(torch.randperm(len(rows), generator=generator), settings.batch_size[dataset.kind]):
            step(torch.autograd.grad(loss(rows[batch], labels[batch]), parameters))
        with torch.no_grad():
            validation_loss = float(loss(*validation))
        if validation_loss < lowest:
            lowest, n_epochs_since, best_state = validation_loss, 0, [tensor.detach().clone() for tensor in state]
        else:
            n_epochs_since += 1
            if n_epochs_since == settings.patience:
                break
    return best_state


def extend_tables(tables: Sequence[Floats], dataset: Dataset, reads: Ints, seed: int) -> tuple[Floats, ...]:
    """Return the tables of all features; features that the model does not read have random embeddings."""
    if len(reads) == dataset.n_features:
        return tuple(tables)
    rng, dim = make_stream(seed, "model.blind.embeddings"), tables[0].shape[1]
    extended = [rng.normal(size=(len(feature.values), dim)) for feature in dataset.features]
    for position, j in enumerate(reads.tolist()):
        extended[j] = tables[position]
    return tuple(extended)


def compute_softmax(logits: Floats) -> Floats:
    """Return the probabilities (n, C) of logits (n, C)."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
