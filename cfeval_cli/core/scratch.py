"""Arrays put aside on the disk, where they are read as if they were in memory and take next to none of it.

Those of no more rows than a slab stay in memory: their disk would be of use to nobody.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_PAGE = 1 << 12  # bytes, at a multiple of which an array begins
_SLAB = 1 << 14  # instances
_BLOCK = 1 << 20  # bytes that are written at once

_Key = TypeVar("_Key", bound=Hashable)


def slabs(size: int, most: int | None = None) -> Iterator[slice]:
    """So many instances in slabs, one at least, of which each is worked on by itself."""
    step = most or _SLAB
    return (slice(start, min(size, start + step)) for start in range(0, max(1, size), step))


class Scratch:
    """A place for arrays that grow with the number of instances; what is in it is gone when nobody looks at it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # None: where the machine has its temporary files
        self._maps: list[weakref.ref[mmap.mmap]] = []

    def keep(self, arrays: Mapping[_Key, NDArray[Any]]) -> dict[_Key, NDArray[Any]]:
        """The same arrays, on the disk."""
        room: ScratchArrays[_Key] = ScratchArrays(self, max(map(len, arrays.values()), default=0))
        for key, array in arrays.items():
            room.add(key, array)
        return room.arrays()

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Zeros on the disk, to be written to in any order."""
        size = int(dtype.itemsize * np.prod(shape, dtype=np.int64))
        if shape[0] <= _SLAB or not size:
            return np.zeros(shape, dtype)
        file = self.open()
        try:
            nothing = np.zeros(min(size, _BLOCK), dtype=np.uint8)
            for start in range(0, size, _BLOCK):  # what would not fit on the disk later is an OSError here
                _write(file, nothing[: size - start], start)
            found = mmap.mmap(file, size)
        finally:
            os.close(file)
        self.hold(found)
        return np.frombuffer(found, dtype).reshape(shape)

    def release(self) -> None:
        """Give back the memory of what was read or written; whoever reads it again finds it on the disk."""
        alive = [(ref, found) for ref in self._maps if (found := ref()) is not None]
        self._maps = [ref for ref, _ in alive]
        for _, found in alive:
            found.madvise(mmap.MADV_DONTNEED)

    def open(self) -> int:
        """A file that nobody else sees, and that goes when it is closed."""
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            return os.dup(file.fileno())

    def hold(self, found: mmap.mmap) -> None:
        """Remember what can be released."""
        self._maps.append(weakref.ref(found))


@dataclass
class _Column:
    """Where an array is, and how much of it there is so far."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a row
    rows: int = 0

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))


class ScratchArrays(Generic[_Key]):
    """Some arrays of one file, each of which grows by itself, to so many rows at most, until all of them are read."""

    _file = -1  # none

    def __init__(self, scratch: Scratch, rows: int) -> None:
        self._scratch, self._rows = scratch, rows
        self._file, self._end = scratch.open() if rows > _SLAB else -1, 0
        self._columns: dict[_Key, _Column] = {}
        self._few: dict[_Key, list[NDArray[Any]]] = {}  # parts of arrays that stay in memory

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def add(self, key: _Key, part: NDArray[Any]) -> None:
        """More rows of an array, which begins with its first part."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column(self._end, part.dtype, part.shape[1:])
            self._end += -(-column.width * self._rows // _PAGE) * _PAGE
        if (part.dtype, part.shape[1:]) != (column.dtype, column.shape) or column.rows + len(part) > self._rows:
            raise ValueError(f"{part.dtype} {part.shape} does not go below {column.dtype} {column.shape} of {key}")
        if self._file < 0:
            self._few.setdefault(key, []).append(part)
        else:
            _write(self._file, np.ascontiguousarray(part), column.start + column.rows * column.width)
        column.rows += len(part)

    def arrays(self) -> dict[_Key, NDArray[Any]]:
        """All of them, in the order in which they began; none can be written to."""
        if self._file < 0:
            return {key: _closed(np.concatenate(parts)) for key, parts in self._few.items()}
        os.ftruncate(self._file, self._end)
        found = None
        if self._end:
            found = mmap.mmap(self._file, self._end, access=mmap.ACCESS_READ)
            self._scratch.hold(found)
        os.close(self._file)
        self._file = -1
        return {key: _array(found, column) for key, column in self._columns.items()}


def _closed(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _array(found: mmap.mmap | None, column: _Column) -> NDArray[Any]:
    shape = (column.rows, *column.shape)
    size = int(np.prod(shape, dtype=np.int64))
    if found is None or not size:
        return np.zeros(shape, dtype=column.dtype)
    return np.frombuffer(found, column.dtype, size, column.start).reshape(shape)


def _write(file: int, part: NDArray[Any], start: int) -> None:
    """All of it: the system may write less at once. What does not fit on the disk is an OSError here, not a crash."""
    left = memoryview(part.tobytes()) if part.size < _PAGE else memoryview(part.data).cast("B")
    while len(left):
        done = os.pwrite(file, left, start)
        left, start = left[done:], start + done
