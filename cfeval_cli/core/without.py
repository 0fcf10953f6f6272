"""What becomes of a prediction when features are removed: the one place where erasures are put before the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Bools, Codes, Floats, Ints, Rows
from cfeval_cli.core.memory import make_set_keys
from cfeval_cli.core.removal import Replacement

_AT_ONCE = 1 << 16  # edited rows put before the model at once


@dataclass(frozen=True)
class RemovalEffect:
    """What became of each prediction (n,)."""

    flip_rate: Floats  # how much of the removal flips it, 0 to 1
    probability: Floats | None  # of p(ŷ), on average; None with label access
    absolute_drop: Floats | None  # mean |p(ŷ|x) - p(ŷ|x′)| over replacements x′; None if p(ŷ|x) is unknown


def compute_removal_effect(model: ModelClient, rows: Rows, gone: Bools, replacement: Replacement) -> RemovalEffect:
    """The same, and how far the draws take p(ŷ) from where it was, either way."""
    if replacement.value is not None:
        edited = np.where(gone & (rows.codes != ABSENT), np.int32(replacement.value), rows.codes)
        labels, probability = model.predict_with_proba(edited, rows.labels)
        return _one((labels != rows.labels).astype(float), probability, rows)
    if replacement.vectors is not None:
        return _one(*_moved(model, rows, gone & (rows.codes != ABSENT), replacement.vectors), rows)
    flips, left, apart = (np.zeros(len(rows)) for _ in range(3))
    told = True
    for batch in _batches(rows, gone, replacement):
        edited = np.concatenate([_edited(rows.codes[part.rows], part.features, part.values) for part in batch])
        before = np.concatenate([np.repeat(rows.labels[part.rows], len(part.values)) for part in batch])
        labels, probability = model.predict_with_proba(edited, before)
        told = told and probability is not None
        start = 0
        for part in batch:
            mine = slice(start, start := start + len(part.rows) * len(part.values))
            flips[part.rows] = _expected(labels[mine] != before[mine], part.weights)
            if probability is not None:
                left[part.rows] = _expected(probability[mine], part.weights)
            if probability is not None and rows.probability is not None:
                was = np.repeat(rows.probability[part.rows], len(part.values))
                apart[part.rows] = _expected(np.abs(was - probability[mine]), part.weights)
    return RemovalEffect(flips, left if told else None, apart if told and rows.probability is not None else None)


@dataclass(frozen=True)
class _Part:
    """Some rows (n,) of which the same features (k,) are removed, and what takes their place: (s, k) with weights."""

    rows: Ints
    features: Ints
    values: Codes
    weights: Floats


def _batches(rows: Rows, gone: Bools, replacement: Replacement) -> Iterator[list[_Part]]:
    """Parts that are put before the model together: many models take longer to be asked than to answer."""
    batch: list[_Part] = []
    size = 0
    for removed, mine in zip(*_grouped(gone), strict=True):
        features = np.flatnonzero(removed)
        values, weights = replacement.sample(features)
        step = max(1, _AT_ONCE // len(values))
        for start in range(0, len(mine), step):
            part = _Part(mine[start : start + step], features, values, weights)
            if batch and size + len(part.rows) * len(values) > _AT_ONCE:
                yield batch
                batch, size = [], 0
            batch.append(part)
            size += len(part.rows) * len(values)
    if batch:
        yield batch


def _one(flips: Floats, left: Floats | None, rows: Rows) -> RemovalEffect:
    """Where a single value takes each feature's place."""
    return RemovalEffect(
        flips, left, None if left is None or rows.probability is None else np.abs(rows.probability - left)
    )


def _grouped(gone: Bools) -> tuple[Bools, list[Ints]]:
    """The sets (s, M) that occur among some (n, M), and the rows of each."""
    _, first, which, counts = np.unique(make_set_keys(gone), return_index=True, return_inverse=True, return_counts=True)
    return gone[first], np.split(np.argsort(which.ravel(), kind="stable"), np.cumsum(counts)[:-1]) if len(gone) else []


def _moved(model: ModelClient, rows: Rows, gone: Bools, vectors: Floats) -> tuple[Floats, Floats]:
    """The embeddings of what is removed are exchanged; in parts, since each row takes M times d numbers."""
    flips, left = np.zeros(len(rows)), np.zeros(len(rows))
    step = max(1, _AT_ONCE // max(1, vectors.shape[0]))
    for some in (slice(start, start + step) for start in range(0, len(rows), step)):
        order = np.argsort(~gone[some], axis=1, kind="stable")[:, : max(1, int(gone[some].sum(axis=1).max(initial=0)))]
        features = np.where(np.take_along_axis(gone[some], order, axis=1), order, NO_FEATURE)
        labels, left[some] = model.evaluate_moved(rows.codes[some], features, vectors[features], rows.labels[some])
        flips[some] = labels != rows.labels[some]
    return flips, left


def _edited(codes: Codes, features: Ints, values: Codes) -> Codes:
    """Every row (n) with every combination of values (s): (n·s, M)."""
    edited = np.repeat(codes, len(values), axis=0)
    edited[:, features] = np.tile(values, (len(codes), 1))
    return edited


def _expected(outcomes: Floats | Bools, weights: Floats) -> Floats:
    """The weighted mean (n,) of each row's outcomes (n·s,)."""
    return np.asarray((outcomes.reshape(-1, len(weights)) * weights).sum(axis=1))
