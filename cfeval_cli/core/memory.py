"""What was asked before: metrics that share edits ask a model once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.data import Bools, Codes, Ints

Keys = NDArray[Any]  # (n,) whole numbers or bytes, of which equal ones mean the same

_T = TypeVar("_T")
_Kind = TypeVar("_Kind", bound=np.generic)
_WORD = 8  # bytes of a whole number
_MOST = 2**62  # rows of values that one whole number can tell apart


def make_set_keys(sets: Bools, ids: Ints | None = None) -> Keys:
    """A key (n,) for each set of features (n, M), or for each instance with its set."""
    bits = np.packbits(sets, axis=1)
    parts = [bits] if ids is None else [np.ascontiguousarray(ids, dtype=">u4").view(np.uint8).reshape(-1, 4), bits]
    whole = np.concatenate(parts, axis=1)
    if whole.shape[1] <= _WORD:  # whole numbers are sorted faster than bytes
        return np.pad(whole, ((0, 0), (_WORD - whole.shape[1], 0))).view(">u8").ravel().astype(np.uint64)
    whole = np.pad(whole, ((0, 0), (0, 1)), constant_values=1)  # NumPy's bytes lose zeros at the end
    return np.ascontiguousarray(whole).view(f"S{whole.shape[1]}").ravel()


def encode_rows(codes: Codes) -> Ints | None:
    """A whole number (n,) for each row (n, M), equal and in order as the rows are; None if too many rows may differ."""
    if not codes.size:
        return np.zeros(len(codes), dtype=np.int64)
    low = codes.min(axis=0).tolist()
    sizes = [high - least + 1 for high, least in zip(codes.max(axis=0).tolist(), low, strict=True)]
    if prod(sizes) > _MOST:
        return None
    numbers = np.zeros(len(codes), dtype=np.int64)
    for column, least, size in zip(codes.T, low, sizes, strict=True):
        if size > 1:
            numbers *= size
            numbers += column
            numbers -= least
    return numbers


def evaluate_unique_rows(
    answer: Callable[[Codes], NDArray[Any]], codes: Codes, seen: Codes | None = None
) -> NDArray[Any]:
    """An answer about each row of codes, asked once about rows that are the same in what is `seen` of them."""
    numbers = encode_rows(codes if seen is None else seen) if len(codes) > 1 else None
    if numbers is None:
        return answer(codes)
    import pandas as pd

    which, different = pd.factorize(numbers)
    if len(different) == len(codes):
        return answer(codes)
    first = np.empty(len(different), dtype=np.int64)
    first[which[::-1]] = np.arange(len(codes))[::-1]
    told = np.asarray(answer(codes[first]))
    return told[which] if told.shape[:1] == first.shape else answer(codes)  # a wrong answer is the asker's to refuse


class AnswerCache:
    """Answers by what they are about and a key."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[Keys, NDArray[Any]]] = {}
        self._once: dict[str, Any] = {}

    def get_or_compute(self, about: str, keys: Keys, answer: Callable[[Ints], NDArray[_Kind]]) -> NDArray[_Kind]:
        """An answer (n, …) to each key; `answer` is asked for the places (m,) of those that are new, each once."""
        wanted, first, which = np.unique(keys, return_index=True, return_inverse=True)
        if about not in self._answers:
            self._answers[about] = (wanted, answer(first))
            return np.asarray(self._answers[about][1][which])
        known, answers = self._answers[about]
        place = np.searchsorted(known, wanted)
        new = known[np.minimum(place, len(known) - 1)] != wanted if len(known) else np.ones(len(wanted), dtype=bool)
        if new.any():
            told = answer(first[new])
            order = np.argsort(np.concatenate([known, wanted[new]]), kind="stable")
            known = np.concatenate([known, wanted[new]])[order]
            answers = np.concatenate([answers, told])[order]
            self._answers[about] = (known, answers)
            place = np.searchsorted(known, wanted)
        return np.asarray(answers[place][which])

    def clear(self) -> None:
        """All answers, when the instances that they are about are done with; not what was made once for all."""
        self._answers.clear()

    def get_or_create(self, about: str, make: Callable[[], _T]) -> _T:
        """Something that is made when it is first asked for."""
        if about not in self._once:
            self._once[about] = make()
        made: _T = self._once[about]
        return made
