"""Tables as GitHub Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import Table


def render_markdown(table: Table) -> str:
    """Write a table with its title and its notes."""
    lines = [
        _format_bold(table.title),
        "",
        _render_line([_escape(title.text) for title in table.header]),
        "|" + "|".join([" --- "] + [" ---: "] * (len(table.header) - 1)) + "|",
    ]
    for row in table.rows:
        cells = [_format_bold(cell.text) if cell.bold else _escape(cell.text) for cell in row.cells]
        lines.append(_render_line([_escape(row.title.text), *cells]))
    return "\n".join([*lines, "", *(f"{_escape_paragraph(note)}  " for note in table.notes)]).rstrip() + "\n"


def _render_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|&~$])", r"\\\1", escape_controls(text))


def _format_bold(text: str) -> str:
    inner = _escape(text).strip()  # text with spaces around it would not be bold
    return f"**{inner}**" if inner else ""


def _escape_paragraph(text: str) -> str:
    """Escape text that begins a line, so that it is no heading, list or rule."""
    return re.sub(
        r"^([#+=-]|\d+(?=[.)]))", lambda m: f"{m[0]}\\" if m[0][0].isdigit() else f"\\{m[0]}", _escape(text).strip()
    )
