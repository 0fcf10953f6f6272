"""Tables of scores: a line for each instance and feature, or a line for each instance and a column for each feature."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import NO_FEATURE, Bools, Dataset, Floats, Ints
from cfeval_cli.errors import UserError, did_you_mean, shorten

SUFFIXES = (".csv", ".tsv", ".parquet")
_LONG_COLUMNS = ("instance", "feature", "score")
_MAX_NAMED_CELLS = 3
_MAX_BYTES = 1 << 30
_NO_INSTANCE = -1  # of a line whose instance is not a whole number


@dataclass(frozen=True)
class ScoreTable:
    """The scores of a file for the instances of a dataset, and what is wrong with the file."""

    instances: Ints  # (n,)
    scores: Floats  # (n, M), NaN for a feature without a score
    failures: dict[int, str] = field(default_factory=dict)  # the reason for each instance that has an invalid line
    problems: tuple[str, ...] = ()  # each with its number of cells and some of them


def read_scores(file: Path, dataset: Dataset) -> ScoreTable:
    """Read the scores of a file; raise UserError if it is not a table of scores."""
    table = _read_table(file)
    if "instance" not in table:
        raise UserError(
            f"{file} has no column instance: the first line names the columns instance, feature, score; or instance "
            f"and one column for each feature.{did_you_mean('instance', [str(column) for column in table.columns])}"
        )
    duplicates = table.columns[table.columns.duplicated()]
    if len(duplicates):
        raise UserError(f"{file} has two columns called {shorten(str(duplicates[0]))}.")
    problems = _Problems(file.name)
    ids, is_test = _read_instances(table["instance"], dataset, problems)
    names = [feature.name for feature in dataset.features]
    if set(_LONG_COLUMNS) <= set(table.columns) and not set(_LONG_COLUMNS[1:]) & set(names):
        return _read_long(table[is_test], ids[is_test], names, problems)
    return _read_wide(table[is_test].drop(columns="instance"), ids[is_test], names, problems)


class _Problems:
    """Collects what is wrong with a file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.failures: dict[int, str] = {}
        self.descriptions: list[str] = []

    def add(self, description: str, cells: Sequence[Any], options: Sequence[str] = ()) -> None:
        """Add a problem of some cells; `options` are the valid values."""
        texts = list(dict.fromkeys(str(cell) for cell in cells))
        examples = ", ".join([shorten(text) for text in texts[:_MAX_NAMED_CELLS]])
        examples += ", …" if len(texts) > _MAX_NAMED_CELLS else ""
        self.descriptions.append(f"{description}: {len(cells):,} ({examples}{_suggest(texts[0], options)})")

    def add_failures(self, ids: Ints, reason: str) -> None:
        """Add instances that cannot be explained, with the reason."""
        self.failures |= {instance: reason for instance in ids.tolist() if instance not in self.failures}

    def make_table(self, ids: Ints, scores: Floats) -> ScoreTable:
        """Return the scores with these problems."""
        return ScoreTable(ids, scores, self.failures, tuple(self.descriptions))


def _suggest(word: str, options: Sequence[str]) -> str:
    """Return a question with the options that a misspelt word may mean, whatever its capitals."""
    matches = [option for option in options if option.lower() == word.lower()]
    return did_you_mean(matches[0] if matches else word, matches or options).replace(" Did", "; did", 1)


