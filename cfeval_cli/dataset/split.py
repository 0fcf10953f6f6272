"""Train, validation and test: how rows are divided, at random or as the data say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfeval_cli.core import Ints
from cfeval_cli.errors import check_float
from cfeval_cli.seeding import make_stream

PARTS = ("train", "validation", "test")
_SHARE = 0.1  # of the training rows, for validation where the data have none


def check_shares(split: Sequence[float]) -> None:
    """Refuse anything but three positive shares of one whole."""
    if len(split) != 3 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split must be three shares that add up to 1, not {list(split)}")
    for share in split:
        check_float("split", share, 0, 1, open_low=True)


def shuffled(rows: Ints, split: Sequence[float], seed: int) -> tuple[Ints, Ints, Ints]:
    """The rows in three parts, at random; each part in the order of the rows."""
    order = make_stream(seed, "dataset.split").permutation(rows)
    # the small term keeps 0.1 * 30 from being 2.9999
    first, second = (int(share * len(rows) + 1e-9) for share in split[:2])
    train, validation, test = np.split(order, [first, first + second])
    return np.sort(train), np.sort(validation), np.sort(test)


def check_own(split: Mapping[str, Any]) -> None:
    """Refuse a split of the data's own that does not say what is what."""
    odd = [key for key in split if key not in ("column", *PARTS)]
    if odd:
        raise ValueError(f"split.{odd[0]} is not known: split has column, train, validation and test, or three shares")
    by_column = "column" in split
    if "test" not in split or (by_column and "train" not in split):
        raise ValueError(
            "split by a column needs train and test, which say what that column has there"
            if by_column
            else "split by files needs test, a file; dataset.file is for training, or say column: NAME"
        )
    if not by_column and "train" in split:
        raise ValueError("split.train does not go with a split by files: dataset.file is the one for training")
    values = [str(value) for part in PARTS for value in own_values(split, part)]
    twice = [value for value in values if values.count(value) > 1]
    if by_column and twice:
        raise ValueError(f"split names {twice[0]} twice: a row belongs to one part")
    if isinstance(split.get("validation"), float):
        check_float("split.validation", split["validation"], 0, 1, open_low=True)


def own_values(split: Mapping[str, Any], part: str) -> list[Any]:
    """What the column of a split has in the rows of one part."""
    said = split.get(part, [])
    if part == "validation" and isinstance(said, float):
        return []
    return list(said) if isinstance(said, list | tuple) else [said]


def held_out(train: Ints, split: Mapping[str, Any], seed: int) -> tuple[Ints, Ints]:
    """The training rows without some, drawn at random, for validation, and these."""
    share = split.get("validation", _SHARE)
    order = make_stream(seed, "dataset.split").permutation(train)
    size = max(1, int((share if isinstance(share, float) else _SHARE) * len(train) + 1e-9))
    return np.sort(order[size:]), np.sort(order[:size])
