"""Arrays in .npy and .npz files, which others may have written, and in entries of the user's own caches."""

from __future__ import annotations

import json
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]  # by name

MAX_FILE_BYTES = 1 << 31  # of all arrays of a file together

# What zipfile and NumPy raise for damaged files, besides ValueError.
_DAMAGE_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError, RuntimeError,
    OverflowError, MemoryError, KeyError, IndexError,
)  # fmt: skip


def read_npz(path: Path, max_bytes: int = MAX_FILE_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, by name; ValueError if it is damaged, too large or has Python objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > max_bytes:
                raise ValueError(f"its arrays have more than {max_bytes:,} bytes")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except _DAMAGE_ERRORS as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {str(error)[:100]})") from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it has entries that are not arrays")
    return arrays


def open_memory_map(path: Path) -> NDArray[Any]:
    """Return the memory-mapped array of an .npy file; ValueError if it is damaged or has Python objects."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except _DAMAGE_ERRORS as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {str(error)[:100]})") from error


def pack(arrays: Arrays) -> bytes:
    """Return arrays as a line that describes them, followed by their data, which is smaller than an .npz file."""
    layout, bodies = [], []
    for name, array in arrays.items():
        order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
        layout.append((name, array.dtype.str, order, array.shape))
        bodies.append(array.tobytes(order))
    return b"".join([json.dumps(layout).encode(), b"\n", *bodies])


def unpack(packed: bytes) -> dict[str, NDArray[Any]]:
    """Return packed arrays, by name."""
    head, _, _ = packed.partition(b"\n")
    start, arrays = len(head) + 1, {}
    for name, dtype, order, shape, size in _parse_layout(head):
        arrays[name] = np.ndarray(shape, dtype, packed, start, order=order).copy(order)
        start += size
    return arrays


@lru_cache
def _parse_layout(head: bytes) -> list[tuple[str, np.dtype[Any], Literal["C", "F"], tuple[int, ...], int]]:
    """Return name, type, order, shape and size in bytes of each packed array; cached: many entries share a header."""
    layout = [(name, np.dtype(dtype), order, tuple(shape)) for name, dtype, order, shape in json.loads(head)]
    return [(*entry, math.prod(entry[3]) * entry[1].itemsize) for entry in layout]
