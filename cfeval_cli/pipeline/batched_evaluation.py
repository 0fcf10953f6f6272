"""Work on many instances side by side: those that wait for the model at the same time are answered by one call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from greenlet import getcurrent, greenlet
from numpy.typing import NDArray

from cfeval_cli.core import Codes, Query

_ROWS = 10_000  # in one call: more would need more memory, and hardly be answered faster

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Waiting:
    """One of those who work side by side, and what it asks the model."""

    place: int
    worker: greenlet
    question: Query
    codes: Codes


class Together:
    """Does pieces of work side by side; whenever all of them wait, their questions are put to the model at once."""

    def __init__(self) -> None:
        self._places: dict[greenlet, int] = {}  # of those at work
        self._apart = False  # whether they are in each other's way

    def ask(self, question: Query, codes: Codes) -> NDArray[Any]:
        """The model's answer, which one of those who work side by side gets when the others have asked too."""
        worker = getcurrent()
        if worker not in self._places or worker.parent is None:
            return question(codes)
        answer = worker.parent.switch(_Waiting(self._places[worker], worker, question, codes))
        if isinstance(answer, Exception):
            raise answer
        return np.asarray(answer)

    def run(self, works: Sequence[Callable[[], _T]], again: Callable[[], None] = lambda: None) -> list[_T]:
        """The result of each piece of work: what it is if it is done alone; `again` is called if all is begun anew."""
        if len(works) > 1 and not self._apart:
            before = _Generators()
            try:
                results = self._side_by_side(works, before)
                before.compare()
                return results
            except _Moved:  # from generators that all share, one would draw what another left
                before.restore()
                again()
                self._apart = True
        return [work() for work in works]

    def _side_by_side(self, works: Sequence[Callable[[], _T]], before: _Generators) -> list[_T]:
        results: dict[int, _T] = {}
        waiting: list[_Waiting] = []

        def go_on(worker: greenlet, *answer: object) -> None:
            told = worker.switch(*answer)
            if isinstance(told, _Waiting):
                waiting.append(told)
            else:
                results[self._places.pop(worker)] = told

        def answer_all() -> None:
            now, waiting[:] = list(waiting), []
            for one, told in _answered(now):
                go_on(one.worker, told)

        try:
            for place, work in enumerate(works):
                worker = greenlet(work)
                worker.gr_context = copy_context()
                self._places[worker] = place
                go_on(worker)
                before.compare()  # who seeds a generator and puts it back has seeded it by now
                while sum(len(one.codes) for one in waiting) > _ROWS:  # before there are more of them
                    answer_all()
            while waiting:
                answer_all()
        finally:
            for worker in list(self._places):  # something went wrong: nobody goes on
                if worker is not getcurrent():
                    worker.throw()
            self._places.clear()
        return [results[place] for place in range(len(works))]


class _Moved(Exception):
    """Somebody drew from a generator that all share."""


class _Generators:
    """The state of the generators that all share, NumPy's and Python's."""

    def __init__(self) -> None:
        self._numpy: Any = np.random.get_state()  # noqa: NPY002  it is looked at, not drawn from
        self._python = random.getstate()

    def compare(self) -> None:
        """Raise if they are in another state now."""
        now: Any = np.random.get_state()  # noqa: NPY002
        same = np.array_equal(now[1], self._numpy[1]) and now[2:] == self._numpy[2:]
        if not same or random.getstate() != self._python:
            raise _Moved

    def restore(self) -> None:
        """Put them back."""
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._python)


def _answered(waiting: Sequence[_Waiting]) -> Iterator[tuple[_Waiting, NDArray[Any] | Exception]]:
    """Everyone's answer, from as few calls of the model as may be."""
    for question in dict.fromkeys(one.question for one in waiting):
        group: list[_Waiting] = []
        for one in (one for one in waiting if one.question == question):
            if group and sum(len(other.codes) for other in group) + len(one.codes) > _ROWS:
                yield from zip(group, _answers(question, group), strict=True)
                group = []
            group.append(one)
        yield from zip(group, _answers(question, group), strict=True)


def _answers(question: Query, group: Sequence[_Waiting]) -> Sequence[NDArray[Any] | Exception]:
    """One call for all of a group; one for each if that fails, so that who is not to blame has an answer."""
    if len(group) > 1:
        every = np.concatenate([one.codes for one in group])
        try:
            answer = question(every)
        except Exception:
            answer = None
        if answer is not None and len(answer) == len(every):
            return np.split(answer, np.cumsum([len(one.codes) for one in group])[:-1])
    return [_answer(question, one.codes) for one in group]


def _answer(question: Query, codes: Codes) -> NDArray[Any] | Exception:
    try:
        return question(codes)
    except Exception as error:
        return error
