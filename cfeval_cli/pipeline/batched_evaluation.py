"""Evaluation of a model in batches across tasks: one call evaluates the queries of several waiting tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from greenlet import getcurrent, greenlet
from numpy.typing import NDArray

from cfeval_cli.core import Codes, PredictFunction

_MAX_ROWS = 10_000  # in one call: more rows would need more memory and would hardly be faster

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _PendingQuery:
    """A query of a task that is suspended until the model has evaluated it."""

    task: greenlet
    predict: PredictFunction
    codes: Codes


class BatchedEvaluation:
    """Runs tasks concurrently; whenever all of them wait for the model, their queries are evaluated together."""

    def __init__(self) -> None:
        self._positions: dict[greenlet, int] = {}  # of the running tasks
        self._must_run_alone = False  # whether the tasks draw from random generators that they share

    def evaluate(self, predict: PredictFunction, codes: Codes) -> NDArray[Any]:
        """Return the result of the model; within a task of `run`, wait until the other tasks have queries too."""
        task = getcurrent()
        if task not in self._positions or task.parent is None:
            return predict(codes)
        result = task.parent.switch(_PendingQuery(task, predict, codes))
        if isinstance(result, Exception):
            raise result
        return np.asarray(result)

    def run(
        self, tasks: Sequence[Callable[[], _Result]], on_restart: Callable[[], None] = lambda: None
    ) -> list[_Result]:
        """Return the result of each task, equal to that of the task run alone.

        Tasks that draw from NumPy's or Python's global generator are run again, one after the other. `on_restart` is
        called before.
        """
        if len(tasks) > 1 and not self._must_run_alone:
            generators = _GlobalGenerators()
            try:
                results = self._run_concurrently(tasks, generators)
                generators.check_unchanged()
                return results
            except _GeneratorsChanged:  # a task would draw what another one left
                generators.restore()
                on_restart()
                self._must_run_alone = True
        return [task() for task in tasks]

    def _run_concurrently(
        self, functions: Sequence[Callable[[], _Result]], generators: _GlobalGenerators
    ) -> list[_Result]:
        results: dict[int, _Result] = {}
        pending: list[_PendingQuery] = []

        def resume(task: greenlet, *result: object) -> None:
            output = task.switch(*result)
            if isinstance(output, _PendingQuery):
                pending.append(output)
            else:
                results[self._positions.pop(task)] = output

        def answer_pending() -> None:
            queries, pending[:] = list(pending), []
            for query, result in _evaluate_queries(queries):
                resume(query.task, result)

        try:
            for position, function in enumerate(functions):
                task = greenlet(function)
                task.gr_context = copy_context()
                self._positions[task] = position
                resume(task)
                # A task that seeds a generator and restores it later has seeded it by now.
                generators.check_unchanged()
                while sum(len(query.codes) for query in pending) > _MAX_ROWS:
                    answer_pending()
            while pending:
                answer_pending()
        finally:
            for task in list(self._positions):  # tasks that are left after an error
                if task is not getcurrent():
                    task.throw()
            self._positions.clear()
        return [results[position] for position in range(len(functions))]


class _GeneratorsChanged(Exception):
    """A task drew from a global random generator."""


class _GlobalGenerators:
    """The states of NumPy's and Python's global random generators."""

    def __init__(self) -> None:
        self._numpy: Any = np.random.get_state()  # noqa: NPY002  the state is compared, nothing is drawn
        self._python = random.getstate()

    def check_unchanged(self) -> None:
        """Raise _GeneratorsChanged if the states are others now."""
        numpy: Any = np.random.get_state()  # noqa: NPY002
        is_same = np.array_equal(numpy[1], self._numpy[1]) and numpy[2:] == self._numpy[2:]
        if not is_same or random.getstate() != self._python:
            raise _GeneratorsChanged

    def restore(self) -> None:
        """Set the generators to these states."""
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._python)


def _evaluate_queries(pending: Sequence[_PendingQuery]) -> Iterator[tuple[_PendingQuery, NDArray[Any] | Exception]]:
    """Yield the result of each query, from as few calls of the model as possible."""
    for predict in dict.fromkeys(query.predict for query in pending):
        group: list[_PendingQuery] = []
        for query in (query for query in pending if query.predict == predict):
            if group and sum(len(member.codes) for member in group) + len(query.codes) > _MAX_ROWS:
                yield from zip(group, _evaluate_group(predict, group), strict=True)
                group = []
            group.append(query)
        yield from zip(group, _evaluate_group(predict, group), strict=True)


def _evaluate_group(predict: PredictFunction, group: Sequence[_PendingQuery]) -> Sequence[NDArray[Any] | Exception]:
    """Evaluate all queries of a group in one call; if it fails, each in a call, so that each has its own error."""
    if len(group) > 1:
        codes = np.concatenate([query.codes for query in group])
        try:
            result = predict(codes)
        except Exception:
            result = None
        if result is not None and len(result) == len(codes):
            return np.split(result, np.cumsum([len(query.codes) for query in group])[:-1])
    return [_evaluate_query(predict, query.codes) for query in group]


def _evaluate_query(predict: PredictFunction, codes: Codes) -> NDArray[Any] | Exception:
    try:
        return predict(codes)
    except Exception as error:
        return error
