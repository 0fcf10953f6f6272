"""Arrays on disk are read as they were written, in parts of any size."""

import gc
import os
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import scratch as module
from cfeval_cli.core.scratch import Scratch, ScratchArrays, iterate_slabs

linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc/self")


@given(st.integers(0, 100), st.integers(1, 30))
def test_slabs_have_every_instance_once_and_in_order(size, max_size):
    parts = [np.arange(size)[slab] for slab in iterate_slabs(size, max_size)]
    assert np.concatenate(parts).tolist() == list(range(size)) and all(len(part) <= max_size for part in parts)
    assert (
        all(slab.stop <= size for slab in iterate_slabs(size, max_size)) and parts
    )  # at least one slab, even if empty


@given(st.integers(0, 10_000), st.lists(st.integers(0, 700), min_size=1, max_size=5), st.sampled_from([0, 300, 9999]))
def test_appended_arrays_equal_the_concatenated_parts(seed, sizes, n_instances):
    with mock.patch.object(module, "_SLAB_INSTANCES", n_instances):  # larger arrays are stored on disk
        check_appended_arrays(seed, sizes)


def check_appended_arrays(seed, sizes):
    rng = np.random.default_rng(seed)
    expected_parts = {
        "numbers": [rng.normal(size=(size, 3)) for size in sizes],
        ("codes", 1): [rng.integers(-5, 5, (size, 2, 2)).astype(np.int32) for size in sizes],
        "flags": [rng.random(size // 2) < 0.5 for size in sizes],
        "turned": [rng.normal(size=(4, size)).T for size in sizes],
    }
    arrays = ScratchArrays(Scratch(), sum(sizes))
    for i in range(len(sizes)):
        for key, parts in expected_parts.items():
            arrays.add(key, parts[i])
    stored = arrays.get_arrays()
    assert list(stored) == list(expected_parts)
    for key, parts in expected_parts.items():
        expected = np.concatenate(parts)
        assert stored[key].dtype == expected.dtype and np.array_equal(stored[key], expected)
        assert not stored[key].flags.writeable or not stored[key].size
    assert {key: array_on_disk.tolist() for key, array_on_disk in Scratch().store(stored).items()} == {
        key: array.tolist() for key, array in stored.items()
    }


def test_arrays_of_other_shape_or_type_are_refused():
    arrays = ScratchArrays(Scratch(), 3)
    arrays.add("a", np.zeros((2, 2)))
    for array in (np.zeros((1, 3)), np.zeros((1, 2), dtype=int), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="cannot be appended"):
            arrays.add("a", array)
    assert arrays.get_arrays()["a"].shape == (2, 2)


@given(st.integers(0, 10_000), st.integers(0, 400), st.sampled_from([np.int64, np.float64, bool]), st.integers(0, 3))
def test_zeros_can_be_written_in_any_order(seed, size, kind, width):
    rng = np.random.default_rng(seed)
    scratch, expected = Scratch(), np.zeros((size, width), dtype=kind)
    with mock.patch.object(module, "_SLAB_INSTANCES", 100), mock.patch.object(module, "_BLOCK_BYTES", 999):
        zeros = scratch.make_zeros(expected.shape, expected.dtype)
    assert zeros.dtype == expected.dtype and zeros.shape == expected.shape and not zeros.any()
    for row in rng.permutation(size)[: size // 2].tolist():
        zeros[row] = expected[row] = rng.integers(0, 2, width)
        if row % 7 == 0:
            scratch.release()
    assert np.array_equal(zeros, expected)


def test_small_arrays_stay_in_memory(tmp_path):
    assert Scratch(tmp_path / "gone").store({"a": np.ones(3)})["a"].tolist() == [1, 1, 1]
    assert Scratch(tmp_path / "gone").make_zeros((3,), np.dtype(float)).tolist() == [0, 0, 0]


def count_open_files():
    """Return the number of open files of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@linux
def test_scratch_files_are_invisible_and_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SLAB_INSTANCES", 4)
    before = count_open_files()
    scratch = Scratch(tmp_path)
    stored = scratch.store({"a": np.arange(10_000)})
    abandoned = ScratchArrays(scratch, 5)
    abandoned.add("b", np.ones(5))
    zeros = scratch.make_zeros((10, 2), np.dtype(float))
    assert not list(tmp_path.iterdir())
    del stored, abandoned, zeros
    gc.collect()
    scratch.release()
    assert count_open_files() == before


def test_disk_that_cannot_be_written_raises_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Scratch(tmp_path / "gone").store({"a": np.ones(1 << 15)})
    with mock.patch.object(os, "pwrite", side_effect=OSError("full")), pytest.raises(OSError, match="full"):
        Scratch(tmp_path).make_zeros((1 << 15,), np.dtype(float))


@linux
def test_memory_is_released_and_arrays_can_be_read_again(tmp_path):
    scratch = Scratch(tmp_path)
    stored = scratch.store({"a": np.random.default_rng(0).random(1 << 21)})["a"]  # 16 MB

    def get_resident_mb():
        return int(re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024

    total = stored.sum()
    mb_after_reading = get_resident_mb()
    scratch.release()
    assert get_resident_mb() < mb_after_reading - 12
    assert stored.sum() == total and not stored.flags.writeable
    zeros = scratch.make_zeros((1 << 21,), np.dtype(float))
    zeros[:] = stored
    mb_after_writing = get_resident_mb()
    scratch.release()
    assert get_resident_mb() < mb_after_writing - 24 and zeros.sum() == total
