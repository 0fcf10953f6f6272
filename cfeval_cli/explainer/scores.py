"""Tables of scores: one line for each instance and feature, or one line for each instance, one column a feature."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Dataset, Floats, Ints
from cfeval_cli.errors import UserError, did_you_mean, shorten

KINDS = (".csv", ".tsv", ".parquet")
_LONG = ("instance", "feature", "score")
_NAMED = 3  # of what is wrong, by name
_LARGEST = 1 << 30  # bytes


@dataclass(frozen=True)
class Told:
    """What a file says of a dataset, and what of it could not be read."""

    instances: Ints  # (n,)
    scores: Floats  # (n, M), NaN where a feature is not named
    faults: dict[int, str] = field(default_factory=dict)  # instance that something is wrong with: what
    problems: tuple[str, ...] = ()  # each with how often, and by name


def read(file: Path, dataset: Dataset) -> Told:
    """The scores of a file; UserError if it has not the form of one."""
    table = _table(file)
    if "instance" not in table:
        raise UserError(
            f"{file} has no column instance: the first line names the columns instance, feature, score; or instance "
            f"and one column for each feature.{did_you_mean('instance', [str(one) for one in table.columns])}"
        )
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise UserError(f"{file} has two columns called {shorten(str(twice[0]))}.")
    notes = _Notes(file.name)
    ids, known = _instances(table["instance"], dataset, notes)
    names = [feature.name for feature in dataset.features]
    if set(_LONG) <= set(table.columns) and not set(_LONG[1:]) & set(names):
        return _of_long(table[known], ids[known], names, notes)
    return _of_wide(table[known].drop(columns="instance"), ids[known], names, notes)


class _Notes:
    """What is wrong, gathered."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: dict[int, str] = {}
        self.problems: list[str] = []

    def add(self, what: str, cells: Sequence[Any], options: Sequence[str] = ()) -> None:
        """Something that so many cells are; `options` are what they could have been meant for."""
        kinds = list(dict.fromkeys(str(cell) for cell in cells))
        named = ", ".join(shorten(kind) for kind in kinds[:_NAMED]) + ", …" * (len(kinds) > _NAMED)
        self.problems.append(f"{what}: {len(cells):,} ({named}{_meant(kinds[0], options)})")

    def blame(self, ids: Ints, reason: str) -> None:
        """The instances that are not explained for it."""
        self.faults |= {instance: reason for instance in ids.tolist() if instance not in self.faults}

    def told(self, ids: Ints, scores: Floats) -> Told:
        """All of it."""
        return Told(ids, scores, self.faults, tuple(self.problems))


def _meant(word: str, options: Sequence[str]) -> str:
    """What a misspelt word may have been meant for, whatever its capitals."""
    lowered = {option.lower(): option for option in options}
    found = f" Did you mean {lowered[word.lower()]}?" if word.lower() in lowered else did_you_mean(word, options)
    return f"; did{found[4:]}" if found else ""


def _table(file: Path) -> pd.DataFrame:
    """The cells, as text where the file is one."""
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        if file.suffix.lower() == ".parquet":
            return pd.read_parquet(file)
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline(1 << 20)
        separator = max("\t;,", key=first.count)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a line that is longer than the first one
            return pd.read_csv(
                file, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True,
                index_col=False,
            )  # fmt: skip
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # whatever a file of another hand brings about in the readers
        told = " ".join(str(error).split())[:200]
        raise UserError(f"{file} cannot be read as a table: {told}.") from error


def _numbers(cells: pd.Series[Any]) -> tuple[Floats, Bools]:
    """Numbers, NaN for what is none, and which cells are empty."""
    texts = cells.astype(object).where(cells.notna(), "").astype(str).str.strip()
    empty = texts.isin(["", "nan", "NaN", "NA", "<NA>", "None"]).to_numpy(dtype=bool)
    numbers = pd.to_numeric(texts.mask(empty, "nan"), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan), empty


def _instances(cells: pd.Series[Any], dataset: Dataset, notes: _Notes) -> tuple[Ints, Bools]:
    """The instance of each line, and whether it is one of the test part."""
    numbers, _ = _numbers(cells)
    whole = ~np.isnan(numbers) & (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))
    if not whole.all():
        notes.add("lines whose instance is no whole number", cells[~whole].tolist())
    ids = np.where(whole, numbers, -1).astype(np.int64)
    known = whole & np.isin(ids, dataset.test.ids)
    # of the other parts somebody may well tell, and nobody asks
    strange = whole & ~np.isin(ids, np.concatenate([dataset.train.ids, dataset.validation.ids, dataset.test.ids]))
    if strange.any():
        notes.add("instances that are not in the data", np.unique(ids[strange]).tolist())
    return ids, known


def _of_long(table: pd.DataFrame, ids: Ints, names: Sequence[str], notes: _Notes) -> Told:
    cells = table["feature"].astype(str).str.strip()
    place = cells.map({name: j for j, name in enumerate(names)})
    unknown = place.isna().to_numpy()
    if unknown.any():
        wrong = cells[unknown].tolist()
        notes.add("lines that name a feature that there is not", wrong, names)
        notes.blame(ids[unknown], f"{notes.file} names a feature that there is not")
    numbers, _ = _numbers(table["score"])
    bad = np.isnan(numbers)
    if bad.any():
        notes.add("lines whose score is no number", table["score"][bad].tolist())
        notes.blame(ids[bad], f"{notes.file} has a score that is no number")
    good = ~unknown & ~bad
    instances = np.unique(ids)
    columns = place.fillna(-1).to_numpy(dtype=np.int64)
    pairs = pd.Series(list(zip(ids.tolist(), columns.tolist(), strict=True)), dtype=object)
    again = pairs.duplicated().to_numpy(dtype=bool) & good
    if again.any():
        notes.add("lines that tell of an instance and a feature again", [f"{i} {names[j]}" for i, j in pairs[again]])
        notes.blame(ids[again], f"{notes.file} tells of a feature twice")
    scores = np.full((len(instances), len(names)), np.nan)
    scores[np.searchsorted(instances, ids[good]), columns[good]] = numbers[good]
    return notes.told(instances, scores)


def _of_wide(table: pd.DataFrame, ids: Ints, names: Sequence[str], notes: _Notes) -> Told:
    there = [str(name) for name in table.columns]
    strange = [name for name in there if name not in names]
    if not set(there) & set(names):
        raise UserError(
            f"{notes.file} has no column that is called as a feature is, such as {shorten(names[0])}, and not the "
            f"columns instance, feature, score. It has {', '.join(map(shorten, strange[:_NAMED])) or 'instance only'}."
        )
    if strange:
        notes.add("columns that are called as no feature is", strange, names)
    again = pd.Series(ids).duplicated().to_numpy(dtype=bool)
    if again.any():
        notes.add("lines that tell of an instance again", ids[again].tolist())
        notes.blame(ids[again], f"{notes.file} tells of it twice")
    scores = np.full((len(ids), len(names)), np.nan)
    for j, name in enumerate(names):
        if name not in there:
            continue
        numbers, empty = _numbers(table.iloc[:, there.index(name)])
        bad = np.isnan(numbers) & ~empty
        if bad.any():
            notes.add(f"scores of {name} that are no numbers", table.iloc[:, there.index(name)][bad].tolist())
            notes.blame(ids[bad], f"{notes.file} has a score that is no number")
        scores[:, j] = numbers
    return notes.told(ids[~again], scores[~again])
