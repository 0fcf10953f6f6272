"""What the nearest training rows say: shares of classes among them, equally near ones counting the same."""

from __future__ import annotations

import numpy as np

from cfeval_cli.types import Floats

_SAME = 1e-9  # squared distances that differ by no more of their size are the same


def shares(squared: Floats, counts: Floats, size: int) -> Floats:
    """The share (n, C) of each class among the `size` nearest of U kinds of rows.

    `squared` (n, U) are distances, `counts` (U, C) how many rows of each class are of a kind. Those at the distance of
    the last one share the places that are left: what a random choice among them gives on average.
    """
    each = counts.sum(axis=1)
    size = min(size, int(each.sum()))
    if (each == 1).all():
        last = np.partition(squared, size - 1, axis=1)[:, size - 1]
    else:
        order = np.argsort(squared, axis=1)
        reached = np.argmax(np.cumsum(each[order], axis=1) >= size, axis=1)
        last = squared[np.arange(len(squared)), order[np.arange(len(squared)), reached]]
    margin = _SAME * np.maximum(1.0, last)
    nearer = (squared < (last - margin)[:, None]).astype(np.float64) @ counts
    tied = (np.abs(squared - last[:, None]) <= margin[:, None]).astype(np.float64) @ counts
    left = size - nearer.sum(axis=1, keepdims=True)
    return np.asarray((nearer + left * tied / tied.sum(axis=1, keepdims=True)) / size)
