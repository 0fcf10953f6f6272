"""What a user's own text files hold: rows of CSV files and numbers, read in one way or refused by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cfeval_cli.errors import UserError

# as tables have them; float() takes 1_000 and the digits of every script too
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_LARGEST = 1e300  # the distance between two such numbers is a number


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
                if any("\0" in cell for cell in row):
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
