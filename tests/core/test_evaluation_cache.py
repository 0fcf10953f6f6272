"""Values are computed once, and different keys have different values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core.evaluation_cache import EvaluationCache, encode_rows, evaluate_unique_rows, make_set_keys


@given(st.integers(1, 80), st.integers(0, 999), st.booleans())
def test_keys_are_equal_for_equal_sets_and_instances_only(width, seed, has_ids):
    rng = np.random.default_rng(seed)
    sets = rng.random((30, width)) < rng.choice([0.02, 0.5, 0.98])
    ids = rng.choice([0, 1, 255, 256, 70_000, 2**31], 30)
    keys = make_set_keys(sets, ids if has_ids else None)
    for i in range(30):
        for j in range(30):
            is_equal = (sets[i] == sets[j]).all() and (not has_ids or ids[i] == ids[j])
            assert (keys[i] == keys[j]) == is_equal


@given(st.lists(st.lists(st.integers(0, 12), max_size=9), min_size=1, max_size=6), st.booleans())
def test_values_are_correct_and_computed_once(rounds, has_two_columns):
    memory, computed_keys = EvaluationCache(), []
    for requested_keys in rounds:
        keys = np.array(requested_keys, dtype=np.int64)

        def compute_values(positions, keys=keys):
            computed_keys.extend(keys[positions].tolist())
            return (
                np.stack([keys[positions] * 2.0, keys[positions] + 0.5], axis=1)
                if has_two_columns
                else keys[positions] * 2.0
            )

        values = memory.get_or_compute("twice", keys, compute_values)
        assert values.tolist() == (
            [[2.0 * k, k + 0.5] for k in requested_keys] if has_two_columns else [2.0 * k for k in requested_keys]
        )
    assert len(computed_keys) == len(set(computed_keys)) and set(computed_keys) == {
        k for requested_keys in rounds for k in requested_keys
    }


def test_values_are_cached_by_name():
    memory = EvaluationCache()
    keys = np.array([3, 1])
    assert memory.get_or_compute("a", keys, lambda new: keys[new] + 0.0).tolist() == [3.0, 1.0]
    assert memory.get_or_compute("b", keys, lambda new: keys[new] + 10.0).tolist() == [13.0, 11.0]
    calls = []
    for _ in range(2):
        memory.get_or_create("list", lambda: calls.append(1) or calls)
    assert calls == [1]


@given(st.integers(0, 7), st.integers(1, 40), st.integers(0, 999))
def test_row_numbers_have_the_order_of_rows(width, size, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, rng.integers(0, 9, width), (size, width), endpoint=True).astype(np.int32)
    numbers = encode_rows(codes)
    assert numbers is not None
    rows = [tuple(row) for row in codes.tolist()]
    for i in range(size):
        for j in range(size):
            assert (numbers[i] < numbers[j], numbers[i] == numbers[j]) == (rows[i] < rows[j], rows[i] == rows[j])


def test_rows_with_too_many_combinations_have_no_numbers():
    wide = np.array([[0] * 31, [3] * 31], dtype=np.int32)
    assert encode_rows(wide) is not None  # 4^31 = 2^62
    assert encode_rows(np.concatenate([wide, wide[:, :1]], axis=1)) is None


@given(st.integers(1, 3), st.integers(0, 30), st.integers(0, 999), st.booleans(), st.booleans())
def test_equal_rows_are_evaluated_once(width, size, seed, has_two_columns, uses_first_column):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (size, width)).astype(np.int32)
    calls = []

    def evaluate(rows):
        calls.append([tuple(row) for row in rows.tolist()])
        values = rows[:, 0] * 10.0
        return np.stack([values, -values], axis=1) if has_two_columns else values

    result = evaluate_unique_rows(evaluate, codes, codes[:, :1] if uses_first_column else None)
    assert np.array_equal(
        result, np.stack([codes[:, 0] * 10.0, codes[:, 0] * -10.0], axis=1) if has_two_columns else codes[:, 0] * 10
    )
    (rows,) = calls
    evaluated_rows = [row[:1] if uses_first_column else row for row in rows]
    assert len(set(evaluated_rows)) == len(evaluated_rows)
    unique_rows = list(dict.fromkeys(tuple(row[:1] if uses_first_column else row) for row in codes.tolist()))
    assert evaluated_rows == unique_rows  # in the order of their first occurrence


def test_rows_with_too_many_columns_are_all_evaluated():
    wide = np.tile(np.array([[0] * 40, [3] * 40], dtype=np.int32), (2, 1))
    assert evaluate_unique_rows(lambda rows: np.arange(len(rows)), wide).tolist() == [0, 1, 2, 3]
