"""Shares of classes among the nearest neighbours are means over all choices among ties."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core.neighbours import compute_nearest_shares


@given(st.integers(0, 9_999), st.integers(1, 6), st.booleans())
def test_shares_equal_the_mean_over_all_choices_among_ties(seed, size, grouped):
    rng = np.random.default_rng(seed)
    squared = rng.integers(0, 4, (3, 5)).astype(float)
    counts = rng.integers(0, 3, (5, 2)).astype(float) if grouped else np.eye(2)[rng.integers(0, 2, 5)]
    counts[0, 0] += counts.sum() == 0
    shares = compute_nearest_shares(squared, counts, size)
    for distances, row in zip(squared, shares, strict=True):
        members = [
            (d, c) for d, kind in zip(distances, counts, strict=True) for c in (0, 1) for _ in range(int(kind[c]))
        ]
        size_used = min(size, len(members))
        last = sorted(d for d, _ in members)[size_used - 1]
        nearer = [c for d, c in members if d < last]
        tied = [c for d, c in members if d == last]
        options = [nearer + list(selection) for selection in combinations(tied, size_used - len(nearer))]
        assert row == pytest.approx([np.mean([option.count(c) / size_used for option in options]) for c in (0, 1)])
