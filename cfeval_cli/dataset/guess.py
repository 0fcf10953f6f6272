"""What a user's own file seems to hold: the kinds of its columns, its classes, and what is better left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cfeval_cli.dataset.cells import (
    DELIMITERS,
    Layout,
    Sheet,
    describe_first_line,
    is_infinite,
    number,
    parse_amount,
    parse_date,
    rows,
)
from cfeval_cli.errors import UserError, did_you_mean, shorten

# what stands in cells that say nothing, in any column; texts such as "unknown" may be answers
MARKERS = ("?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "-", ".")
_SENTINEL = re.compile(r"-(7+|8+|9+)|99+")  # numbers that mean that there is none
_FAR = 3  # times the next number, which a sentinel above all others is at least
_IDENTIFIER = re.compile(r"(^|[\W_])(id|key|index|uuid|guid)s?($|[\W_\d])|[a-z](Id|ID)$", re.IGNORECASE)
_DISTINCT = 0.9  # share of different texts from which on a column tells rows apart, and nothing of them
_WORDS = 4  # of a cell on average, from which on a column is of texts
_CLASSES = 20  # at most; a label of more values is a number to be predicted, or a name
_OPPOSITES = ("no", "false", "f", "n", "negative", "neg", "bad", "low", "never")  # of which the other is positive
_SHOWN = 4  # values of a category
_LONGEST = 1 << 24  # characters of a cell
_LONG = 200  # characters of a name
MAX_LEVELS = 50  # of a category, before a line warns of more
_MOSTLY = 0.95  # share of numbers from which on the other cells of a column are probably mistakes
_DATES = ("%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
          "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y")  # fmt: skip
_COMPACT_DATE = re.compile(r"(19|20)[0-9]{6}")  # such as 20200131
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")  # behind a date
_FORMS = (None, *(date + time for date in _DATES for time in _TIMES))  # None: ISO 8601


@dataclass(frozen=True)
class Column:
    """One column: what kind of feature it makes, or why it makes none."""

    name: str
    kind: str = ""  # number, amount, date or category; empty if it is left out
    holds: str = ""  # what people are told of its values
    left_out: str = ""  # the reason
    markers: tuple[str, ...] = ()  # that stand in cells which say nothing
    suspects: tuple[str, ...] = ()  # numbers that may mean that there is none
    words: float = 0.0  # of a text on average; 0: it is no text
    options: Mapping[str, str] = field(default_factory=dict)  # settings of the kind that are not its defaults
    notes: tuple[str, ...] = ()  # one line for each thing that the user should know


@dataclass(frozen=True)
class Guess:
    """A whole file."""

    path: Path
    names: tuple[str, ...]  # of all columns, in order
    header: bool  # whether the first line has the names
    delimiter: str | None  # None: it is a Parquet file
    label: str
    classes: tuple[str | int | float, ...]  # of two the positive one last
    counts: tuple[int, ...]  # rows of each class
    columns: tuple[Column, ...]  # but the label
    positions: Mapping[str, int] = field(default_factory=dict)  # from 1, of columns whose name occurs twice
    text: str | None = None  # the column of texts, if the file is one of texts and labels
    notes: tuple[str, ...] = ()  # one line for each thing to know about labels, rows, and pairs of columns

    @property
    def features(self) -> list[Column]:
        """The columns that a model is given."""
        return [column for column in self.columns if column.kind]

    @property
    def left_out(self) -> list[Column]:
        """The others."""
        return [column for column in self.columns if not column.kind and column.name != self.text]

    @property
    def markers(self) -> tuple[str, ...]:
        """What stands in cells that say nothing."""
        present = dict.fromkeys(marker for column in self.features for marker in column.markers)
        return (*(one for one in MARKERS if one in present), *(one for one in present if one not in MARKERS))

    @property
    def checks(self) -> list[str]:
        """What the user should know about the data, one line each."""
        columns = [] if self.text is not None else self.features
        return [*self.notes, *(f"{short_name(column.name)}: {note}" for column in columns for note in column.notes)]

    @property
    def suspects(self) -> dict[str, tuple[str, ...]]:
        """By column, numbers that may mean that there is none."""
        return {column.name: column.suspects for column in self.features if column.suspects}


def short_name(name: str) -> str:
    """Return a column's name as a message has room for it."""
    return name if len(name) <= 40 else shorten(name, 40)


