"""Shares of classes among the nearest, as the mean over random choices among those equally near."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core.neighbours import compute_nearest_shares


@given(st.integers(0, 9_999), st.integers(1, 6), st.booleans())
def test_against_all_choices_among_ties(seed, size, grouped):
    rng = np.random.default_rng(seed)
    squared = rng.integers(0, 4, (3, 5)).astype(float)
    counts = rng.integers(0, 3, (5, 2)).astype(float) if grouped else np.eye(2)[rng.integers(0, 2, 5)]
    counts[0, 0] += counts.sum() == 0
    found = compute_nearest_shares(squared, counts, size)
    for distances, row in zip(squared, found, strict=True):
        people = [
            (d, c) for d, kind in zip(distances, counts, strict=True) for c in (0, 1) for _ in range(int(kind[c]))
        ]
        places = min(size, len(people))
        last = sorted(d for d, _ in people)[places - 1]
        nearer = [c for d, c in people if d < last]
        tied = [c for d, c in people if d == last]
        options = [nearer + list(more) for more in combinations(tied, places - len(nearer))]
        assert row == pytest.approx([np.mean([one.count(c) / places for one in options]) for c in (0, 1)])
