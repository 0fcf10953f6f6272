"""Tables: a CSV file becomes categorical features, balanced and split."""

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

from cfeval_cli.dataset.cells import number, rows
from cfeval_cli.dataset.sources import File, Found
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError, short, whole
from cfeval_cli.seeding import stream
from cfeval_cli.types import Bools, Codes, Dataset, Feature, Floats, Ints, Split

Cells = Sequence[str | None]  # of a column; None where nothing is said
Encoded = tuple[Codes, Feature, Mapping[str, Any]]  # the feature, and what was found in the data to make it


class Column(ABC):
    """How one column becomes a feature; a missing cell is a value of its own, the last."""

    @abstractmethod
    def encode(self, name: str, cells: Cells) -> Encoded:
        """Codes, the feature, and what was fitted."""


@dataclass(frozen=True)
class Number(Column):
    """Numbers as they are: a code for each that occurs, ascending."""

    def encode(self, name: str, cells: Cells) -> Encoded:
        """Nothing is lost: whole numbers stay whole where every row has one, as pandas reads them."""
        numbers, there = _numbers(cells)
        if there.all() and all(_WHOLE.fullmatch(cell or "") for cell in cells):
            with contextlib.suppress(OverflowError):  # too large for a machine's integers
                numbers = np.array([int(cell or "") for cell in cells], dtype=np.int64)
        known, inverse = np.unique(numbers[there] + 0, return_inverse=True)  # no -0
        codes = np.full(len(cells), len(known), dtype=np.int32)
        codes[there] = inverse
        names = tuple(repr(number).removesuffix(".0") for number in known.tolist())
        if there.all():
            return codes, Feature(name, names, kind="number", numbers=known), {}
        feature = Feature(name, (*names, MISSING), kind="number", numbers=np.append(known, np.nan), missing=len(known))
        return codes, feature, {}


@dataclass(frozen=True)
class Category(Column):
    """Text values, some of them put together in groups."""

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self, name: str, cells: Cells) -> Encoded:
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

    def encode(self, name: str, cells: Cells) -> Encoded:
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

    def encode(self, name: str, cells: Cells) -> Encoded:
        """None, Low, High."""
        numbers, there = _numbers(cells)
        some = numbers[there & (numbers > 0)]
        median = float(np.median(some)) if len(some) else 0.0
        codes = _cut(numbers, there, np.array([0.0, median]))
        feature = Feature(name, ("None", "Low", "High"), ordered=True)
        return codes, _with_missing(feature, codes), {"median": median}


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
    candidates: int = 32  # of a number: the quantiles of its training values that a search tries at most
    missing: Sequence[Any] = ()  # what a cell says that says nothing; an empty one does so too
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in (*self.features, self.label) if name not in self.columns]
        if missing:
            raise ValueError(f"columns does not list {', '.join(missing)}")
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must name two values of {self.label} or more, not {list(self.classes)}")
        check_shares(self.split)
        whole("candidates", self.candidates, 2)

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
            given = self._given(cells[name])
            if all(cell is None for cell in given):
                raise UserError(f"{found.path}: column {name} is empty. Leave it out of dataset.features.")
            try:
                codes, feature, facts = column.encode(name, given)
            except _BadCell as bad:
                raise UserError(f"{found.path}, line {lines[bad.row]}, column {name}: {bad.reason}") from None
            # a constant column could be named by an explainer but never edited
            if len(np.unique(codes)) < 2:
                raise UserError(f"{found.path}: column {name} has one value only. Leave it out of dataset.features.")
            columns.append(codes)
            features.append(feature)
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
            candidates=tuple(self._tried(feature, table[train, j]) for j, feature in enumerate(features)),
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

    def _given(self, cells: Sequence[str]) -> Cells:
        """The cells, None for those that say nothing."""
        texts = {"", *(str(said).strip() for said in self.missing)}
        numbers = {number(text) for text in texts} - {None}
        known: dict[str, bool] = {}
        for cell in set(cells):
            known[cell] = cell in texts or (bool(numbers) and number(cell) in numbers)
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
    numbers, there = np.zeros(len(cells)), np.ones(len(cells), dtype=bool)
    for row, cell in enumerate(cells):
        found = None if cell is None else number(cell)
        if cell is None:
            there[row] = False
        elif found is None:
            raise _BadCell(row, f"{short(cell)} is not a number such as 12, -0.5 or 1e6.")
        else:
            numbers[row] = found
    return numbers, there


def _cut(numbers: Floats, there: Bools, cuts: Floats) -> Codes:
    """The bin of each number, the last where there is none; a number equal to a cut belongs below it."""
    return np.where(there, np.searchsorted(cuts, numbers, side="left"), len(cuts) + 1).astype(np.int32)