def guess(path: Path, label: str, text: str | None = None) -> Guess:
    """Look at all cells of a file; UserError if it cannot be told what is what."""
    names, header, delimiter = _names(path, label)
    label = label if header else names[int(label) - 1]
    if label == text:
        raise UserError(f"{path}: column {label} cannot be both the text and the label.")
    if text is not None and text not in names:
        more = (
            f"It has {', '.join(names)}." if delimiter is None else describe_first_line(rows(path, delimiter, _LONGEST))
        )
        raise UserError(f"{path} has no column {text}.{did_you_mean(text, names)} {more}")
    if names.count(label) > 1:
        raise UserError(
            f"{path}: {names.count(label)} columns are named {label}. Rename the one that is not the label."
        )
    named = [name for name in dict.fromkeys(names) if name]
    positions = {name: names.index(name) + 1 for name in named if names.count(name) > 1}
    layout = Layout(None if header else names, header, delimiter, positions=positions, longest=_LONGEST)
    sheet = layout.read(path, named)
    classes, counts = _classes(sheet, label)
    columns = tuple(_column(name, sheet.cells[name], sheet.cells[label]) for name in sheet.cells if name != label)
    columns += tuple(
        Column(name, left_out=f"called as column {positions[name]} is" if name else "it has no name")
        for place, name in enumerate(names, 1)
        if not name or place != positions.get(name, place)
    )
    return Guess(
        path, tuple(names), header, delimiter, label, classes, counts, columns,
        {name: place for name, place in positions.items() if any(c.kind and c.name == name for c in columns)},
        text or _text(columns), _notes(sheet, label, columns),
    )  # fmt: skip


