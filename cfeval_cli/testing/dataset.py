"""The contract of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cfeval_cli.core import ABSENT, Dataset, Loadable, Split
from cfeval_cli.testing.require import require, require_array, require_text


def check_dataset(dataset: Loadable, data_dir: Path | str) -> None:
    """Check that data can be loaded from a folder, that they are valid, and the same for the same seed."""
    name = type(dataset).__name__
    require_text(dataset.name, f"{name}.name")
    folder = Path(data_dir)
    for file in dataset.fetch(folder):
        require(file.path.is_file(), f"{name}.fetch() names {file.path}, which is not a file.")
        require_text(file.sha256, f"{name}.fetch(): sha256")
    data = dataset.load(folder, 0)
    require(isinstance(data, Dataset), f"{name}.load() must return a Dataset, not {type(data).__name__}.")
    is_repeatable = data.fingerprint == dataset.load(folder, 0).fingerprint
    require(is_repeatable, f"{name}.load() returns other data a second time, with the same seed.")
    _check_features(data, name)
    for part, split in (("train", data.train), ("validation", data.validation), ("test", data.test)):
        _check_split(data, split, f"{name}: {part}")
    ids = np.concatenate([data.train.ids, data.validation.ids, data.test.ids])
    require(len(np.unique(ids)) == len(ids), f"{name}: a row is in more than one part, or in one part twice.")


def _check_features(dataset: Dataset, name: str) -> None:
    require(len(dataset.classes) >= 2, f"{name} must have at least two classes.")
    require(len(set(dataset.classes)) == len(dataset.classes), f"{name} has a class twice.")
    require(dataset.n_features >= 1, f"{name} must have at least one feature.")
    names = [feature.name for feature in dataset.features]
    require(len(set(names)) == len(names), f"{name} has a feature's name twice.")
    for feature, frequency, candidates in zip(dataset.features, dataset.frequencies, dataset.candidates, strict=True):
        size = len(feature.values)
        about = f"{name}, feature {feature.name}"
        require_array(frequency, (size,), "f", f"{about}: frequencies")
        require(abs(frequency.sum() - 1) < 1e-9, f"{about}: frequencies must add up to 1.")
        require_array(candidates, (len(candidates),), "i", f"{about}: candidates")
        require((np.diff(candidates) > 0).all(), f"{about}: candidates must be ascending.")
        require(((candidates >= 0) & (candidates < size)).all(), f"{about} has candidates that are no values.")
        if feature.numbers is not None:
            require_array(feature.numbers, (size,), "if", f"{about}: numbers")


def _check_split(dataset: Dataset, split: Split, name: str) -> None:
    n = len(split)
    require(n, f"{name} has no rows.")
    require_array(split.codes, (n, dataset.n_features), "i", f"{name}: codes")
    require_array(split.labels, (n,), "i", f"{name}: labels")
    valid = (split.labels >= 0) & (split.labels < len(dataset.classes))
    require(valid.all(), f"{name} has labels that are no classes.")
    sizes = np.array([len(feature.values) for feature in dataset.features])
    require((split.codes < sizes).all() and (split.codes >= ABSENT).all(), f"{name} has codes that are no values.")
    present = split.codes != ABSENT
    require((present[:, 1:] <= present[:, :-1]).all(), f"{name}: only the end of a row may be absent.")
    require(present.all() or dataset.padded, f"{name}: only texts may have absent features.")
    first_rows = split.codes[:3]
    require(len(dataset.decode(first_rows)) == len(first_rows), f"{name}: decode() must return a row for each.")
