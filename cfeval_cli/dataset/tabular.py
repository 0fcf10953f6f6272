"""Tables: a CSV file becomes categorical features, balanced and split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cfeval_cli.dataset.cells import number, rows
from cfeval_cli.dataset.sources import File, Found
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError, short
from cfeval_cli.seeding import stream
from cfeval_cli.types import Codes, Dataset, Feature, Floats, Ints, Split


class Column(ABC):
    """How one column becomes a categorical feature."""

    ordered: ClassVar[bool] = False  # whether its values stand in an order

    @abstractmethod
    def encode(self, name: str, cells: list[str]) -> tuple[Codes, tuple[str, ...], Mapping[str, Any]]:
        """Codes, the values' names, and what was fitted."""


@dataclass(frozen=True)
class Category(Column):
    """Text values, some of them put together in groups."""

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self, name: str, cells: list[str]) -> tuple[Codes, tuple[str, ...], Mapping[str, Any]]:
        """Values in alphabetical order."""
        group_of = {old: new for new, olds in self.groups.items() for old in olds}
        grouped = [group_of.get(cell, cell) for cell in cells]
        # not by NumPy, which gives every cell the room that the longest needs
        values = sorted(set(grouped))
        code = {value: i for i, value in enumerate(values)}
        return np.array([code[cell] for cell in grouped], dtype=np.int32), tuple(values), {}


@dataclass(frozen=True)
class Quartiles(Column):
    """Numbers, cut at the quartiles of all rows."""

    ordered = True

    def encode(self, name: str, cells: list[str]) -> tuple[Codes, tuple[str, ...], Mapping[str, Any]]:
        """The lowest quarter first; equal quartiles make fewer bins."""
        numbers = _numbers(cells)
        cuts = np.unique(np.percentile(numbers, [25, 50, 75]))
        first, last = f"{name} ≤ {cuts[0]:g}", f"{name} > {cuts[-1]:g}"
        between = [f"{low:g} < {name} ≤ {high:g}" for low, high in pairwise(cuts)]
        return _cut(numbers, cuts), (first, *between, last), {"cuts": cuts.tolist()}


@dataclass(frozen=True)
class Tiers(Column):
    """Amounts that are mostly zero: None, Low or High, split at the median of the non-zero ones."""

    ordered = True

    def encode(self, name: str, cells: list[str]) -> tuple[Codes, tuple[str, ...], Mapping[str, Any]]:
        """None, Low, High."""
        numbers = _numbers(cells)
        median = float(np.median(numbers[numbers > 0])) if (numbers > 0).any() else 0.0
        return _cut(numbers, np.array([0.0, median])), ("None", "Low", "High"), {"median": median}


