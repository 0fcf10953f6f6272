"""Plain arrays in .npy and .npz files and in caches that anybody may have written: nothing is evaluated, and sizes are
not believed.

NumPy evaluates a header as Python literals and makes room for what it says; here it is matched and compared with what
the file has. Whatever is wrong is a ValueError.
"""

from __future__ import annotations

import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]  # by name

MAX_BYTES = 1 << 31  # of all arrays of a file together

_LONGEST = 10_000  # bytes of a header
_PACKED = re.compile(rb"([\w.]+) ([<>|=]?[biuf]\d{1,2}) ([CF]) ((?:\d{1,15},)*\d{0,15})")
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[biuf]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,15}, ?)*\d{0,15}),?\), \} *\n?"
)
# all that a zip file that was made to do harm has been seen to raise
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, OverflowError, MemoryError,
    KeyError, IndexError,
)  # fmt: skip


def read(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, by name."""
    with path.open("rb") as stream:
        return load(stream, max_bytes)


def load(stream: IO[bytes], max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of an open .npz file, by name."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or name in arrays:
                    raise ValueError("it has entries that NumPy does not write")
                with archive.open(info) as entry:
                    body = entry.read(max_bytes + 1)  # what there is, whatever the entry says of its size
                max_bytes -= len(body)
                if max_bytes < 0:
                    raise ValueError("its arrays are larger than can be")
                arrays[name] = _array(body)
    except _DAMAGED as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {str(error)[:100]})") from error
    return arrays


def pack(arrays: Arrays) -> bytes:
    """Return arrays as one line that describes them, and then their numbers: a fraction of the size of an .npz file."""
    described, bodies = [], []
    for name, array in arrays.items():
        order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
        described.append(f"{name} {array.dtype.str} {order} {','.join(map(str, array.shape))}")
        bodies.append(array.tobytes(order))
    return b"".join([";".join(described).encode(), b"\n", *bodies])


def unpack(packed: bytes) -> dict[str, NDArray[Any]]:
    """Return packed arrays, by name."""
    head, _, _ = packed[:_LONGEST].partition(b"\n")
    begin, arrays = len(head) + 1, {}
    for name, dtype, order, shape, size in _layout(head):
        if begin + size > len(packed):
            raise ValueError("it has fewer numbers than it describes")
        arrays[name] = np.ndarray(shape, dtype, packed, begin, order=order).copy(order)
        begin += size
    if begin != len(packed):
        raise ValueError("it has more numbers than it describes")
    return arrays


@lru_cache
def _layout(head: bytes) -> list[tuple[str, np.dtype[Any], Any, tuple[int, ...], int]]:
    """Return name, type, order, shape and bytes of each packed array."""
    layout = []
    for part in head.split(b";"):
        match = _PACKED.fullmatch(part)
        if match is None:
            raise ValueError("it does not describe plain arrays of numbers")
        dtype, shape = _dtype(match[2]), _shape(match[4])
        layout.append((match[1].decode(), dtype, match[3].decode(), shape, math.prod(shape) * dtype.itemsize))
    return layout


def memory_map(path: Path) -> NDArray[Any]:
    """Return the memory-mapped array of an .npy file."""
    with path.open("rb") as stream:
        dtype, order, shape, begin = _described(stream.read(_LONGEST + 12))
    size = path.stat().st_size - begin
    if math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"its header tells of {math.prod(shape) * dtype.itemsize:,} bytes, and it has {size:,}")
    return np.memmap(path, dtype, "r", begin, shape, order) if size else np.zeros(shape, dtype)


def _array(body: bytes) -> NDArray[Any]:
    dtype, order, shape, begin = _described(body[: _LONGEST + 12])
    if math.prod(shape) * dtype.itemsize != len(body) - begin:
        raise ValueError("an array is not as large as its header says")
    return np.frombuffer(body, dtype, offset=begin).reshape(shape, order=order).copy(order)


def _described(head: bytes) -> tuple[np.dtype[Any], Any, tuple[int, ...], int]:
    """Type, order, shape and where the numbers begin."""
    if head[:6] != b"\x93NUMPY" or head[6:7] not in (b"\x01", b"\x02", b"\x03") or len(head) < 12:
        raise ValueError("it is no array of NumPy")
    begin = 10 if head[6] == 1 else 12
    size = int.from_bytes(head[8:begin], "little")
    match = _HEADER.fullmatch(head[begin : begin + size])
    if size > _LONGEST or match is None:
        raise ValueError("it is no plain array of numbers")
    return _dtype(match[1]), "F" if match[2] == b"True" else "C", _shape(match[3]), begin + size


def _shape(text: bytes) -> tuple[int, ...]:
    shape = tuple(int(part) for part in text.split(b",") if part.strip())
    if len(shape) > 8:
        raise ValueError("it is no plain array of numbers")
    return shape


def _dtype(text: bytes) -> np.dtype[Any]:
    try:
        return np.dtype(text.decode())
    except TypeError:
        raise ValueError("it is no plain array of numbers") from None
