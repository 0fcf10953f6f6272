"""Read CSV and Parquet files as columns of texts, and parse the numbers, amounts and dates in their cells."""

from __future__ import annotations

import csv
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cfeval_cli.errors import UserError, did_you_mean, shorten

# float() also accepts 1_000 and the digits of every script
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_MAX_NUMBER = 1e300  # the difference of two such numbers is finite


def read_csv_rows(
    path: Path, delimiter: str = ",", max_cell_characters: int = 1 << 17, strip_cells: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not empty, each with the number of its first line.

    `strip_cells` ignores spaces after a delimiter.
    """
    begin = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=strip_cells, strict=True)
            while True:
                begin = reader.line_num + 1
                with _limit_cell_size(max_cell_characters):
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
def _limit_cell_size(n_characters: int) -> Iterator[None]:
    """Set the limit of the csv module, which is one for the whole process, and restore it."""
    previous_limit = csv.field_size_limit(n_characters)
    try:
        yield
    finally:
        csv.field_size_limit(previous_limit)


def parse_number(cell: str) -> float | None:
    """Return the number in a cell; None if there is none, or one too large to compute with."""
    if len(cell) > 1000 or not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return value if abs(value) <= _MAX_NUMBER else None


_INFINITY = re.compile(r"[+-]?(inf|infinity|∞)", re.IGNORECASE)


def is_infinite(cell: str) -> bool:
    """Return whether a cell is infinity or a number too large to compute with."""
    return parse_number(cell) is None and bool(_INFINITY.fullmatch(cell) or _NUMBER.fullmatch(cell))


_CURRENCIES = "$€£¥₹₩₽₺₴₪฿"
# By decimal sign. Thousands separators are all alike, and each is followed by three digits.
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
    """Return a number without separators and its unit: ("1234.50", "$") for "$1,234.50"; None if it is no amount.

    A number in parentheses is negative, as in accounts.
    """
    inner = cell[1:-1].strip() if cell.startswith("(") and cell.endswith(")") else cell
    match = _AMOUNTS[decimal].fullmatch(inner) if len(cell) <= 100 else None
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["minus"]):
        return None
    integer_part, fraction = re.sub(r"\D", "", match["whole"]), match["fraction"] or ""
    sign = "-" if {"-", "−"} & {match["sign"], match["minus"]} else ""
    if inner != cell:
        if sign:
            return None
        sign = "-"
    if not integer_part and not fraction:
        return None
    return f"{sign}{integer_part or 0}{'.' * bool(fraction)}{fraction}", match["before"] or match["after"]


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
    """Return the date at a number of days after 1970-01-01, with the time unless it is midnight."""
    return (_EPOCH + timedelta(days=days)).isoformat(" ").removesuffix(" 00:00:00")


def make_matcher(values: Sequence[Any]) -> Callable[[str], int | None]:
    """Return a function from a cell to the index of the value that it equals, as text or as a number.

    "1" equals 1.0, and "true" equals True. The function returns None for other cells.
    """
    texts: dict[str, int] = {}
    numbers: dict[float, int] = {}
    for index, value in enumerate(values):
        text = str(value).strip()
        texts.setdefault(text, index)
        if isinstance(value, bool):
            texts.setdefault(text.lower(), index)
        number = parse_number(text)
        if number is not None:
            numbers.setdefault(number, index)

    def match(cell: str) -> int | None:
        if cell in texts or not numbers:
            return texts.get(cell)
        number = parse_number(cell)
        return None if number is None else numbers.get(number)

    return match


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # in the order in which they are tried


@dataclass(frozen=True)
class RawTable:
    """Columns of a file as texts, with the position of each row in the file."""

    path: Path
    cells: dict[str, list[str]]  # by column
    row_numbers: Sequence[int]  # line numbers in a CSV file, row numbers in a Parquet file
    row_word: str = "line"  # what messages call such a number

    def describe_position(self, row: int) -> str:
        """Return the file and the line of a row, for messages."""
        return f"{self.path}, {self.row_word} {self.row_numbers[row]}"

    @property
    def starts_with_header(self) -> bool:
        """Whether the first row contains column names instead of values."""
        return any(cells[:1] == [name] for name, cells in self.cells.items())


@dataclass(frozen=True)
class Layout:
    """How a table is laid out in its file; options that are None are detected."""

    columns: Sequence[str] | None = None  # names, for a file without a header
    header: bool | None = None  # whether the first line has the column names
    delimiter: str | None = None
    skip_lines: int = 0  # rows before the table begins
    positions: Mapping[str, int] | None = None  # which column to read where a name occurs twice, from 1
    max_cell_characters: int = 1 << 17
    strip_cells: bool = True  # whether to remove spaces around the content of a cell

    def read(self, path: Path, needed_names: Sequence[str]) -> RawTable:
        """Read the wanted columns by name, whatever their order in the file."""
        return self._read_parquet(path, needed_names) if is_parquet(path) else self._read_csv(path, needed_names)

    def _read_csv(self, path: Path, needed_names: Sequence[str]) -> RawTable:
        delimiter = self.delimiter or self._detect_delimiter(path, needed_names)
        _, names_of_first_line = next(self._iterate_rows(path, delimiter), (1, None))
        if names_of_first_line is None:
            raise UserError(f"{path} has no rows.")
        names, names_source = self._resolve_names(path, names_of_first_line, needed_names, delimiter)
        indices = self._resolve_positions(path, names, needed_names)
        rows = self._iterate_rows(path, delimiter)
        if names_source == "the first line":
            next(rows)
        row_numbers = array("q")
        cells: list[list[str]] = [[] for _ in needed_names]
        for line, row in rows:
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {line}: {len(row)} field{'s' * (len(row) != 1)} where {names_source} names "
                    f"{len(names)}." + _suggest_delimiter(row, delimiter)
                )
            row_numbers.append(line)
            for column, index in zip(cells, indices, strict=True):
                # interned, so that equal cells share their memory
                column.append(sys.intern(row[index].strip() if self.strip_cells else row[index]))
        if not row_numbers:
            raise UserError(f"{path} has no rows.")
        return RawTable(path, dict(zip(needed_names, cells, strict=True)), row_numbers)

    def _iterate_rows(self, path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        rows = read_csv_rows(path, delimiter, self.max_cell_characters, self.strip_cells)
        for _ in range(self.skip_lines):
            next(rows, None)
        return rows

    def _detect_delimiter(self, path: Path, needed_names: Sequence[str]) -> str:
        """Return the delimiter that divides the first row into the named columns; a comma if none does."""
        for delimiter in DELIMITERS:
            try:
                _, row = next(self._iterate_rows(path, delimiter), (1, []))
            except UserError:  # raised again when the file is read
                continue
            if self.columns is not None and len(row) == len(self.columns) > 1:
                return delimiter
            if len(row) > 1 and set(needed_names) <= {cell.strip() for cell in row}:
                return delimiter
        return ","

    def _resolve_names(
        self, path: Path, names_of_first_line: Sequence[str], needed_names: Sequence[str], delimiter: str
    ) -> tuple[list[str], str]:
        """Return the column names and where they come from: the first line or the config."""
        cells = [cell.strip() for cell in names_of_first_line]
        if self.header is False or (
            self.header is None and self.columns is not None and not set(needed_names) <= set(cells)
        ):
            if self.columns is None:
                raise UserError(f"{path} has no header, so dataset.columns must name its columns.")
            return list(self.columns), "dataset.columns"
        if self.columns is not None and set(cells) != set(self.columns):
            raise UserError(
                f"{path} has other columns than dataset.columns, {_join_names(self.columns)}. "
                f"{describe_first_line(self._iterate_rows(path, delimiter))} If the first line names the columns, "
                "remove dataset.columns. If it contains something else, skip it with dataset.skip_lines=1 and set "
                "dataset.header=false."
            )
        missing = [name for name in needed_names if name not in cells]
        if missing:
            raise UserError(
                f"{path} has no column {missing[0]}.{did_you_mean(missing[0], cells)} "
                f"{describe_first_line(self._iterate_rows(path, delimiter))} If that is no header, name the columns in "
                "dataset.columns." + _suggest_delimiter(cells, self.delimiter or ",")
            )
        return cells, "the first line"

    def _resolve_positions(self, path: Path, names: Sequence[str], needed_names: Sequence[str]) -> list[int]:
        """Return the index of each wanted column; `positions` chooses between columns of the same name."""
        indices = []
        for name in needed_names:
            matches = [index for index, other in enumerate(names) if other == name]
            position = (self.positions or {}).get(name)
            columns = " and ".join(str(index + 1) for index in matches)
            if position is not None and position - 1 not in matches:
                raise UserError(
                    f"{path}: dataset.positions.{name}={position}, and column {name} is {columns} of {len(names)}."
                )
            if position is None and len(matches) > 1:
                raise UserError(
                    f"{path}: {len(matches)} columns are named {name}, {columns} of {len(names)}. "
                    f"Choose one: dataset.positions={{{name}: {matches[0] + 1}}}"
                )
            indices.append(matches[0] if position is None else position - 1)
        return indices

    def _read_parquet(self, path: Path, needed_names: Sequence[str]) -> RawTable:
        import pyarrow
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                names = list(file.schema_arrow.names)
                missing = [name for name in needed_names if name not in names]
                if missing:
                    raise UserError(
                        f"{path} has no column {missing[0]}.{did_you_mean(missing[0], names)} "
                        f"It has {_join_names(names)}."
                    )
                indices = self._resolve_positions(path, names, needed_names)
                table = file.read(columns=list(dict.fromkeys(needed_names)))
        except (ValueError, OSError, TypeError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
            raise UserError(f"{path} cannot be read as a Parquet file ({str(error)[:200]}).") from error
        cells = {}
        for name, index in zip(needed_names, indices, strict=True):
            # the table has only the wanted names; columns of the same name keep the order of the file
            same_name = [place for place, other in enumerate(table.schema.names) if other == name]
            column = table.column(same_name[names[:index].count(name)])
            cells[name] = _format_parquet_column(path, name, column, strip=self.strip_cells)
        if not table.num_rows:
            raise UserError(f"{path} has no rows.")
        return RawTable(path, cells, range(1, table.num_rows + 1), "row")


def is_parquet(path: Path) -> bool:
    """Return whether a file begins as Parquet files do, whatever its name."""
    with path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _format_parquet_column(path: Path, name: str, column: Any, *, strip: bool) -> list[str]:
    """Return the cells of a column as a CSV file would contain them."""
    cells: list[str] = []
    for value in column.to_pylist():
        if value is None or value != value:  # NaN
            cells.append("")
        elif isinstance(value, float):
            cells.append(repr(value))
        elif isinstance(value, bytes | list | dict):
            raise UserError(f"{path}: column {name} holds {type(value).__name__}s, not numbers or texts.")
        else:
            cells.append(str(value).strip() if strip else str(value))
    return cells


def describe_first_line(rows: Iterator[tuple[int, list[str]]]) -> str:
    """Return a sentence on the first row: the column names, or only the number of cells if it may be data."""
    names_of_first_line, second = ([cell.strip() for cell in next(rows, (0, []))[1]] for _ in range(2))
    if any(map(_is_value, second)) and not any(map(_is_value, names_of_first_line)) and all(names_of_first_line):
        return f"Its first line has {_join_names(names_of_first_line)}."
    return f"Its first line has {len(names_of_first_line):,} cells, and may be a row of data."


def _is_value(cell: str) -> bool:
    """Return whether a cell is a number, an amount or a date, as no name of a column is."""
    return parse_number(cell) is not None or parse_amount(cell) is not None or parse_date(cell) is not None


def _join_names(names: Sequence[str], max_shown: int = 12) -> str:
    """Return names as a message has room for them."""
    shown_names = ", ".join(
        shorten(name, 30)[1:-1] if len(name) <= 30 else shorten(name, 30) for name in names[:max_shown]
    )
    return shown_names + (f" and {len(names) - max_shown} more" if len(names) > max_shown else "")


def _suggest_delimiter(row: Sequence[str], delimiter: str) -> str:
    """Return how to set the delimiter, if a row of one cell contains another one; else an empty string."""
    if len(row) > 1:
        return ""
    for other, name in DELIMITERS.items():
        if other != delimiter and row and other in row[0]:
            return f" It has {name} in it: set dataset.delimiter={other!r}."
    return ""
