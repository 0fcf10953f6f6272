"""Class shares among the nearest training rows, where equally near rows have equal weight."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core.data import Floats, Ints
from cfeval_cli.core.metric import MetricInput

_BATCH_DISTANCES = 1 << 22  # distances in memory
_TOLERANCE = 1e-9  # relative difference of equal squared distances


def compute_class_shares(points: Floats, rows: Floats, counts: Floats, size: int) -> Floats:
    """Return the share (n, C) of each class among the `size` rows (U, d) nearest to each point (n, d)."""
    squares = (rows**2).sum(axis=1)
    step = max(1, _BATCH_DISTANCES // len(rows))
    parts = [np.zeros((0, counts.shape[1]))]
    for batch in (points[start : start + step] for start in range(0, len(points), step)):
        squared = (batch**2).sum(axis=1)[:, None] - 2.0 * batch @ rows.T + squares
        parts.append(compute_nearest_shares(squared, counts, size))
    return np.concatenate(parts)


def compute_nearest_shares(squared: Floats, counts: Floats, size: int) -> Floats:
    """Return the share (n, C) of each class among the `size` nearest of U distinct rows.

    `squared` (n, U) are squared distances, `counts` (U, C) the frequency of each distinct row by class. Rows at the
    distance of the last neighbour are weighted equally, as a random choice among them does on average.
    """
    frequencies = counts.sum(axis=1)
    size = min(size, int(frequencies.sum()))
    if (frequencies == 1).all():
        last = np.partition(squared, size - 1, axis=1)[:, size - 1]
    else:
        order = np.argsort(squared, axis=1)
        reached = np.argmax(np.cumsum(frequencies[order], axis=1) >= size, axis=1)
        last = squared[np.arange(len(squared)), order[np.arange(len(squared)), reached]]
    margin = _TOLERANCE * np.maximum(1.0, last)
    nearer = (squared < (last - margin)[:, None]).astype(np.float64) @ counts
    tied = (np.abs(squared - last[:, None]) <= margin[:, None]).astype(np.float64) @ counts
    n_remaining = size - nearer.sum(axis=1, keepdims=True)
    return np.asarray((nearer + n_remaining * tied / tied.sum(axis=1, keepdims=True)) / size)


def predict_training_classes(inputs: MetricInput) -> Ints:
    """Return the predicted classes of the training rows."""
    return inputs.memory.get_or_create(
        "training classes", lambda: inputs.model.predict_labels(inputs.dataset.train.codes)
    )
