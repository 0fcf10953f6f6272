"""What was asked once is not asked again, and nothing is taken for something else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core.memory import AnswerCache, encode_rows, evaluate_unique_rows, make_set_keys


@given(st.integers(1, 80), st.integers(0, 999), st.booleans())
def test_keys_are_equal_exactly_if_sets_and_instances_are(width, seed, named):
    rng = np.random.default_rng(seed)
    sets = rng.random((30, width)) < rng.choice([0.02, 0.5, 0.98])
    ids = rng.choice([0, 1, 255, 256, 70_000, 2**31], 30)
    keys = make_set_keys(sets, ids if named else None)
    for i in range(30):
        for j in range(30):
            same = (sets[i] == sets[j]).all() and (not named or ids[i] == ids[j])
            assert (keys[i] == keys[j]) == same


@given(st.lists(st.lists(st.integers(0, 12), max_size=9), min_size=1, max_size=6), st.booleans())
def test_every_answer_is_right_and_asked_for_once(rounds, wide):
    memory, asked = AnswerCache(), []
    for wanted in rounds:
        keys = np.array(wanted, dtype=np.int64)

        def answer(new, keys=keys):
            asked.extend(keys[new].tolist())
            return np.stack([keys[new] * 2.0, keys[new] + 0.5], axis=1) if wide else keys[new] * 2.0

        found = memory.get_or_compute("twice", keys, answer)
        assert found.tolist() == ([[2.0 * k, k + 0.5] for k in wanted] if wide else [2.0 * k for k in wanted])
    assert len(asked) == len(set(asked)) and set(asked) == {k for wanted in rounds for k in wanted}


def test_what_is_about_something_else_is_something_else():
    memory = AnswerCache()
    keys = np.array([3, 1])
    assert memory.get_or_compute("a", keys, lambda new: keys[new] + 0.0).tolist() == [3.0, 1.0]
    assert memory.get_or_compute("b", keys, lambda new: keys[new] + 10.0).tolist() == [13.0, 11.0]
    made = []
    for _ in range(2):
        memory.get_or_create("list", lambda: made.append(1) or made)
    assert made == [1]


@given(st.integers(0, 7), st.integers(1, 40), st.integers(0, 999))
def test_numbers_are_equal_and_in_order_as_rows_are(width, size, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, rng.integers(0, 9, width), (size, width), endpoint=True).astype(np.int32)
    numbers = encode_rows(codes)
    assert numbers is not None
    rows = [tuple(row) for row in codes.tolist()]
    for i in range(size):
        for j in range(size):
            assert (numbers[i] < numbers[j], numbers[i] == numbers[j]) == (rows[i] < rows[j], rows[i] == rows[j])


def test_rows_of_which_too_many_may_differ_have_no_numbers():
    wide = np.array([[0] * 31, [3] * 31], dtype=np.int32)
    assert encode_rows(wide) is not None  # 4^31 = 2^62
    assert encode_rows(np.concatenate([wide, wide[:, :1]], axis=1)) is None


@given(st.integers(1, 3), st.integers(0, 30), st.integers(0, 999), st.booleans(), st.booleans())
def test_a_row_is_asked_once_and_everyone_has_its_answer(width, size, seed, many, narrow):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (size, width)).astype(np.int32)
    calls = []

    def answer(rows):
        calls.append([tuple(row) for row in rows.tolist()])
        first = rows[:, 0] * 10.0
        return np.stack([first, -first], axis=1) if many else first

    told = evaluate_unique_rows(answer, codes, codes[:, :1] if narrow else None)
    assert np.array_equal(
        told, np.stack([codes[:, 0] * 10.0, codes[:, 0] * -10.0], axis=1) if many else codes[:, 0] * 10
    )
    (rows,) = calls
    seen = [row[:1] if narrow else row for row in rows]
    assert len(set(seen)) == len(seen)
    every = list(dict.fromkeys(tuple(row[:1] if narrow else row) for row in codes.tolist()))
    assert seen == every  # in the order in which they are first asked


def test_rows_that_are_too_wide_are_asked_as_they_are():
    wide = np.tile(np.array([[0] * 40, [3] * 40], dtype=np.int32), (2, 1))
    assert evaluate_unique_rows(lambda rows: np.arange(len(rows)), wide).tolist() == [0, 1, 2, 3]
