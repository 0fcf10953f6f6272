"""What becomes of a prediction when features are removed: the one place where erasures are put before the model."""

from __future__ import annotations

import numpy as np

from cfeval_cli.types import ABSENT, NONE, Bools, Codes, Floats, Gate, Ints, Rows, StandIns

_AT_ONCE = 1 << 16  # edited rows put before the model at once


def without(model: Gate, rows: Rows, gone: Bools, stand_ins: StandIns) -> tuple[Floats, Floats | None]:
    """How much of its removal flips each row's prediction (0 to 1), and what it leaves of p(ŷ) on average.

    `gone` (n, M) says which features of which row are removed. No probability with label access.
    """
    if stand_ins.value is not None:
        edited = np.where(gone & (rows.codes != ABSENT), np.int32(stand_ins.value), rows.codes)
        labels, probability = model.predict(edited, rows.labels)
        return (labels != rows.labels).astype(float), probability
    if stand_ins.vectors is not None:
        return _moved(model, rows, gone & (rows.codes != ABSENT), stand_ins.vectors)
    flips = np.zeros(len(rows))
    left: Floats | None = np.zeros(len(rows))
    sets, which = np.unique(gone, axis=0, return_inverse=True)
    for number, removed in enumerate(sets):
        features, members = np.flatnonzero(removed), np.flatnonzero(which.ravel() == number)
        values, weights = stand_ins.instead(features)
        step = max(1, _AT_ONCE // len(values))
        for some in (members[start : start + step] for start in range(0, len(members), step)):
            before = np.repeat(rows.labels[some], len(values))
            labels, probability = model.predict(_edited(rows.codes[some], features, values), before)
            flips[some] = _expected(labels != before, weights)
            if left is None or probability is None:
                left = None
            else:
                left[some] = _expected(probability, weights)
    return flips, left


def _moved(model: Gate, rows: Rows, gone: Bools, vectors: Floats) -> tuple[Floats, Floats]:
    """The embeddings of what is removed are exchanged; in parts, since each row takes M times d numbers."""
    flips, left = np.zeros(len(rows)), np.zeros(len(rows))
    step = max(1, _AT_ONCE // max(1, vectors.shape[0]))
    for some in (slice(start, start + step) for start in range(0, len(rows), step)):
        order = np.argsort(~gone[some], axis=1, kind="stable")[:, : max(1, int(gone[some].sum(axis=1).max(initial=0)))]
        features = np.where(np.take_along_axis(gone[some], order, axis=1), order, NONE)
        labels, left[some] = model.moved(rows.codes[some], features, vectors[features], rows.labels[some])
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
