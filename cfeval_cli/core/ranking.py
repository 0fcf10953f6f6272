"""Comparison of explanations with the k most important features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfeval_cli.core.data import NO_FEATURE, Bools, Floats, Ints
from cfeval_cli.core.explanation import Explanation


def find_top_k(importance: Floats, k: int) -> Ints:
    """Return the k most important features (n, k), ties in the order of the features; NO_FEATURE if absent."""
    return Explanation.from_scores(importance, np.isfinite(importance)).top_k(k)


class _MatchCounts(NamedTuple):
    """Numbers of features of each instance (n,), given the k most important ones; ties at rank k have no fixed rank."""

    selected_above: Ints  # selected features that are more important than the feature at rank k
    tied: Ints  # features that are as important as the feature at rank k
    selected_tied: Ints  # tied features that are selected
    open_ranks: Ints  # ranks up to k that the tied features share


def _count_matches(importance: Floats, is_selected: Bools, k: int) -> _MatchCounts:
    """Count the selected features above and within the tie at rank k."""
    best = find_top_k(importance, k)
    size = (best != NO_FEATURE).sum(axis=1)  # short texts have fewer than k features
    last = np.take_along_axis(importance, np.take_along_axis(best, np.maximum(size - 1, 0)[:, None], axis=1), axis=1)
    is_above, is_tied = importance > last, (importance == last) & np.isfinite(importance)
    n_above = np.asarray((is_selected & is_above).sum(axis=1))
    n_selected_tied = np.asarray((is_selected & is_tied).sum(axis=1))
    n_open = np.asarray(size - is_above.sum(axis=1))
    return _MatchCounts(n_above, np.asarray(is_tied.sum(axis=1)), n_selected_tied, n_open)


def count_shared_features(importance: Floats, is_selected: Bools, k: int) -> Floats:
    """Return the number of the k reference features that are selected, as a mean over orders of tied features."""
    n_above, n_tied, n_selected_tied, n_open_ranks = _count_matches(importance, is_selected, k)
    return np.asarray(n_above + n_selected_tied * (n_open_ranks / np.maximum(n_tied, 1)))


def compute_hit_probability(importance: Floats, is_selected: Bools, k: int) -> Floats:
    """Return the probability that at least one of the k reference features is selected, over random orders of ties."""
    from scipy.special import comb

    n_above, n_tied, n_selected_tied, n_open_ranks = _count_matches(importance, is_selected, k)
    # The probability that none of the open ranks gets a selected feature.
    miss = comb(n_tied - n_selected_tied, n_open_ranks) / np.maximum(comb(n_tied, n_open_ranks), 1.0)
    return np.where(n_above > 0, 1.0, 1.0 - miss)
