# ruff: noqa: NPY002  some tasks draw from the global generator
"""Concurrent tasks get the answers that they get alone, from fewer calls of the model."""

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
    """Answers each row independently of the others, and records the size of each call."""

    def __init__(self, refuses=None, short=False):
        self.calls, self.refuses, self.short = [], refuses, short

    def __call__(self, codes):
        self.calls.append(len(codes))
        if self.refuses is not None and (codes == self.refuses).any():
            raise ValueError("not that row")
        answer = np.sin(codes.astype(float)).sum(axis=1)
        return answer[:1] if self.short and len(codes) > 5 else answer


@dataclass
class Work:
    """A chain of queries, each of which depends on the answer to the one before."""

    evaluation: BatchedEvaluation
    model: Model
    seed: int
    steps: int
    rows: int

    def __call__(self):
        rng, total = np.random.default_rng(self.seed), 0.0
        for _ in range(self.steps):
            codes = rng.integers(0, 9, (self.rows, WIDTH)) + int(abs(total) * 10)
            total += float(self.evaluation.evaluate(self.model, codes).sum())
        return self.seed, total


def make_tasks(evaluation, model, seed=0, size=9, max_rows=40):
    rng = np.random.default_rng(seed)
    return [Work(evaluation, model, i, int(rng.integers(0, 7)), int(rng.integers(0, max_rows))) for i in range(size)]


@pytest.mark.parametrize("seed", range(8))
def test_results_equal_those_of_single_tasks_with_as_few_calls_as_possible(seed):
    model, evaluation = Model(), BatchedEvaluation()
    tasks = make_tasks(evaluation, model, seed)
    single = [work() for work in tasks]
    rows, longest = sum(model.calls), max(work.steps for work in tasks)
    model.calls.clear()
    assert evaluation.run(tasks) == single
    assert len(model.calls) == longest and sum(model.calls) == rows
    assert evaluation.run([]) == [] and evaluation.run(tasks[:1]) == single[:1]


def test_calls_have_a_maximum_of_rows(monkeypatch):
    monkeypatch.setattr("cfeval_cli.pipeline.batched_evaluation._MAX_ROWS", 50)
    model, evaluation = Model(), BatchedEvaluation()
    tasks = make_tasks(evaluation, model, 3, size=12)
    single = [work() for work in tasks]
    model.calls.clear()
    assert evaluation.run(tasks) == single
    assert max(model.calls) <= 50 < sum(work.rows for work in tasks)


def test_an_error_of_the_model_reaches_its_task_only():
    model, evaluation = Model(refuses=77), BatchedEvaluation()

    def bad():
        try:
            return evaluation.evaluate(model, np.full((2, WIDTH), 77))
        except ValueError as error:
            return str(error)

    tasks = make_tasks(evaluation, model)
    single = [work() for work in tasks]
    assert evaluation.run([bad, *tasks, bad]) == ["not that row", *single, "not that row"]


def test_an_answer_of_another_length_is_not_divided():
    model, evaluation = Model(short=True), BatchedEvaluation()

    def ask(size):
        return len(evaluation.evaluate(model, np.zeros((size, WIDTH), int)))

    assert evaluation.run([lambda: ask(3), lambda: ask(4), lambda: ask(9)]) == [3, 4, 1]


def test_an_exception_ends_all_tasks_and_the_next_run_works():
    model, evaluation, ended = Model(), BatchedEvaluation(), []

    def waits():
        try:
            evaluation.evaluate(model, np.zeros((1, WIDTH), int))
            evaluation.evaluate(model, np.zeros((1, WIDTH), int))
        finally:
            ended.append(True)

    def fails():
        evaluation.evaluate(model, np.zeros((1, WIDTH), int))
        raise Failure("that is enough")

    with pytest.raises(Failure, match="that is enough"):
        evaluation.run([waits, fails, waits])
    assert ended == [True, True]
    tasks = make_tasks(evaluation, model)
    assert evaluation.run(tasks) == [work() for work in tasks]


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
def test_tasks_with_global_generators_draw_the_same_numbers_as_alone(draws):
    state = np.random.get_state(), random.getstate()
    model, evaluation = Model(), BatchedEvaluation()

    def work(place):
        steps = 3 - place % 3

        def ask():
            codes = np.full((2, WIDTH), place)
            return [float(evaluation.evaluate(model, codes).sum()) for _ in range(steps)][-1]

        return draws(ask)

    try:
        outcomes = []
        for run in (lambda tasks: [task() for task in tasks], evaluation.run):
            np.random.seed(1)
            random.seed(1)
            outcomes.append(run([lambda place=place: work(place) for place in range(6)]))
        assert outcomes[0] == outcomes[1]
    finally:
        np.random.set_state(state[0])
        random.setstate(state[1])


def test_tasks_have_contexts_of_their_own_and_threads_are_answered_at_once():
    word, model, evaluation = contextvars.ContextVar("word", default=""), Model(), BatchedEvaluation()

    def work(place):
        word.set(f"{place}")
        evaluation.evaluate(model, np.zeros((1, WIDTH), int))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(evaluation.evaluate(model, np.zeros((4, WIDTH), int))))
        thread.start()
        thread.join()
        return word.get(), len(answers[0])

    assert evaluation.run([lambda place=place: work(place) for place in range(3)]) == [("0", 4), ("1", 4), ("2", 4)]
