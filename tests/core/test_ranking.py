"""Features that matter equally count fairly: the expected score over all orders of those that are tied."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT
from cfeval_cli.core.ranking import compute_hit_probability, count_shared_features


def make_inputs(truth, named, k, absent=()):
    codes = np.zeros((1, len(truth)), dtype=np.int32)
    codes[0, list(absent)] = ABSENT
    importance = np.where(codes == ABSENT, -np.inf, np.array([truth], dtype=float))
    return SimpleNamespace(codes=codes, features=np.array([named]), truth={"t": importance}, k=k)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 10_000))
def test_recall_and_hit_are_means_over_the_orders(truth, seed):
    rng = np.random.default_rng(seed)
    width = len(truth)
    k = int(rng.integers(1, width + 1))
    absent = rng.permutation(width)[: int(rng.integers(0, width))].tolist()
    there = [j for j in range(width) if j not in absent]
    named = rng.permutation(there)[:k].tolist()
    inputs = make_inputs(truth, named + [-1] * (k - len(named)), k, absent)
    counts = []
    for order in permutations(there):
        reference = sorted(order, key=lambda j: -truth[j])[:k]  # stable: equal ones in this order
        counts.append(len({*reference} & {*named}))
    assert count_shared_features(inputs, "t")[0] == pytest.approx(np.mean(counts))
    assert compute_hit_probability(inputs, "t")[0] == pytest.approx(np.mean([count > 0 for count in counts]))


def test_without_ties_they_are_counts():
    inputs = make_inputs([3.0, 1.0, 2.0], [0, 1], 2)
    assert count_shared_features(inputs, "t").tolist() == [1.0] and compute_hit_probability(inputs, "t").tolist() == [
        1.0
    ]
    assert count_shared_features(make_inputs([3.0, 1.0, 2.0], [1, -1], 2), "t").tolist() == [0.0]
