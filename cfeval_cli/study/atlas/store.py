"""atlas.parquet: the rows of all runs, with what they were made by, written and checked."""

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

from cfeval_cli import __version__
from cfeval_cli.core.files import as_csv, whole_file
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.results.validation import MAX_FILE_BYTES, RESOURCE_ERRORS
from cfeval_cli.study.atlas.rows import COLUMNS, KEY, TAUS, TYPES, read_rows

NAME = "atlas.parquet"
_DIGITS = {**dict.fromkeys(TAUS, 6), "diagnosticity": 4, "agreement": 4, "model_rows": 1}
_ABOUT = b"cfeval"  # the key of what the file says of itself


@dataclass(frozen=True)
class Atlas:
    """All rows, and what could not be taken in."""

    rows: pd.DataFrame
    left: Sequence[str] = field(default_factory=tuple)  # what was left out, with the reason

    @property
    def runs(self) -> int:
        """How many runs it is made of."""
        return int(self.rows.groupby(["data", "judge", "seed", "k"]).ngroups)

    @cached_property
    def about(self) -> dict[str, Any]:
        """Version, settings and hash, as the file tells them."""
        told = self.rows
        return {
            "cfeval": sorted(set(told["cfeval"])), "written_by": __version__, "rows": len(told), "runs": self.runs,
            "data": _several(told, "data"), "judges": _several(told, "judge"), "truths": _several(told, "truth"),
            "seeds": sorted(set(map(int, told["seed"]))), "k": sorted(set(map(int, told["k"]))),
            "left": list(self.left), "sha256": digest(told),
        }  # fmt: skip


def _several(told: pd.DataFrame, name: str) -> list[str]:
    return sorted(set(map(str, told[name])))


def digest(told: pd.DataFrame) -> str:
    """A hash of the rows, whatever form they are kept in."""
    return sha256(as_csv(told[COLUMNS]).encode()).hexdigest()


def gathered(folders: Sequence[Path], lost: Mapping[str, str] | None = None) -> Atlas:
    """The rows of many run folders; one that is damaged, or there twice, is named and left out."""
    parts, left, seen = [], [f"{name}: {why}" for name, why in (lost or {}).items()], dict[tuple[Any, ...], Path]()
    for folder in folders:
        try:
            found = read_rows(folder)
        except UserError as error:
            left.append(escape_controls(str(error)))
            continue
        keys = set(found[["data", "judge", "seed", "k", "truth"]].itertuples(index=False, name=None))
        if twice := keys & set(seen):
            left.append(
                escape_controls(f"{folder}: the same data, judge, seed, k and truth as {seen[sorted(twice)[0]]}")
            )
            continue
        seen |= dict.fromkeys(keys, folder)
        parts.append(found)
    if not parts:
        raise UserError(f"no run can be taken into the atlas: {'; '.join(left) or 'there is none'}.")
    return Atlas(_ordered(pd.concat(parts, ignore_index=True)), left)


def added(atlas: Atlas, folders: Sequence[Path]) -> tuple[Atlas, str]:
    """The atlas with the rows of more run folders, and what became of them in words; UserError if none is new."""
    new = gathered(folders)
    ranked = dict(zip(_runs(atlas.rows), atlas.rows["ranked"], strict=True))
    others = [
        place for place, one in zip(_runs(new.rows), new.rows["ranked"], strict=True) if ranked.get(place, one) != one
    ]
    if others:
        raise UserError(
            f"{', '.join(map(str, others[0]))}: the atlas ranks other explainers there, and τ over others is another "
            "figure. Make an atlas of its own with them: cfeval atlas explainer=… --into FOLDER"
        )
    both, known = joined(atlas, new.rows)
    many = len(new.rows) - known
    if not many:
        raise UserError(f"the atlas has all of these {known:,} rows already.")
    left = "".join(f"\nNot taken: {one}" for one in new.left)
    return both, f"Added {many:,} rows of {new.runs} runs; {known:,} were there and stay as they are.{left}"


def _runs(told: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What must rank the same explainers: metrics that need the same of an explanation in the same runs."""
    return list(told[["data", "judge", "k", "metric", "variant"]].itertuples(index=False, name=None))


def joined(atlas: Atlas, more: pd.DataFrame) -> tuple[Atlas, int]:
    """The atlas with more rows, and how many of them it had already, which stay as they are."""
    known = set(atlas.rows[KEY].itertuples(index=False, name=None))
    new = [key not in known for key in more[KEY].itertuples(index=False, name=None)]
    both = pd.concat([atlas.rows, more[new]], ignore_index=True)
    return Atlas(_ordered(both), atlas.left), len(more) - sum(new)


def _ordered(told: pd.DataFrame) -> pd.DataFrame:
    """By key and rounded: the same rows give the same bytes, in whichever order they came, and few of them."""
    return told.astype(TYPES).round(_DIGITS).sort_values(KEY, kind="stable", ignore_index=True)[COLUMNS]


def write(atlas: Atlas, path: Path) -> None:
    """The file, whole or not at all; words and numbers that recur are kept once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(atlas.rows, preserve_index=False)
    about = json.dumps(atlas.about, ensure_ascii=False, sort_keys=True).encode()
    with whole_file(path) as partial:
        pq.write_table(
            table.replace_schema_metadata({_ABOUT: about}), partial, compression="zstd", compression_level=19
        )


def read(path: Path) -> Atlas:
    """The file, checked: it may be damaged, or of another hand."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError("it is no file of reasonable size")
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[_ABOUT])
        told = table.to_pandas()
        if absent := [name for name in COLUMNS if name not in told]:
            raise ValueError(f"it has no column {', '.join(absent)}")
        told = told[COLUMNS].astype(TYPES)
        check(told)
        if about["sha256"] != digest(told):
            raise ValueError("its rows are not those that it was written with")
        left = about["left"]
        if not isinstance(left, list) or not all(isinstance(one, str) for one in left):
            raise ValueError("it does not tell what was left out")
    except (OSError, ValueError, TypeError, LookupError, AttributeError, pa.ArrowException, *RESOURCE_ERRORS) as error:
        raise UserError(f"{path} is no atlas: {' '.join(str(error).split())}.") from error
    return Atlas(told, left)


def check(told: pd.DataFrame) -> None:
    """Refuse rows that no run could have given; ValueError says which."""
    if told.empty:
        raise ValueError("it has no rows")
    if told.duplicated(KEY).any():
        raise ValueError(f"it has two rows of the same {', '.join(KEY)}")
    for name, (low, high) in {**dict.fromkeys([*TAUS, "agreement"], (-1, 1)), "diagnosticity": (0, 1)}.items():
        values = told[name].to_numpy(float)
        if np.isinf(values).any() or (values < low).any() or (values > high).any():
            raise ValueError(f"it has a {name} that is not between {low} and {high}")
    costs = told["model_rows"].to_numpy(float)
    if not np.isfinite(costs).all() or (costs < 0).any() or (told[["seed", "k", "instances"]] < 0).any(axis=None):
        raise ValueError("it has a number that is below zero, or none")
