"""atlas.parquet is read as it was written, and invalid files are refused."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas.store import Atlas, compute_digest, join_rows, read_atlas, validate_rows, write_atlas
from tests.study.atlas.synthetic import make_atlas


def test_rows_are_read_as_written_and_equal_rows_give_equal_bytes(tmp_path):
    atlas = make_atlas(sets=("heloc", "pima"), seeds=(0,))
    atlas = Atlas(atlas.rows.round({"diagnosticity": 4, "agreement": 4}), ["pima: it failed"])
    write_atlas(atlas, tmp_path / "a.parquet")
    shuffled, n_known = join_rows(
        Atlas(atlas.rows.iloc[:50], atlas.excluded), atlas.rows.sample(frac=1, random_state=0)
    )
    assert n_known == 50
    write_atlas(shuffled, tmp_path / "b.parquet")
    write_atlas(join_rows(Atlas(atlas.rows.iloc[50:], atlas.excluded), atlas.rows)[0], tmp_path / "c.parquet")
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    loaded = read_atlas(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(loaded.rows, atlas.rows)
    assert loaded.excluded == ["pima: it failed"] and loaded.description.sha256 == compute_digest(loaded.rows)
    assert (loaded.description.runs, loaded.description.rows) == (2 * 4 * 1 * 2, len(loaded.rows))


def write_parquet(path, rows, metadata=None):
    table = pa.Table.from_pandas(rows, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(metadata or {}), path)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.drop(columns="tau"), "no column tau"),
        (lambda rows: pd.concat([rows, rows.iloc[:1]]), "two rows"),
        (lambda rows: rows.assign(tau=2.0), "not between -1 and 1"),
        (lambda rows: rows.assign(agreement=np.inf), "not between"),
        (lambda rows: rows.assign(model_rows=-1.0), "is negative"),
        (lambda rows: rows.assign(diagnosticity="often"), "could not convert"),
        (lambda rows: rows.iloc[:0], "no rows"),
        (lambda rows: rows.assign(tau=rows["tau"] / 2), "do not have the sha256"),
    ],
)
def test_changed_file_is_refused(tmp_path, change, reason):
    atlas = make_atlas(sets=("pima",), judges=("Tree",), seeds=(0,))
    metadata = {b"cfeval": atlas.description.model_dump_json(by_alias=True).encode()}
    with pytest.raises(UserError, match=f"is not an atlas: .*{reason}"):
        read_atlas(write_parquet(tmp_path / "a.parquet", change(atlas.rows), metadata))


def test_file_without_valid_description_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="is not an atlas"):
        read_atlas(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="is not an atlas"):
        read_atlas(tmp_path)
    rows = make_atlas(sets=("pima",), judges=("Tree",), seeds=(0,)).rows
    description = Atlas(rows).description.model_dump(by_alias=True)
    for metadata in (
        {},
        {b"cfeval": b"[]"},
        {b"cfeval": b"{"},
        {b"cfeval": json.dumps(description | {"left": 3}).encode()},
    ):
        with pytest.raises(UserError, match="is not an atlas"):
            read_atlas(write_parquet(tmp_path / "b.parquet", rows, metadata))
    validate_rows(rows)
