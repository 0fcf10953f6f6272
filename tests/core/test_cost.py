"""Sums, differences and shares of costs."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import Cost

COSTS = st.builds(Cost, st.integers(0, 10**6), *[st.floats(0, 1e6)] * 3)


@given(COSTS, COSTS, st.integers(1, 30))
def test_costs_are_added_subtracted_and_split(first, second, size):
    total = first + second
    assert astuple(total) == tuple(a + b for a, b in zip(astuple(first), astuple(second), strict=True))
    assert astuple(total - second) == pytest.approx(astuple(first), abs=1e-6)
    parts = first.split(size)
    assert len(parts) == size and sum(part.n_evaluations for part in parts) == first.n_evaluations
    assert max(part.n_evaluations for part in parts) - min(part.n_evaluations for part in parts) <= 1
    assert astuple(sum(parts, Cost())) == pytest.approx(astuple(first))
