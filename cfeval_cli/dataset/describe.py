"""Describe a file of the user: the kind of each column, the classes, missing values, and columns to exclude."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cfeval_cli.dataset.cells import (
    DELIMITERS,
    Layout,
    RawTable,
    describe_first_line,
    is_infinite,
    is_parquet,
    parse_amount,
    parse_date,
    parse_number,
    read_csv_rows,
)
from cfeval_cli.errors import UserError, did_you_mean, shorten

# Cells that count as missing in any column. Texts such as "unknown" may be values.
MARKERS = ("?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "-", ".")
_SENTINEL = re.compile(r"-(7+|8+|9+)|99+")  # numbers that often stand for a missing value
_SENTINEL_FACTOR = 3  # a sentinel above all other numbers is at least this many times the next number
_IDENTIFIER = re.compile(r"(^|[\W_])(id|key|index|uuid|guid)s?($|[\W_\d])|[a-z](Id|ID)$", re.IGNORECASE)
_MIN_DISTINCT_SHARE = 0.9  # of the texts of a column that identifies rows
_MIN_MEAN_WORDS = 4  # in the cells of a column of texts
_MAX_CLASSES = 20  # a label with more values is a number or a name
_NEGATIVE_CLASS_NAMES = ("no", "false", "f", "n", "negative", "neg", "bad", "low", "never")
_MAX_SHOWN_VALUES = 4  # of a category
_MAX_CELL_CHARACTERS = 1 << 24
_MAX_NAME_CHARACTERS = 200
MAX_LEVELS = 50  # of a category without a warning
_MIN_READABLE_SHARE = 0.95  # of the cells of a column of numbers or dates; the others are probably mistakes
_DATE_FORMATS = (
    "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
    "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y",
)  # fmt: skip
_COMPACT_DATE = re.compile(r"(19|20)[0-9]{6}")  # such as 20200131
_TIME_FORMATS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")  # after a date
_FORMATS = (None, *(date + time for date in _DATE_FORMATS for time in _TIME_FORMATS))  # None: ISO 8601


@dataclass(frozen=True)
class ColumnDescription:
    """The kind of feature that a column makes, or why it makes none."""

    name: str
    kind: str = ""  # number, amount, date or category; empty if it is excluded
    summary: str = ""  # of its values, for people
    exclusion_reason: str = ""
    missing_markers: tuple[str, ...] = ()  # cells of the column that count as missing
    suspected_missing: tuple[str, ...] = ()  # numbers that may stand for a missing value
    mean_words: float = 0.0  # in a cell of a column of texts; 0 for other columns
    options: Mapping[str, str] = field(default_factory=dict)  # settings of the kind that are not its defaults
    notes: tuple[str, ...] = ()  # one line for each thing that the user should know


@dataclass(frozen=True)
class FileDescription:
    """The columns and classes of a file."""

    path: Path
    names: tuple[str, ...]  # of all columns, in order
    header: bool  # whether the first line has the names
    delimiter: str | None  # None for a Parquet file
    label: str
    classes: tuple[str | int | float, ...]  # of two classes the positive one is last
    counts: tuple[int, ...]  # rows of each class
    columns: tuple[ColumnDescription, ...]  # without the label
    positions: Mapping[str, int] = field(default_factory=dict)  # from 1, of columns whose name occurs twice
    text: str | None = None  # the column of texts, if the file consists of texts and labels
    notes: tuple[str, ...] = ()  # one line for each thing to know about labels, rows, and pairs of columns

    @property
    def features(self) -> list[ColumnDescription]:
        """The columns that become features."""
        return [column for column in self.columns if column.kind]

    @property
    def excluded(self) -> list[ColumnDescription]:
        """The columns that do not become features."""
        return [column for column in self.columns if not column.kind and column.name != self.text]

    @property
    def missing_markers(self) -> tuple[str, ...]:
        """The cells that count as missing."""
        present = dict.fromkeys(marker for column in self.features for marker in column.missing_markers)
        return (
            *(marker for marker in MARKERS if marker in present),
            *(marker for marker in present if marker not in MARKERS),
        )

    @property
    def warnings(self) -> list[str]:
        """What the user should know about the data, one line each."""
        columns = [] if self.text is not None else self.features
        return [*self.notes, *(f"{shorten_name(column.name)}: {note}" for column in columns for note in column.notes)]

    @property
    def suspected_missing(self) -> dict[str, tuple[str, ...]]:
        """By column, numbers that may stand for a missing value."""
        return {column.name: column.suspected_missing for column in self.features if column.suspected_missing}


def shorten_name(name: str) -> str:
    """Return the name of a column as a message has room for it."""
    return name if len(name) <= 40 else shorten(name, 40)


def describe_file(path: Path, label: str, text: str | None = None) -> FileDescription:
    """Describe a file from all of its cells; UserError if that is impossible.

    `label` is a column name, or in a file without a header the position of the column, from 1.
    """
    names, header, delimiter = _read_header(path, label)
    label = label if header else names[int(label) - 1]
    if label == text:
        raise UserError(f"{path}: column {label} cannot be both the text and the label.")
    if text is not None and text not in names:
        content = (
            f"It has {', '.join(names)}."
            if delimiter is None
            else describe_first_line(read_csv_rows(path, delimiter, _MAX_CELL_CHARACTERS))
        )
        raise UserError(f"{path} has no column {text}.{did_you_mean(text, names)} {content}")
    if names.count(label) > 1:
        raise UserError(
            f"{path}: {names.count(label)} columns are named {label}. Rename the one that is not the label."
        )
    unique_names = [name for name in dict.fromkeys(names) if name]
    positions = {name: names.index(name) + 1 for name in unique_names if names.count(name) > 1}
    layout = Layout(
        None if header else names, header, delimiter, positions=positions, max_cell_characters=_MAX_CELL_CHARACTERS
    )
    table = layout.read(path, unique_names)
    classes, counts = _find_classes(table, label)
    columns = tuple(
        _describe_column(name, table.cells[name], table.cells[label]) for name in table.cells if name != label
    )
    columns += tuple(
        ColumnDescription(
            name, exclusion_reason=f"has the same name as column {positions[name]}" if name else "it has no name"
        )
        for position, name in enumerate(names, 1)
        if not name or position != positions.get(name, position)
    )
    feature_names = {column.name for column in columns if column.kind}
    return FileDescription(
        path, tuple(names), header, delimiter, label, classes, counts, columns,
        {name: position for name, position in positions.items() if name in feature_names},
        text or _find_text_column(columns), _find_problems(table, label, columns),
    )  # fmt: skip


def _find_problems(table: RawTable, label: str, columns: Sequence[ColumnDescription]) -> tuple[str, ...]:
    """Return one line for each problem: labels that differ by case, equal columns and equal rows."""
    notes = []
    for group in _group_by_case(table.cells[label]):
        counts = " and ".join(f"{shorten(name)} ({table.cells[label].count(name):,} rows)" for name in group)
        notes.append(
            f"{shorten_name(label)}: the labels {counts} differ by case only and are separate classes. If they mean "
            "the same, write them alike in the data."
        )
    first_with_cells: dict[int, str] = {}
    for column in columns:
        if not column.kind or column.name not in table.cells:
            continue
        cells = table.cells[column.name]
        other = first_with_cells.setdefault(hash(tuple(cells)), column.name)
        if other != column.name and table.cells[other] == cells:
            notes.append(
                f"{shorten_name(column.name)} has the same values as {shorten_name(other)}. Remove one of them from "
                "features: copies share their importance."
            )
    n_rows = len(table.row_numbers)
    # hashes take a fraction of the memory of whole rows
    copies = n_rows - len(set(map(hash, zip(*table.cells.values(), strict=True))))
    if copies:
        notes.append(
            f"{copies:,} of {n_rows:,} rows are copies of another row: one copy can be a training row and the other a "
            "test row. Remove them unless they are separate cases."
        )
    return tuple(notes)


def _group_by_case(values: Sequence[str]) -> list[list[str]]:
    """Return the groups of values that differ by case only."""
    groups: dict[str, list[str]] = {}
    for value in sorted(set(values)):
        groups.setdefault(value.casefold(), []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _read_header(path: Path, label: str) -> tuple[list[str], bool, str | None]:
    """Return the column names, whether the file contains them, and the delimiter."""
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    if is_parquet(path):
        names = _read_parquet_names(path)
        if label not in names:
            raise UserError(f"{path} has no column {label}.{did_you_mean(label, names)} It has {', '.join(names)}.")
        return names, True, None
    delimiter, first, second = _detect_delimiter(path, label)
    if label in first:
        return first, True, delimiter
    position = int(label) if label.isdecimal() else 0
    if not 1 <= position <= len(first):
        content = describe_first_line(iter([(1, first), (2, second)]))
        raise UserError(
            f"{path} has no column {label}.{did_you_mean(label, first)} {content} If that is no header, name the label "
            f"by its position: --label {len(first)}"
        )
    becomes_number = [
        parse_number(above) is None and parse_number(below) is not None
        for above, below in zip(first, second, strict=False)
    ]
    if any(becomes_number) and not any(parse_number(cell) is not None for cell in first):
        raise UserError(
            f"{path}: the first line looks like a header. Name the label as it does: --label {first[position - 1]}"
        )
    return [f"column_{number}" for number in range(1, len(first) + 1)], False, delimiter


def _read_parquet_names(path: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    except (ValueError, OSError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} cannot be read as a Parquet file ({str(error)[:200]}).") from error


def _detect_delimiter(path: Path, label: str) -> tuple[str, list[str], list[str]]:
    """Return the delimiter, and the first two rows.

    The best delimiter makes the label a cell of the first row; the next best gives both rows the same length.
    """
    candidates: list[tuple[bool, bool, int, str, list[str], list[str]]] = []
    first_error: UserError | None = None
    for delimiter in DELIMITERS:
        rows = read_csv_rows(path, delimiter, _MAX_CELL_CHARACTERS)
        try:
            first, second = (next(rows, (0, []))[1] for _ in range(2))
        except UserError as error:
            first_error = first_error or error
            continue
        cells = [cell.strip() for cell in first]
        same_length = len(cells) == len(second) > 1
        candidates.append((label in cells and len(cells) > 1, same_length, len(cells), delimiter, cells, second))
    if not candidates and first_error is not None:
        raise first_error
    _, _, width, delimiter, first, second = max(candidates, key=lambda candidate: candidate[:3])
    if not width:
        raise UserError(f"{path} has no rows.")
    if width == 1:
        raise UserError(
            f"{path}: {', '.join(DELIMITERS.values())} divide nothing in its first line ({len(first[0]):,} characters)."
        )
    if not second:
        raise UserError(f"{path} has one row only.")
    return delimiter, first, second


def _find_classes(table: RawTable, label: str) -> tuple[tuple[str | int | float, ...], tuple[int, ...]]:
    """Return the values of the label, of two the positive one last, and how many rows have each."""
    cells = table.cells[label]
    if "" in cells:
        raise UserError(
            f"{table.describe_position(cells.index(''))}: the label, column {label}, is empty in "
            f"{cells.count(''):,} row{'s' * (cells.count('') != 1)}. Remove rows without a label."
        )
    counts = Counter(cells)
    numbers = {cell: parse_number(cell) for cell in counts}
    if all(value is not None for value in numbers.values()):
        class_counts: Counter[str | int | float] = Counter()
        for cell, count in counts.items():
            value = float(numbers[cell] or 0)
            class_counts[int(value) if value.is_integer() else value] += count
        classes: list[str | int | float] = sorted(class_counts, key=float)
    else:
        class_counts = Counter(dict(counts))
        classes = sorted(class_counts, key=lambda name: (str(name).lower() not in _NEGATIVE_CLASS_NAMES, str(name)))
    if len(classes) < 2:
        raise UserError(f"{table.path}: all rows are of one class in column {label}, {shorten(str(classes[0]))}.")
    if len(classes) > _MAX_CLASSES:
        raise UserError(
            f"{table.path}: column {label} has {len(classes):,} different values, but a label has at most "
            f"{_MAX_CLASSES}. Classify ranges of a number, or choose another column."
        )
    return tuple(classes), tuple(class_counts[value] for value in classes)


def _describe_column(name: str, cells: Sequence[str], labels: Sequence[str]) -> ColumnDescription:
    if len(name) > _MAX_NAME_CHARACTERS:
        return ColumnDescription(shorten(name), exclusion_reason="its name is too long for a config")
    all_counts = Counter(cells)
    n_missing = sum(all_counts[marker] for marker in ("", *MARKERS))
    counts = {cell: count for cell, count in all_counts.items() if cell and cell not in MARKERS}
    markers = tuple(marker for marker in MARKERS if all_counts[marker])
    if not counts:
        return ColumnDescription(name, exclusion_reason="empty")
    if len(counts) == 1 and not n_missing:
        return ColumnDescription(name, exclusion_reason=f"one value only, {shorten(next(iter(counts)))}")
    if _is_one_to_one(cells, labels):
        return ColumnDescription(name, exclusion_reason="has one value for each class, as the label has")
    dates = _describe_dates(name, counts, markers, n_missing)
    if dates and (all(map(_COMPACT_DATE.fullmatch, counts)) or any(parse_number(cell) is None for cell in counts)):
        return dates
    numbers = _describe_numbers(name, counts, markers, len(cells), n_missing)
    if numbers is not None:
        return numbers
    return _describe_category(name, counts, markers, n_missing)


def _describe_category(
    name: str, counts: Mapping[str, int], markers: tuple[str, ...], n_missing: int
) -> ColumnDescription:
    """Describe a column of texts, which is excluded if its texts identify rows."""
    stray = _describe_stray_cells(counts)
    n_present = sum(counts.values())
    mean_words = sum(len(cell.split()) * count for cell, count in counts.items()) / n_present
    mean_words = mean_words if mean_words >= _MIN_MEAN_WORDS else 0.0
    if len(counts) >= _MIN_DISTINCT_SHARE * n_present:
        reason = stray or f"texts, {len(counts):,} different in {n_present:,} rows: they identify rows"
        return ColumnDescription(name, exclusion_reason=reason, mean_words=mean_words)
    common = sorted(counts, key=lambda cell: (-counts[cell], cell))[:_MAX_SHOWN_VALUES]
    shown_values = ", ".join(shorten(cell, 20)[1:-1] if len(cell) <= 20 else shorten(cell, 20) for cell in common)
    remark = f" and {len(counts) - _MAX_SHOWN_VALUES:,} more" * (len(counts) > _MAX_SHOWN_VALUES)
    notes = [stray] if stray else []
    if len(counts) > MAX_LEVELS and not stray:
        notes.append(
            f"a category with {len(counts):,} levels. Combine rare levels ({{_target_: "
            "cfeval_cli.dataset.tabular.Category, groups: {other: […]}}), or remove it from features."
        )
    if groups := _group_by_case(list(counts)):
        example = " and ".join(map(shorten, groups[0])) + f" (and {len(groups) - 1:,} more)" * (len(groups) > 1)
        notes.append(
            f"{example} differ by case only and are separate levels. If they mean the same, write them alike in "
            "the data."
        )
    return ColumnDescription(
        name, "category", f"{shown_values}{remark}{_describe_missing(n_missing)}",
        missing_markers=markers, mean_words=mean_words,
        notes=tuple(notes),
    )  # fmt: skip


def _describe_missing(n_missing: int) -> str:
    return f"; {n_missing:,} missing" * bool(n_missing)


def _describe_numbers(
    name: str, counts: Mapping[str, int], markers: tuple[str, ...], n_rows: int, n_missing: int
) -> ColumnDescription | None:
    """Describe a column of numbers, with or without separators and units; None if it has other cells."""
    infinite = tuple(cell for cell in counts if is_infinite(cell))
    finite = {cell: count for cell, count in counts.items() if cell not in infinite}
    notes = []
    if infinite:
        n_infinite = sum(counts[cell] for cell in infinite)
        shown_values = ", ".join(shorten(cell, 20) for cell in infinite[:_MAX_SHOWN_VALUES])
        verb = "cells count" if n_infinite > 1 else "cell counts"
        notes.append(f"{n_infinite:,} infinite {verb} as missing ({shown_values}).")
        n_missing += n_infinite
    kind, options = "number", dict[str, str]()
    plain: dict[str, str] = {cell: cell for cell in finite}
    if any(parse_number(cell) is None for cell in finite):
        decimal = next((sign for sign in (".", ",") if all(parse_amount(cell, sign) for cell in finite)), None)
        if decimal is None or all(cell.startswith("(") for cell in finite):
            return None
        amounts = {cell: amount for cell in finite if (amount := parse_amount(cell, decimal))}
        units = sorted({unit for _, unit in amounts.values()})
        if len([unit for unit in units if unit]) > 1 or units == ["", "%"]:
            shown_values = ", ".join(unit or "none" for unit in units)
            reason = f"numbers in different units ({shown_values}): convert them to one"
            return ColumnDescription(name, exclusion_reason=reason)
        plain = {cell: text for cell, (text, _) in amounts.items()}
        kind, options = "amount", {"decimal": decimal} if decimal != "." else {}
        example = max(finite, key=lambda cell: (len(cell), cell))
        notes.append(f"read as numbers, {shorten(example)} as {float(plain[example]):.12g}.")
    parsed = [parse_number(text) for text in plain.values()]
    numbers = sorted({number for number in parsed if number is not None})
    if not numbers or None in parsed:
        return None
    if not n_missing and _is_identifier(name, numbers, n_rows):
        return ColumnDescription(name, exclusion_reason="an identifier: a whole number of its own for every row")
    summary = f"{numbers[0]:.6g} to {numbers[-1]:.6g}, {len(numbers):,} different{_describe_missing(n_missing)}"
    return ColumnDescription(
        name, kind, summary, missing_markers=(*markers, *infinite),
        suspected_missing=_find_suspected_missing(numbers, finite) if kind == "number" else (),
        options=options, notes=tuple(notes),
    )  # fmt: skip


def _describe_dates(
    name: str, counts: Mapping[str, int], markers: tuple[str, ...], n_missing: int
) -> ColumnDescription | None:
    """Describe a column of dates; None if it has other cells."""
    example = next(iter(counts))
    readings: dict[str | None, dict[str, float]] = {}
    for form in _FORMATS:
        if parse_date(example, form) is None:  # saves reading all cells in every format
            continue
        reading = {cell: day for cell in counts if (day := parse_date(cell, form)) is not None}
        if len(reading) == len(counts) and reading not in readings.values():
            readings[form] = reading
    forms = list(readings)
    if not forms:
        return None
    if len(forms) > 1:
        return ColumnDescription(
            name,
            exclusion_reason=f"ambiguous dates: {shorten(example)} can be read with the day or the month first. To use "
            f'them as days, add to features: {{_target_: cfeval_cli.dataset.tabular.Date, format: "{forms[0]}"}} or '
            f'"{forms[1]}"',
        )
    days = readings[forms[0]]
    first, last = min(counts, key=lambda cell: days[cell]), max(counts, key=lambda cell: days[cell])
    return ColumnDescription(
        name, "date", f"{first} to {last}, {len(set(days.values())):,} different{_describe_missing(n_missing)}",
        missing_markers=markers, options={} if forms[0] is None else {"format": forms[0]},
        notes=(f"dates, read as days since 1970-01-01: {shorten(example)} is {days[example]:.12g}.",),
    )  # fmt: skip


def _describe_stray_cells(counts: Mapping[str, int]) -> str:
    """Name the cells of a column that is otherwise of numbers or dates; empty if it is not."""
    stray = [cell for cell in counts if parse_number(cell) is None and parse_amount(cell) is None]
    kinds, read_as = "number or amount", "numbers"
    if len(stray) == len(counts):
        stray, kinds, read_as = _find_unreadable_dates(counts), "date", "dates"
    if len(counts) - len(stray) < max(_MIN_READABLE_SHARE * len(counts), 3):
        return ""
    shown_values = ", ".join(shorten(cell, 20) for cell in stray[:_MAX_SHOWN_VALUES]) + " …" * (
        len(stray) > _MAX_SHOWN_VALUES
    )
    return (
        f"{read_as} except {shown_values}: not read as {read_as}. If that means missing, add it to missing and use "
        f"the kind {kinds}."
    )


def _find_unreadable_dates(cells: Iterable[str]) -> list[str]:
    """Return the cells that do not have the date format of most others."""
    cells = list(cells)
    sample = cells[:_MAX_SHOWN_VALUES]
    forms = [form for form in _FORMATS if any(parse_date(cell, form) is not None for cell in sample)]
    unreadable = ([cell for cell in cells if parse_date(cell, form) is None] for form in forms)
    return min(unreadable, key=len, default=cells)


def _is_one_to_one(cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Return whether each value occurs with one class only, and each class with one value only."""
    pairs = set(zip(cells, labels, strict=True))
    return len(pairs) == len({cell for cell, _ in pairs}) == len({label for _, label in pairs})


