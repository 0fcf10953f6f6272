"""What was asked once is not asked again, and nothing is taken for something else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.types.memory import Memory, keys_of


@given(st.integers(1, 80), st.integers(0, 999), st.booleans())
def test_keys_are_equal_exactly_if_sets_and_instances_are(width, seed, named):
    rng = np.random.default_rng(seed)
    sets = rng.random((30, width)) < rng.choice([0.02, 0.5, 0.98])
    ids = rng.choice([0, 1, 255, 256, 70_000, 2**31], 30)
    keys = keys_of(sets, ids if named else None)
    for i in range(30):
        for j in range(30):
            same = (sets[i] == sets[j]).all() and (not named or ids[i] == ids[j])
            assert (keys[i] == keys[j]) == same


@given(st.lists(st.lists(st.integers(0, 12), max_size=9), min_size=1, max_size=6), st.booleans())
def test_every_answer_is_right_and_asked_for_once(rounds, wide):
    memory, asked = Memory(), []
    for wanted in rounds:
        keys = np.array(wanted, dtype=np.int64)

        def answer(new, keys=keys):
            asked.extend(keys[new].tolist())
            return np.stack([keys[new] * 2.0, keys[new] + 0.5], axis=1) if wide else keys[new] * 2.0

        found = memory.ask("twice", keys, answer)
        assert found.tolist() == ([[2.0 * k, k + 0.5] for k in wanted] if wide else [2.0 * k for k in wanted])
    assert len(asked) == len(set(asked)) and set(asked) == {k for wanted in rounds for k in wanted}


def test_what_is_about_something_else_is_something_else():
    memory = Memory()
    keys = np.array([3, 1])
    assert memory.ask("a", keys, lambda new: keys[new] + 0.0).tolist() == [3.0, 1.0]
    assert memory.ask("b", keys, lambda new: keys[new] + 10.0).tolist() == [13.0, 11.0]
    made = []
    for _ in range(2):
        memory.once("list", lambda: made.append(1) or made)
    assert made == [1]
