"""Tables as HTML; all text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from markupsafe import Markup

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import Cell, Row, Table, Title


@dataclass(frozen=True)
class Term:
    """An entry of the glossary of a page, to which headings of tables link."""

    name: str
    definition: str

    @property
    def anchor(self) -> str:
        """The id of the entry in the page."""
        return "term-" + "".join(char if char.isascii() and char.isalnum() else f"-{ord(char):x}" for char in self.name)


Terms = Mapping[str, Term]  # by name


def render_html(table: Table, terms: Terms = MappingProxyType({}), *, caption: bool = False) -> Markup:
    """Write a table without its notes; `data-value` is what a script sorts by."""
    head = Markup("").join(_render_heading(title, "col", terms) for title in table.header)
    bodies = Markup("").join(
        Markup("<tbody>\n{}</tbody>\n").format(Markup("").join(_render_row(row, terms) for row in block))
        for block in table.blocks
    )
    across = Markup(" data-across") if table.ranked else ""
    title = Markup("<caption>{}</caption>").format(escape_controls(table.title)) if caption else ""
    return Markup('<table class="sortable"{}>{}\n<thead><tr>{}</tr></thead>\n{}</table>').format(
        across, title, head, bodies
    )


def render_notes(table: Table) -> Markup:
    """Write the notes below a table."""
    return Markup("\n").join(Markup('<p class="note">{}</p>').format(escape_controls(note)) for note in table.notes)


def _render_row(row: Row, terms: Terms) -> Markup:
    direction = Markup(' data-direction="lower"') if row.title.direction == "lower" else ""
    cells = Markup("").join(map(_render_cell, row.cells))
    return Markup("<tr{}>{}{}</tr>\n").format(direction, _render_heading(row.title, "row", terms), cells)


def _render_heading(title: Title, scope: str, terms: Terms) -> Markup:
    entry, text = terms.get(title.term or title.name), escape_controls(title.text)
    number = "" if title.number is None else Markup(' data-value="{}"').format(title.number)
    if entry is None:
        return Markup('<th scope="{}"{}>{}</th>').format(scope, number, text)
    return Markup(
        '<th scope="{}"{} title="{definition}">{} <a class="definition" href="#{anchor}" title="{definition}" '
        'aria-label="definition of {name}">?</a></th>'
    ).format(
        scope,
        number,
        text,
        definition=escape_controls(entry.definition),
        anchor=entry.anchor,
        name=escape_controls(entry.name),
    )


def _render_cell(cell: Cell) -> Markup:
    attributes = Markup(' class="agrees"') if cell.bold else Markup("")
    if cell.number is not None:
        attributes += Markup(' data-value="{:.6g}"').format(cell.number)
    if cell.is_missing and cell.reason:
        attributes += Markup(' title="{}"').format(escape_controls(cell.reason))
    content = _render_content(cell)
    return Markup("<td{}>{}</td>").format(attributes, Markup("<b>{}</b>").format(content) if cell.bold else content)


def _render_content(cell: Cell) -> Markup:
    """Write the value, then the rank, then the interval, each in an element of its own."""
    if cell.is_range or isinstance(cell.value, str):
        return Markup("{}").format(escape_controls(cell.text))
    interval = cell.interval_text
    parts = [Markup("{}").format(escape_controls(cell.value_text + ("" if interval else cell.marks)))]
    if cell.is_missing:
        return parts[0]
    if cell.bracket:
        parts.append(Markup('<span class="rank">{}</span>').format(escape_controls(cell.bracket)))
    if interval:
        parts.append(Markup("<small>{}</small>").format(escape_controls(interval + cell.marks)))
    return Markup(" ").join(parts)
