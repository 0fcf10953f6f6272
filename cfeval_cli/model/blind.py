"""Models that are trained without some of the features: whatever those say, no prediction moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cfeval_cli.core import Bools, Dataset, Ints
from cfeval_cli.errors import UserError, did_you_mean
from cfeval_cli.seeding import make_stream

Blind = Sequence[str] | float  # names of features, or the share of them that is drawn


def check(blind: object) -> None:
    """Refuse a setting that is neither names nor a share."""
    share = isinstance(blind, int | float) and not isinstance(blind, bool) and 0 <= blind < 1
    names = isinstance(blind, list | tuple) and all(isinstance(name, str) for name in blind)
    if not share and not names:
        raise ValueError(f"blind must be a list of features such as [age,sex], or a share under 1, not {blind!r}")


def read(dataset: Dataset, blind: Blind, seed: int) -> Ints:
    """The features that are left to read, in their order: all, all but those named, or a seeded share."""
    everyone = np.arange(dataset.width)
    if not blind:
        return everyone
    if dataset.kind == "text":
        raise UserError("model.blind is for tables: the places of a text are no columns that can be left out.")
    if isinstance(blind, int | float):
        if dataset.width == 1:
            raise UserError(f"model.blind={blind}: {dataset.name} has one feature, and something must be read.")
        size = min(max(1, round(blind * dataset.width)), dataset.width - 1)
        return np.sort(make_stream(seed, "model.blind").permutation(dataset.width)[size:])
    names = [feature.name for feature in dataset.features]
    if strange := [name for name in blind if name not in names]:
        raise UserError(
            f"model.blind: {dataset.name} has no feature {strange[0]!r}.{did_you_mean(strange[0], names)} "
            f"There is: {', '.join(names)}."
        )
    if set(names) == set(blind):
        raise UserError(f"model.blind names all features of {dataset.name}, and something must be read.")
    return np.array([j for j, name in enumerate(names) if name not in blind])


def narrowed(dataset: Dataset, reads: Ints) -> Dataset:
    """The data with those features only."""
    if len(reads) == dataset.width:
        return dataset
    parts = [replace(s, codes=s.codes[:, reads]) for s in (dataset.train, dataset.validation, dataset.test)]
    features, frequencies, candidates = (
        tuple(column[j] for j in reads) for column in (dataset.features, dataset.frequencies, dataset.candidates)
    )
    return replace(
        dataset, train=parts[0], validation=parts[1], test=parts[2],
        features=features, frequencies=frequencies, candidates=candidates,
    )  # fmt: skip


def marked(width: int, reads: Ints) -> Bools:
    """Whether each feature (M,) is read."""
    seen = np.zeros(width, dtype=bool)
    seen[reads] = True
    return seen
