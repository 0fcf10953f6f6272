"""atlas.parquet: the rows of all runs, with a description of their origin; both are validated on reading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from cfeval_cli import __version__
from cfeval_cli.core.files import format_csv, write_atomically
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.results.validation import MAX_FILE_BYTES, RESOURCE_ERRORS
from cfeval_cli.study.atlas.rows import COLUMNS, KEY, TAUS, TYPES, read_rows

ATLAS_FILE = "atlas.parquet"
_DIGITS = {**dict.fromkeys(TAUS, 6), "diagnosticity": 4, "agreement": 4, "model_rows": 1}
_METADATA_KEY = b"cfeval"


class AtlasDescription(BaseModel):
    """The origin of the rows: versions, runs and a hash. It is in the metadata of the file."""

    model_config = ConfigDict(frozen=True)

    cfeval: list[str]  # the versions that made the runs
    written_by: str
    rows: int
    runs: int
    data: list[str]
    judges: list[str]
    truths: list[str]
    seeds: list[int]
    k: list[int]
    excluded: list[str] = Field(alias="left")  # runs that are not in the atlas, with the reasons
    sha256: str


@dataclass(frozen=True)
class Atlas:
    """All rows, and the runs that were excluded, with the reasons."""

    rows: pd.DataFrame
    excluded: Sequence[str] = field(default_factory=tuple)

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return int(self.rows.groupby(["data", "judge", "seed", "k"]).ngroups)

    @cached_property
    def description(self) -> AtlasDescription:
        """The origin of the rows."""
        rows = self.rows
        return AtlasDescription(
            cfeval=_list_names(rows["cfeval"]), written_by=__version__, rows=len(rows), runs=self.n_runs,
            data=_list_names(rows["data"]), judges=_list_names(rows["judge"]), truths=_list_names(rows["truth"]),
            seeds=sorted(set(map(int, rows["seed"]))), k=sorted(set(map(int, rows["k"]))), left=list(self.excluded),
            sha256=compute_digest(rows),
        )  # fmt: skip


def _list_names(column: pd.Series) -> list[str]:
    return sorted(set(map(str, column)))


def compute_digest(rows: pd.DataFrame) -> str:
    """Compute a hash of the rows that does not depend on the file format."""
    return sha256(format_csv(rows[COLUMNS]).encode()).hexdigest()


def collect_runs(folders: Sequence[Path], failures: Mapping[str, str] | None = None) -> Atlas:
    """Collect the rows of run folders; damaged folders and duplicates are excluded with a reason."""
    parts, excluded = [], [f"{name}: {reason}" for name, reason in (failures or {}).items()]
    folders_by_key: dict[tuple[Any, ...], Path] = {}
    for folder in folders:
        try:
            rows = read_rows(folder)
        except UserError as error:
            excluded.append(escape_controls(str(error)))
            continue
        keys = set(rows[["data", "judge", "seed", "k", "truth"]].itertuples(index=False, name=None))
        if duplicates := keys & set(folders_by_key):
            first = folders_by_key[sorted(duplicates)[0]]
            excluded.append(escape_controls(f"{folder}: the same data, judge, seed, k and truth as {first}"))
            continue
        folders_by_key |= dict.fromkeys(keys, folder)
        parts.append(rows)
    if not parts:
        raise UserError(f"no run can be added to the atlas: {'; '.join(excluded) or 'there is no run'}.")
    return Atlas(_normalise(pd.concat(parts, ignore_index=True)), excluded)


def add_runs(atlas: Atlas, folders: Sequence[Path]) -> tuple[Atlas, str]:
    """Add the rows of run folders, and describe what was added; UserError if no row is new."""
    new = collect_runs(folders)
    ranked = dict(zip(_list_ranking_keys(atlas.rows), atlas.rows["ranked"], strict=True))
    pairs = zip(_list_ranking_keys(new.rows), new.rows["ranked"], strict=True)
    different = [key for key, explainers in pairs if ranked.get(key, explainers) != explainers]
    if different:
        raise UserError(
            f"{', '.join(map(str, different[0]))}: the atlas ranks other explainers there, and τ over different "
            "explainers is not comparable. Make a separate atlas: cfeval atlas explainer=… --into FOLDER"
        )
    joined, n_known = join_rows(atlas, new.rows)
    n_new = len(new.rows) - n_known
    if not n_new:
        raise UserError(f"the atlas already has all of these {n_known:,} rows.")
    excluded = "".join(f"\nExcluded: {reason}" for reason in new.excluded)
    return (
        joined,
        f"Added {n_new:,} rows of {new.n_runs} runs; {n_known:,} rows were there and are unchanged.{excluded}",
    )


def _list_ranking_keys(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the keys under which the same explainers must be ranked."""
    return list(rows[["data", "judge", "k", "metric", "variant"]].itertuples(index=False, name=None))


