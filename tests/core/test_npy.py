"""Arrays come back as they were, and files of another hand are refused."""

import io
import zipfile

import numpy as np
import pytest

from cfeval_cli.core import npy

ARRAYS = {
    "a": np.arange(12.0).reshape(3, 4),
    "turned": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "none": np.zeros((0, 4), dtype=np.int32),
    "one": np.float64(2.5),
    "flags": np.array([True, False]),
}


def test_what_is_dumped_is_loaded(tmp_path):
    body = npy.dump(ARRAYS)
    (tmp_path / "x.npz").write_bytes(body)
    for found in (npy.load(io.BytesIO(body)), npy.read(tmp_path / "x.npz")):
        assert set(found) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == np.asarray(array).dtype and np.array_equal(found[name], array)
    with np.load(io.BytesIO(body), allow_pickle=False) as theirs:
        assert np.array_equal(theirs["a"], ARRAYS["a"])


def test_a_file_can_be_mapped(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["a"])
    assert np.array_equal(npy.mapped(tmp_path / "x.npy"), ARRAYS["a"])
    body = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(body[:-8])
    with pytest.raises(ValueError, match="header tells of 96 bytes, and it has 88"):
        npy.mapped(tmp_path / "x.npy")


def test_objects_and_sizes_that_are_not_true_are_refused():
    stream = io.BytesIO()
    np.savez(stream, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="no plain array"):
        npy.load(stream)
    with pytest.raises(ValueError, match="larger than can be"):
        npy.load(io.BytesIO(npy.dump(ARRAYS)), max_bytes=50)
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
