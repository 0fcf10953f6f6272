import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import npy
from cfeval_cli.core.files import (
    format_csv,
    hash_file,
    lock_folder,
    make_folder,
    make_subfolder,
    refuse_links,
    remove_partial_files,
    write_atomically,
)
from cfeval_cli.errors import UserError


def test_files_are_written_atomically(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(RuntimeError), write_atomically(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with write_atomically(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole" and path.stat().st_mode & 0o400
    assert hash_file(path) == hashlib.sha256(b"whole").hexdigest()


def test_only_partial_files_are_removed(tmp_path):
    for name in (".a.txt-abcd1234.part", ".mine.part", "b.part"):
        (tmp_path / name).touch()
    remove_partial_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "b.part"]


def test_folder_is_locked_once(tmp_path):
    with lock_folder(tmp_path, wait=False) as first, lock_folder(tmp_path, wait=False) as second:
        assert first and not second
    with lock_folder(tmp_path, wait=False) as third:
        assert third


def test_formulas_are_escaped_in_csv():
    text = format_csv(pd.DataFrame({"=a": ["=1+1", "-0.5", "@x", "plain"], "n": [1.0, 2, 3, 4]}))
    assert text == "'=a,n\n'=1+1,1.0\n-0.5,2.0\n'@x,3.0\nplain,4.0\n"
    assert format_csv(pd.DataFrame({"a": pd.Series([None, 0], dtype=object), "b": [1, 2]})) == "a,b\n,1\n0,2\n"


WORDS = st.sampled_from(["", "a", "b,c", 'd "e"', " i", "0.1", "nan", "None", "ü"])
COLUMNS = {
    "str": st.one_of(st.none(), WORDS),
    "object": st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), WORDS),
    "float64": st.floats(), "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(), "Int64": st.one_of(st.none(), st.integers(-9, 9)), "category": st.one_of(st.none(), WORDS),
    "boolean": st.one_of(st.none(), st.booleans()), "uint8": st.integers(0, 255),
}  # fmt: skip


@given(st.data())
def test_csv_without_formulas_equals_that_of_pandas(data):
    kinds, rows = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1)), data.draw(st.integers(0, 5))
    values = [data.draw(st.lists(COLUMNS[kind], min_size=rows, max_size=rows)) for kind in kinds]
    columns = {
        f"{kind} {i}": pd.Series(cells, dtype=kind) for i, (kind, cells) in enumerate(zip(kinds, values, strict=True))
    }
    frame = pd.DataFrame(columns)
    assert format_csv(frame) == frame.to_csv(index=False)


def test_npz_and_npy_arrays_are_read_as_written(tmp_path):
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array(1.5), "c": np.zeros((0, 2))}
    np.savez(tmp_path / "x.npz", **arrays)
    stored = npy.read_npz(tmp_path / "x.npz")
    assert set(stored) == set(arrays) and all(np.array_equal(stored[name], arrays[name]) for name in arrays)
    np.save(tmp_path / "y.npy", arrays["a"])
    assert np.array_equal(npy.open_memory_map(tmp_path / "y.npy"), arrays["a"])
    with pytest.raises(ValueError, match="damaged"):
        npy.read_npz(tmp_path / "y.npy")


def test_symbolic_links_are_not_followed(tmp_path, monkeypatch):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for path in (outside, folder):
        path.mkdir()
    (outside / "file").write_text("before")
    (folder / "file").symlink_to(outside / "file")
    with pytest.raises(UserError, match=f"{folder / 'file'} is a symbolic link"):
        refuse_links(tmp_path)
    with write_atomically(folder / "file") as partial:
        partial.write_text("after")
    assert (outside / "file").read_text() == "before" and (folder / "file").read_text() == "after"
    refuse_links(tmp_path)
    (folder / "figures").symlink_to(outside)
    with pytest.raises(UserError, match=f"{folder / 'figures'} is a symbolic link"):
        make_subfolder(folder, "figures")
    with pytest.raises(UserError, match=f"{folder / 'figures'} is a symbolic link"), monkeypatch.context() as context:
        context.chdir(tmp_path)
        make_folder(folder / "figures" / "new")
    assert not (outside / "new").exists()
    make_folder(folder / "figures" / "new")  # from another folder it is the user's own choice
    assert make_subfolder(folder, "judges") == make_subfolder(folder, "judges") == folder / "judges"
