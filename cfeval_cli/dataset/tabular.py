"""Tables: the columns of a CSV or Parquet file become features; rows are balanced and split."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.core import Bools, Codes, Dataset, Feature, Floats, Ints, Split
from cfeval_cli.dataset.cells import (
    Layout,
    Sheet,
    format_date,
    is_infinite,
    matching,
    number,
    parse_amount,
    parse_date,
)
from cfeval_cli.dataset.sources import File, Found, find_all
from cfeval_cli.dataset.split import PARTS, check_own, check_shares, held_out, own_values, shuffled
from cfeval_cli.errors import UserError, check_int, check_option, did_you_mean, shorten
from cfeval_cli.seeding import make_stream

Cells = Sequence[str | None]  # of a column; None where nothing is said
EncodedColumn = tuple[Codes, Feature, Mapping[str, Any]]  # the feature, and what was found in the data to make it


class Column(ABC):
    """How one column becomes a feature; a missing cell is a value of its own, the last."""

    @abstractmethod
    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """Codes, the feature, and what was fitted."""


@dataclass(frozen=True)
class Number(Column):
    """Numbers as they are: a code for each that occurs, ascending."""

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """Nothing is lost: whole numbers stay whole where every row has one, as pandas reads them."""
        numbers, there = _numbers(cells)
        texts = {cell or "" for cell in cells}
        if there.all() and all(map(_WHOLE.fullmatch, texts)):
            wholes = {text: int(text) for text in texts}
            with contextlib.suppress(OverflowError):  # too large for a machine's integers
                numbers = np.array([wholes[cell or ""] for cell in cells], dtype=np.int64)
        known, inverse = np.unique(numbers[there] + 0, return_inverse=True)  # no -0
        codes = np.full(len(cells), len(known), dtype=np.int32)
        codes[there] = inverse
        names = tuple(repr(number).removesuffix(".0") for number in known.tolist())
        if there.all():
            return codes, Feature(name, names, kind="number", numbers=known), {}
        feature = Feature(name, (*names, MISSING), kind="number", numbers=np.append(known, np.nan), missing=len(known))
        return codes, feature, {}


@dataclass(frozen=True)
class Amount(Column):
    """Numbers with thousands separators, a currency sign or a percent sign: $1,234.50 is 1234.5, and 27% is 27."""

    decimal: str = "."  # the decimal sign; the other of point and comma separates thousands

    def __post_init__(self) -> None:
        check_option("decimal", self.decimal, (".", ","))

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """Encode the plain numbers as Number does."""
        amounts = {cell: parse_amount(cell, self.decimal) for cell in set(cells) if cell is not None}
        plain: dict[str | None, str | None] = {None: None}
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            amount = amounts[cell]
            if amount is None:
                example = "$1,234.50" if self.decimal == "." else "1.234,50 €"
                raise _BadCell(row, f"{shorten(cell)} is not an amount such as {example}.")
            plain[cell] = amount[0]
        return Number().encode(name, [plain[cell] for cell in cells])


@dataclass(frozen=True)
class Date(Column):
    """Dates, as the number of days since 1970-01-01."""

    format: str | None = None  # of datetime.strptime, such as "%d/%m/%Y"; None: ISO 8601

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """Encode the days as Number does; the names of the values are dates."""
        days = {cell: parse_date(cell, self.format) for cell in set(cells) if cell is not None}
        plain: dict[str | None, str | None] = {None: None}
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            day = days[cell]
            if day is None:
                form = "such as 2024-05-31" if self.format is None else f"of the form {self.format}"
                raise _BadCell(row, f"{shorten(cell)} is not a date {form}.")
            plain[cell] = repr(day).removesuffix(".0")
        codes, feature, fitted = Number().encode(name, [plain[cell] for cell in cells])
        numbers = [] if feature.numbers is None else feature.numbers.tolist()
        dates = tuple(MISSING if code == feature.missing else format_date(day) for code, day in enumerate(numbers))
        return codes, replace(feature, values=dates), fitted


@dataclass(frozen=True)
class Category(Column):
    """Text values, some of them put together in groups."""

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """Values in alphabetical order."""
        group_of = {old: new for new, olds in self.groups.items() for old in olds}
        grouped = [None if cell is None else group_of.get(cell, cell) for cell in cells]
        # not by NumPy, which gives every cell the room that the longest needs
        values = sorted({cell for cell in grouped if cell is not None})
        code: dict[str | None, int] = {value: i for i, value in enumerate(values)}
        code[None] = len(values)
        codes = np.array([code[cell] for cell in grouped], dtype=np.int32)
        return codes, _with_missing(Feature(name, tuple(values)), codes), {}


@dataclass(frozen=True)
class Quartiles(Column):
    """Numbers, cut at the quartiles of all rows."""

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """The lowest quarter first; equal quartiles make fewer bins."""
        numbers, there = _numbers(cells)
        cuts = np.unique(np.percentile(numbers[there], [25, 50, 75]))
        first, last = f"{name} ≤ {cuts[0]:g}", f"{name} > {cuts[-1]:g}"
        between = [f"{low:g} < {name} ≤ {high:g}" for low, high in pairwise(cuts)]
        codes = _cut(numbers, there, cuts)
        feature = Feature(name, (first, *between, last), ordered=True)
        return codes, _with_missing(feature, codes), {"cuts": cuts.tolist()}


@dataclass(frozen=True)
class Tiers(Column):
    """Amounts that are mostly zero: None, Low or High, split at the median of the non-zero ones."""

    def encode(self, name: str, cells: Cells) -> EncodedColumn:
        """None, Low, High."""
        numbers, there = _numbers(cells)
        some = numbers[there & (numbers > 0)]
        median = float(np.median(some)) if len(some) else 0.0
        codes = _cut(numbers, there, np.array([0.0, median]))
        feature = Feature(name, ("None", "Low", "High"), ordered=True)
        return codes, _with_missing(feature, codes), {"median": median}


_FILES = (File, float, type(None))  # what a part can be that is no value of a column: a file, or a share, or not given


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file of two classes or more."""

    name: str
    file: File
    features: Mapping[str, Column | str]  # by column; a kind such as number stands for its class
    label: str
    classes: Sequence[Any]  # the label's values, of two the positive one last
    columns: Sequence[str] | None = None  # of the file, in order; None: its first line names them
    header: bool | None = None  # whether the first line has the columns' names; None: look
    delimiter: str | None = None  # None: look
    skip_lines: int = 0  # before the table begins
    positions: Mapping[str, int] = field(default_factory=dict)  # from 1, of columns whose name occurs twice
    missing: Sequence[Any] | Mapping[str, Sequence[Any]] = ()  # what a cell says that says nothing; or by column
    balance: bool = True
    split: Sequence[float] | Mapping[str, Any] = (0.8, 0.1, 0.1)  # shares; or parts by a column, or by files
    candidates: int = 32  # of a number: the quantiles of its training values that a search tries at most
    immutable: Sequence[str] = ()  # features that no search may change
    only: Mapping[str, str] | None = field(default_factory=dict)  # features that may go up only, or down
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.label in self.features:
            raise ValueError(f"features has the label, {self.label}: a model would be told the answer. Leave it out")
        named = (*self.features, self.label, *([self._by_column] if self._by_column else []))
        missing = [] if self.columns is None else [name for name in named if name not in self.columns]
        if missing:
            raise ValueError(f"columns does not list {', '.join(missing)}")
        if self.columns is None and self.header is False:
            raise ValueError("columns must name the columns of a file without a header (header: false)")
        told = [name if number(name) is None else number(name) for name in map(str, self.classes)]
        if len(told) < 2 or len(set(told)) < len(told):
            raise ValueError(f"classes must name two values of {self.label} or more, not {list(self.classes)}")
        self._check_split()
        self._check_missing()
        self._check_constraints()
        for name, kind in self.features.items():
            _column(name, kind)
        for name, place in self.positions.items():
            check_int(f"positions.{name}", place, 1)
        check_int("skip_lines", self.skip_lines, 0)
        check_int("candidates", self.candidates, 2)
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character such as ';', or null to look, not {self.delimiter!r}")

    def _check_split(self) -> None:
        if not isinstance(self.split, Mapping):
            check_shares(self.split)
            return
        check_own(self.split)
        odd = [] if self._by_column else [part for part in PARTS if not isinstance(self.split.get(part), _FILES)]
        if odd:
            raise ValueError(f"split.{odd[0]} must be a file, with _target_, unless split.column names a column")
        if self._by_column == self.label:
            raise ValueError(f"split.column={self._by_column} is the label. Name the column that divides the rows")
        if self._by_column in self.features:
            raise ValueError(
                f"split.column={self._by_column} is also a feature. Remove it from features: "
                f"'~dataset.features.{self._by_column}'"
            )
        if self.balance:
            raise ValueError("balance: true leaves rows out of a split that the data have. Set balance: false")

    def _check_missing(self) -> None:
        if isinstance(self.missing, Mapping):
            odd = [name for name in self.missing if name not in self.features]
            if odd:
                raise ValueError(f"missing.{odd[0]} is no feature.{did_you_mean(odd[0], self.features)}")
            lists: list[Any] = list(self.missing.values())
        else:
            lists = [self.missing]
        if any(isinstance(said, str) or not isinstance(said, Sequence) for said in lists):
            raise ValueError(f"missing must be a list such as [-9, unknown], or one for each column: {self.missing!r}")

    def _check_constraints(self) -> None:
        for key, names in (("immutable", self.immutable), ("only", self.only or {})):
            if isinstance(names, str):
                raise ValueError(f"{key} must be a list such as [age, sex], not {names!r}")
            odd = [name for name in names if name not in self.features]
            if odd:
                raise ValueError(f"{key} names {odd[0]}, which is no feature.{did_you_mean(odd[0], self.features)}")
        for name, way in (self.only or {}).items():
            check_option(f"only.{name}", way, ("up", "down"))
            if name in self.immutable:
                raise ValueError(f"{name} is immutable, and only says that it may go {way}. Leave one of the two out")

    def _constrained(self, feature: Feature) -> Feature:
        """The feature, with where it may go."""
        if feature.name in self.immutable:
            return replace(feature, moves="none")
        way = (self.only or {}).get(feature.name)
        if way is None:
            return feature
        if not feature.rising:
            raise UserError(
                f"dataset.only.{feature.name}={way}: a category has no up and down. Make it a number, or immutable."
            )
        return replace(feature, moves="up" if way == "up" else "down")

    @property
    def _by_column(self) -> str | None:
        """The column that divides the rows, if one does."""
        return self.split.get("column") if isinstance(self.split, Mapping) else None

    @property
    def _files(self) -> list[File]:
        """The one file, or those of the parts."""
        if not isinstance(self.split, Mapping) or self._by_column:
            return [self.file]
        return [self.file, *(one for part in PARTS[1:] if isinstance(one := self.split.get(part), File))]

    def fetch(self, data_dir: Path) -> list[Found]:
        """Make sure that the data folder has the file."""
        return find_all(self._files, data_dir)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read, encode on all rows, balance without replacement, split."""
        found = self.fetch(data_dir)
        layout = Layout(self.columns, self.header, self.delimiter, self.skip_lines, self.positions)
        wanted = [*self.features, self.label, *([self._by_column] if self._by_column else [])]
        sheets = [layout.read(one.path, wanted) for one in found]
        rows = _Joined(sheets)
        labels = self._labels(rows)
        columns, features, fitted = [], [], {}
        for name, kind in self.features.items():
            codes, feature, facts = self._encoded(rows, name, _column(name, kind))
            columns.append(codes)
            features.append(self._constrained(feature))
            fitted[name] = dict(facts)
        table = np.stack(columns, axis=1)
        chosen = self._balanced(labels, seed) if self.balance else np.arange(len(labels))
        train, validation, test = self._parts(rows, chosen, seed)
        if not (len(train) and len(validation) and len(test)):
            raise UserError(f"{rows.path}: {len(chosen)} rows are too few for a split of {self._told_split}.")
        if len(np.unique(labels[train])) < 2:
            raise UserError(f"{rows.path}: all training rows are of one class in column {self.label}.")
        frequencies = tuple(
            np.bincount(table[train, j], minlength=len(feature.values)) / len(train)
            for j, feature in enumerate(features)
        )
        return Dataset(
            name=self.name,
            kind="tabular",
            features=tuple(features),
            classes=tuple(str(value) for value in self.classes),
            train=Split(train, table[train], labels[train]),
            validation=Split(validation, table[validation], labels[validation]),
            test=Split(test, table[test], labels[test]),
            frequencies=frequencies,
            candidates=tuple(self._tried(feature, table[train, j]) for j, feature in enumerate(features)),
            origin={
                "file": ", ".join(one.path.name for one in found),
                "source": ", ".join(dict.fromkeys(one.source for one in found)),
                "sha256": ", ".join(one.sha256 for one in found),
                "rows_read": len(labels),
                "rows_used": len(chosen),
                "rows_whole": len(labels),
                "complete": True,
            },
            fitted=fitted,
            reference=dict(self.reference),
        )

    def _encoded(self, rows: _Joined, name: str, column: Column) -> EncodedColumn:
        """One column as a feature; a cell that it cannot be is told by its place."""
        cells = self._given(name, rows.cells(name))
        if all(cell is None for cell in cells):
            raise UserError(f"{rows.path}: column {name} is empty. Leave it out of dataset.features.")
        try:
            encoded = column.encode(name, cells)
        except _BadCell as bad:
            raise UserError(f"{rows.where(bad.row)}, column {name}: {bad.reason}{rows.hint(bad.row)}") from None
        # a constant column could be named by an explainer but never edited
        if len(np.unique(encoded[0])) < 2:
            raise UserError(f"{rows.path}: column {name} has one value only. Leave it out of dataset.features.")
        return encoded

    @property
    def _told_split(self) -> str:
        if not isinstance(self.split, Mapping):
            return str(list(self.split))
        return f"its own, by column {self._by_column}" if self._by_column else "its own, by files"

    def _parts(self, rows: _Joined, chosen: Ints, seed: int) -> tuple[Ints, Ints, Ints]:
        """Train, validation and test, by shares, by a column or by files."""
        if not isinstance(self.split, Mapping):
            return shuffled(chosen, self.split, seed)
        if self._by_column:
            of = self._divided(rows, self._by_column, {part: own_values(self.split, part) for part in PARTS})
        else:
            given = [i for i, part in enumerate(PARTS) if i == 0 or isinstance(self.split.get(part), File)]
            of = np.repeat(given, [len(sheet.lines) for sheet in rows.sheets])
        train, validation, test = (chosen[of[chosen] == i] for i in range(3))
        if not len(validation) and len(train) > 1:
            train, validation = held_out(train, self.split, seed)
        return train, validation, test

    @staticmethod
    def _divided(rows: _Joined, column: str, values: Mapping[str, list[Any]]) -> Ints:
        """The number of the part (n,) that each row belongs to, as a column says."""
        said = [(value, part) for part in PARTS for value in values[part]]
        match, cells = matching([value for value, _ in said]), rows.cells(column)
        known = {cell: match(cell) for cell in set(cells)}
        for row, cell in enumerate(cells):
            if known[cell] is None:
                told = ", ".join(str(value) for value, _ in said)
                raise UserError(
                    f"{rows.where(row)}, column {column}: {shorten(cell)} is none of {told}, which dataset.split names."
                    + rows.hint(row)
                )
        part_of = {cell: PARTS.index(said[place][1]) for cell, place in known.items() if place is not None}
        return np.array([part_of[cell] for cell in cells])

    def _given(self, name: str, cells: Sequence[str]) -> Cells:
        """The cells, None for those that say nothing."""
        said = self.missing.get(name, ()) if isinstance(self.missing, Mapping) else self.missing
        match = matching(["", *said])
        known = {cell: match(cell) is not None for cell in set(cells)}
        return [None if known[cell] else cell for cell in cells]

    def _tried(self, feature: Feature, train: Codes) -> Codes:
        """The values that a search may try: all, but of a number quantiles; missing only if training rows have it."""
        codes = np.arange(len(feature.values), dtype=np.int32)
        if feature.kind == "number":
            known = train[train != feature.missing]
            shares = np.linspace(0, 1, self.candidates)
            codes = np.unique(known)
            if len(codes) > self.candidates:  # codes are in the order of the numbers
                codes = np.unique(np.quantile(known, shares, method="inverted_cdf"))
        elif feature.missing is not None:
            codes = np.delete(codes, feature.missing)
        if feature.missing is not None and (train == feature.missing).any():
            codes = np.append(codes, feature.missing)
        return codes.astype(np.int32)

    def _labels(self, rows: _Joined) -> Ints:
        match, cells = matching(self.classes), rows.cells(self.label)
        index = {cell: match(cell) for cell in set(cells)}
        for row, cell in enumerate(cells):
            if index[cell] is None:
                seen = list(dict.fromkeys(cells))
                more = f" The column has {', '.join(map(shorten, seen[:5]))}{' …' * (len(seen) > 5)}."
                raise UserError(
                    f"{rows.where(row)}, column {self.label}: {shorten(cell)} is not one of dataset.classes "
                    f"{list(self.classes)}.{more}{rows.hint(row)}"
                )
        labels = np.array([index[cell] for cell in cells], dtype=np.int64)
        missing = [str(name) for i, name in enumerate(self.classes) if not (labels == i).any()]
        if len(missing) == len(self.classes) - 1:
            raise UserError(f"{rows.path}: all rows are of one class in column {self.label}.")
        if missing:
            raise UserError(f"{rows.path}: no row is of class {', '.join(missing)} in column {self.label}.")
        return labels

    def _balanced(self, labels: Ints, seed: int) -> Ints:
        """As many rows of each class as the smaller has, none of them twice."""
        size = np.bincount(labels, minlength=len(self.classes)).min()
        rng = make_stream(seed, "dataset.balance")
        kept = [rng.choice(np.flatnonzero(labels == label), size, replace=False) for label in range(len(self.classes))]
        return np.sort(np.concatenate(kept))


@dataclass(frozen=True)
class _Joined:
    """The rows of one file, or of several, one after the other."""

    sheets: Sequence[Sheet]

    @property
    def path(self) -> str:
        """The files, for messages."""
        return ", ".join(str(sheet.path) for sheet in self.sheets)

    def cells(self, name: str) -> list[str]:
        """A column."""
        return [cell for sheet in self.sheets for cell in sheet.cells[name]]

    def _at(self, row: int) -> tuple[Sheet, int]:
        for sheet in self.sheets:
            if row < len(sheet.lines):
                return sheet, row
            row -= len(sheet.lines)
        raise IndexError(row)

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        sheet, own = self._at(row)
        return sheet.where(own)

    def hint(self, row: int) -> str:
        """What may be wrong with a row that is not as it should be."""
        sheet, own = self._at(row)
        return " The first line looks like a header: set dataset.header=true." if own == 0 and sheet.headed else ""


class _BadCell(Exception):
    def __init__(self, row: int, reason: str) -> None:
        self.row, self.reason = row, reason


def _column(name: str, kind: Column | str) -> Column:
    """A column's class, or the one that a word stands for: number is Number."""
    if isinstance(kind, Column):
        return kind
    kinds = {one.__name__.lower(): one for one in Column.__subclasses__()}
    if kind not in kinds:
        raise ValueError(
            f"features.{name}: {kind!r} is no kind of column.{did_you_mean(str(kind), kinds)} "
            f"Write {', '.join(kinds)}, or a class with _target_"
        )
    return kinds[kind]()


