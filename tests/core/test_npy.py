"""Arrays are read as they were written, and damaged files are rejected."""

import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cfeval_cli.core import npy

ARRAYS = {
    "a": np.arange(12.0).reshape(3, 4),
    "transposed": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "empty": np.zeros((0, 4), dtype=np.int32),
    "scalar": np.float64(2.5),
    "flags": np.array([True, False]),
}


@pytest.fixture
def file(tmp_path):
    """Return the path of an .npz file with ARRAYS."""
    np.savez(tmp_path / "x.npz", **ARRAYS)
    return tmp_path / "x.npz"


def test_npz_arrays_are_read_as_written(file):
    stored = npy.read_npz(file)
    assert set(stored) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert stored[name].dtype == np.asarray(array).dtype and np.array_equal(stored[name], array)


def test_memory_map_has_the_array_and_rejects_a_short_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, ARRAYS["a"])
    assert np.array_equal(npy.open_memory_map(path), ARRAYS["a"])
    body = path.read_bytes()
    for damaged in (body[:-8], body[:20], b"", b"PK nothing", body.replace(b"(3, 4)", b"(3, (4")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"\w"):
            npy.open_memory_map(path)


def test_objects_and_large_or_damaged_files_are_rejected(file):
    with pytest.raises(ValueError, match="more than 50 bytes"):
        npy.read_npz(file, max_bytes=50)
    body = file.read_bytes()
    file.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="damaged"):
        npy.read_npz(file)
    file.write_bytes(body.replace(b"(3, 4)", b"(9, 9)"))
    with pytest.raises(ValueError, match=r"damaged|data"):
        npy.read_npz(file)
    np.savez(file, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        npy.read_npz(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.txt", "text")
    with pytest.raises(ValueError, match="not arrays"):
        npy.read_npz(file)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.0-9]{0,8}", fullmatch=True),
        arrays(
            st.sampled_from([np.int64, np.int32, np.float64, np.uint8, np.bool_]), array_shapes(min_dims=0, min_side=0)
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_unpacked_arrays_equal_the_packed_ones(given_arrays, is_transposed):
    expected = {name: np.asfortranarray(array) if is_transposed else array for name, array in given_arrays.items()}
    unpacked = npy.unpack(npy.pack(expected))
    assert list(unpacked) == list(expected)
    for name, array in expected.items():
        result = unpacked[name]
        assert result.dtype == array.dtype and result.shape == array.shape and result.flags.writeable
        assert result.tobytes() == array.tobytes() and result.flags.fnc == array.flags.fnc
