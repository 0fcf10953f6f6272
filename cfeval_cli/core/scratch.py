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

_PAGE_BYTES = 1 << 12  # an array begins at a multiple of this number of bytes
_SLAB_INSTANCES = 1 << 14  # instances
_BLOCK_BYTES = 1 << 20  # bytes that are written at once

_Key = TypeVar("_Key", bound=Hashable)


def iterate_slabs(size: int, max_size: int | None = None) -> Iterator[slice]:
    """Yield the slices of `size` instances that are processed at a time, at least one."""
    step = max_size or _SLAB_INSTANCES
    return (slice(start, min(size, start + step)) for start in range(0, max(1, size), step))


class Scratch:
    """Temporary storage for arrays whose size grows with the instances; it is freed with the last reference."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # None: the system's folder of temporary files
        self._maps: list[weakref.ref[mmap.mmap]] = []

    def store(self, arrays: Mapping[_Key, NDArray[Any]]) -> dict[_Key, NDArray[Any]]:
        """Store arrays, on disk if they have more rows than one slab, and return them read-only."""
        stored: ScratchArrays[_Key] = ScratchArrays(self, max(map(len, arrays.values()), default=0))
        for key, array in arrays.items():
            stored.add(key, array)
        return stored.get_arrays()

    def make_zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a writable array of zeros, on disk if it has more rows than one slab."""
        size = int(dtype.itemsize * np.prod(shape, dtype=np.int64))
        if shape[0] <= _SLAB_INSTANCES or not size:
            return np.zeros(shape, dtype)
        file = self.open()
        try:
            zeros = np.zeros(min(size, _BLOCK_BYTES), dtype=np.uint8)
            for start in range(0, size, _BLOCK_BYTES):  # a full disk raises an OSError here, not later
                _write_part(file, zeros[: size - start], start)
            mapping = mmap.mmap(file, size)
        finally:
            os.close(file)
        self.hold(mapping)
        return np.frombuffer(mapping, dtype).reshape(shape)

    def release(self) -> None:
        """Free the memory of mapped pages; they are read from the disk again when needed."""
        live = [(ref, mapping) for ref in self._maps if (mapping := ref()) is not None]
        self._maps = [ref for ref, _ in live]
        for _, mapping in live:
            mapping.madvise(mmap.MADV_DONTNEED)

    def open(self) -> int:
        """Return a descriptor of an anonymous file, which is deleted when closed."""
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            return os.dup(file.fileno())

    def hold(self, mapping: mmap.mmap) -> None:
        """Add a mapping to those that `release` frees."""
        self._maps.append(weakref.ref(mapping))


@dataclass
class _ScratchColumn:
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

    _file: int | None = None  # descriptor; None: in memory (few rows), or after `get_arrays`

    def __init__(self, scratch: Scratch, rows: int) -> None:
        self._scratch, self._rows = scratch, rows
        self._file, self._end = scratch.open() if rows > _SLAB_INSTANCES else None, 0
        self._columns: dict[_Key, _ScratchColumn] = {}
        self._parts: dict[_Key, list[NDArray[Any]]] = {}  # of arrays that stay in memory

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def add(self, key: _Key, part: NDArray[Any]) -> None:
        """Append rows to an array; the first part creates it."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _ScratchColumn(self._end, part.dtype, part.shape[1:])
            self._end += -(-column.width * self._rows // _PAGE_BYTES) * _PAGE_BYTES
        if (part.dtype, part.shape[1:]) != (column.dtype, column.shape) or column.rows + len(part) > self._rows:
            raise ValueError(f"{key}: {part.dtype} {part.shape} cannot be appended to {column.dtype} {column.shape}")
        if self._file is None:
            self._parts.setdefault(key, []).append(part)
        else:
            _write_part(self._file, np.ascontiguousarray(part), column.start + column.rows * column.width)
        column.rows += len(part)

    def get_arrays(self) -> dict[_Key, NDArray[Any]]:
        """Return all arrays, read-only, in the order of their first parts. Call it once, after the last `add`."""
        if self._file is None:
            return {key: _make_read_only(np.concatenate(parts)) for key, parts in self._parts.items()}
        os.ftruncate(self._file, self._end)
        mapping = None
        if self._end:
            mapping = mmap.mmap(self._file, self._end, access=mmap.ACCESS_READ)
            self._scratch.hold(mapping)
        os.close(self._file)
        self._file = None
        return {key: _view_column(mapping, column) for key, column in self._columns.items()}


def _make_read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _view_column(mapping: mmap.mmap | None, column: _ScratchColumn) -> NDArray[Any]:
    shape = (column.rows, *column.shape)
    size = int(np.prod(shape, dtype=np.int64))
    if mapping is None or not size:
        return np.zeros(shape, dtype=column.dtype)
    return np.frombuffer(mapping, column.dtype, size, column.start).reshape(shape)


def _write_part(file: int, part: NDArray[Any], start: int) -> None:
    """Write a part completely; a full disk raises an OSError here, where mapped memory would crash the process."""
    remainder = memoryview(part.tobytes()) if part.size < _PAGE_BYTES else memoryview(part.data).cast("B")
    while len(remainder):
        n_written = os.pwrite(file, remainder, start)
        remainder, start = remainder[n_written:], start + n_written
