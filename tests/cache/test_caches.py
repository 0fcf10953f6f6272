"""The cache gives back what was kept, to the bit, or nothing."""

import itertools
import multiprocessing
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfeval_cli.cache import disk
from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import Cost
from cfeval_cli.pipeline.explain import Answer, packed, unpacked
from tests.cache.writer import key, told, write


def same(a, b):
    equal = np.array_equal(a.features, b.features) and np.array_equal(a.scores, b.scores, equal_nan=True)
    return equal and a.cost == b.cost


def test_many_are_asked_for_a_few_at_a_time(tmp_path, monkeypatch):
    cache = Disk(str(tmp_path))
    cache.keep("a", "a", {key(i): told(i) for i in range(0, 40, 3)})
    whole = cache.known("a", "a", [key(i) for i in range(40)])
    assert whole == {key(i): told(i) for i in range(0, 40, 3)}
    monkeypatch.setattr(disk, "_ASKED", 7)
    assert cache.known("a", "a", [key(i) for i in range(40)]) == whole and cache.known("a", "a", []) == {}


def test_what_is_kept_is_found_by_section_and_instance(tmp_path):
    cache = Disk(str(tmp_path / "deep" / "folder"))
    assert cache.known("a", "label a", [key(1)]) == {}
    cache.keep("a", "label a", {key(i): told(i) for i in range(40)})
    found = cache.known("a", "label a", [key(3), key(7), key(99)])
    assert set(found) == {key(3), key(7)} and all(found[key(i)] == told(i) for i in (3, 7))
    assert cache.known("b", "label b", [key(3)]) == {}
    cache.keep("a", "a", {key(3): told(30)})  # the later one counts
    assert Disk(str(tmp_path / "deep" / "folder")).known("a", "", [key(3)])[key(3)] == told(30)
    assert sorted((label, entries) for label, entries, _, _ in cache.sections()) == [("", 40), ("label b", 0)]
    cache.clear()
    assert cache.sections() == [] and cache.known("a", "", [key(3)]) == {}


@given(
    arrays(np.int64, st.integers(0, 70), elements=st.integers(0, 10**6)),
    st.integers(0, 2**60),
    st.floats(0, 1e9),
    st.integers(0, 10**6),
)
def test_explanations_come_back_to_the_bit(features, rows, seconds, place):
    scores = np.random.default_rng(len(features)).normal(size=len(features))
    scores[::3] = [np.nan, np.inf, -0.0][len(features) % 3]
    one = Answer(features, scores, Cost(rows, seconds / 7, seconds, seconds / 3))
    assert same(unpacked(packed(one)), one)
    cut = packed(one)[: place % len(packed(one))]
    assert unpacked(cut) is None or len(unpacked(cut).features) < len(features)


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_to_an_entry_is_noticed(tmp_path, seed):
    rng = np.random.default_rng(seed)
    cache = Disk(str(tmp_path))
    cache.keep("a", "a", {key(i): told(i) for i in range(3)})
    with sqlite3.connect(cache.path) as database:
        ((value,),) = database.execute("SELECT value FROM entry WHERE item = ?", (key(1),))
        damaged = bytearray(value)
        damaged[rng.integers(len(value))] ^= rng.integers(1, 256)
        changed = [bytes(damaged), value[: rng.integers(len(value))], value + b"x"][seed % 3]
        database.execute("UPDATE entry SET value = ? WHERE item = ?", (changed, key(1)))
        database.execute("UPDATE entry SET item = ? WHERE item = ?", (key(9), key(2)))  # of another item
    assert cache.known("a", "a", [key(i) for i in range(10)]) == {key(0): told(0)}


def test_the_size_is_bounded_and_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "time", SimpleNamespace(time=itertools.count(1.0).__next__))
    cache = Disk(str(tmp_path), max_mb=0.2)
    for number in range(12):
        cache.known(f"s{number}", f"s{number}", [])
        if number:
            cache.known("s0", "s0", [])  # in use
        cache.keep(f"s{number}", f"s{number}", {key(i): told(i, size=20) for i in range(100)})
    labels = [label for label, *_ in cache.sections()]
    assert "s0" in labels and "s11" in labels and "s1" not in labels
    assert len(cache.known("s11", "s11", [key(i) for i in range(100)])) == 100
    assert cache.path.stat().st_size <= 0.2e6


def test_several_runs_may_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write, args=(str(tmp_path), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    keys = [key(1000 * number + i) for number in range(4) for i in range(100)]
    assert len(Disk(str(tmp_path)).known("shared", "shared", keys)) == 400


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_begun_anew(tmp_path, content, caplog):
    cache = Disk(str(tmp_path))
    cache.path.write_bytes(content)
    assert cache.known("a", "a", [key(1)]) == {}
    cache.keep("a", "a", {key(1): told()})
    assert set(cache.known("a", "a", [key(1)])) == {key(1)}
    assert "begun anew" in caplog.text


def test_without_a_folder_to_write_to_a_run_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Disk(str(tmp_path / "file" / "cache"))
    assert cache.known("a", "a", [key(1)]) == {} and cache.keep("a", "a", {key(1): told()}) is None
    assert caplog.text.count("cache:") == 1  # said once


def test_entries_of_another_hand_are_data_and_nothing_else(tmp_path):
    """A value that is not one of ours is not used, whatever it is."""
    cache = Disk(str(tmp_path))
    cache.known("a", "a", [])
    with sqlite3.connect(cache.path) as database:
        for i, value in enumerate((b"", b"cos\nsystem\n(S'true'\ntR.", b"x" * 200, "text", 7, None)):
            database.execute("INSERT INTO entry VALUES (1, ?, ?)", (key(i), value))
    assert cache.known("a", "a", [key(i) for i in range(6)]) == {}


def test_what_another_run_cleared_in_the_meantime_is_kept_again(tmp_path):
    cache = Disk(str(tmp_path))
    cache.known("a", "label", [])
    cache.clear()
    cache.keep("a", "label", {key(1): told()})
    assert [(label, entries) for label, entries, _, _ in cache.sections()] == [("label", 1)]


def test_one_section_that_is_too_large_keeps_what_fits(tmp_path, caplog):
    cache = Disk(str(tmp_path), max_mb=0.1)
    for start in range(0, 1000, 50):
        cache.keep("a", "a", {key(start + i): told(i, size=20) for i in range(50)})
    ((_, entries, _, _),) = cache.sections()
    assert 50 <= entries < 1000 and cache.path.stat().st_size <= 0.1e6
    assert "cache.max_mb=0.1 is too small" in caplog.text


def test_no_cache_keeps_nothing():
    assert Off().keep("a", "a", {key(1): told()}) is None
    assert Off().known("a", "a", [key(1)]) == {}


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="max_mb"):
        Disk("x", max_mb=0)
