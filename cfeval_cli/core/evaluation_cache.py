"""Reuse of model evaluations: equal rows in a call, and equal edits of several metrics, are evaluated once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.data import Bools, Codes, Ints

Keys = NDArray[Any]  # (n,) integers or bytes

_T = TypeVar("_T")
_Kind = TypeVar("_Kind", bound=np.generic)
_WORD_BYTES = 8
_MAX_ROW_CODES = 2**62  # different rows that an integer can encode


def make_set_keys(sets: Bools, ids: Ints | None = None) -> Keys:
    """Return a key (n,) for each set of features (n, M), or for each pair of instance and set."""
    bits = np.packbits(sets, axis=1)
    parts = [bits] if ids is None else [np.ascontiguousarray(ids, dtype=">u4").view(np.uint8).reshape(-1, 4), bits]
    packed = np.concatenate(parts, axis=1)
    if packed.shape[1] <= _WORD_BYTES:  # integers are sorted faster than bytes
        return np.pad(packed, ((0, 0), (_WORD_BYTES - packed.shape[1], 0))).view(">u8").ravel().astype(np.uint64)
    packed = np.pad(packed, ((0, 0), (0, 1)), constant_values=1)  # NumPy drops zeros at the end of bytes
    return np.ascontiguousarray(packed).view(f"S{packed.shape[1]}").ravel()


def encode_rows(codes: Codes) -> Ints | None:
    """Return an integer (n,) for each row (n, M), in lexicographic order; None if the range is too large."""
    if not codes.size:
        return np.zeros(len(codes), dtype=np.int64)
    low = codes.min(axis=0).tolist()
    sizes = [high - least + 1 for high, least in zip(codes.max(axis=0).tolist(), low, strict=True)]
    if prod(sizes) > _MAX_ROW_CODES:
        return None
    numbers = np.zeros(len(codes), dtype=np.int64)
    for column, least, size in zip(codes.T, low, sizes, strict=True):
        if size > 1:
            numbers *= size
            numbers += column
            numbers -= least
    return numbers


def evaluate_unique_rows(
    evaluate: Callable[[Codes], NDArray[Any]], codes: Codes, distinguishing_codes: Codes | None = None
) -> NDArray[Any]:
    """Evaluate all rows; those with equal `distinguishing_codes` (default: `codes`) once.

    If rows cannot be encoded as integers, each row is evaluated.
    """
    numbers = encode_rows(codes if distinguishing_codes is None else distinguishing_codes) if len(codes) > 1 else None
    if numbers is None:
        return evaluate(codes)
    import pandas as pd

    inverse, unique = pd.factorize(numbers)
    if len(unique) == len(codes):
        return evaluate(codes)
    first = np.empty(len(unique), dtype=np.int64)
    first[inverse[::-1]] = np.arange(len(codes))[::-1]
    results = np.asarray(evaluate(codes[first]))
    # The caller reports results of a wrong length, which depend on the number of rows.
    return results[inverse] if results.shape[:1] == first.shape else evaluate(codes)


class EvaluationCache:
    """Predictions and other results that metrics share: arrays by topic and key, and objects by topic."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[Keys, NDArray[Any]]] = {}
        self._objects: dict[str, Any] = {}

    def get_or_compute(self, topic: str, keys: Keys, compute: Callable[[Ints], NDArray[_Kind]]) -> NDArray[_Kind]:
        """Return an entry (n, …) for each key; `compute` gets the indices (m,) of new keys, each once."""
        unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        if topic not in self._arrays:
            self._arrays[topic] = (unique, compute(first))
            return np.asarray(self._arrays[topic][1][inverse])
        stored_keys, arrays = self._arrays[topic]
        position = np.searchsorted(stored_keys, unique)
        is_new = np.ones(len(unique), dtype=bool)
        if len(stored_keys):
            is_new = stored_keys[np.minimum(position, len(stored_keys) - 1)] != unique
        if is_new.any():
            results = compute(first[is_new])
            stored_keys = np.concatenate([stored_keys, unique[is_new]])
            order = np.argsort(stored_keys, kind="stable")
            stored_keys = stored_keys[order]
            arrays = np.concatenate([arrays, results])[order]
            self._arrays[topic] = (stored_keys, arrays)
            position = np.searchsorted(stored_keys, unique)
        return np.asarray(arrays[position][inverse])

    def clear(self) -> None:
        """Delete all arrays, which belong to instances; objects of `get_or_create` stay."""
        self._arrays.clear()

    def get_or_create(self, topic: str, create: Callable[[], _T]) -> _T:
        """Return an object that is created at the first call."""
        if topic not in self._objects:
            self._objects[topic] = create()
        created: _T = self._objects[topic]
        return created
