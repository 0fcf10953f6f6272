"""Train, validation and test: how rows are divided."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.errors import number
from cfeval_cli.seeding import stream
from cfeval_cli.types import Ints


def check_shares(split: Sequence[float]) -> None:
    """Refuse anything but three positive shares of one whole."""
    if len(split) != 3 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split must be three shares that add up to 1, not {list(split)}")
    for share in split:
        number("split", share, 0, 1, open_low=True)


def shuffled(rows: Ints, split: Sequence[float], seed: int) -> tuple[Ints, Ints, Ints]:
    """The rows in three parts, at random; each part in the order of the rows."""
    order = stream(seed, "dataset.split").permutation(rows)
    # the small term keeps 0.1 * 30 from being 2.9999
    first, second = (int(share * len(rows) + 1e-9) for share in split[:2])
    train, validation, test = np.split(order, [first, first + second])
    return np.sort(train), np.sort(validation), np.sort(test)
