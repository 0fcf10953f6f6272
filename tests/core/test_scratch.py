"""What is put aside on the disk is read as it was written, in whatever parts it came."""

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

linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks the system what the process holds")


@given(st.integers(0, 100), st.integers(1, 30))
def test_slabs_have_every_instance_once_and_in_order(size, max_size):
    parts = [np.arange(size)[slab] for slab in iterate_slabs(size, max_size)]
    assert np.concatenate(parts).tolist() == list(range(size)) and all(len(part) <= max_size for part in parts)
    assert (
        all(slab.stop <= size for slab in iterate_slabs(size, max_size)) and parts
    )  # one at least, though it be empty


@given(st.integers(0, 10_000), st.lists(st.integers(0, 700), min_size=1, max_size=5), st.sampled_from([0, 300, 9999]))
def test_arrays_that_grow_side_by_side_are_their_parts_one_below_the_other(seed, sizes, few):
    with mock.patch.object(module, "_SLAB_INSTANCES", few):  # up to which they stay in memory
        grown(seed, sizes)


def grown(seed, sizes):
    rng = np.random.default_rng(seed)
    wanted = {
        "numbers": [rng.normal(size=(size, 3)) for size in sizes],
        ("codes", 1): [rng.integers(-5, 5, (size, 2, 2)).astype(np.int32) for size in sizes],
        "flags": [rng.random(size // 2) < 0.5 for size in sizes],
        "turned": [rng.normal(size=(4, size)).T for size in sizes],
    }
    room = ScratchArrays(Scratch(), sum(sizes))
    for i in range(len(sizes)):
        for key, parts in wanted.items():
            room.add(key, parts[i])
    found = room.get_arrays()
    assert list(found) == list(wanted)
    for key, parts in wanted.items():
        whole = np.concatenate(parts)
        assert found[key].dtype == whole.dtype and np.array_equal(found[key], whole)
        assert not found[key].flags.writeable or not found[key].size
    assert {key: kept.tolist() for key, kept in Scratch().store(found).items()} == {
        key: array.tolist() for key, array in found.items()
    }


def test_what_does_not_go_together_is_refused():
    room = ScratchArrays(Scratch(), 3)
    room.add("a", np.zeros((2, 2)))
    for wrong in (np.zeros((1, 3)), np.zeros((1, 2), dtype=int), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="cannot be appended"):
            room.add("a", wrong)
    assert room.get_arrays()["a"].shape == (2, 2)


@given(st.integers(0, 10_000), st.integers(0, 400), st.sampled_from([np.int64, np.float64, bool]), st.integers(0, 3))
def test_zeros_are_written_to_in_any_order(seed, size, kind, width):
    rng = np.random.default_rng(seed)
    scratch, wanted = Scratch(), np.zeros((size, width), dtype=kind)
    with mock.patch.object(module, "_SLAB_INSTANCES", 100), mock.patch.object(module, "_BLOCK_BYTES", 999):
        found = scratch.make_zeros(wanted.shape, wanted.dtype)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and not found.any()
    for row in rng.permutation(size)[: size // 2].tolist():
        found[row] = wanted[row] = rng.integers(0, 2, width)
        if row % 7 == 0:
            scratch.release()
    assert np.array_equal(found, wanted)


def test_few_rows_need_no_disk(tmp_path):
    assert Scratch(tmp_path / "gone").store({"a": np.ones(3)})["a"].tolist() == [1, 1, 1]
    assert Scratch(tmp_path / "gone").make_zeros((3,), np.dtype(float)).tolist() == [0, 0, 0]


def opened():
    """How many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@linux
def test_nothing_is_seen_in_the_folder_and_nothing_is_left_open(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SLAB_INSTANCES", 4)
    before = opened()
    scratch = Scratch(tmp_path)
    kept = scratch.store({"a": np.arange(10_000)})
    abandoned = ScratchArrays(scratch, 5)
    abandoned.add("b", np.ones(5))
    zeros = scratch.make_zeros((10, 2), np.dtype(float))
    assert not list(tmp_path.iterdir())
    del kept, abandoned, zeros
    gc.collect()
    scratch.release()
    assert opened() == before


def test_a_disk_that_cannot_be_written_to_is_an_error_and_no_crash(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Scratch(tmp_path / "gone").store({"a": np.ones(1 << 15)})
    with mock.patch.object(os, "pwrite", side_effect=OSError("full")), pytest.raises(OSError, match="full"):
        Scratch(tmp_path).make_zeros((1 << 15,), np.dtype(float))


@linux
def test_what_was_read_is_given_back_and_can_be_read_again(tmp_path):
    scratch = Scratch(tmp_path)
    kept = scratch.store({"a": np.random.default_rng(0).random(1 << 21)})["a"]  # 16 MB

    def resident():
        return int(re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024

    total = kept.sum()
    read = resident()
    scratch.release()
    assert resident() < read - 12
    assert kept.sum() == total and not kept.flags.writeable
    zeros = scratch.make_zeros((1 << 21,), np.dtype(float))
    zeros[:] = kept
    written = resident()
    scratch.release()
    assert resident() < written - 24 and zeros.sum() == total
