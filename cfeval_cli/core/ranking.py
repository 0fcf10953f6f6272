"""From importance to the features that matter most."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core.data import NO_FEATURE, Floats, Ints
from cfeval_cli.core.explanation import Explanation, mark_selected
from cfeval_cli.core.metric import MetricInput


def find_top_k(importance: Floats, k: int) -> Ints:
    """The k most important features (n, k), equal ones in the order of the features, NONE for absent ones."""
    return Explanation.from_scores(importance, np.isfinite(importance)).top_k(k)


def _drawn(inputs: MetricInput, definition: str) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each instance: those named surely in the reference, those tied for the rest, all and named, the rest."""
    there, truth = mark_selected(inputs.codes, inputs.features), inputs.truth[definition]
    best = find_top_k(truth, inputs.k)
    size = (best != NO_FEATURE).sum(axis=1)  # fewer than k are there of a short text
    last = np.take_along_axis(truth, np.take_along_axis(best, np.maximum(size - 1, 0)[:, None], axis=1), axis=1)
    sure, tied = truth > last, (truth == last) & np.isfinite(truth)
    counts = [(there & sure).sum(axis=1), tied.sum(axis=1), (there & tied).sum(axis=1), size - sure.sum(axis=1)]
    first, second, third, fourth = (np.asarray(count) for count in counts)
    return first, second, third, fourth


def count_shared_features(inputs: MetricInput, definition: str) -> Floats:
    """How many of the k reference features the explanation names, on average over the orders of tied features."""
    sure, tied, found, places = _drawn(inputs, definition)
    return np.asarray(sure + found * (places / np.maximum(tied, 1)))


def compute_hit_probability(inputs: MetricInput, definition: str) -> Floats:
    """How likely at least one of the k reference features is named, over the orders of features that are tied."""
    from scipy.special import comb

    sure, tied, found, places = _drawn(inputs, definition)
    missed = comb(tied - found, places) / np.maximum(comb(tied, places), 1.0)  # all places go to others
    return np.where(sure > 0, 1.0, 1.0 - missed)
