# ruff: noqa: NPY002  the global generator is what some draw from
"""Whoever works side by side gets the answers that it would get alone, from fewer calls of the model."""

import contextvars
import random
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.batched_evaluation import BatchedEvaluation

WIDTH = 3


class Model:
    """Tells something of each row that depends on nothing else, and writes down how it was asked."""

    def __init__(self, refuses=None, short=False):
        self.calls, self.refuses, self.short = [], refuses, short

    def __call__(self, codes):
        self.calls.append(len(codes))
        if self.refuses is not None and (codes == self.refuses).any():
            raise ValueError("not that row")
        told = np.sin(codes.astype(float)).sum(axis=1)
        return told[:1] if self.short and len(codes) > 5 else told


@dataclass
class Work:
    """A chain of questions, each of which depends on the answer to the one before."""

    together: BatchedEvaluation
    model: Model
    seed: int
    steps: int
    rows: int

    def __call__(self):
        rng, total = np.random.default_rng(self.seed), 0.0
        for _ in range(self.steps):
            codes = rng.integers(0, 9, (self.rows, WIDTH)) + int(abs(total) * 10)
            total += float(self.together.evaluate(self.model, codes).sum())
        return self.seed, total


def works(together, model, seed=0, size=9, most=40):
    rng = np.random.default_rng(seed)
    return [Work(together, model, i, int(rng.integers(0, 7)), int(rng.integers(0, most))) for i in range(size)]


@pytest.mark.parametrize("seed", range(8))
def test_the_results_are_those_of_each_alone_and_the_calls_as_many_as_the_longest_needs(seed):
    model, together = Model(), BatchedEvaluation()
    todo = works(together, model, seed)
    alone = [work() for work in todo]
    rows, longest = sum(model.calls), max(work.steps for work in todo)
    model.calls.clear()
    assert together.run(todo) == alone
    assert len(model.calls) == longest and sum(model.calls) == rows
    assert together.run([]) == [] and together.run(todo[:1]) == alone[:1]


def test_no_call_has_many_more_rows_than_one_of_them_asks_about(monkeypatch):
    monkeypatch.setattr("cfeval_cli.pipeline.batched_evaluation._MAX_ROWS", 50)
    model, together = Model(), BatchedEvaluation()
    todo = works(together, model, 3, size=12)
    alone = [work() for work in todo]
    model.calls.clear()
    assert together.run(todo) == alone
    assert max(model.calls) <= 50 < sum(work.rows for work in todo)


def test_who_asks_what_the_model_refuses_is_told_so_and_nobody_else():
    model, together = Model(refuses=77), BatchedEvaluation()

    def bad():
        try:
            return together.evaluate(model, np.full((2, WIDTH), 77))
        except ValueError as error:
            return str(error)

    todo = works(together, model)
    alone = [work() for work in todo]
    assert together.run([bad, *todo, bad]) == ["not that row", *alone, "not that row"]


def test_an_answer_of_another_length_is_not_dealt_out():
    model, together = Model(short=True), BatchedEvaluation()

    def ask(size):
        return len(together.evaluate(model, np.zeros((size, WIDTH), int)))

    assert together.run([lambda: ask(3), lambda: ask(4), lambda: ask(9)]) == [3, 4, 1]


def test_what_is_raised_ends_all_of_it_and_the_next_begins_anew():
    model, together, left = Model(), BatchedEvaluation(), []

    def waits():
        try:
            together.evaluate(model, np.zeros((1, WIDTH), int))
            together.evaluate(model, np.zeros((1, WIDTH), int))
        finally:
            left.append(True)

    def fails():
        together.evaluate(model, np.zeros((1, WIDTH), int))
        raise Failure("that is enough")

    with pytest.raises(Failure, match="that is enough"):
        together.run([waits, fails, waits])
    assert left == [True, True]  # nobody is left waiting
    todo = works(together, model)
    assert together.run(todo) == [work() for work in todo]


def shared(ask):
    return np.random.random(), ask(), np.random.random(), random.random()


def put_back(ask):
    before = np.random.get_state()
    np.random.seed(5)
    try:
        return np.random.random(), ask(), np.random.random()
    finally:
        np.random.set_state(before)


def late(ask):
    return ask(), random.random(), ask(), random.random()


@pytest.mark.parametrize("draws", [shared, put_back, late])
def test_who_draws_from_a_generator_of_all_draws_what_it_would_alone(draws):
    """The first to wait sees it put back by the last, unless somebody looks."""
    state = np.random.get_state(), random.getstate()
    model, together = Model(), BatchedEvaluation()

    def work(place):
        steps = 3 - place % 3

        def ask():
            codes = np.full((2, WIDTH), place)
            return [float(together.evaluate(model, codes).sum()) for _ in range(steps)][-1]

        return draws(ask)

    try:
        outcomes = []
        for run in (lambda todo: [one() for one in todo], together.run):
            np.random.seed(1)
            random.seed(1)
            outcomes.append(run([lambda place=place: work(place) for place in range(6)]))
        assert outcomes[0] == outcomes[1]
    finally:
        np.random.set_state(state[0])
        random.setstate(state[1])


def test_each_keeps_the_context_that_it_set_and_threads_of_its_own_are_answered_at_once():
    word, model, together = contextvars.ContextVar("word", default=""), Model(), BatchedEvaluation()

    def work(place):
        word.set(f"{place}")
        together.evaluate(model, np.zeros((1, WIDTH), int))
        told = []
        thread = threading.Thread(target=lambda: told.append(together.evaluate(model, np.zeros((4, WIDTH), int))))
        thread.start()
        thread.join()
        return word.get(), len(told[0])

    assert together.run([lambda place=place: work(place) for place in range(3)]) == [("0", 4), ("1", 4), ("2", 4)]
