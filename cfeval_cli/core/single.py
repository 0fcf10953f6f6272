"""One feature at a time: the value of it that takes most from p(ŷ), and whether any value flips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, Bools, Codes, Dataset, Floats, Ints
from cfeval_cli.core.memory import make_set_keys
from cfeval_cli.core.metric import MetricInput

_AT_ONCE = 1 << 16  # edited rows put before the model at once


@dataclass(frozen=True)
class SingleEdit:
    """What changing one feature of each row (n,) does."""

    flips: Bools  # whether one of its values flips the prediction
    value: Codes  # the one that leaves least of p(ŷ), of equal ones the first; its own if it has no other
    probability: Floats  # what that leaves; inf if it has no other, or with label access


def select_candidates(dataset: Dataset, feature: int, most: int) -> Codes:
    """The values of a feature that a search may try, the most frequent ones if there are too many."""
    values = dataset.candidates[feature]
    if len(values) <= most:
        return values
    frequency = dataset.frequencies[feature][values]
    return np.sort(values[np.argsort(-frequency, kind="stable")[:most]])


def find_best_edit(
    dataset: Dataset, model: ModelClient, codes: Codes, labels: Ints, own: Codes, features: Ints, most: int
) -> SingleEdit:
    """Try all values of one feature (n,) of each row (n, M), which may have been edited before.

    `own` (n,) is the value that the feature had: one that it may not become is not tried, and neither is this itself.
    """
    flips, left = np.zeros(len(codes), dtype=bool), np.full(len(codes), np.inf)
    value = codes[np.arange(len(codes)), features]
    for j in np.unique(features).tolist():
        values = select_candidates(dataset, j, most)
        everyone = np.flatnonzero((features == j) & (own != ABSENT))
        step = max(1, _AT_ONCE // max(1, len(values)))
        for mine in (everyone[start : start + step] for start in range(0, len(everyone), step)):
            allowed = dataset.features[j].allows(own[mine, None], values[None]) & (own[mine, None] != values)
            edits = np.tile(values, len(mine))[:, None]
            which = np.repeat(np.arange(len(mine)), len(values))
            turned, remains = model.evaluate_edits(codes[mine], features[mine, None], which, edits, labels[mine])
            flips[mine] = (turned.reshape(allowed.shape) & allowed).any(axis=1)
            if remains is not None and len(values):
                cost = np.where(allowed, remains.reshape(allowed.shape), np.inf)
                best = cost.argmin(axis=1)
                left[mine] = cost[np.arange(len(mine)), best]
                value[mine] = np.where(np.isfinite(left[mine]), values[best], value[mine])
    return SingleEdit(flips, value, left)


def find_single_edit(inputs: MetricInput, rows: Ints, features: Ints, most: int) -> SingleEdit:
    """What changing one feature (m,) of some rows (m,) does, nothing else being changed; asked once for all metrics."""

    def answer(new: Ints) -> Floats:
        mine, these = rows[new], features[new]
        own = inputs.codes[mine, these]
        told = find_best_edit(inputs.dataset, inputs.model, inputs.codes[mine], inputs.labels[mine], own, these, most)
        return np.stack([told.flips, told.value, told.probability], axis=1).astype(np.float64)

    chosen = np.zeros((len(rows), inputs.dataset.n_features), dtype=bool)
    chosen[np.arange(len(rows)), features] = True
    about = f"{most} values alone, access {inputs.model.access}"
    flips, value, left = inputs.memory.get_or_compute(about, make_set_keys(chosen, inputs.ids[rows]), answer).T
    return SingleEdit(flips > 0, value.astype(np.int32), left)
