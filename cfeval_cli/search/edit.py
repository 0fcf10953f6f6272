"""Evaluation of edits: what a search's edited instances are predicted as, and how far they are."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Bools, Codes, Counterfactuals, Floats, Ints, SearchTask


def evaluate_edited_values(task: SearchTask, edited: Codes, max_batch_rows: int) -> Counterfactuals:
    """Return the counterfactuals that exchange the values of some features, evaluated in batches."""
    batches = [slice(start, start + max_batch_rows) for start in range(0, len(edited), max_batch_rows)]
    predictions = [task.model.predict_with_proba(edited[batch], task.predicted_classes[batch]) for batch in batches]
    labels = np.concatenate([np.zeros(0, dtype=np.int64), *(batch_labels for batch_labels, _ in predictions)])
    probabilities = [probability for _, probability in predictions if probability is not None]
    return Counterfactuals(
        features=task.features,
        labels=labels,
        flipped=labels != task.predicted_classes,
        distance=task.distance.compute_distances(task.codes, edited),
        probability=np.concatenate([np.zeros(0), *probabilities]) if task.access >= Access.PROBABILITY else None,
        codes=edited,
    )


def evaluate_edited_embeddings(
    task: SearchTask, vectors: Floats, converged: Bools, steps: Ints | None = None
) -> Counterfactuals:
    """Return the counterfactuals that move the embeddings of the selected features to `vectors` (n, k, d)."""
    labels, probability = task.model.evaluate_embeddings(task.codes, task.features, vectors, task.predicted_classes)
    return Counterfactuals(
        features=task.features,
        labels=labels,
        flipped=labels != task.predicted_classes,
        distance=task.distance.compute_embedding_distances(task.codes, task.features, vectors),
        probability=probability,
        vectors=vectors,
        converged=converged,
        steps=steps,
    )


def embed_selected_features(task: SearchTask) -> Floats:
    """Return the embeddings (n, k, d) of the selected features, zero where there are fewer than k."""
    is_feature = task.features != NO_FEATURE
    features = np.where(is_feature, task.features, 0)
    codes = np.where(is_feature, np.take_along_axis(task.codes, features, axis=1), np.int32(ABSENT))
    embeddings = task.model.embed_features(features.ravel(), codes.ravel())
    return embeddings.reshape(*features.shape, embeddings.shape[1])
