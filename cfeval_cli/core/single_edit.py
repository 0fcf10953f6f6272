"""Edits of one feature: the value with the lowest p(ŷ), and whether any value flips the prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, Bools, Codes, Dataset, Floats, Ints
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.core.metric import MetricInput

_BATCH_ROWS = 1 << 16  # edited rows per model call


@dataclass(frozen=True)
class SingleEdit:
    """The effect of changing one feature of each row (n,)."""

    flips: Bools  # whether a value of the feature flips the prediction
    value: Codes  # with the lowest p(ŷ), the first of equal ones; the current value where `probability` is inf
    probability: Floats  # p(ŷ) with this value; inf if there is none, or with label access


def select_candidates(dataset: Dataset, feature: int, max_values: int) -> Codes:
    """Return the candidate values of a feature, the most frequent ones if there are more than `max_values`."""
    values = dataset.candidates[feature]
    if len(values) <= max_values:
        return values
    frequency = dataset.frequencies[feature][values]
    return np.sort(values[np.argsort(-frequency, kind="stable")[:max_values]])


def find_best_edit(
    dataset: Dataset, model: ModelClient, codes: Codes, labels: Ints, own_codes: Codes, features: Ints, max_values: int
) -> SingleEdit:
    """Evaluate the candidate values of one feature (n,) of each row (n, M), which may have been edited before.

    At most `max_values` candidates are evaluated, the most frequent ones. `own_codes` (n,) are the original values of
    the feature. Original values and forbidden changes are evaluated too, but never selected.
    """
    flips, probability = np.zeros(len(codes), dtype=bool), np.full(len(codes), np.inf)
    value = codes[np.arange(len(codes)), features]
    for j in np.unique(features).tolist():
        values = select_candidates(dataset, j, max_values)
        members = np.flatnonzero((features == j) & (own_codes != ABSENT))
        step = max(1, _BATCH_ROWS // max(1, len(values)))
        for batch in (members[start : start + step] for start in range(0, len(members), step)):
            before = own_codes[batch, None]
            allowed = dataset.features[j].allows(before, values[None]) & (before != values)
            edits = np.tile(values, len(batch))[:, None]
            positions = np.repeat(np.arange(len(batch)), len(values))
            is_flip, after = model.evaluate_edits(codes[batch], features[batch, None], positions, edits, labels[batch])
            flips[batch] = (is_flip.reshape(allowed.shape) & allowed).any(axis=1)
            if after is not None and len(values):
                allowed_after = np.where(allowed, after.reshape(allowed.shape), np.inf)
                best = allowed_after.argmin(axis=1)
                probability[batch] = allowed_after[np.arange(len(batch)), best]
                value[batch] = np.where(np.isfinite(probability[batch]), values[best], value[batch])
    return SingleEdit(flips, value, probability)


def find_single_edit(inputs: MetricInput, positions: Ints, features: Ints, max_values: int) -> SingleEdit:
    """Return the effect of changing one feature (m,) of some instances (m,), computed once for all metrics."""

    def compute(new_indices: Ints) -> Floats:
        new_positions, edited = positions[new_indices], features[new_indices]
        codes, labels = inputs.codes[new_positions], inputs.predicted_classes[new_positions]
        own_codes = codes[np.arange(len(codes)), edited]
        edit = find_best_edit(inputs.dataset, inputs.model, codes, labels, own_codes, edited, max_values)
        return np.stack([edit.flips, edit.value, edit.probability], axis=1).astype(np.float64)

    is_edited = np.zeros((len(positions), inputs.dataset.n_features), dtype=bool)
    is_edited[np.arange(len(positions)), features] = True
    topic = f"{max_values} values alone, access {inputs.model.access}"
    keys = make_set_keys(is_edited, inputs.ids[positions])
    flips, value, probability = inputs.memory.get_or_compute(topic, keys, compute).T
    return SingleEdit(flips > 0, value.astype(np.int32), probability)
