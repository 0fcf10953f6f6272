"""Scores of tied features are expected values over all their orders."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core.ranking import compute_hit_probability, count_shared_features


def make_instance(truth, selected, absent=()):
    """Return the importance (1, M), and whether each feature is selected (1, M)."""
    importance = np.array([truth], dtype=float)
    importance[0, list(absent)] = -np.inf
    return importance, np.isin(np.arange(len(truth)), selected)[None]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 10_000))
def test_recall_and_hit_are_means_over_orders_of_ties(truth, seed):
    rng = np.random.default_rng(seed)
    width = len(truth)
    k = int(rng.integers(1, width + 1))
    absent = rng.permutation(width)[: int(rng.integers(0, width))].tolist()
    present = [j for j in range(width) if j not in absent]
    selected = rng.permutation(present)[:k].tolist()
    instance = make_instance(truth, selected, absent)
    counts = []
    for order in permutations(present):
        reference = sorted(order, key=lambda j: -truth[j])[:k]  # stable: ties keep this order
        counts.append(len({*reference} & {*selected}))
    assert count_shared_features(*instance, k)[0] == pytest.approx(np.mean(counts))
    assert compute_hit_probability(*instance, k)[0] == pytest.approx(np.mean([count > 0 for count in counts]))


def test_recall_and_hit_are_counts_without_ties():
    instance = make_instance([3.0, 1.0, 2.0], [0, 1])
    assert count_shared_features(*instance, 2).tolist() == [1.0]
    assert compute_hit_probability(*instance, 2).tolist() == [1.0]
    assert count_shared_features(*make_instance([3.0, 1.0, 2.0], [1]), 2).tolist() == [0.0]
