"""What an edit did: the one place where edited inputs, found or erased, are put before the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfeval_cli.model.gate import probability_of
from cfeval_cli.types import ABSENT, NONE, Access, Bools, Case, Codes, Counterfactuals, Floats, Ints, Quest


def exchanged(quest: Quest, edited: Codes, max_batch_rows: int) -> Counterfactuals:
    """Counterfactuals made by exchanging values, put before the model so many at a time."""
    parts = [slice(start, start + max_batch_rows) for start in range(0, len(edited), max_batch_rows)]
    told = [outcome(quest.model, quest.labels[part], edited[part]) for part in parts]
    labels = np.concatenate([np.zeros(0, dtype=np.int64), *(after for after, _ in told)])
    kept = [probability for _, probability in told if probability is not None]
    return Counterfactuals(
        features=quest.features,
        labels=labels,
        flipped=labels != quest.labels,
        distance=quest.measure.between(quest.codes, edited),
        probability=np.concatenate([np.zeros(0), *kept]) if quest.access >= Access.PROBABILITY else None,
        codes=edited,
    )


def moved(quest: Quest, vectors: Floats, converged: Bools, steps: Ints | None = None) -> Counterfactuals:
    """Counterfactuals made by moving the embeddings (n, k, d) of the explained features."""
    positive, _ = quest.model.slope(quest.codes, quest.features)(np.arange(len(vectors)), vectors)
    labels = (positive > 0.5).astype(np.int64)
    return Counterfactuals(
        features=quest.features,
        labels=labels,
        flipped=labels != quest.labels,
        distance=quest.measure.moved(quest.codes, quest.features, vectors),
        probability=probability_of(quest.labels, positive),
        vectors=vectors,
        converged=converged,
        steps=steps,
    )


def embedded(quest: Quest) -> Floats:
    """The embeddings (n, k, d) of the explained features, zero where there is none."""
    named = quest.features != NONE
    features = np.where(named, quest.features, 0)
    codes = np.where(named, np.take_along_axis(quest.codes, features, axis=1), ABSENT)
    picked: Floats = quest.model.pick(features.ravel(), codes.ravel())
    return picked.reshape(*features.shape, picked.shape[1])


def outcome(model: Any, labels: Ints, edited: Codes) -> tuple[Ints, Floats | None]:
    """The label after an edit and, where access allows, the probability of the label before it."""
    if model.access < Access.PROBABILITY:
        return model.labels(edited), None
    positive = model.proba(edited)
    return (positive > 0.5).astype(np.int64), probability_of(labels, positive)


def explained(codes: Codes, features: Ints) -> Bools:
    """Which features (n, M) are named."""
    named = np.zeros((len(codes), codes.shape[1] + 1), dtype=bool)
    np.put_along_axis(named, features, True, axis=1)  # NONE = -1 falls into the spare last column
    return named[:, :-1]


def erased(case: Case, value: int, *, keep: bool = False) -> Codes:
    """The input without the explained features, or with only those; `value` takes the place of the rest."""
    named = explained(case.codes, case.features)
    return np.where((~named if keep else named) & (case.codes != ABSENT), np.int32(value), case.codes)
