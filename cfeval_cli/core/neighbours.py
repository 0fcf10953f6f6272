"""What the nearest training rows say: shares of classes among them, equally near ones counting the same."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core.data import Floats, Ints
from cfeval_cli.core.metric import MetricInput

_AT_ONCE = 1 << 22  # distances held at a time
_SAME = 1e-9  # squared distances that differ by no more of their size are the same


def compute_class_shares(points: Floats, rows: Floats, counts: Floats, size: int) -> Floats:
    """The share (n, C) of each class among the `size` rows (U, d) that are nearest to each point (n, d)."""
    squares = (rows**2).sum(axis=1)
    step = max(1, _AT_ONCE // len(rows))
    found = [np.zeros((0, counts.shape[1]))]
    for some in (points[start : start + step] for start in range(0, len(points), step)):
        found.append(count_nearest((some**2).sum(axis=1)[:, None] - 2.0 * some @ rows.T + squares, counts, size))
    return np.concatenate(found)


def count_nearest(squared: Floats, counts: Floats, size: int) -> Floats:
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


def predict_training_classes(inputs: MetricInput) -> Ints:
    """What the model predicts for the training rows."""
    return inputs.memory.get_or_create(
        "training classes", lambda: inputs.model.predict_labels(inputs.dataset.train.codes)
    )
