"""A cache returns what was stored, to the bit, or nothing."""

import itertools
import multiprocessing
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest

from cfeval_cli.cache import disk
from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Section
from tests.cache.writer import SHARED, make_entry, make_key, write

A, B = Section("a", "label a"), Section("b", "label b")


def equal(entries, expected):
    return entries.keys() == expected.keys() and all(
        entries[key].keys() == arrays.keys()
        and all(np.array_equal(entries[key][name], arrays[name]) for name in arrays)
        for key, arrays in expected.items()
    )


def test_entries_are_found_by_section_and_key(tmp_path):
    cache = Disk(str(tmp_path / "deep" / "folder"))
    assert cache.get(A, [make_key(1)]) == {}
    cache.put(A, {make_key(i): make_entry(i) for i in range(40)})
    expected = {make_key(i): make_entry(i) for i in (3, 7)}
    assert equal(cache.get(A, [make_key(3), make_key(7), make_key(99)]), expected)
    assert cache.get(A, []) == {} and cache.get(B, [make_key(3)]) == {}
    cache.put(A, {make_key(3): make_entry(30)})  # replaces the earlier one
    later = Disk(str(tmp_path / "deep" / "folder")).get(Section("a", ""), [make_key(3)])
    assert equal(later, {make_key(3): make_entry(30)})
    assert sorted((label, entries) for label, entries, _, _ in cache.list_sections()) == [("", 40), ("label b", 0)]
    cache.clear()
    assert cache.list_sections() == [] and cache.get(A, [make_key(3)]) == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_entry_is_not_returned(tmp_path, seed):
    rng = np.random.default_rng(seed)
    cache = Disk(str(tmp_path))
    cache.put(A, {make_key(i): make_entry(i) for i in range(3)})
    with sqlite3.connect(cache.path) as database:
        ((value,),) = database.execute("SELECT value FROM entry WHERE item = ?", (make_key(1),))
        damaged = bytearray(value)
        damaged[rng.integers(len(value))] ^= rng.integers(1, 256)
        changed = [bytes(damaged), value[: rng.integers(len(value))], value + b"x"][seed % 3]
        database.execute("UPDATE entry SET value = ? WHERE item = ?", (changed, make_key(1)))
        database.execute("UPDATE entry SET item = ? WHERE item = ?", (make_key(9), make_key(2)))
    assert equal(cache.get(A, [make_key(i) for i in range(10)]), {make_key(0): make_entry(0)})


def test_the_least_recently_used_sections_are_removed_first(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "time", SimpleNamespace(time=itertools.count(1.0).__next__))
    cache = Disk(str(tmp_path), max_mb=0.2)
    sections = [Section(f"s{number}", f"s{number}") for number in range(12)]
    for number, section in enumerate(sections):
        if number:
            cache.get(sections[0], [])  # in use
        cache.put(section, {make_key(i): make_entry(i, size=12) for i in range(100)})
    labels = [label for label, *_ in cache.list_sections()]
    assert "s0" in labels and "s11" in labels and "s1" not in labels
    assert len(cache.get(sections[11], [make_key(i) for i in range(100)])) == 100
    assert cache.path.stat().st_size <= 0.2e6


def test_several_runs_may_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write, args=(str(tmp_path), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    keys = [make_key(1000 * number + i) for number in range(4) for i in range(100)]
    assert len(Disk(str(tmp_path)).get(SHARED, keys)) == 400


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_replaced(tmp_path, content, caplog):
    cache = Disk(str(tmp_path))
    cache.path.write_bytes(content)
    assert cache.get(A, [make_key(1)]) == {}
    cache.put(A, {make_key(1): make_entry()})
    assert set(cache.get(A, [make_key(1)])) == {make_key(1)}
    assert "is replaced by an empty one" in caplog.text


def test_a_folder_that_cannot_be_written_gives_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Disk(str(tmp_path / "file" / "cache"))
    assert cache.get(A, [make_key(1)]) == {} and cache.put(A, {make_key(1): make_entry()}) is None
    assert caplog.text.count("cache:") == 1


def test_entries_that_another_program_wrote_are_not_returned(tmp_path):
    cache = Disk(str(tmp_path))
    cache.get(A, [])
    with sqlite3.connect(cache.path) as database:
        for i, value in enumerate((b"", b"cos\nsystem\n(S'true'\ntR.", b"x" * 200, "text", 7, None)):
            database.execute("INSERT INTO entry VALUES (1, ?, ?)", (make_key(i), value))
    assert cache.get(A, [make_key(i) for i in range(6)]) == {}


def test_a_section_that_another_run_removed_is_stored_again(tmp_path):
    cache = Disk(str(tmp_path))
    cache.get(A, [])
    cache.clear()
    cache.put(A, {make_key(1): make_entry()})
    assert [(label, entries) for label, entries, _, _ in cache.list_sections()] == [("label a", 1)]


def test_a_section_that_is_too_large_is_stored_in_part(tmp_path, caplog):
    cache = Disk(str(tmp_path), max_mb=0.1)
    for start in range(0, 1000, 50):
        cache.put(A, {make_key(start + i): make_entry(i, size=20) for i in range(50)})
    ((_, entries, _, _),) = cache.list_sections()
    assert 50 <= entries < 1000 and cache.path.stat().st_size <= 0.1e6
    assert "cache.max_mb=0.1 is too small" in caplog.text


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="max_mb"):
        Disk("x", max_mb=0)
