"""Tables: encode the columns of a CSV or Parquet file as features, balance the classes and split the rows."""

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
    RawTable,
    format_date,
    is_infinite,
    make_matcher,
    parse_amount,
    parse_date,
    parse_number,
)
from cfeval_cli.dataset.sources import DataFile, VerifiedFile, find_files
from cfeval_cli.dataset.split import (
    PARTS,
    check_predefined_split,
    check_shares,
    get_part_values,
    hold_out_validation,
    split_by_shares,
)
from cfeval_cli.errors import UserError, check_int, check_option, did_you_mean, shorten
from cfeval_cli.seeding import make_stream

ColumnCells = Sequence[str | None]  # None: missing
EncodedColumn = tuple[Codes, Feature, Mapping[str, Any]]  # with what was fitted to the data, such as cuts


class ColumnEncoder(ABC):
    """How a column becomes a feature; a missing cell is a value of its own, the last one."""

    @abstractmethod
    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Return the codes of the cells, the feature, and what was fitted."""


@dataclass(frozen=True)
class Number(ColumnEncoder):
    """Numbers as they are: one code for each distinct number, ascending."""

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode numbers without loss; they are integers if every cell is one, as pandas reads them."""
        numbers, present = _parse_numbers(cells)
        texts = {cell or "" for cell in cells}
        if present.all() and all(map(_INTEGER.fullmatch, texts)):
            integers = {text: int(text) for text in texts}
            with contextlib.suppress(OverflowError):  # beyond 64 bits
                numbers = np.array([integers[cell or ""] for cell in cells], dtype=np.int64)
        distinct, inverse = np.unique(numbers[present] + 0, return_inverse=True)  # + 0 turns -0.0 into 0.0
        codes = np.full(len(cells), len(distinct), dtype=np.int32)
        codes[present] = inverse
        names = tuple(repr(number).removesuffix(".0") for number in distinct.tolist())
        if present.all():
            return codes, Feature(name, names, kind="number", numbers=distinct), {}
        feature = Feature(
            name, (*names, MISSING), kind="number", numbers=np.append(distinct, np.nan), missing_code=len(distinct)
        )
        return codes, feature, {}


@dataclass(frozen=True)
class Amount(ColumnEncoder):
    """Numbers with thousands separators, a currency sign or a percent sign: $1,234.50 is 1234.5, and 27% is 27."""

    decimal: str = "."  # the decimal sign; the other of point and comma separates thousands

    def __post_init__(self) -> None:
        check_option("decimal", self.decimal, (".", ","))

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode the plain numbers as Number does."""
        amounts = {cell: parse_amount(cell, self.decimal) for cell in set(cells) if cell is not None}
        plain: dict[str | None, str | None] = {None: None}
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            amount = amounts[cell]
            if amount is None:
                example = "$1,234.50" if self.decimal == "." else "1.234,50 €"
                raise _InvalidCell(row, f"{shorten(cell)} is not an amount such as {example}.")
            plain[cell] = amount[0]
        return Number().encode(name, [plain[cell] for cell in cells])


@dataclass(frozen=True)
class Date(ColumnEncoder):
    """Dates, as the number of days since 1970-01-01."""

    format: str | None = None  # of datetime.strptime, such as "%d/%m/%Y"; None: ISO 8601

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode the days as Number does; the names of the values are dates."""
        days = {cell: parse_date(cell, self.format) for cell in set(cells) if cell is not None}
        plain: dict[str | None, str | None] = {None: None}
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            day = days[cell]
            if day is None:
                form = "such as 2024-05-31" if self.format is None else f"of the form {self.format}"
                raise _InvalidCell(row, f"{shorten(cell)} is not a date {form}.")
            plain[cell] = repr(day).removesuffix(".0")
        codes, feature, fitted = Number().encode(name, [plain[cell] for cell in cells])
        numbers = [] if feature.numbers is None else feature.numbers.tolist()
        dates = tuple(MISSING if code == feature.missing_code else format_date(day) for code, day in enumerate(numbers))
        return codes, replace(feature, values=dates), fitted


