"""Memory-mapped arrays in temporary files; arrays of at most one slab of rows stay in memory."""

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


def iterate_slabs(size: int, most: int | None = None) -> Iterator[slice]:
    """Yield the slices of `size` instances that are processed at a time, at least one."""
    step = most or _SLAB
    return (slice(start, min(size, start + step)) for start in range(0, max(1, size), step))


class Scratch:
    """Temporary storage for arrays whose size grows with the instances; it is freed with the last reference."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # None: where the machine has its temporary files
        self._maps: list[weakref.ref[mmap.mmap]] = []

    def keep(self, arrays: Mapping[_Key, NDArray[Any]]) -> dict[_Key, NDArray[Any]]:
        """Store arrays on the disk, and return them memory-mapped."""
        room: ScratchArrays[_Key] = ScratchArrays(self, max(map(len, arrays.values()), default=0))
        for key, array in arrays.items():
            room.add(key, array)
        return room.arrays()

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a writable array of zeros on the disk."""
        size = int(dtype.itemsize * np.prod(shape, dtype=np.int64))
        if shape[0] <= _SLAB or not size:
            return np.zeros(shape, dtype)
        file = self.open()
        try:
            nothing = np.zeros(min(size, _BLOCK), dtype=np.uint8)
            for start in range(0, size, _BLOCK):  # what would not fit on the disk later is an OSError here
                _write(file, nothing[: size - start], start)
            mapping = mmap.mmap(file, size)
        finally:
            os.close(file)
        self.hold(mapping)
        return np.frombuffer(mapping, dtype).reshape(shape)

    def release(self) -> None:
        """Free the memory of mapped pages; they are read from the disk again when needed."""
        alive = [(ref, mapping) for ref in self._maps if (mapping := ref()) is not None]
        self._maps = [ref for ref, _ in alive]
        for _, mapping in alive:
            mapping.madvise(mmap.MADV_DONTNEED)

    def open(self) -> int:
        """Return a descriptor of an anonymous file, which is deleted when closed."""
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            return os.dup(file.fileno())

    def hold(self, mapping: mmap.mmap) -> None:
        """Add a mapping to those that `release` frees."""
        self._maps.append(weakref.ref(mapping))


@dataclass
class _Column:
    """The position of an array in the file, and its number of rows so far."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a row
    rows: int = 0

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))


class ScratchArrays(Generic[_Key]):
    """Arrays of one file that grow independently to a maximum number of rows, until all are read."""

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
        """Append rows to an array; the first part creates it."""
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
        """Return all arrays, read-only, in the order of their first parts."""
        if self._file < 0:
            return {key: _closed(np.concatenate(parts)) for key, parts in self._few.items()}
        os.ftruncate(self._file, self._end)
        mapping = None
        if self._end:
            mapping = mmap.mmap(self._file, self._end, access=mmap.ACCESS_READ)
            self._scratch.hold(mapping)
        os.close(self._file)
        self._file = -1
        return {key: _array(mapping, column) for key, column in self._columns.items()}


def _closed(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _array(mapping: mmap.mmap | None, column: _Column) -> NDArray[Any]:
    shape = (column.rows, *column.shape)
    size = int(np.prod(shape, dtype=np.int64))
    if mapping is None or not size:
        return np.zeros(shape, dtype=column.dtype)
    return np.frombuffer(mapping, column.dtype, size, column.start).reshape(shape)


def _write(file: int, part: NDArray[Any], start: int) -> None:
    """Write a part completely; a full disk raises an OSError here, where mapped memory would crash the process."""
    left = memoryview(part.tobytes()) if part.size < _PAGE else memoryview(part.data).cast("B")
    while len(left):
        done = os.pwrite(file, left, start)
        left, start = left[done:], start + done
