"""Tables for a narrow screen: cells and titles in several lines, and fewer columns if need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import ARROWS, Cell, Row, Table, Title

if TYPE_CHECKING:
    from rich.text import Text

_MIN_TITLE_WIDTH = 12  # columns of the screen for the titles of rows
_NBSP = "\u00a0"  # a blank that keeps words together
_Lines = Sequence[str]


@dataclass(frozen=True)
class _NarrowColumn:
    """The lines of a heading and of each cell."""

    heading: _Lines
    cells: Sequence[_Lines]
    bold: Sequence[bool]
    is_explainer: bool = False

    @property
    def width(self) -> int:
        return max((len(line) for lines in (self.heading, *self.cells) for line in lines), default=0)


def render_narrow(table: Table, width: int) -> list[Text]:
    """Write a table in lines of at most so many columns of the screen; no word is broken."""
    from rich.text import Text

    columns, legend = _fit_columns(table, _make_columns(table), width)
    lines = [Text(line, style="bold") for line in _wrap(escape_controls(table.title), width)]
    if table.rows:
        lines += _write_table(table, columns, width)
    notes = [line for note in (*legend, *table.notes) for line in _wrap(escape_controls(note), width)]
    return [*lines, *(Text(line, style="dim") for line in notes)]


def _make_columns(table: Table) -> list[_NarrowColumn]:
    """Return the columns; those that are stacked share one."""
    columns: list[_NarrowColumn] = []
    for i, title in enumerate(table.header[1:]):
        cells = [row.cells[i] for row in table.rows]
        bold = [cell.bold for cell in cells]
        if title.is_stacked and columns:
            last = columns.pop()
            lines = [[*above, _escape(cell.text)] for above, cell in zip(last.cells, cells, strict=True)]
            columns.append(replace(last, heading=[*last.heading, _escape(title.text)], cells=lines))
        elif i + 2 < len(table.header) and table.header[i + 2].is_stacked:
            columns.append(_NarrowColumn([_escape(title.text)], [[_escape(cell.text)] for cell in cells], bold))
        else:
            heading = [_escape(word) for word in _split_title(title)]
            columns.append(_NarrowColumn(heading, [_split_cell(cell) for cell in cells], bold, title.is_explainer))
    return columns


def _escape(text: str) -> str:
    return escape_controls(text).replace(_NBSP, " ")


def _split_title(title: Title) -> list[str]:
    return (split_camel_case(title.text) if title.is_explainer else title.text).split(" ")


def _split_cell(cell: Cell) -> list[str]:
    """Return the words of a text, or a number and below it the rank."""
    if isinstance(cell.value, str):
        words = [*cell.value.split(" "), cell.detail] if cell.detail else cell.value.split(" ")
        return [_escape(word) for word in words]
    if not cell.rank_text or cell.is_missing:
        return [_escape(cell.text)]
    return [_escape(replace(cell, rank=None).text), _escape(cell.rank_text)]


def _fit_columns(table: Table, columns: list[_NarrowColumn], width: int) -> tuple[list[_NarrowColumn], list[str]]:
    """Keep the names of explainers, or number them, or show ranks alone, or fewer explainers; and a legend."""
    if _fits(table, columns, width):
        return columns, []
    names = [" ".join(column.heading) for column in columns if column.is_explainer]
    legend = ["Columns: " + ", ".join(f"{i} {name}" for i, name in enumerate(names, 1)) + "."] if names else []
    numbered = _number_explainers(columns)
    if not names or _fits(table, numbered, width):
        return numbered, legend
    ranks = [replace(c, cells=[lines[-1:] for lines in c.cells]) if c.is_explainer else c for c in numbered]
    if _fits(table, ranks, width):
        return ranks, [*legend, "Only ranks; --full shows the values."]
    n_shown = len(names)
    while n_shown > 1 and not _fits(table, ranks, width):
        n_shown -= 1
        ranks = _take_first_explainers(ranks, n_shown)
    return ranks, [*legend, f"Ranks of {n_shown} of {len(names)} explainers; --full shows all values."]


def _number_explainers(columns: Sequence[_NarrowColumn]) -> list[_NarrowColumn]:
    """Replace the names of explainers by numbers."""
    numbers = iter(range(1, len(columns) + 1))
    return [replace(c, heading=[str(next(numbers))]) if c.is_explainer else c for c in columns]


def _take_first_explainers(columns: Sequence[_NarrowColumn], count: int) -> list[_NarrowColumn]:
    """Return the columns of the first explainers and those of no explainer."""
    explainers = [column for column in columns if column.is_explainer][:count]
    return [
        column for column in columns if not column.is_explainer or any(column is explainer for explainer in explainers)
    ]


def _compute_title_width(columns: Sequence[_NarrowColumn], width: int) -> int:
    """Return how much of the width is left for the titles of rows."""
    return width - sum(column.width + 1 for column in columns)


def _fits(table: Table, columns: Sequence[_NarrowColumn], width: int) -> bool:
    longest = max((len(word) for row in table.rows for word in escape_controls(row.title.text).split()), default=0)
    return _compute_title_width(columns, width) >= max(_MIN_TITLE_WIDTH, longest)


def _write_table(table: Table, columns: Sequence[_NarrowColumn], width: int) -> list[Text]:
    from rich.text import Text

    titles = [_wrap_title(row, max(_MIN_TITLE_WIDTH, _compute_title_width(columns, width))) for row in table.rows]
    first = max((len(line) for lines in titles for line in lines), default=0)
    needed = first + sum(column.width + 1 for column in columns)
    gap = 2 if needed + len(columns) <= width else 1
    rule = Text("─" * (first + sum(column.width + gap for column in columns)), style="dim")
    height = max(len(column.heading) for column in columns)
    lines = []
    for i in range(height):
        # names of explainers stand at the bottom of the heading; other headings begin with the second line of names
        parts = [f"{'':{gap}}{_place_heading(c, height)[i]:>{c.width}}" for c in columns]
        lines.append(Text(f"{'':{first}}{''.join(parts)}", style="bold"))
    number = 0
    for block in table.blocks:
        lines.append(rule)
        for _ in block:
            lines += _write_row(number, titles[number], columns, first, gap)
            number += 1
    return [*lines, rule]


def _place_heading(column: _NarrowColumn, height: int) -> list[str]:
    heading = ["", *column.heading] if len(column.heading) < height else [*column.heading]
    return [*[""] * (height - len(heading)), *heading]


def _write_row(number: int, title: _Lines, columns: Sequence[_NarrowColumn], first: int, gap: int) -> list[Text]:
    from rich.text import Text

    lines = []
    for i in range(max(len(title), *(len(column.cells[number]) for column in columns))):
        line = Text(f"{title[i] if i < len(title) else '':<{first}}")
        for column in columns:
            cell = column.cells[number]
            text = cell[i] if i < len(cell) else ""
            line.append(f"{'':{gap}}{text:>{column.width}}", style="bold" if column.bold[number] else "")
        line.rstrip()
        lines.append(line)
    return lines


def _wrap_title(row: Row, width: int) -> list[str]:
    """Write the title of a row; its details stand below the name if both do not fit one line."""
    title, text = row.title, escape_controls(row.title.text)
    if len(text) <= width or not title.details:
        return _wrap(text, width)
    name = f"{escape_controls(title.name)}{title.marks}{_NBSP * (title.direction != 'none')}{ARROWS[title.direction]}"
    return [*_wrap(name, width), *_wrap(escape_controls(f"{title.bracket[1:]} {title.suffix}".strip()), width)]


def _wrap(text: str, width: int) -> list[str]:
    """Break text into lines; a word that is longer than a line has a line of its own."""
    lines = wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NBSP, " ") for line in lines] or [""]


def split_camel_case(name: str) -> str:
    """Part the words of a name: Decision Boundary."""
    letters = list(name)
    return "".join(
        f" {sign}" if i and sign.isupper() and letters[i - 1].islower() and letters[i + 1 : i + 2] and
        letters[i + 1].islower() else sign
        for i, sign in enumerate(letters)
    )  # fmt: skip
