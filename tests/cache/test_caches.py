"""The cache gives back what was kept, to the bit, or nothing."""

import itertools
import multiprocessing
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest

from cfeval_cli.cache import disk
from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import Section
from tests.cache.writer import SHARED, entry, key, write

A, B = Section("a", "label a"), Section("b", "label b")


def same(found, wanted):
    return found.keys() == wanted.keys() and all(
        found[one].keys() == arrays.keys() and all(np.array_equal(found[one][name], arrays[name]) for name in arrays)
        for one, arrays in wanted.items()
    )


def test_many_are_asked_for_a_few_at_a_time(tmp_path, monkeypatch):
    cache, wanted = Disk(str(tmp_path)), {key(i): entry(i) for i in range(0, 40, 3)}
    cache.put(A, wanted)
    assert same(cache.get(A, [key(i) for i in range(40)]), wanted)
    monkeypatch.setattr(disk, "_KEYS_PER_QUERY", 7)
    assert same(cache.get(A, [key(i) for i in range(40)]), wanted) and cache.get(A, []) == {}


def test_what_is_kept_is_found_by_section_and_instance(tmp_path):
    cache = Disk(str(tmp_path / "deep" / "folder"))
    assert cache.get(A, [key(1)]) == {}
    cache.put(A, {key(i): entry(i) for i in range(40)})
    assert same(cache.get(A, [key(3), key(7), key(99)]), {key(i): entry(i) for i in (3, 7)})
    assert cache.get(B, [key(3)]) == {}
    cache.put(A, {key(3): entry(30)})  # the later one counts
    assert same(Disk(str(tmp_path / "deep" / "folder")).get(Section("a", ""), [key(3)]), {key(3): entry(30)})
    assert sorted((label, entries) for label, entries, _, _ in cache.sections()) == [("", 40), ("label b", 0)]
    cache.clear()
    assert cache.sections() == [] and cache.get(A, [key(3)]) == {}


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_to_an_entry_is_noticed(tmp_path, seed):
    rng = np.random.default_rng(seed)
    cache = Disk(str(tmp_path))
    cache.put(A, {key(i): entry(i) for i in range(3)})
    with sqlite3.connect(cache.path) as database:
        ((value,),) = database.execute("SELECT value FROM entry WHERE item = ?", (key(1),))
        damaged = bytearray(value)
        damaged[rng.integers(len(value))] ^= rng.integers(1, 256)
        changed = [bytes(damaged), value[: rng.integers(len(value))], value + b"x"][seed % 3]
        database.execute("UPDATE entry SET value = ? WHERE item = ?", (changed, key(1)))
        database.execute("UPDATE entry SET item = ? WHERE item = ?", (key(9), key(2)))  # of another item
    assert same(cache.get(A, [key(i) for i in range(10)]), {key(0): entry(0)})


def test_the_size_is_bounded_and_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "time", SimpleNamespace(time=itertools.count(1.0).__next__))
    cache = Disk(str(tmp_path), max_mb=0.2)
    sections = [Section(f"s{number}", f"s{number}") for number in range(12)]
    for number, section in enumerate(sections):
        cache.get(section, [])
        if number:
            cache.get(sections[0], [])  # in use
        cache.put(section, {key(i): entry(i, size=12) for i in range(100)})
    labels = [label for label, *_ in cache.sections()]
    assert "s0" in labels and "s11" in labels and "s1" not in labels
    assert len(cache.get(sections[11], [key(i) for i in range(100)])) == 100
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
    assert len(Disk(str(tmp_path)).get(SHARED, keys)) == 400


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_begun_anew(tmp_path, content, caplog):
    cache = Disk(str(tmp_path))
    cache.path.write_bytes(content)
    assert cache.get(A, [key(1)]) == {}
    cache.put(A, {key(1): entry()})
    assert set(cache.get(A, [key(1)])) == {key(1)}
    assert "begun anew" in caplog.text


def test_without_a_folder_to_write_to_a_run_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Disk(str(tmp_path / "file" / "cache"))
    assert cache.get(A, [key(1)]) == {} and cache.put(A, {key(1): entry()}) is None
    assert caplog.text.count("cache:") == 1  # said once


def test_entries_of_another_hand_are_data_and_nothing_else(tmp_path):
    """A value that is not one of ours is not used, whatever it is."""
    cache = Disk(str(tmp_path))
    cache.get(A, [])
    with sqlite3.connect(cache.path) as database:
        for i, value in enumerate((b"", b"cos\nsystem\n(S'true'\ntR.", b"x" * 200, "text", 7, None)):
            database.execute("INSERT INTO entry VALUES (1, ?, ?)", (key(i), value))
    assert cache.get(A, [key(i) for i in range(6)]) == {}


def test_what_another_run_cleared_in_the_meantime_is_kept_again(tmp_path):
    cache = Disk(str(tmp_path))
    cache.get(A, [])
    cache.clear()
    cache.put(A, {key(1): entry()})
    assert [(label, entries) for label, entries, _, _ in cache.sections()] == [("label a", 1)]


def test_one_section_that_is_too_large_keeps_what_fits(tmp_path, caplog):
    cache = Disk(str(tmp_path), max_mb=0.1)
    for start in range(0, 1000, 50):
        cache.put(A, {key(start + i): entry(i, size=20) for i in range(50)})
    ((_, entries, _, _),) = cache.sections()
    assert 50 <= entries < 1000 and cache.path.stat().st_size <= 0.1e6
    assert "cache.max_mb=0.1 is too small" in caplog.text


def test_no_cache_keeps_nothing():
    assert Off().put(A, {key(1): entry()}) is None
    assert Off().get(A, [key(1)]) == {}


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="max_mb"):
        Disk("x", max_mb=0)