@dataclass(frozen=True)
class Category(ColumnEncoder):
    """Texts as categories, in alphabetical order; `groups` combines some of them."""

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode the texts in alphabetical order."""
        group_of = {old: new for new, olds in self.groups.items() for old in olds}
        grouped = [None if cell is None else group_of.get(cell, cell) for cell in cells]
        # without NumPy, which would store each text with the length of the longest
        values = sorted({cell for cell in grouped if cell is not None})
        code: dict[str | None, int] = {value: i for i, value in enumerate(values)}
        code[None] = len(values)
        codes = np.array([code[cell] for cell in grouped], dtype=np.int32)
        return codes, _add_missing(Feature(name, tuple(values)), codes), {}


@dataclass(frozen=True)
class Quartiles(ColumnEncoder):
    """Numbers in bins, cut at the quartiles of all rows."""

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode the bins in ascending order; equal quartiles make fewer bins."""
        numbers, present = _parse_numbers(cells)
        cuts = np.unique(np.percentile(numbers[present], [25, 50, 75]))
        first, last = f"{name} ≤ {cuts[0]:g}", f"{name} > {cuts[-1]:g}"
        between = [f"{low:g} < {name} ≤ {high:g}" for low, high in pairwise(cuts)]
        codes = _assign_bins(numbers, present, cuts)
        feature = Feature(name, (first, *between, last), is_ordered=True)
        return codes, _add_missing(feature, codes), {"cuts": cuts.tolist()}


@dataclass(frozen=True)
class Tiers(ColumnEncoder):
    """Amounts that are mostly zero: None, Low or High, split at the median of the non-zero ones."""

    def encode(self, name: str, cells: ColumnCells) -> EncodedColumn:
        """Encode the tiers in the order None, Low, High."""
        numbers, present = _parse_numbers(cells)
        positive = numbers[present & (numbers > 0)]
        median = float(np.median(positive)) if len(positive) else 0.0
        codes = _assign_bins(numbers, present, np.array([0.0, median]))
        feature = Feature(name, ("None", "Low", "High"), is_ordered=True)
        return codes, _add_missing(feature, codes), {"median": median}


_FILE_SPLIT_TYPES = (DataFile, float, type(None))  # of a part in a split by files: a file, a share, or not given


