"""What was computed is kept soon, and all of it when the work breaks off."""

import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.pipeline import memo as memos
from cfeval_cli.pipeline.memo import Memo


def made(cache, section="s"):
    """Numbers, as text; a text that is none is nothing of ours."""
    return Memo(cache, section, "label", lambda n: str(n).encode(), lambda b: int(b) if b.isdigit() else None)


def test_what_is_kept_is_known_and_what_is_not_ours_is_not(tmp_path):
    cache = Disk(str(tmp_path))
    with made(cache).keeping() as keep:
        keep({b"a": 1})
        keep({b"b": 2})
    cache.keep("s", "label", {b"c": b"odd"})
    assert made(cache).known([b"a", b"b", b"c", b"d"]) == {b"a": 1, b"b": 2}
    assert made(cache, "other").known([b"a"]) == {} and made(cache).known([]) == {}


def test_without_a_section_nothing_is_kept(tmp_path):
    cache = Disk(str(tmp_path))
    with made(cache, None).keeping() as keep:
        keep({b"a": 1})
    assert made(cache, None).known([b"a"]) == {} and cache.sections() == []


def test_what_breaks_off_loses_nothing_and_little_is_written_one_by_one(tmp_path, monkeypatch):
    cache = Disk(str(tmp_path))
    written = []
    monkeypatch.setattr(Disk, "keep", lambda self, section, label, values: written.append(dict(values)))
    with pytest.raises(KeyboardInterrupt), made(cache).keeping() as keep:
        for i in range(5):
            keep({bytes([i]): i})
        raise KeyboardInterrupt
    assert written == [{bytes([i]): str(i).encode() for i in range(5)}]
    written.clear()
    monkeypatch.setattr(memos, "_EVERY", 0.0)
    with made(cache).keeping() as keep:
        for i in range(3):
            keep({bytes([i]): i})
    assert [len(values) for values in written] == [1, 1, 1]