def _notes(sheet: Sheet, label: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """Describe labels that differ by case, equal columns and equal rows, one line each."""
    notes = []
    for pair in _case_pairs(sheet.cells[label]):
        counts = " and ".join(f"{shorten(one)} ({sheet.cells[label].count(one):,} rows)" for one in pair)
        notes.append(
            f"{short_name(label)}: the labels {counts} differ by case only and are separate classes. If they mean the "
            "same, write them alike in the data."
        )
    first: dict[int, str] = {}
    for column in columns:
        if not column.kind or column.name not in sheet.cells:
            continue
        cells = sheet.cells[column.name]
        other = first.setdefault(hash(tuple(cells)), column.name)
        if other != column.name and sheet.cells[other] == cells:
            notes.append(
                f"{short_name(column.name)} has the same values as {short_name(other)}. Remove one of them from "
                "features: copies share their importance."
            )
    n_rows = len(sheet.lines)
    # hashes take a fraction of the memory of whole rows
    copies = n_rows - len(set(map(hash, zip(*sheet.cells.values(), strict=True))))
    if copies:
        notes.append(
            f"{copies:,} of {n_rows:,} rows are copies of another row: one copy can be a training row and the other a "
            "test row. Remove them unless they are separate cases."
        )
    return tuple(notes)


def _case_pairs(values: Sequence[str]) -> list[list[str]]:
    """Return the groups of values that differ by case only."""
    groups: dict[str, list[str]] = {}
    for value in sorted(set(values)):
        groups.setdefault(value.casefold(), []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _names(path: Path, label: str) -> tuple[list[str], bool, str | None]:
    """The columns' names, whether the file has them itself, and what divides them."""
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    with path.open("rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    if parquet:
        names = _of_parquet(path)
        if label not in names:
            raise UserError(f"{path} has no column {label}.{did_you_mean(label, names)} It has {', '.join(names)}.")
        return names, True, None
    delimiter, first, second = _first_rows(path, label)
    if label in first:
        return first, True, delimiter
    place = int(label) if label.isdecimal() else 0
    if not 1 <= place <= len(first):
        content = describe_first_line(iter([(1, first), (2, second)]))
        raise UserError(
            f"{path} has no column {label}.{did_you_mean(label, first)} {content} If that is no header, name the label "
            f"by its place: --label {len(first)}"
        )
    headed = [number(one) is None and number(two) is not None for one, two in zip(first, second, strict=False)]
    if any(headed) and not any(number(cell) is not None for cell in first):
        raise UserError(
            f"{path}: the first line looks like a header. Name the label as it does: --label {first[place - 1]}"
        )
    return [f"column_{one}" for one in range(1, len(first) + 1)], False, delimiter


def _of_parquet(path: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    except (ValueError, OSError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is no Parquet file that can be read ({str(error)[:200]}).") from error


def _first_rows(path: Path, label: str) -> tuple[str, list[str], list[str]]:
    """The delimiter and two rows: it divides the first so that the label is one of the cells, or both alike."""
    found: list[tuple[bool, bool, int, str, list[str], list[str]]] = []
    complaint: UserError | None = None
    for delimiter in DELIMITERS:
        lines = rows(path, delimiter, _LONGEST)
        try:
            first, second = (next(lines, (0, []))[1] for _ in range(2))
        except UserError as error:
            complaint = complaint or error
            continue
        cells = [cell.strip() for cell in first]
        alike = len(cells) == len(second) > 1
        found.append((label in cells and len(cells) > 1, alike, len(cells), delimiter, cells, second))
    if not found and complaint is not None:
        raise complaint
    _, _, width, delimiter, first, second = max(found, key=lambda one: one[:3])
    if not width:
        raise UserError(f"{path} has no rows.")
    if width == 1:
        raise UserError(
            f"{path}: {', '.join(DELIMITERS.values())} divide nothing in its first line ({len(first[0]):,} characters)."
        )
    if not second:
        raise UserError(f"{path} has one row only.")
    return delimiter, first, second


def _classes(sheet: Sheet, label: str) -> tuple[tuple[str | int | float, ...], tuple[int, ...]]:
    """The values of the label, of two the positive one last, and how many rows have each."""
    cells = sheet.cells[label]
    if "" in cells:
        raise UserError(
            f"{sheet.where(cells.index(''))}: column {label} is empty, as in {cells.count(''):,} rows. A row without a "
            "label teaches nothing: leave it out."
        )
    counts = Counter(cells)
    numbers = {cell: number(cell) for cell in counts}
    if all(value is not None for value in numbers.values()):
        merged: Counter[str | int | float] = Counter()
        for cell, count in counts.items():
            value = float(numbers[cell] or 0)
            merged[int(value) if value.is_integer() else value] += count
        order: list[str | int | float] = sorted(merged, key=float)
    else:
        merged = Counter(dict(counts))
        order = sorted(merged, key=lambda one: (str(one).lower() not in _OPPOSITES, str(one)))
    if len(order) < 2:
        raise UserError(f"{sheet.path}: all rows are of one class in column {label}, {shorten(str(order[0]))}.")
    if len(order) > _CLASSES:
        raise UserError(
            f"{sheet.path}: column {label} has {len(order):,} different values, and a label at most {_CLASSES}. "
            "Is it a number to be predicted, or another column?"
        )
    return tuple(order), tuple(merged[one] for one in order)


def _column(name: str, cells: Sequence[str], labels: Sequence[str]) -> Column:
    if len(name) > _LONG:
        return Column(shorten(name), left_out="its name is too long for a config")
    counts = Counter(cells)
    empty = sum(counts[marker] for marker in ("", *MARKERS))
    said = {cell: count for cell, count in counts.items() if cell and cell not in MARKERS}
    markers = tuple(marker for marker in MARKERS if counts[marker])
    gone = f"; {empty:,} missing" * bool(empty)
    if not said:
        return Column(name, left_out="empty")
    if len(said) == 1 and not empty:
        return Column(name, left_out=f"one value only, {shorten(next(iter(said)))}")
    if _same(cells, labels):
        return Column(name, left_out="says what the label says")
    dates = _dates(name, said, markers, gone)
    if dates and (all(map(_COMPACT_DATE.fullmatch, said)) or any(number(cell) is None for cell in said)):
        return dates
    numeric = _numeric(name, cells, said, markers, empty)
    if numeric is not None:
        return numeric
    stray = _stray(said)
    words = sum(len(cell.split()) * count for cell, count in said.items()) / sum(said.values())
    words = words if words >= _WORDS else 0.0
    if len(said) >= _DISTINCT * sum(said.values()):
        reason = f"texts, {len(said):,} different in {sum(said.values()):,} rows: they tell rows apart and nothing more"
        return Column(name, left_out=stray or reason, words=words)
    common = sorted(said, key=lambda cell: (-said[cell], cell))
    shown = ", ".join(shorten(cell, 20)[1:-1] if len(cell) <= 20 else shorten(cell, 20) for cell in common[:_SHOWN])
    more = f" and {len(said) - _SHOWN:,} more" * (len(said) > _SHOWN)
    notes = [stray] if stray else []
    if len(said) > MAX_LEVELS and not stray:
        notes.append(
            f"a category with {len(said):,} levels. Combine rare levels ({{_target_: "
            "cfeval_cli.dataset.tabular.Category, groups: {other: […]}}), or remove it from features."
        )
    if pairs := _case_pairs(list(said)):
        same = " and ".join(map(shorten, pairs[0])) + f" (and {len(pairs) - 1:,} more)" * (len(pairs) > 1)
        notes.append(
            f"{same} differ by case only and are separate levels. If they mean the same, write them alike in the data."
        )
    return Column(name, "category", f"{shown}{more}{gone}", markers=markers, words=words, notes=tuple(notes))


def _numeric(
    name: str, cells: Sequence[str], said: Mapping[str, int], markers: tuple[str, ...], empty: int
) -> Column | None:
    """Describe a column of numbers, with or without separators and units; None if it has other cells."""
    infinite = tuple(cell for cell in said if is_infinite(cell))
    finite = {cell: count for cell, count in said.items() if cell not in infinite}
    notes = []
    if infinite:
        n_infinite = sum(said[cell] for cell in infinite)
        shown = ", ".join(shorten(cell, 20) for cell in infinite[:_SHOWN])
        verb = "cells count" if n_infinite > 1 else "cell counts"
        notes.append(f"{n_infinite:,} infinite {verb} as missing ({shown}).")
        empty += n_infinite
    kind, options = "number", dict[str, str]()
    plain: dict[str, str] = {cell: cell for cell in finite}
    if any(number(cell) is None for cell in finite):
        decimal = next((d for d in (".", ",") if all(parse_amount(cell, d) for cell in finite)), None)
        if decimal is None or all(cell.startswith("(") for cell in finite):
            return None
        amounts = {cell: amount for cell in finite if (amount := parse_amount(cell, decimal))}
        units = sorted({unit for _, unit in amounts.values()})
        if len([unit for unit in units if unit]) > 1 or units == ["", "%"]:
            shown = ", ".join(unit or "none" for unit in units)
            return Column(name, left_out=f"numbers in different units ({shown}): convert them to one")
        plain = {cell: text for cell, (text, _) in amounts.items()}
        kind, options = "amount", {"decimal": decimal} if decimal != "." else {}
        example = max(finite, key=lambda cell: (len(cell), cell))
        notes.append(f"read as numbers, {shorten(example)} as {float(plain[example]):.12g}.")
    values = [number(text) for text in plain.values()]
    known = sorted({value for value in values if value is not None})
    if not known or None in values:
        return None
    if not empty and _counts_rows(name, known, len(cells)):
        return Column(name, left_out="an identifier: a whole number of its own for every row")
    gone = f"; {empty:,} missing" * bool(empty)
    span = f"{known[0]:.6g} to {known[-1]:.6g}, {len(known):,} different{gone}"
    suspects = _suspects(known, finite) if kind == "number" else ()
    return Column(
        name, kind, span, markers=(*markers, *infinite), suspects=suspects, options=options, notes=tuple(notes)
    )


def _dates(name: str, said: Mapping[str, int], markers: tuple[str, ...], gone: str) -> Column | None:
    """Describe a column of dates; None if it has other cells."""
    example = next(iter(said))
    readings: dict[str | None, dict[str, float]] = {}
    for form in _FORMS:
        if parse_date(example, form) is None:  # saves reading all cells in every form
            continue
        reading = {cell: day for cell in said if (day := parse_date(cell, form)) is not None}
        if len(reading) == len(said) and reading not in readings.values():
            readings[form] = reading
    forms = list(readings)
    if not forms:
        return None
    if len(forms) > 1:
        return Column(
            name,
            left_out=f"ambiguous dates: {shorten(example)} can be read with the day or the month first. To use them as "
            f'days, add to features: {{_target_: cfeval_cli.dataset.tabular.Date, format: "{forms[0]}"}} or '
            f'"{forms[1]}"',
        )
    days = readings[forms[0]]
    first, last = min(said, key=lambda cell: days[cell]), max(said, key=lambda cell: days[cell])
    return Column(
        name, "date", f"{first} to {last}, {len(set(days.values())):,} different{gone}", markers=markers,
        options={} if forms[0] is None else {"format": forms[0]},
        notes=(f"dates, read as days since 1970-01-01: {shorten(example)} is {days[example]:.12g}.",),
    )  # fmt: skip


def _stray(said: Mapping[str, int]) -> str:
    """Name the cells of a column that is otherwise of numbers or dates; empty if it is not."""
    others = [cell for cell in said if number(cell) is None and parse_amount(cell) is None]
    kinds, read_as = "number or amount", "numbers"
    if len(others) == len(said):
        others, kinds, read_as = _no_dates(said), "date", "dates"
    if len(said) - len(others) < max(_MOSTLY * len(said), 3):
        return ""
    shown = ", ".join(shorten(cell, 20) for cell in others[:_SHOWN]) + " …" * (len(others) > _SHOWN)
    return (
        f"{read_as} except {shown}: not read as {read_as}. If that means missing, add it to missing and use the kind "
        f"{kinds}."
    )


def _no_dates(said: Mapping[str, int]) -> list[str]:
    """Return the cells that the format of most others does not read."""
    sample = list(said)[:_SHOWN]
    forms = [form for form in _FORMS if any(parse_date(cell, form) is not None for cell in sample)]
    unread = ([cell for cell in said if parse_date(cell, form) is None] for form in forms)
    return min(unread, key=len, default=list(said))


def _same(cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether each value stands for one class, and each class for one value."""
    pairs = set(zip(cells, labels, strict=True))
    return len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs})


def _counts_rows(name: str, known: Sequence[float], n_rows: int) -> bool:
    """Whether whole numbers name or count rows; copied rows repeat the name of a row."""
    if not all(value.is_integer() for value in known):
        return False
    if _IDENTIFIER.search(name):
        return len(known) >= _DISTINCT * n_rows
    return len(known) == n_rows and known[-1] - known[0] == n_rows - 1


def _suspects(known: Sequence[float], said: Mapping[str, int]) -> tuple[str, ...]:
    """Numbers that may mean that there is none: the only negative ones, or one far above all others."""
    often = Counter[float]()
    for cell, count in said.items():
        often[number(cell) or 0.0] += count
    looks = {value: bool(_SENTINEL.fullmatch(f"{value:g}")) and often[value] > 1 for value in known}
    below = [value for value in known if value < 0]
    found = below if len(below) < len(known) and all(looks[value] for value in below) else []
    if len(known) > 2 and looks[known[-1]] and known[-1] > 0 and known[-1] >= _FAR * max(known[-2], 1.0):
        found = [*found, known[-1]]
    return tuple(f"{value:g}" for value in found)


def _text(columns: Sequence[Column]) -> str | None:
    """The column of texts of a file that has nothing else to tell, if it is one."""
    texts = [column for column in columns if column.words]
    others = [column for column in columns if column.kind and not column.words]
    return texts[0].name if len(texts) == 1 and not others else None