@dataclass(frozen=True)
class TabularData:
    """A CSV or Parquet file with a label of two or more classes."""

    name: str
    file: DataFile
    features: Mapping[str, ColumnEncoder | str]  # by column; a kind such as number stands for its class
    label: str
    classes: Sequence[Any]  # values of the label; of two classes the positive one is last
    columns: Sequence[str] | None = None  # of the file, in order; None: the first line names them
    header: bool | None = None  # whether the first line has the column names; None: detect
    delimiter: str | None = None  # None: detect
    skip_lines: int = 0  # before the table begins
    positions: Mapping[str, int] = field(default_factory=dict)  # from 1, of columns whose name occurs twice
    missing: Sequence[Any] | Mapping[str, Sequence[Any]] = ()  # cells that count as missing; or by column
    balance: bool = True
    split: Sequence[float] | Mapping[str, Any] = (0.8, 0.1, 0.1)  # shares; or parts by a column, or by files
    candidates: int = 32  # quantiles of the training values of a number that a search tries at most
    immutable: Sequence[str] = ()  # features that no search may change
    only: Mapping[str, str] | None = field(default_factory=dict)  # features that may change in one direction only
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.label in self.features:
            raise ValueError(f"features contains the label, {self.label}, so the model would see it. Remove it")
        names = (*self.features, self.label, *([self._split_column] if self._split_column else []))
        missing = [] if self.columns is None else [name for name in names if name not in self.columns]
        if missing:
            raise ValueError(f"columns does not list {', '.join(missing)}")
        if self.columns is None and self.header is False:
            raise ValueError("columns must name the columns of a file without a header (header: false)")
        classes = [name if parse_number(name) is None else parse_number(name) for name in map(str, self.classes)]
        if len(classes) < 2 or len(set(classes)) < len(classes):
            raise ValueError(f"classes must name two values of {self.label} or more, not {list(self.classes)}")
        self._check_split()
        self._check_missing()
        self._check_constraints()
        for name, kind in self.features.items():
            _make_encoder(name, kind)
        for name, position in self.positions.items():
            check_int(f"positions.{name}", position, 1)
        check_int("skip_lines", self.skip_lines, 0)
        check_int("candidates", self.candidates, 2)
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character such as ';', or null to detect, not {self.delimiter!r}")

    def _check_split(self) -> None:
        if not isinstance(self.split, Mapping):
            check_shares(self.split)
            return
        check_predefined_split(self.split)
        invalid = [part for part in PARTS if not isinstance(self.split.get(part), _FILE_SPLIT_TYPES)]
        if invalid and not self._split_column:
            raise ValueError(f"split.{invalid[0]} must be a file, with _target_, unless split.column names a column")
        if self._split_column == self.label:
            raise ValueError(f"split.column={self._split_column} is the label. Name the column that divides the rows")
        if self._split_column in self.features:
            raise ValueError(
                f"split.column={self._split_column} is also a feature. Remove it from features: "
                f"'~dataset.features.{self._split_column}'"
            )
        if self.balance:
            raise ValueError("balance: true would remove rows of a predefined split. Set balance: false")

    def _check_missing(self) -> None:
        if isinstance(self.missing, Mapping):
            unknown = [name for name in self.missing if name not in self.features]
            if unknown:
                raise ValueError(f"missing.{unknown[0]} is not a feature.{did_you_mean(unknown[0], self.features)}")
            lists: list[Any] = list(self.missing.values())
        else:
            lists = [self.missing]
        if any(isinstance(markers, str) or not isinstance(markers, Sequence) for markers in lists):
            raise ValueError(f"missing must be a list such as [-9, unknown], or one for each column: {self.missing!r}")

    def _check_constraints(self) -> None:
        for key, names in (("immutable", self.immutable), ("only", self.only or {})):
            if isinstance(names, str):
                raise ValueError(f"{key} must be a list such as [age, sex], not {names!r}")
            unknown = [name for name in names if name not in self.features]
            if unknown:
                raise ValueError(
                    f"{key} names {unknown[0]}, which is not a feature.{did_you_mean(unknown[0], self.features)}"
                )
        for name, direction in (self.only or {}).items():
            check_option(f"only.{name}", direction, ("up", "down"))
            if name in self.immutable:
                raise ValueError(f"{name} is in immutable and in only ({direction}). Remove it from one of the two")

    def _apply_constraints(self, feature: Feature) -> Feature:
        """Return the feature with the changes that `immutable` and `only` allow."""
        if feature.name in self.immutable:
            return replace(feature, allowed_change="none")
        direction = (self.only or {}).get(feature.name)
        if direction is None:
            return feature
        if not feature.is_ordinal:
            raise UserError(
                f"dataset.only.{feature.name}={direction}: a category has no up and down. Make it a number, or "
                "immutable."
            )
        return replace(feature, allowed_change="up" if direction == "up" else "down")

    @property
    def _split_column(self) -> str | None:
        """The column that divides the rows, if the split is by a column."""
        return self.split.get("column") if isinstance(self.split, Mapping) else None

    @property
    def _files(self) -> list[DataFile]:
        """The file of all rows, or the files of the parts."""
        if not isinstance(self.split, Mapping) or self._split_column:
            return [self.file]
        return [self.file, *(file for part in PARTS[1:] if isinstance(file := self.split.get(part), DataFile))]

    def fetch(self, data_dir: Path) -> list[VerifiedFile]:
        """Find the files of the table; fetch those that are missing."""
        return find_files(self._files, data_dir)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read the files, encode the columns on all rows, balance without replacement, and split."""
        files = self.fetch(data_dir)
        layout = Layout(self.columns, self.header, self.delimiter, self.skip_lines, self.positions)
        needed_columns = [*self.features, self.label, *([self._split_column] if self._split_column else [])]
        rows = _JoinedTables([layout.read(file.path, needed_columns) for file in files])
        labels = self._encode_labels(rows)
        columns, features, fitted = [], [], {}
        for name, kind in self.features.items():
            codes, feature, column_fitted = self._encode_column(rows, name, _make_encoder(name, kind))
            columns.append(codes)
            features.append(self._apply_constraints(feature))
            fitted[name] = dict(column_fitted)
        table = np.stack(columns, axis=1)
        row_ids = self._balance_classes(labels, seed) if self.balance else np.arange(len(labels))
        train, validation, test = self._split_rows(rows, row_ids, seed)
        if not (len(train) and len(validation) and len(test)):
            raise UserError(f"{rows.path}: {len(row_ids)} rows are too few for a split {self._describe_split()}.")
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
            candidates=tuple(self._select_candidates(feature, table[train, j]) for j, feature in enumerate(features)),
            origin={
                "file": ", ".join(file.path.name for file in files),
                "source": ", ".join(dict.fromkeys(file.source for file in files)),
                "sha256": [file.sha256 for file in files],
                "rows_read": len(labels),
                "rows_used": len(row_ids),
                "rows_whole": len(labels),
                "complete": True,
            },
            fitted=fitted,
            reference=dict(self.reference),
        )

    def _encode_column(self, rows: _JoinedTables, name: str, encoder: ColumnEncoder) -> EncodedColumn:
        """Encode one column; UserError with the position of a cell that cannot be encoded."""
        cells = self._mark_missing(name, rows.get_cells(name))
        if all(cell is None for cell in cells):
            raise UserError(f"{rows.path}: column {name} is empty. Remove it from dataset.features.")
        try:
            encoded = encoder.encode(name, cells)
        except _InvalidCell as invalid:
            position, hint = rows.describe_position(invalid.row), rows.suggest_header(invalid.row)
            raise UserError(f"{position}, column {name}: {invalid.reason}{hint}") from None
        # an explainer could select a constant column, but no search could change it
        if len(np.unique(encoded[0])) < 2:
            raise UserError(f"{rows.path}: column {name} has one value only. Remove it from dataset.features.")
        return encoded

    def _describe_split(self) -> str:
        if not isinstance(self.split, Mapping):
            return f"of {list(self.split)}"
        return f"by column {self._split_column}" if self._split_column else "by files"

    def _split_rows(self, rows: _JoinedTables, row_ids: Ints, seed: int) -> tuple[Ints, Ints, Ints]:
        """Return train, validation and test rows, by shares, by a column or by files."""
        if not isinstance(self.split, Mapping):
            return split_by_shares(row_ids, self.split, seed)
        if self._split_column:
            values = {part: get_part_values(self.split, part) for part in PARTS}
            part_of_row = self._assign_parts(rows, self._split_column, values)
        else:
            parts = [i for i, part in enumerate(PARTS) if i == 0 or isinstance(self.split.get(part), DataFile)]
            part_of_row = np.repeat(parts, [len(table.row_numbers) for table in rows.tables])
        train, validation, test = (row_ids[part_of_row[row_ids] == i] for i in range(3))
        if not len(validation) and len(train) > 1:
            train, validation = hold_out_validation(train, self.split, seed)
        return train, validation, test

    @staticmethod
    def _assign_parts(rows: _JoinedTables, column: str, values: Mapping[str, list[Any]]) -> Ints:
        """Return the index of the part (n,) that each row belongs to, by its value in a column."""
        pairs = [(value, part) for part in PARTS for value in values[part]]
        match, cells = make_matcher([value for value, _ in pairs]), rows.get_cells(column)
        matches = {cell: match(cell) for cell in set(cells)}
        for row, cell in enumerate(cells):
            if matches[cell] is None:
                options = ", ".join(str(value) for value, _ in pairs)
                raise UserError(
                    f"{rows.describe_position(row)}, column {column}: {shorten(cell)} is none of {options}, the values "
                    f"in dataset.split.{rows.suggest_header(row)}"
                )
        part_of = {cell: PARTS.index(pairs[index][1]) for cell, index in matches.items() if index is not None}
        return np.array([part_of[cell] for cell in cells])

    def _mark_missing(self, name: str, cells: Sequence[str]) -> ColumnCells:
        """Return the cells, with None for missing ones."""
        markers = self.missing.get(name, ()) if isinstance(self.missing, Mapping) else self.missing
        match = make_matcher(["", *markers])
        is_missing = {cell: match(cell) is not None for cell in set(cells)}
        return [None if is_missing[cell] else cell for cell in cells]

    def _select_candidates(self, feature: Feature, train: Codes) -> Codes:
        """Return the values that a search may try: all, or quantiles of a number; missing if training rows have it."""
        codes = np.arange(len(feature.values), dtype=np.int32)
        if feature.kind == "number":
            present = train[train != feature.missing_code]
            shares = np.linspace(0, 1, self.candidates)
            codes = np.unique(present)
            if len(codes) > self.candidates:  # codes are in the order of the numbers
                codes = np.unique(np.quantile(present, shares, method="inverted_cdf"))
        elif feature.missing_code is not None:
            codes = np.delete(codes, feature.missing_code)
        if feature.missing_code is not None and (train == feature.missing_code).any():
            codes = np.append(codes, feature.missing_code)
        return codes.astype(np.int32)

    def _encode_labels(self, rows: _JoinedTables) -> Ints:
        match, cells = make_matcher(self.classes), rows.get_cells(self.label)
        class_of = {cell: match(cell) for cell in set(cells)}
        for row, cell in enumerate(cells):
            if class_of[cell] is None:
                distinct = list(dict.fromkeys(cells))
                values = f" The column has {', '.join(map(shorten, distinct[:5]))}{' …' * (len(distinct) > 5)}."
                raise UserError(
                    f"{rows.describe_position(row)}, column {self.label}: {shorten(cell)} is not one of "
                    f"dataset.classes {list(self.classes)}.{values}{rows.suggest_header(row)}"
                )
        labels = np.array([class_of[cell] for cell in cells], dtype=np.int64)
        missing = [str(name) for i, name in enumerate(self.classes) if not (labels == i).any()]
        if len(missing) == len(self.classes) - 1:
            raise UserError(f"{rows.path}: all rows are of one class in column {self.label}.")
        if missing:
            raise UserError(f"{rows.path}: no row is of class {', '.join(missing)} in column {self.label}.")
        return labels

    def _balance_classes(self, labels: Ints, seed: int) -> Ints:
        """Draw rows without replacement, as many of each class as the smallest class has."""
        size = np.bincount(labels, minlength=len(self.classes)).min()
        rng = make_stream(seed, "dataset.balance")
        sample = [
            rng.choice(np.flatnonzero(labels == label), size, replace=False) for label in range(len(self.classes))
        ]
        return np.sort(np.concatenate(sample))


@dataclass(frozen=True)
class _JoinedTables:
    """The rows of several files, one file after the other."""

    tables: Sequence[RawTable]

    @property
    def path(self) -> str:
        """The files, for messages."""
        return ", ".join(str(table.path) for table in self.tables)

    def get_cells(self, name: str) -> list[str]:
        """Return the cells of a column."""
        return [cell for table in self.tables for cell in table.cells[name]]

    def _find_row(self, row: int) -> tuple[RawTable, int]:
        for table in self.tables:
            if row < len(table.row_numbers):
                return table, row
            row -= len(table.row_numbers)
        raise IndexError(row)

    def describe_position(self, row: int) -> str:
        """Return the file and the line of a row, for messages."""
        table, own_row = self._find_row(row)
        return table.describe_position(own_row)

    def suggest_header(self, row: int) -> str:
        """Return how to set `header`, if an invalid row is a header that was read as data; else an empty string."""
        table, own_row = self._find_row(row)
        is_header = own_row == 0 and table.starts_with_header
        return " The first line looks like a header: set dataset.header=true." if is_header else ""


class _InvalidCell(Exception):
    def __init__(self, row: int, reason: str) -> None:
        self.row, self.reason = row, reason


def _make_encoder(name: str, kind: ColumnEncoder | str) -> ColumnEncoder:
    """Return the encoder of a column, which may be given by its name in lower case: number is Number()."""
    if isinstance(kind, ColumnEncoder):
        return kind
    encoders = {encoder.__name__.lower(): encoder for encoder in ColumnEncoder.__subclasses__()}
    if kind not in encoders:
        raise ValueError(
            f"features.{name}: {kind!r} is not a kind of column.{did_you_mean(str(kind), encoders)} "
            f"Write {', '.join(encoders)}, or a class with _target_"
        )
    return encoders[kind]()


MISSING = "missing"  # the name of the value of missing cells
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def _add_missing(feature: Feature, codes: Codes) -> Feature:
    """Return the feature with a value for missing cells, if some codes are beyond its values."""
    size = len(feature.values)
    if not (codes == size).any():
        return feature
    name = f"({MISSING})" if MISSING in feature.values else MISSING
    return replace(feature, values=(*feature.values, name), missing_code=size)


def _parse_numbers(cells: ColumnCells) -> tuple[Floats, Bools]:
    """Return the numbers, 0 for missing cells, and whether each cell has one."""
    number_of = {cell: 0.0 if cell is None else parse_number(cell) for cell in set(cells)}  # parses each text once
    for row, cell in enumerate(cells):
        if number_of[cell] is None and cell is not None:
            raise _InvalidCell(
                row, f"{shorten(cell)} is not a number such as 12, -0.5 or 1e6.{_suggest_number_kind(cell)}"
            )
    numbers = np.array([number_of[cell] for cell in cells], dtype=float)
    return numbers, np.array([cell is not None for cell in cells], dtype=bool)


def _suggest_number_kind(cell: str) -> str:
    """Return how to read a cell that is almost a number; empty if there is no way."""
    if is_infinite(cell):
        return f" To count it as missing, add it to dataset.missing: [{cell}]."
    if amount := parse_amount(cell):
        return f" The kind amount, instead of number, reads it as {amount[0]}."
    number = parse_number(cell.replace(",", "."))
    return "" if number is None else f" Write {number:g}, with a point."


def _assign_bins(numbers: Floats, present: Bools, cuts: Floats) -> Codes:
    """Return the bin of each number, the last for missing ones; a number equal to a cut belongs to the bin below."""
    return np.where(present, np.searchsorted(cuts, numbers, side="left"), len(cuts) + 1).astype(np.int32)
