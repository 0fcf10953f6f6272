"""The effect of removing features on predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Bools, Codes, Floats, Ints, Rows
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.core.removal import Replacement

_BATCH_ROWS = 1 << 16  # edited rows per model call


@dataclass(frozen=True)
class RemovalEffect:
    """The effect of a removal on the prediction of each row (n,)."""

    flip_rate: Floats  # weight of the replacements that change the predicted class, 0 to 1
    probability: Floats | None  # mean p(ŷ) over the replacements; None with label access
    absolute_drop: Floats | None  # mean |p(ŷ|x) - p(ŷ|x′)| over replacements x′; None if p(ŷ|x) is unknown


def compute_removal_effect(
    model: ModelClient, rows: Rows, is_removed: Bools, replacement: Replacement
) -> RemovalEffect:
    """Return the effect of removing the features marked in `is_removed` (n, M); absent features stay absent."""
    is_removed = is_removed & (rows.codes != ABSENT)
    if replacement.value is not None:
        edited = np.where(is_removed, np.int32(replacement.value), rows.codes)
        labels, probability = model.predict_with_proba(edited, rows.predicted_classes)
        return _make_effect((labels != rows.predicted_classes).astype(float), probability, rows)
    if replacement.vectors is not None:
        return _make_effect(*_replace_embeddings(model, rows, is_removed, replacement.vectors), rows)
    flips, remaining, drops = (np.zeros(len(rows)) for _ in range(3))
    has_probability = True
    for batch in _iterate_batches(rows, is_removed, replacement):
        edited = np.concatenate(
            [_apply_all_values(rows.codes[part.positions], part.features, part.values) for part in batch]
        )
        original_classes = np.concatenate(
            [np.repeat(rows.predicted_classes[part.positions], len(part.values)) for part in batch]
        )
        labels, probability = model.predict_with_proba(edited, original_classes)
        has_probability = has_probability and probability is not None
        start = 0
        for part in batch:
            span = slice(start, start := start + len(part.positions) * len(part.values))
            flips[part.positions] = _compute_means(labels[span] != original_classes[span], part.weights)
            if probability is not None:
                remaining[part.positions] = _compute_means(probability[span], part.weights)
            if probability is not None and rows.probability is not None:
                original = np.repeat(rows.probability[part.positions], len(part.values))
                drops[part.positions] = _compute_means(np.abs(original - probability[span]), part.weights)
    if not has_probability:
        return RemovalEffect(flips, None, None)
    return RemovalEffect(flips, remaining, None if rows.probability is None else drops)


@dataclass(frozen=True)
class _RemovalGroup:
    """Rows from which the same features are removed, with the sampled replacement values."""

    positions: Ints  # (n,) of the rows
    features: Ints  # (k,)
    values: Codes  # (s, k)
    weights: Floats  # (s,)


def _iterate_batches(rows: Rows, is_removed: Bools, replacement: Replacement) -> Iterator[list[_RemovalGroup]]:
    """Yield groups to evaluate in one call, since calls of many models have a high fixed cost."""
    batch: list[_RemovalGroup] = []
    size = 0
    for removed, members in zip(*_group_rows(is_removed), strict=True):
        features = np.flatnonzero(removed)
        values, weights = replacement.sample(features)
        step = max(1, _BATCH_ROWS // len(values))
        for start in range(0, len(members), step):
            part = _RemovalGroup(members[start : start + step], features, values, weights)
            if batch and size + len(part.positions) * len(values) > _BATCH_ROWS:
                yield batch
                batch, size = [], 0
            batch.append(part)
            size += len(part.positions) * len(values)
    if batch:
        yield batch


def _make_effect(flips: Floats, probability: Floats | None, rows: Rows) -> RemovalEffect:
    """Return the effect of a single replacement."""
    if probability is None or rows.probability is None:
        return RemovalEffect(flips, probability, None)
    return RemovalEffect(flips, probability, np.abs(rows.probability - probability))


def _group_rows(is_removed: Bools) -> tuple[Bools, list[Ints]]:
    """Return the distinct sets (s, M) of features, and the rows of each."""
    if not len(is_removed):
        return is_removed, []
    keys = make_set_keys(is_removed)
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return is_removed[first], np.split(np.argsort(inverse.ravel(), kind="stable"), np.cumsum(counts)[:-1])


def _replace_embeddings(model: ModelClient, rows: Rows, is_removed: Bools, vectors: Floats) -> tuple[Floats, Floats]:
    """Return flips and p(ŷ) with other embeddings, in batches that bound the memory of M · d numbers per row."""
    flips, probability = np.zeros(len(rows)), np.zeros(len(rows))
    step = max(1, _BATCH_ROWS // max(1, vectors.shape[0]))
    for batch in (slice(start, start + step) for start in range(0, len(rows), step)):
        n_removed = max(1, int(is_removed[batch].sum(axis=1).max(initial=0)))
        order = np.argsort(~is_removed[batch], axis=1, kind="stable")[:, :n_removed]
        features = np.where(np.take_along_axis(is_removed[batch], order, axis=1), order, NO_FEATURE)
        labels, probability[batch] = model.evaluate_embeddings(
            rows.codes[batch], features, vectors[features], rows.predicted_classes[batch]
        )
        flips[batch] = labels != rows.predicted_classes[batch]
    return flips, probability


def _apply_all_values(codes: Codes, features: Ints, values: Codes) -> Codes:
    """Return every row (n, M) with every combination of values (s, k): (n·s, M)."""
    edited = np.repeat(codes, len(values), axis=0)
    edited[:, features] = np.tile(values, (len(codes), 1))
    return edited


def _compute_means(outcomes: Floats | Bools, weights: Floats) -> Floats:
    """Return the weighted mean (n,) of the outcomes (n·s,) of each row."""
    return np.asarray((outcomes.reshape(-1, len(weights)) * weights).sum(axis=1))
