"""Divide rows into training, validation and test rows: by shares, by a column or by files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfeval_cli.core import Ints
from cfeval_cli.errors import check_float
from cfeval_cli.seeding import make_stream

PARTS = ("train", "validation", "test")
_DEFAULT_VALIDATION_SHARE = 0.1  # of the training rows, if the data have no validation rows


def check_shares(split: Sequence[float]) -> None:
    """Raise ValueError unless there are three positive shares that add up to 1."""
    if len(split) != 3 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split must be three shares that add up to 1, not {list(split)}")
    for share in split:
        check_float("split", share, 0, 1, open_low=True)


def split_by_shares(rows: Ints, shares: Sequence[float], seed: int) -> tuple[Ints, Ints, Ints]:
    """Divide rows at random into three parts; each part keeps the order of the rows."""
    order = make_stream(seed, "dataset.split").permutation(rows)
    # the small term keeps 0.1 * 30 from being 2.9999
    first, second = (int(share * len(rows) + 1e-9) for share in shares[:2])
    train, validation, test = np.split(order, [first, first + second])
    return np.sort(train), np.sort(validation), np.sort(test)


def check_predefined_split(split: Mapping[str, Any]) -> None:
    """Raise ValueError if a split by a column or by files is incomplete or contradictory."""
    unknown = [key for key in split if key not in ("column", *PARTS)]
    if unknown:
        raise ValueError(
            f"split.{unknown[0]} is not known: split has column, train, validation and test, or three shares"
        )
    by_column = "column" in split
    if "test" not in split or (by_column and "train" not in split):
        raise ValueError(
            "split by a column needs train and test, the values of that column in the two parts"
            if by_column
            else "split by files needs test, a file; dataset.file has the training rows. To split by a column, set "
            "column: NAME"
        )
    if not by_column and "train" in split:
        raise ValueError("split.train does not go with a split by files: dataset.file has the training rows")
    values = [str(value) for part in PARTS for value in get_part_values(split, part)]
    duplicates = [value for value in values if values.count(value) > 1]
    if by_column and duplicates:
        raise ValueError(f"split names {duplicates[0]} twice: a row belongs to one part")
    if isinstance(split.get("validation"), float):
        check_float("split.validation", split["validation"], 0, 1, open_low=True)


def get_part_values(split: Mapping[str, Any], part: str) -> list[Any]:
    """Return the values of the split column in the rows of one part."""
    values = split.get(part, [])
    if part == "validation" and isinstance(values, float):
        return []
    return list(values) if isinstance(values, list | tuple) else [values]


def hold_out_validation(train: Ints, split: Mapping[str, Any], seed: int) -> tuple[Ints, Ints]:
    """Divide training rows at random into training and validation rows."""
    share = split.get("validation", _DEFAULT_VALIDATION_SHARE)
    order = make_stream(seed, "dataset.split").permutation(train)
    size = max(1, int((share if isinstance(share, float) else _DEFAULT_VALIDATION_SHARE) * len(train) + 1e-9))
    return np.sort(order[size:]), np.sort(order[:size])