MISSING = "missing"  # the name of the value that a cell has which says nothing
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def _with_missing(feature: Feature, codes: Codes) -> Feature:
    """The feature with a value more, if some cells have no other."""
    size = len(feature.values)
    if not (codes == size).any():
        return feature
    name = f"({MISSING})" if MISSING in feature.values else MISSING
    return replace(feature, values=(*feature.values, name), missing=size)


def _numbers(cells: Cells) -> tuple[Floats, Bools]:
    """The numbers, and which cells have one; the others are 0."""
    known = {cell: 0.0 if cell is None else number(cell) for cell in set(cells)}  # each text is looked at once
    for row, cell in enumerate(cells):
        if known[cell] is None and cell is not None:
            raise _BadCell(row, f"{shorten(cell)} is not a number such as 12, -0.5 or 1e6.{_number_hint(cell)}")
    numbers = np.array([known[cell] for cell in cells], dtype=float)
    return numbers, np.array([cell is not None for cell in cells], dtype=bool)


def _number_hint(cell: str) -> str:
    """Return how to read a cell that is almost a number."""
    if is_infinite(cell):
        return f" To count it as missing, add it to dataset.missing: [{cell}]."
    if amount := parse_amount(cell):
        return f" The kind amount, instead of number, reads it as {amount[0]}."
    point = number(cell.replace(",", "."))
    return "" if point is None else f" Write {point:g}, with a point."


def _cut(numbers: Floats, there: Bools, cuts: Floats) -> Codes:
    """The bin of each number, the last where there is none; a number equal to a cut belongs below it."""
    return np.where(there, np.searchsorted(cuts, numbers, side="left"), len(cuts) + 1).astype(np.int32)
