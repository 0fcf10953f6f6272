"""What a user's own files hold: rows of CSV and Parquet files, and numbers, read in one way or refused by line."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cfeval_cli.errors import UserError, did_you_mean, shorten

# as tables have them; float() takes 1_000 and the digits of every script too
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_LARGEST = 1e300  # the distance between two such numbers is a number
_TEXTS = 1 << 16  # of a column that are told apart when it is read


def rows(
    path: Path, delimiter: str = ",", longest: int = 1 << 17, spaces: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, each with the line that it begins on; a cell may be so long.

    `spaces` after a delimiter are left out.
    """
    begin = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=spaces, strict=True)
            while True:
                begin = reader.line_num + 1
                with _cells_of(longest):
                    row = next(reader, None)
                if row is None:
                    return
                if "\0" in "".join(row):
                    raise UserError(f"{path}, line {begin}: a NUL byte. Is it text, and UTF-8?")
                if row:
                    yield begin, row
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}).") from error
    except csv.Error as error:
        raise UserError(f"{path}, the row that begins on line {begin}: {error}.") from error


@contextmanager
def _cells_of(longest: int) -> Iterator[None]:
    """The limit is one for the whole process: put back, so that no file is read differently after another."""
    before = csv.field_size_limit(longest)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def number(cell: str) -> float | None:
    """A number as tables have them, if it is one and small enough to compute with."""
    if len(cell) > 1000 or not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return value if abs(value) <= _LARGEST else None


_INFINITY = re.compile(r"[+-]?(inf|infinity|∞)", re.IGNORECASE)


def is_infinite(cell: str) -> bool:
    """Return whether a cell is infinity or a number too large to compute with."""
    return number(cell) is None and bool(_INFINITY.fullmatch(cell) or _NUMBER.fullmatch(cell))


_CURRENCIES = "$€£¥₹₩₽₺₴₪฿"
# by decimal sign: thousands separators are all alike, and stand before three digits
_AMOUNTS = {
    decimal: re.compile(
        rf"(?P<sign>[+\-−]?)(?P<before>[{_CURRENCIES}]?)\s*(?P<minus>[-−]?)"
        rf"(?P<whole>[1-9][0-9]{{0,2}}(?P<group>[{thousands}'’ \u00a0\u202f])[0-9]{{3}}(?:(?P=group)[0-9]{{3}})*"
        r"|[0-9]*)"
        rf"(?:[{decimal}](?P<fraction>[0-9]*))?\s*(?P<after>[{_CURRENCIES}%]?)"
    )
    for decimal, thousands in ((".", ","), (",", "."))
}


def parse_amount(cell: str, decimal: str = ".") -> tuple[str, str] | None:
    """Return a number without separators and its unit: "$1,234.50" gives ("1234.50", "$"); None if it is no amount.

    A number in parentheses is negative, as in accounts.
    """
    inner = cell[1:-1].strip() if cell.startswith("(") and cell.endswith(")") else cell
    match = _AMOUNTS[decimal].fullmatch(inner) if len(cell) <= 100 else None
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["minus"]):
        return None
    whole, fraction = re.sub(r"\D", "", match["whole"]), match["fraction"] or ""
    sign = "-" if {"-", "−"} & {match["sign"], match["minus"]} else ""
    if inner != cell:
        if sign:
            return None
        sign = "-"
    if not whole and not fraction:
        return None
    return f"{sign}{whole or 0}{'.' * bool(fraction)}{fraction}", match["before"] or match["after"]


_EPOCH = datetime(1970, 1, 1)


def parse_date(cell: str, form: str | None = None) -> float | None:
    """Return the days from 1970-01-01 to a date, with its time as a fraction; None if the cell is no such date.

    `form` is a format of datetime.strptime, or None for ISO 8601. A time with a zone is converted to UTC.
    """
    if len(cell) > 100:
        return None
    try:
        moment = datetime.fromisoformat(cell) if form is None else datetime.strptime(cell, form)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) / timedelta(days=1)


def format_date(days: float) -> str:
    """Return the date that lies so many days after 1970-01-01, with the time unless it is midnight."""
    return (_EPOCH + timedelta(days=days)).isoformat(" ").removesuffix(" 00:00:00")


