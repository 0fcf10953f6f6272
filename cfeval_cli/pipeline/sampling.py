"""Samples of instances with a minimum number of each predicted class, and the weights that undo it."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Floats, Ints


def compute_quotas(counts: Ints, size: int, minimum: int) -> Ints:
    """Return how many instances of each class (C,) belong to a sample of `size`; `counts` are those of all data.

    Each class has its proportional share, but at least `minimum` instances, or all that there are. If the sample is
    too small for that, the minimum is lowered.
    """
    while np.minimum(counts, minimum).sum() > size:
        minimum -= 1
    minima = np.minimum(counts, minimum)
    at_minimum = np.zeros(len(counts), dtype=bool)
    while True:  # what some classes get beyond their share is taken from the shares of the others
        n_left, n_others = size - int(minima[at_minimum].sum()), int(counts[~at_minimum].sum())
        is_below = ~at_minimum & (n_left * counts < minima * n_others)
        if not is_below.any():
            break
        at_minimum |= is_below
    quotas = np.where(at_minimum, minima, n_left * counts // n_others)
    remainders = np.where(at_minimum, -1, n_left * counts % n_others)
    quotas[np.argsort(-remainders, kind="stable")[: size - int(quotas.sum())]] += 1
    return np.asarray(quotas)


def select_by_class(classes: Ints, order: Ints, size: int, minimum: int) -> Ints:
    """Return the sorted positions of a sample, which has the first instances of each class in a random order."""
    quotas = compute_quotas(np.bincount(classes), size, minimum)
    ordered = classes[order]
    return np.sort(np.concatenate([order[ordered == label][:quota] for label, quota in enumerate(quotas.tolist())]))


def compute_class_weights(classes: Ints, positions: Ints, weights: Floats | None = None) -> Floats:
    """Return weights (n,) with which a sample has the class sizes of all instances, which may have `weights`."""
    weights = np.ones(len(classes)) if weights is None else weights
    of_sample = weights[positions]
    total = np.bincount(classes, weights)
    total_of_sample = np.bincount(classes[positions], of_sample, len(total))
    return np.asarray(of_sample * (total / np.where(total_of_sample > 0, total_of_sample, 1.0))[classes[positions]])
