"""Embeddings of the values of features, and how they are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Floats, Ints, Split
from cfeval_cli.errors import check_float, check_int

if TYPE_CHECKING:
    import torch

KINDS = ("tabular", "text")

Binned = Mapping[int, Codes]  # for features that are numbers, the bin of each code


def check_kinds(learning_rate: Mapping[str, float], batch_size: Mapping[str, int]) -> None:
    """Refuse settings that lack a value for tables or for texts, or have a strange one."""
    for kind in KINDS:
        for name, given in (("learning_rate", learning_rate), ("batch_size", batch_size)):
            if kind not in given:
                raise ValueError(f"{name} must have a value for {kind}")
            if strange := [one for one in given if one not in KINDS]:
                raise ValueError(f"{name} has no kind {strange[0]!r}: there is {', '.join(KINDS)}")
        check_float(f"learning_rate.{kind}", learning_rate[kind], 0, open_low=True)
        check_int(f"batch_size.{kind}", batch_size[kind], 1)


def binned(dataset: Dataset, most: int) -> Binned:
    """The bins of all numbers."""
    return {j: bins(dataset, j, most) for j, feature in enumerate(dataset.features) if feature.kind == "number"}


def bins(dataset: Dataset, feature: int, most: int) -> Codes:
    """The bin of each value of a number, cut at quantiles of the training rows; what is missing has one of its own."""
    about = dataset.features[feature]
    train = dataset.train.codes[:, feature]
    known = train[train != about.missing]
    # codes are in the order of the numbers, and each cut is one that occurs: no bin is without training rows
    shares = np.linspace(0, 1, most + 1)[1:-1]
    cuts = np.unique(np.quantile(known, shares, method="inverted_cdf")) if len(known) else np.zeros(0)
    cuts = cuts[cuts < known.max(initial=0)]
    places = np.searchsorted(cuts, np.arange(len(about.values)), side="left")
    if about.missing is not None:
        places[about.missing] = len(cuts) + 1
    return places.astype(np.int32)


def start(dataset: Dataset, binned: Binned, dim: int, generator: torch.Generator) -> tuple[torch.Tensor, Ints]:
    """One table of embeddings for all features, and where each feature's begins; row 0 is padding and zero."""
    import torch

    sizes = np.array(
        [1 + int(binned[j].max()) if j in binned else len(f.values) for j, f in enumerate(dataset.features)]
    )
    if dataset.pretrained is not None:
        body, starts = torch.as_tensor(dataset.pretrained), np.ones(len(sizes), dtype=np.int64)
    elif dataset.padded:  # a word is the same wherever it stands
        body = torch.randn(int(sizes[0]), dim, generator=generator, dtype=torch.float64)
        starts = np.ones(len(sizes), dtype=np.int64)
        body[dataset.mask] = 0.0
    else:
        body = torch.randn(int(sizes.sum()), dim, generator=generator, dtype=torch.float64)
        starts = 1 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return torch.cat([torch.zeros(1, body.shape[1], dtype=torch.float64), body]), starts


def tensors(split: Split, starts: Ints, binned: Binned) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the common table, 0 for padding, and labels."""
    import torch

    rows = np.where(split.codes == ABSENT, 0, split.codes + starts)
    for j, places in binned.items():
        rows[:, j] = starts[j] + places[split.codes[:, j]]
    return torch.as_tensor(rows), torch.as_tensor(split.labels.astype(np.float64))


def tables(dataset: Dataset, table: Floats, starts: Ints, binned: Binned) -> tuple[Floats, ...]:
    """The trained embeddings (V, d) of each feature; features with the same part of the table share one array."""
    spans = [(begin, begin + len(feature.values)) for begin, feature in zip(starts, dataset.features, strict=True)]
    if (
        dataset.padded and dataset.pretrained is None
    ):  # no training row has it: what stands for any word is the usual one
        table[starts[0] + dataset.mask] = dataset.frequencies[0] @ table[spans[0][0] : spans[0][1]]
    parts = {span: table[span[0] : span[1]].copy() for j, span in enumerate(spans) if j not in binned}
    return tuple(table[starts[j] + binned[j]] if j in binned else parts[span] for j, span in enumerate(spans))


def adam(parameters: list[torch.Tensor], rate: float) -> Callable[[tuple[torch.Tensor, ...]], None]:
    """A step of torch's Adam for given gradients; its Optimizer class would import the compiler, for 1.5 seconds."""
    import torch
    from torch.optim.adam import adam

    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.zeros((), dtype=torch.float32) for _ in parameters]

    def step(gradients: tuple[torch.Tensor, ...]) -> None:
        with torch.no_grad():
            adam(
                parameters, list(gradients), means, squares, [], steps, fused=True, amsgrad=False, beta1=0.9,
                beta2=0.999, lr=rate, weight_decay=0.0, eps=1e-8, maximize=False,
            )  # fmt: skip

    return step
