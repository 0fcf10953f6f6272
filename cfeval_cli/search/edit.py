"""What an edit did: the one place where counterfactuals are put before the model."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Bools, Codes, Counterfactuals, Floats, Ints, SearchTask


def exchanged(task: SearchTask, edited: Codes, max_batch_rows: int) -> Counterfactuals:
    """Counterfactuals made by exchanging values, put before the model so many at a time."""
    parts = [slice(start, start + max_batch_rows) for start in range(0, len(edited), max_batch_rows)]
    told = [task.model.predict_with_proba(edited[part], task.labels[part]) for part in parts]
    labels = np.concatenate([np.zeros(0, dtype=np.int64), *(after for after, _ in told)])
    kept = [probability for _, probability in told if probability is not None]
    return Counterfactuals(
        features=task.features,
        labels=labels,
        flipped=labels != task.labels,
        distance=task.measure.between(task.codes, edited),
        probability=np.concatenate([np.zeros(0), *kept]) if task.access >= Access.PROBABILITY else None,
        codes=edited,
    )


def moved(task: SearchTask, vectors: Floats, converged: Bools, steps: Ints | None = None) -> Counterfactuals:
    """Counterfactuals made by moving the embeddings (n, k, d) of the explained features."""
    labels, probability = task.model.evaluate_moved(task.codes, task.features, vectors, task.labels)
    return Counterfactuals(
        features=task.features,
        labels=labels,
        flipped=labels != task.labels,
        distance=task.measure.moved(task.codes, task.features, vectors),
        probability=probability,
        vectors=vectors,
        converged=converged,
        steps=steps,
    )


def embedded(task: SearchTask) -> Floats:
    """The embeddings (n, k, d) of the explained features, zero where there is none."""
    named = task.features != NO_FEATURE
    features = np.where(named, task.features, 0)
    codes = np.where(named, np.take_along_axis(task.codes, features, axis=1), np.int32(ABSENT))
    picked = task.model.embed_features(features.ravel(), codes.ravel())
    return picked.reshape(*features.shape, picked.shape[1])