def join_rows(atlas: Atlas, new_rows: pd.DataFrame) -> tuple[Atlas, int]:
    """Return the atlas with more rows, and how many of them it already had; these are unchanged."""
    old_keys = set(atlas.rows[KEY].itertuples(index=False, name=None))
    is_new = [key not in old_keys for key in new_rows[KEY].itertuples(index=False, name=None)]
    joined = pd.concat([atlas.rows, new_rows[is_new]], ignore_index=True)
    return Atlas(_normalise(joined), atlas.excluded), len(new_rows) - sum(is_new)


def _normalise(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort and round the rows, so that the same rows give the same bytes in whichever order they came."""
    return rows.astype(TYPES).round(_DIGITS).sort_values(KEY, kind="stable", ignore_index=True)[COLUMNS]


def write_atlas(atlas: Atlas, path: Path) -> None:
    """Write the file; an earlier one is replaced only if this succeeds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(atlas.rows, preserve_index=False)
    description = atlas.description.model_dump(by_alias=True)
    metadata = {_METADATA_KEY: json.dumps(description, ensure_ascii=False, sort_keys=True).encode()}
    with write_atomically(path) as partial:
        pq.write_table(table.replace_schema_metadata(metadata), partial, compression="zstd", compression_level=19)


def read_atlas(path: Path) -> Atlas:
    """Read and validate the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError("it is not a file, or too large")
        table = pq.read_table(path)
        description = AtlasDescription.model_validate_json((table.schema.metadata or {})[_METADATA_KEY], strict=True)
        rows = table.to_pandas()
        if missing := [name for name in COLUMNS if name not in rows]:
            raise ValueError(f"it has no column {', '.join(missing)}")
        rows = rows[COLUMNS].astype(TYPES)
        validate_rows(rows)
        if description.sha256 != compute_digest(rows):
            raise ValueError("its rows do not have the sha256 that it was written with")
    except (OSError, ValueError, TypeError, LookupError, AttributeError, pa.ArrowException, *RESOURCE_ERRORS) as error:
        raise UserError(f"{path} is not an atlas: {' '.join(str(error).split())}.") from error
    return Atlas(rows, description.excluded)


def validate_rows(rows: pd.DataFrame) -> None:
    """Raise ValueError for rows that no run can have."""
    if rows.empty:
        raise ValueError("it has no rows")
    if rows.duplicated(KEY).any():
        raise ValueError(f"it has two rows of the same {', '.join(KEY)}")
    for name, (low, high) in {**dict.fromkeys([*TAUS, "agreement"], (-1, 1)), "diagnosticity": (0, 1)}.items():
        values = rows[name].to_numpy(float)
        if np.isinf(values).any() or (values < low).any() or (values > high).any():
            raise ValueError(f"{name} is not between {low} and {high}")
    costs = rows["model_rows"].to_numpy(float)
    if not np.isfinite(costs).all() or (costs < 0).any() or (rows[["seed", "k", "instances"]] < 0).any(axis=None):
        raise ValueError("model_rows, seed, k or instances is negative or missing")
