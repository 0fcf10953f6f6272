"""atlas.parquet: written and read back, and refused where it is no such file."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas.store import Atlas, check, digest, joined, read, write
from tests.study.atlas.worlds import world


def test_rows_are_read_back_as_they_were_and_the_same_rows_give_the_same_bytes(tmp_path):
    atlas = world(sets=("heloc", "pima"), seeds=(0,))
    atlas = Atlas(atlas.rows.round({"diagnosticity": 4, "agreement": 4}), ["pima: it failed"])
    write(atlas, tmp_path / "a.parquet")
    other = joined(Atlas(atlas.rows.iloc[:50], atlas.left), atlas.rows.sample(frac=1, random_state=0))
    assert other[1] == 50
    write(other[0], tmp_path / "b.parquet")
    write(joined(Atlas(atlas.rows.iloc[50:], atlas.left), atlas.rows)[0], tmp_path / "c.parquet")
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    found = read(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(found.rows, atlas.rows)
    assert found.left == ["pima: it failed"] and found.about["sha256"] == digest(found.rows)
    assert (found.about["runs"], found.about["rows"]) == (2 * 4 * 1 * 2, len(found.rows))


def kept(path, told, about=None):
    table = pa.Table.from_pandas(told, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(about or {}), path)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.drop(columns="tau"), "no column tau"),
        (lambda rows: pd.concat([rows, rows.iloc[:1]]), "two rows"),
        (lambda rows: rows.assign(tau=2.0), "not between -1 and 1"),
        (lambda rows: rows.assign(agreement=np.inf), "not between"),
        (lambda rows: rows.assign(model_rows=-1.0), "below zero"),
        (lambda rows: rows.assign(diagnosticity="often"), "could not convert"),
        (lambda rows: rows.iloc[:0], "no rows"),
        (lambda rows: rows.assign(tau=rows["tau"] / 2), "not those that it was written with"),
    ],
)
def test_a_file_that_was_changed_is_refused(tmp_path, change, reason):
    atlas = world(sets=("pima",), judges=("Tree",), seeds=(0,))
    about = {b"cfeval": json.dumps(atlas.about).encode()}
    with pytest.raises(UserError, match=f"is no atlas: .*{reason}"):
        read(kept(tmp_path / "a.parquet", change(atlas.rows), about))


def test_what_is_no_parquet_or_says_nothing_of_itself_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="is no atlas"):
        read(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="is no atlas"):
        read(tmp_path)
    rows = world(sets=("pima",), judges=("Tree",), seeds=(0,)).rows
    for about in (
        {},
        {b"cfeval": b"[]"},
        {b"cfeval": b"{"},
        {b"cfeval": json.dumps({"sha256": digest(rows), "left": 3}).encode()},
    ):
        with pytest.raises(UserError, match="is no atlas"):
            read(kept(tmp_path / "b.parquet", rows, about))
    check(rows)
