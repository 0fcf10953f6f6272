"""Arrays come back as they were, and files of another hand are refused."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cfeval_cli.core import npy

ARRAYS = {
    "a": np.arange(12.0).reshape(3, 4),
    "turned": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "none": np.zeros((0, 4), dtype=np.int32),
    "one": np.float64(2.5),
    "flags": np.array([True, False]),
}


def saved(arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_what_is_saved_is_loaded(tmp_path):
    body = saved(ARRAYS)
    (tmp_path / "x.npz").write_bytes(body)
    for found in (npy.load(io.BytesIO(body)), npy.read(tmp_path / "x.npz")):
        assert set(found) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == np.asarray(array).dtype and np.array_equal(found[name], array)
    with np.load(io.BytesIO(body), allow_pickle=False) as theirs:
        assert np.array_equal(theirs["a"], ARRAYS["a"])


def test_a_file_can_be_mapped(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["a"])
    assert np.array_equal(npy.memory_map(tmp_path / "x.npy"), ARRAYS["a"])
    body = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(body[:-8])
    with pytest.raises(ValueError, match="header tells of 96 bytes, and it has 88"):
        npy.memory_map(tmp_path / "x.npy")


def test_objects_and_sizes_that_are_not_true_are_refused():
    stream = io.BytesIO()
    np.savez(stream, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="no plain array"):
        npy.load(stream)
    with pytest.raises(ValueError, match="larger than can be"):
        npy.load(io.BytesIO(saved(ARRAYS)), max_bytes=50)
    with pytest.raises(ValueError, match="damaged"):
        npy.load(io.BytesIO(b"PK nothing"))
    twice = io.BytesIO()
    one = io.BytesIO()
    np.save(one, np.zeros(2))
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("x.npy", one.getvalue())
        archive.writestr("x", one.getvalue())
    with pytest.raises(ValueError, match="entries that NumPy does not write"):
        npy.load(twice)


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
def test_what_is_packed_is_unpacked(given_arrays, turned):
    wanted = {name: np.asfortranarray(array) if turned else array for name, array in given_arrays.items()}
    found = npy.unpack(npy.pack(wanted))
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape and found[name].flags.writeable
        assert found[name].tobytes() == array.tobytes() and found[name].flags.fnc == array.flags.fnc


@pytest.mark.parametrize(
    "head",
    [
        b"", b"x", b"x <f8 C 3;", b"x <f8 C 9999999999", b"x |O8 C 3", b"x <f9 C 3", b"x <f8 A 3", b"x <f8 C -3",
        b"x <f8 C " + b"1," * 40, b"x <f8 C 2", b"x <f8 C 4", b"x <f8 C 0,999999999999999,999999999999999",
    ],
)  # fmt: skip
def test_what_is_not_packed_is_refused(head):
    with pytest.raises(ValueError, match=r"describe|plain array|maximum|too big"):
        npy.unpack(head + b"\n" + bytes(24))
    assert npy.unpack(b"x <f8 C 3\n" + bytes(24))["x"].tolist() == [0, 0, 0]
