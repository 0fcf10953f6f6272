"""Embeddings of the values of features, and their training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Floats, Ints, Split
from cfeval_cli.errors import check_float, check_int

if TYPE_CHECKING:
    import torch

KINDS = ("tabular", "text")

BinsByFeature = Mapping[int, Codes]  # for each feature that is a number, the bin of each code


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