def _read_table(file: Path) -> pd.DataFrame:
    """Return the cells, as text unless the file is a Parquet file."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
        if file.suffix.lower() == ".parquet":
            return pd.read_parquet(file)
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline(1 << 20)
        separator = max("\t;,", key=first.count)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas only warns about a line that is longer than the first line
            return pd.read_csv(
                file, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True,
                index_col=False,
            )  # fmt: skip
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # the readers raise errors of many types for malformed files
        message = " ".join(str(error).split())[:200]
        raise UserError(f"{file} cannot be read as a table: {message}.") from error


def _parse_numbers(cells: pd.Series[Any]) -> tuple[Floats, Bools]:
    """Return numbers, NaN where a cell is not a finite number, and which cells are empty."""
    texts = cells.astype(object).where(cells.notna(), "").astype(str).str.strip()
    is_empty = texts.isin(["", "nan", "NaN", "NA", "<NA>", "None"]).to_numpy(dtype=bool)
    numbers = pd.to_numeric(texts.mask(is_empty, "nan"), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan), is_empty


def _read_instances(cells: pd.Series[Any], dataset: Dataset, problems: _Problems) -> tuple[Ints, Bools]:
    """Return the instance of each line, and whether it belongs to the test split."""
    numbers, _ = _parse_numbers(cells)
    is_valid = ~np.isnan(numbers) & (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))
    if not is_valid.all():
        problems.add("lines whose instance is not a whole number", cells[~is_valid].tolist())
    ids = np.where(is_valid, numbers, _NO_INSTANCE).astype(np.int64)
    # Files may have scores of the other splits, which are not used.
    is_unknown = is_valid & ~np.isin(ids, np.concatenate([dataset.train.ids, dataset.validation.ids, dataset.test.ids]))
    if is_unknown.any():
        problems.add("instances that are not in the data", np.unique(ids[is_unknown]).tolist())
    return ids, is_valid & np.isin(ids, dataset.test.ids)


def _read_long(table: pd.DataFrame, ids: Ints, names: Sequence[str], problems: _Problems) -> ScoreTable:
    """Read a table with a line for each instance and feature."""
    cells = table["feature"].astype(str).str.strip()
    positions = cells.map({name: j for j, name in enumerate(names)})
    is_unknown = positions.isna().to_numpy()
    if is_unknown.any():
        problems.add("lines with an unknown feature", cells[is_unknown].tolist(), names)
        problems.add_failures(ids[is_unknown], f"{problems.file} has an unknown feature")
    numbers, _ = _parse_numbers(table["score"])
    is_bad = np.isnan(numbers)
    if is_bad.any():
        problems.add("lines whose score is not a number", table["score"][is_bad].tolist())
        problems.add_failures(ids[is_bad], f"{problems.file} has a score that is not a number")
    is_good = ~is_unknown & ~is_bad
    instances = np.unique(ids)
    columns = positions.fillna(NO_FEATURE).to_numpy(dtype=np.int64)
    is_duplicate = pd.DataFrame({"instance": ids, "feature": columns}).duplicated().to_numpy(dtype=bool) & is_good
    if is_duplicate.any():
        pairs = zip(ids[is_duplicate].tolist(), columns[is_duplicate].tolist(), strict=True)
        problems.add("duplicate lines of an instance and a feature", [f"{i} {names[j]}" for i, j in pairs])
        problems.add_failures(ids[is_duplicate], f"{problems.file} has two scores of a feature")
    scores = np.full((len(instances), len(names)), np.nan)
    scores[np.searchsorted(instances, ids[is_good]), columns[is_good]] = numbers[is_good]
    return problems.make_table(instances, scores)


def _read_wide(table: pd.DataFrame, ids: Ints, names: Sequence[str], problems: _Problems) -> ScoreTable:
    """Read a table with a line for each instance and a column for each feature."""
    columns = [str(name) for name in table.columns]
    unknown = [name for name in columns if name not in names]
    if not set(columns) & set(names):
        raise UserError(
            f"{problems.file} has neither a column for a feature, such as {shorten(names[0])}, nor the columns "
            "instance, feature, score. "
            f"It has {', '.join(map(shorten, unknown[:_MAX_NAMED_CELLS])) or 'instance only'}."
        )
    if unknown:
        problems.add("columns that are not features", unknown, names)
    is_duplicate = pd.Series(ids).duplicated().to_numpy(dtype=bool)
    if is_duplicate.any():
        problems.add("duplicate lines of an instance", ids[is_duplicate].tolist())
        problems.add_failures(ids[is_duplicate], f"{problems.file} has two lines of the instance")
    scores = np.full((len(ids), len(names)), np.nan)
    for j, name in enumerate(names):
        if name not in columns:
            continue
        cells = table.iloc[:, columns.index(name)]
        numbers, is_empty = _parse_numbers(cells)
        is_bad = np.isnan(numbers) & ~is_empty
        if is_bad.any():
            problems.add(f"scores of {name} that are not numbers", cells[is_bad].tolist())
            problems.add_failures(ids[is_bad], f"{problems.file} has a score that is not a number")
        scores[:, j] = numbers
    return problems.make_table(ids[~is_duplicate], scores[~is_duplicate])
