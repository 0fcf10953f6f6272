"""What a run has computed is found in its own folder first."""

import numpy as np

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.cache.resumable import FILE, Resumable
from cfeval_cli.core import Section

SECTION = Section("s", "label")


def entry(number):
    return {"number": np.array(number)}


def numbers(cache, *keys):
    return {key: int(arrays["number"]) for key, arrays in cache.get(SECTION, keys).items()}


def test_both_are_looked_up_and_both_store(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.put(SECTION, {b"old": entry(1)})
    cache = Resumable(tmp_path, shared)
    assert numbers(cache, b"old", b"new") == {b"old": 1}
    cache.put(SECTION, {b"new": entry(2)})
    assert numbers(Resumable(tmp_path, Off()), b"old", b"new") == {b"new": 2}
    assert numbers(shared, b"new") == {b"new": 2}


def test_what_is_computed_again_is_not_taken_from_the_cache_but_from_this_attempt(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.put(SECTION, {b"old": entry(1)})
    cache = Resumable(tmp_path, shared, redo=True)
    assert numbers(cache, b"old") == {}
    cache.put(SECTION, {b"old": entry(1)})
    assert numbers(cache, b"old") == {b"old": 1}


def test_a_complete_run_leaves_no_file(tmp_path):
    cache = Resumable(tmp_path, Off())
    cache.put(SECTION, {b"a": entry(1)})
    assert (tmp_path / FILE).exists()
    cache.clear()
    assert not (tmp_path / FILE).exists()
    assert numbers(Resumable(tmp_path / "nowhere", Off()), b"a") == {}
    assert not (tmp_path / "nowhere").exists()
