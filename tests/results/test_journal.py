"""What a run has finished is found in its own folder first."""

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.results.journal import FILE, Journal


def test_both_are_asked_and_both_keep(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.keep("s", "label", {b"old": b"1"})
    journal = Journal(tmp_path, shared)
    assert journal.known("s", "label", [b"old", b"new"]) == {b"old": b"1"}
    journal.keep("s", "label", {b"new": b"2"})
    assert Journal(tmp_path, Off()).known("s", "label", [b"old", b"new"]) == {b"new": b"2"}
    assert shared.known("s", "label", [b"new"]) == {b"new": b"2"}


def test_what_is_computed_again_is_not_taken_from_the_cache_but_from_this_attempt(tmp_path):
    shared = Disk(str(tmp_path / "shared"))
    shared.keep("s", "label", {b"old": b"1"})
    journal = Journal(tmp_path, shared, again=True)
    assert journal.known("s", "label", [b"old"]) == {}
    journal.keep("s", "label", {b"old": b"1"})
    assert journal.known("s", "label", [b"old"]) == {b"old": b"1"}


def test_a_complete_run_leaves_no_journal(tmp_path):
    journal = Journal(tmp_path, Off())
    journal.keep("s", "label", {b"a": b"1"})
    assert (tmp_path / FILE).exists()
    journal.done()
    assert not (tmp_path / FILE).exists()
    assert Journal(tmp_path / "nowhere", Off()).known("s", "label", [b"a"]) == {}
    assert not (tmp_path / "nowhere").exists()