def matching(values: Sequence[Any]) -> Callable[[str], int | None]:
    """A function that tells which of some values a cell has, as text or as a number: 1 is 1.0, true is True."""
    texts: dict[str, int] = {}
    numbers: dict[float, int] = {}
    for place, value in enumerate(values):
        text = str(value).strip()
        texts.setdefault(text, place)
        if isinstance(value, bool):
            texts.setdefault(text.lower(), place)
        told = number(text)
        if told is not None:
            numbers.setdefault(told, place)

    def match(cell: str) -> int | None:
        if cell in texts or not numbers:
            return texts.get(cell)
        told = number(cell)
        return None if told is None else numbers.get(told)

    return match


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # that are looked for, in this order


@dataclass(frozen=True)
class Sheet:
    """Columns of a file by name, cell by cell, and where each row stands in it."""

    path: Path
    cells: dict[str, list[str]]
    lines: Sequence[int]
    line: str = "line"  # what a row's place is called

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"{self.path}, {self.line} {self.lines[row]}"

    @property
    def headed(self) -> bool:
        """Whether the first row has the names of columns in it, and so is none."""
        return any(cells[:1] == [name] for name, cells in self.cells.items())


@dataclass(frozen=True)
class Layout:
    """How a table is laid out in its file; what is None is looked for."""

    columns: Sequence[str] | None = None  # names, for a file whose first line has none
    header: bool | None = None  # whether the first line has the columns' names
    delimiter: str | None = None
    skip_lines: int = 0  # rows before the table begins
    positions: Mapping[str, int] | None = None  # which column is meant where a name occurs twice, from 1
    longest: int = 1 << 17  # characters of a cell
    spaces: bool = True  # spaces around a cell are left out; False: cells are kept as they are

    def read(self, path: Path, wanted: Sequence[str]) -> Sheet:
        """The columns that are wanted, by name, in whatever order the file has them; the others are not looked at."""
        with path.open("rb") as stream:
            parquet = stream.read(4) == b"PAR1"
        return self._parquet(path, wanted) if parquet else self._text(path, wanted)

    def _text(self, path: Path, wanted: Sequence[str]) -> Sheet:
        delimiter = self.delimiter or self._delimiter(path, wanted)
        lines = self._rows(path, delimiter)
        _, first = next(lines, (1, None))
        if first is None:
            raise UserError(f"{path} has no rows.")
        names, source = self._names(path, first, wanted, delimiter)
        places = self._places(path, names, wanted)
        rest = self._rows(path, delimiter)
        if source == "the first line":
            next(rest)
        found = array("q")
        cells: list[list[str]] = [[] for _ in wanted]
        once = [_once() for _ in wanted]
        for line, row in rest:
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {line}: {len(row)} field{'s' * (len(row) != 1)} where {source} names {len(names)}."
                    + _other_delimiter(row, delimiter)
                )
            found.append(line)
            for column, same, place in zip(cells, once, places, strict=True):
                column.append(same(row[place].strip() if self.spaces else row[place]))
        if not found:
            raise UserError(f"{path} has no rows.")
        return Sheet(path, dict(zip(wanted, cells, strict=True)), found)

    def _rows(self, path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        lines = rows(path, delimiter, self.longest, self.spaces)
        for _ in range(self.skip_lines):
            next(lines, None)
        return lines

    def _delimiter(self, path: Path, wanted: Sequence[str]) -> str:
        """The one that divides the first row into the columns that are named; else a comma."""
        for delimiter in DELIMITERS:
            try:
                _, row = next(self._rows(path, delimiter), (1, []))
            except UserError:  # is told when the file is read
                continue
            known = {cell.strip() for cell in row}
            if self.columns is not None and len(row) == len(self.columns) > 1:
                return delimiter
            if len(row) > 1 and set(wanted) <= known:
                return delimiter
        return ","

    def _names(self, path: Path, first: Sequence[str], wanted: Sequence[str], delimiter: str) -> tuple[list[str], str]:
        """The columns' names, and who tells them: the first line, or the config."""
        told = [cell.strip() for cell in first]
        if self.header is False or (self.header is None and self.columns is not None and not set(wanted) <= set(told)):
            if self.columns is None:
                raise UserError(f"{path} has no header, so dataset.columns must name its columns.")
            return list(self.columns), "dataset.columns"
        if self.columns is not None and set(told) != set(self.columns):
            raise UserError(
                f"{path} has other columns than dataset.columns, {_listed(self.columns)}. "
                f"{describe_first_line(self._rows(path, delimiter))} Leave dataset.columns out where the first line "
                "names the columns. If it says something else, leave it out with dataset.skip_lines=1 and set "
                "dataset.header=false."
            )
        missing = [name for name in wanted if name not in told]
        if missing:
            raise UserError(
                f"{path} has no column {missing[0]}.{did_you_mean(missing[0], told)} "
                f"{describe_first_line(self._rows(path, delimiter))} If that is no header, name the columns in "
                "dataset.columns." + _other_delimiter(told, self.delimiter or ",")
            )
        return told, "the first line"

    def _places(self, path: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
        """Where the columns are; one of two that have the same name has to be chosen."""
        places = []
        for name in wanted:
            found = [place for place, one in enumerate(names) if one == name]
            chosen = (self.positions or {}).get(name)
            if chosen is not None and chosen - 1 not in found:
                raise UserError(
                    f"{path}: dataset.positions.{name}={chosen}, and column {name} is "
                    f"{' and '.join(str(place + 1) for place in found)} of {len(names)}."
                )
            if chosen is None and len(found) > 1:
                raise UserError(
                    f"{path}: {len(found)} columns are named {name}, {' and '.join(str(p + 1) for p in found)} of "
                    f"{len(names)}. Say which is meant: dataset.positions={{{name}: {found[0] + 1}}}"
                )
            places.append(found[0] if chosen is None else chosen - 1)
        return places

    def _parquet(self, path: Path, wanted: Sequence[str]) -> Sheet:
        import pyarrow
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                names = list(file.schema_arrow.names)
                missing = [name for name in wanted if name not in names]
                if missing:
                    raise UserError(
                        f"{path} has no column {missing[0]}.{did_you_mean(missing[0], names)} It has {_listed(names)}."
                    )
                self._places(path, names, wanted)  # which are to be told apart
                table = file.read(columns=list(dict.fromkeys(wanted)))
        except (ValueError, OSError, TypeError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
            raise UserError(f"{path} is no Parquet file that can be read ({str(error)[:200]}).") from error
        cells = {}
        for name in wanted:
            # columns of one name stand in the order of the file
            same = [place for place, one in enumerate(names) if one == name]
            chosen = (self.positions or {}).get(name, same[0] + 1) - 1
            mine = [place for place, one in enumerate(table.schema.names) if one == name]
            cells[name] = _cells(path, name, table.column(mine[same.index(chosen)]), strip=self.spaces)
        if not table.num_rows:
            raise UserError(f"{path} has no rows.")
        return Sheet(path, cells, range(1, table.num_rows + 1), "row")


def _once() -> Callable[[str], str]:
    """Gives equal texts as one, which takes the room of one; of a column with very many texts, of the first of them."""
    known: dict[str, str] = {}

    def same(text: str) -> str:
        return known.setdefault(text, text) if len(known) < _TEXTS else known.get(text, text)

    return same


def _cells(path: Path, name: str, column: Any, *, strip: bool) -> list[str]:
    """A column of a Parquet file as a CSV file would have it."""
    told: list[str] = []
    for value in column.to_pylist():
        if value is None or value != value:  # NaN
            told.append("")
        elif isinstance(value, float):
            told.append(repr(value))
        elif isinstance(value, bytes | list | dict):
            raise UserError(f"{path}: column {name} holds {type(value).__name__}s, not numbers or texts.")
        else:
            told.append(str(value).strip() if strip else str(value))
    return told


def describe_first_line(lines: Iterator[tuple[int, list[str]]]) -> str:
    """Return a sentence on the first of some rows: its names, or of what may be data only the number of cells."""
    first, second = ([cell.strip() for cell in next(lines, (0, []))[1]] for _ in range(2))
    if any(map(_is_value, second)) and not any(map(_is_value, first)) and all(first):
        return f"Its first line has {_listed(first)}."
    return f"Its first line has {len(first):,} cells, and may be a row of data."


def _is_value(cell: str) -> bool:
    """Return whether a cell is a number, an amount or a date, as no name of a column is."""
    return number(cell) is not None or parse_amount(cell) is not None or parse_date(cell) is not None


def _listed(names: Sequence[str], most: int = 12) -> str:
    """Some names, as a message has room for them."""
    told = ", ".join(shorten(name, 30)[1:-1] if len(name) <= 30 else shorten(name, 30) for name in names[:most])
    return told + (f" and {len(names) - most} more" if len(names) > most else "")


def _other_delimiter(row: Sequence[str], delimiter: str) -> str:
    """A hint, where a row that is not divided has something else in it that could divide it."""
    if len(row) > 1:
        return ""
    for other, name in DELIMITERS.items():
        if other != delimiter and row and other in row[0]:
            return f" It has {name} in it: set dataset.delimiter={other!r}."
    return ""