def _is_identifier(name: str, numbers: Sequence[float], n_rows: int) -> bool:
    """Return whether distinct numbers, in ascending order, identify or count rows; copied rows repeat a number."""
    if not all(number.is_integer() for number in numbers):
        return False
    if _IDENTIFIER.search(name):
        return len(numbers) >= _MIN_DISTINCT_SHARE * n_rows
    return len(numbers) == n_rows and numbers[-1] - numbers[0] == n_rows - 1


def _find_suspected_missing(numbers: Sequence[float], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return numbers that may stand for a missing value: the only negative ones, or one far above all others."""
    number_counts = Counter[float]()
    for cell, count in counts.items():
        number_counts[parse_number(cell) or 0.0] += count
    is_suspect = {n: bool(_SENTINEL.fullmatch(f"{n:g}")) and number_counts[n] > 1 for n in numbers}
    negative = [number for number in numbers if number < 0]
    suspects = negative if len(negative) < len(numbers) and all(is_suspect[number] for number in negative) else []
    largest = numbers[-1]
    if len(numbers) > 2 and is_suspect[largest] and 0 < largest >= _SENTINEL_FACTOR * max(numbers[-2], 1.0):
        suspects = [*suspects, largest]
    return tuple(f"{number:g}" for number in suspects)


def _find_text_column(columns: Sequence[ColumnDescription]) -> str | None:
    """Return the only column of texts of a file without other features; None for other files."""
    texts = [column for column in columns if column.mean_words]
    other_columns = [column for column in columns if column.kind and not column.mean_words]
    return texts[0].name if len(texts) == 1 and not other_columns else None