@dataclass(frozen=True)
class Table:
    """A CSV file of two classes or more."""

    name: str
    file: File
    columns: Sequence[str]  # of the file, in order
    features: Mapping[str, Column]
    label: str
    classes: Sequence[str]  # the label's values, of two the positive one last
    balance: bool = True
    split: Sequence[float] = (0.8, 0.1, 0.1)
    delimiter: str = ","
    header: bool = False
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in (*self.features, self.label) if name not in self.columns]
        if missing:
            raise ValueError(f"columns does not list {', '.join(missing)}")
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must name two values of {self.label} or more, not {list(self.classes)}")
        check_shares(self.split)

    def fetch(self, data_dir: Path) -> list[Found]:
        """Make sure that the data folder has the file."""
        return [self.file.find(data_dir)]

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read, encode on all rows, balance without replacement, split."""
        found = self.file.find(data_dir)
        lines, cells = self._read(found.path)
        labels = self._labels(found.path, lines, cells[self.label])
        columns, features, fitted = [], [], {}
        for name, column in self.features.items():
            try:
                codes, values, facts = column.encode(name, cells[name])
            except _BadCell as bad:
                raise UserError(f"{found.path}, line {lines[bad.row]}, column {name}: {bad.reason}") from None
            # a constant column could be named by an explainer but never edited
            if len(np.unique(codes)) < 2:
                raise UserError(f"{found.path}: column {name} has one value only. Leave it out of dataset.features.")
            columns.append(codes)
            features.append(Feature(name, values, column.ordered))
            fitted[name] = dict(facts)
        table = np.stack(columns, axis=1)
        chosen = self._balanced(labels, seed) if self.balance else np.arange(len(labels))
        train, validation, test = shuffled(chosen, self.split, seed)
        if not (len(train) and len(validation) and len(test)):
            raise UserError(f"{found.path}: {len(chosen)} rows are too few for a split of {list(self.split)}.")
        frequencies = tuple(
            np.bincount(table[train, j], minlength=len(feature.values)) / len(train)
            for j, feature in enumerate(features)
        )
        return Dataset(
            name=self.name,
            kind="tabular",
            features=tuple(features),
            classes=tuple(self.classes),
            train=Split(train, table[train], labels[train]),
            validation=Split(validation, table[validation], labels[validation]),
            test=Split(test, table[test], labels[test]),
            frequencies=frequencies,
            candidates=tuple(np.arange(len(feature.values), dtype=np.int32) for feature in features),
            origin={
                "file": found.path.name,
                "source": found.source,
                "sha256": found.sha256,
                "rows_read": len(labels),
                "rows_used": len(chosen),
                "rows_whole": len(labels),
                "complete": True,
            },
            fitted=fitted,
            reference=dict(self.reference),
        )

    def _read(self, path: Path) -> tuple[list[int], dict[str, list[str]]]:
        """Line numbers and cells by column; every row must have every column."""
        lines: list[int] = []
        found: list[list[str]] = []
        for place, (line, row) in enumerate(rows(path, self.delimiter)):
            if self.header and place == 0:
                continue
            if len(row) != len(self.columns):
                raise UserError(
                    f"{path}, line {line}: {len(row)} fields where dataset.columns names {len(self.columns)}."
                )
            lines.append(line)
            found.append([cell.strip() for cell in row])
        if not found:
            raise UserError(f"{path} has no rows.")
        return lines, {name: [row[i] for row in found] for i, name in enumerate(self.columns)}

    def _labels(self, path: Path, lines: list[int], cells: list[str]) -> Ints:
        index = {value: i for i, value in enumerate(self.classes)}
        for line, cell in zip(lines, cells, strict=True):
            if cell not in index:
                raise UserError(
                    f"{path}, line {line}, column {self.label}: {short(cell)} is not one of dataset.classes "
                    f"{list(self.classes)}."
                )
        labels = np.array([index[cell] for cell in cells], dtype=np.int64)
        missing = [name for i, name in enumerate(self.classes) if not (labels == i).any()]
        if len(missing) == len(self.classes) - 1:
            raise UserError(f"{path}: all rows are of one class in column {self.label}.")
        if missing:
            raise UserError(f"{path}: no row is of class {', '.join(missing)} in column {self.label}.")
        return labels

    def _balanced(self, labels: Ints, seed: int) -> Ints:
        """As many rows of each class as the smaller has, none of them twice."""
        size = np.bincount(labels, minlength=len(self.classes)).min()
        rng = stream(seed, "dataset.balance")
        kept = [rng.choice(np.flatnonzero(labels == label), size, replace=False) for label in range(len(self.classes))]
        return np.sort(np.concatenate(kept))


class _BadCell(Exception):
    def __init__(self, row: int, reason: str) -> None:
        self.row, self.reason = row, reason


def _numbers(cells: list[str]) -> Floats:
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        found = number(cell)
        if found is None:
            raise _BadCell(row, f"{short(cell)} is not a number such as 12, -0.5 or 1e6.")
        numbers[row] = found
    return numbers


def _cut(numbers: Floats, cuts: Floats) -> Codes:
    """The bin of each number; a number equal to a cut belongs below it."""
    return np.searchsorted(cuts, numbers, side="left").astype(np.int32)
