"""Tables for a terminal, at their full content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import Table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable


def render_terminal(table: Table, width: int) -> Group:
    """Write as many columns side by side as fit, the rest below, and the notes at full width."""
    from rich.console import Group
    from rich.text import Text

    parts = [_write_columns(table, columns) for columns in _split_columns(table, width)] if table.blocks else []
    notes = (Text(escape_controls(note), style="dim") for note in table.notes)
    return Group(Text(escape_controls(table.title), style="italic"), *parts, *notes)


def _split_columns(table: Table, width: int) -> Iterator[Sequence[int]]:
    """Yield columns in groups that fit the width beside the titles of the rows."""
    lines = [[title.text for title in table.header], *([row.title.text, *row.texts] for row in table.rows)]
    widths = [max(len(escape_controls(text)) for text in column) + 3 for column in zip(*lines, strict=True)]
    group: list[int] = []
    for i, needed in enumerate(widths[1:]):
        if group and widths[0] + sum(widths[1 + j] for j in group) + needed + 1 > width:
            yield group
            group = []
        group.append(i)
    yield group


def _write_columns(table: Table, columns: Sequence[int]) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable()
    grid.add_column(Text(escape_controls(table.header[0].text)), overflow="fold")
    for i in columns:
        grid.add_column(Text(escape_controls(table.header[1 + i].text)), justify="right", overflow="fold")
    for block in table.blocks:
        for row in block:
            cells = (row.cells[i] for i in columns)
            texts = (Text(escape_controls(cell.text), style="bold" if cell.bold else "") for cell in cells)
            grid.add_row(Text(escape_controls(row.title.text)), *texts)
        grid.add_section()
    return grid
