import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.search.candidates import RankedCandidates, split_into_batches


@given(st.lists(st.integers(1, 9000), max_size=8), st.integers(1, 10_000))
def test_batches_have_each_candidate_once_and_respect_the_bound(counts, size):
    pairs = []
    for batch in split_into_batches(np.array(counts, dtype=int), max(size, 9)):
        rows = np.broadcast_to(batch.rows, len(batch.index))
        assert len(rows) <= max(size, 9)
        assert (np.flatnonzero(np.diff(rows, prepend=-1)) == batch.starts).all()
        pairs += zip(rows.tolist(), batch.index.tolist(), strict=True)
    assert pairs == [(row, index) for row, count in enumerate(counts) for index in range(count)]


@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 5))
def test_the_first_candidates_are_those_with_the_lowest_priority(seed, n_parts, size):
    rng = np.random.default_rng(seed)
    rows, index = np.divmod(rng.permutation(60)[:40], 15)
    priority = rng.integers(0, 4, 40).astype(float)
    pieces = np.array_split(np.arange(40), n_parts)
    parts = [RankedCandidates(rows[i], index[i], priority[i]).select_first(size) for i in pieces]
    ranked = RankedCandidates.concatenate(parts).select_first(size)
    expected = []
    for row in range(4):
        candidates = sorted(zip(priority[rows == row], index[rows == row], strict=True))[:size]
        expected += [(row, int(number)) for _, number in candidates]
    assert list(zip(ranked.rows.tolist(), ranked.index.tolist(), strict=True)) == expected
    last_candidates = np.arange(4), np.full(4, 14)
    together = list(zip(*(column.tolist() for column in ranked.add(*last_candidates)), strict=True))
    assert together == sorted({*expected, *((row, 14) for row in range(4))})
