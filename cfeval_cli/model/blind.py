"""Train models without some of the features: no prediction depends on these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cfeval_cli.core import Bools, Dataset, Ints
from cfeval_cli.errors import UserError, did_you_mean
from cfeval_cli.seeding import make_stream

Blind = Sequence[str] | float  # names of the features that are left out, or the share of them that is drawn


def check_blind(blind: object) -> None:
    """Raise ValueError unless the setting is a list of names or a share."""
    is_share = isinstance(blind, int | float) and not isinstance(blind, bool) and 0 <= blind < 1
    is_list = isinstance(blind, list | tuple) and all(isinstance(name, str) for name in blind)
    if not is_share and not is_list:
        raise ValueError(f"blind must be a list of features such as [age,sex], or a share under 1, not {blind!r}")


def choose_read_features(dataset: Dataset, blind: Blind, seed: int) -> Ints:
    """Return the features that the model reads, in their order."""
    all_features = np.arange(dataset.n_features)
    if not blind:
        return all_features
    if dataset.kind == "text":
        raise UserError("model.blind is for tables: a position in a text is not a column that can be left out.")
    if isinstance(blind, int | float):
        if dataset.n_features == 1:
            raise UserError(f"model.blind={blind}: {dataset.name} has one feature, which a model must read.")
        n_blind = min(max(1, round(blind * dataset.n_features)), dataset.n_features - 1)
        return np.sort(make_stream(seed, "model.blind").permutation(dataset.n_features)[n_blind:])
    names = [feature.name for feature in dataset.features]
    if unknown := [name for name in blind if name not in names]:
        raise UserError(
            f"model.blind: {dataset.name} has no feature {unknown[0]!r}.{did_you_mean(unknown[0], names)} "
            f"Its features are {', '.join(names)}."
        )
    if set(names) == set(blind):
        raise UserError(f"model.blind names all features of {dataset.name}, but a model must read at least one.")
    return np.array([j for j, name in enumerate(names) if name not in blind])


def keep_features(dataset: Dataset, features: Ints) -> Dataset:
    """Return the dataset with some of its features only."""
    if len(features) == dataset.n_features:
        return dataset
    splits = [
        replace(split, codes=split.codes[:, features]) for split in (dataset.train, dataset.validation, dataset.test)
    ]
    return replace(
        dataset,
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        features=tuple(dataset.features[j] for j in features),
        frequencies=tuple(dataset.frequencies[j] for j in features),
        candidates=tuple(dataset.candidates[j] for j in features),
    )


def make_mask(width: int, features: Ints) -> Bools:
    """Return a mask (M,) of some of the features."""
    mask = np.zeros(width, dtype=bool)
    mask[features] = True
    return mask
