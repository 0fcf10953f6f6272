"""What is shared out is whole again when it is added up."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import Cost

COSTS = st.builds(Cost, st.integers(0, 10**6), *[st.floats(0, 1e6)] * 3)


@given(COSTS, COSTS, st.integers(1, 30))
def test_costs_are_added_taken_away_and_shared_out(one, two, size):
    both = one + two
    assert astuple(both) == tuple(a + b for a, b in zip(astuple(one), astuple(two), strict=True))
    assert astuple(both - two) == pytest.approx(astuple(one), abs=1e-6)
    parts = one.split(size)
    assert len(parts) == size and sum(part.rows for part in parts) == one.rows
    assert max(part.rows for part in parts) - min(part.rows for part in parts) <= 1
    assert astuple(sum(parts, Cost())) == pytest.approx(astuple(one))
