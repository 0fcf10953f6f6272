import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.dataset.split import check_shares, split_by_shares


@given(st.integers(1, 200), st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8)]), st.integers(0, 9))
def test_every_row_is_in_one_part_and_parts_have_their_shares(n, split, seed):
    rows = np.arange(n) * 3
    parts = split_by_shares(rows, split, seed)
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert all((np.diff(part) > 0).all() for part in parts)
    for part, share in zip(parts[:2], split[:2], strict=True):
        assert len(part) == int(round(share * n, 9))
    repetition, other = split_by_shares(rows, split, seed), split_by_shares(rows, split, seed + 1)
    assert all(np.array_equal(a, b) for a, b in zip(parts, repetition, strict=True))
    assert n < 20 or any(not np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


@pytest.mark.parametrize("split", [(0.5, 0.5), (0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1)])
def test_invalid_shares_are_reported(split):
    check_shares((0.8, 0.1, 0.1))
    with pytest.raises(ValueError, match="split must"):
        check_shares(split)
