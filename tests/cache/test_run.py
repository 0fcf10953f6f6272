"""A run finds what it has computed in its own folder first, then in the shared cache."""

import numpy as np

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.cache.run import PROGRESS_FILE, RunCache
from cfeval_cli.core import Section

SECTION = Section("s", "label")


def make_entry(number):
    return {"number": np.array(number)}


def get_numbers(cache, *keys):
    return {key: int(arrays["number"]) for key, arrays in cache.get(SECTION, keys).items()}


def test_entries_are_looked_up_and_stored_in_both_places(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.put(SECTION, {b"old": make_entry(1)})
    cache = RunCache(tmp_path, shared)
    assert get_numbers(cache, b"old", b"new") == {b"old": 1}
    cache.put(SECTION, {b"new": make_entry(2)})
    assert get_numbers(RunCache(tmp_path, Off()), b"old", b"new") == {b"new": 2}
    assert get_numbers(shared, b"new") == {b"new": 2}


def test_redo_ignores_the_shared_cache_but_not_the_entries_of_the_same_run(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.put(SECTION, {b"old": make_entry(1)})
    cache = RunCache(tmp_path, shared, redo=True)
    assert get_numbers(cache, b"old") == {}
    cache.put(SECTION, {b"old": make_entry(1)})
    assert get_numbers(cache, b"old") == {b"old": 1}


def test_clear_removes_the_file_and_a_missing_run_folder_is_not_created(tmp_path):
    cache = RunCache(tmp_path, Off())
    cache.put(SECTION, {b"a": make_entry(1)})
    assert (tmp_path / PROGRESS_FILE).exists()
    cache.clear()
    assert not (tmp_path / PROGRESS_FILE).exists()
    assert get_numbers(RunCache(tmp_path / "nowhere", Off()), b"a") == {}
    assert not (tmp_path / "nowhere").exists()
