"""Tables as LaTeX sets them in a column or across a page, in a size that can be read; booktabs is all they need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cfeval_cli.errors import visible

# points: what a two-column page has, and what \footnotesize takes
_COLUMN, _PAGE = 240.0, 500.0
_BETWEEN = 6.0
_NARROW = frozenset(" .,:;()[]'|!ijlIftrs")
_ROWS = 48  # that a page has room for

# a value, perhaps with its interval, marks and its rank: 0.3652 [0.342, 0.389]‡§ (3rd*)
_CELL = re.compile(r"(?P<value>[^\[\]()]*\S) (?P<interval>\[[^\]]*\])(?P<marks>[‡§◦]*)(?P<rank> \([^()]*\))?")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)(?=\W|$)")


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    bold: bool = False
    latex: str | None = None  # where it is not the escaped text

    @property
    def body(self) -> str:
        """What LaTeX is given."""
        body = escape_latex(self.text) if self.latex is None else self.latex
        body = re.sub(r"^-(?=\d)", "$-$", body)
        return rf"\textbf{{{body}}}" if self.bold else body


Row = Sequence[Cell]


def latex(title: str, header: Row, blocks: Sequence[Sequence[Row]], notes: Sequence[str]) -> str:
    """Values and ranks; then, where there are any, the intervals in a table of their own."""
    values = [[[_value(cell) for cell in row] for row in block] for block in blocks]
    intervals = [[[row[0], *map(_interval, row[1:])] for row in block if any(map(_has, row))] for block in blocks]
    parts = [*_floats(title, header, values, notes)]
    if any(intervals):
        parts += _floats(f"{title}: intervals", header, [block for block in intervals if block], [])
    return "\n".join(parts)


def _has(cell: Cell) -> bool:
    return _CELL.fullmatch(cell.text) is not None


def _value(cell: Cell) -> Cell:
    """Without its interval, and a rank as a number."""
    found = _CELL.fullmatch(cell.text)
    if found is None:
        return replace(cell, text=_ORDINAL.sub("", cell.text)) if re.search(r"\d \(\d", cell.text) else cell
    rank = _ORDINAL.sub("", found["rank"] or "")
    return Cell(f"{found['value']}{found['marks']}{rank}", cell.bold)


def _interval(cell: Cell) -> Cell:
    found = _CELL.fullmatch(cell.text)
    return Cell("–" if found is None else found["interval"])


def _floats(title: str, header: Row, blocks: Sequence[Sequence[Row]], notes: Sequence[str]) -> Iterator[str]:
    """One table, or as many as it takes for columns and rows to fit; what is too wide for a column has the page."""
    widths = [_width(cells) for cells in zip(header, *(row for block in blocks for row in block), strict=True)]
    groups = _fitting(widths)
    pages = list(_pages(blocks))
    for number, (group, page) in enumerate((group, page) for group in groups for page in pages):
        wide = sum(widths[i] for i in (0, *group)) > _COLUMN
        last = number == len(groups) * len(pages) - 1
        caption = f"{title}{', continued' * (number > 0)}."
        chosen = [[[row[i] for i in (0, *group)] for row in block] for block in page]
        yield _float(caption, [header[i] for i in (0, *group)], chosen, notes if last else (), wide)


def _width(cells: Row) -> float:
    """Of a column in points; a heading may stand in several lines."""
    words = [_points(word) for word in visible(cells[0].text).split()]
    return max([*words, *(_points(visible(cell.text), cell.bold) for cell in cells[1:])], default=0) + _BETWEEN


def _points(text: str, bold: bool = False) -> float:
    """What a text takes at most, nearly: Computer Modern at eight points."""
    wide = sum(3.0 if sign in _NARROW else 6.5 if sign.isupper() or sign in "mw=<>+" else 4.35 for sign in text)
    return wide * (1.17 if bold else 1)


def _fitting(widths: Sequence[float]) -> list[list[int]]:
    """Columns in groups that fit a page, each beside the first column."""
    groups: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        if groups[-1] and widths[0] + sum(widths[j] for j in groups[-1]) + widths[i] > _PAGE:
            groups.append([])
        groups[-1].append(i)
    return groups


def _pages(blocks: Sequence[Sequence[Row]]) -> Iterator[list[Sequence[Row]]]:
    """Blocks of as many rows as a page has room for."""
    rows = [(number, row) for number, block in enumerate(blocks) for row in block]
    starts = [*range(0, len(rows), _ROWS), len(rows)] if rows else [0, 0]
    for start, end in pairwise(starts):
        page: dict[int, list[Row]] = {}
        for number, row in rows[start:end]:
            page.setdefault(number, []).append(row)
        yield list(page.values())


def _float(caption: str, header: Row, blocks: Sequence[Sequence[Row]], notes: Sequence[str], wide: bool) -> str:
    kind = "table*" if wide else "table"
    lines = [
        rf"\begin{{{kind}}}", r"\centering", r"\footnotesize", r"\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{escape_latex(caption)}}}", rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule",
        _line([header[0].body, *map(_heading, header[1:])]),
    ]  # fmt: skip
    for block in blocks:
        lines += [r"\midrule", *(_line([cell.body for cell in row]) for row in block)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if notes:
        told = " ".join(map(escape_latex, notes))
        lines += [r"\par\vspace{2pt}", rf"\parbox{{\linewidth}}{{\scriptsize\raggedright {told}}}"]
    return "\n".join([*lines, rf"\end{{{kind}}}"]) + "\n"


def _line(bodies: Sequence[str]) -> str:
    row = " & ".join(bodies) + r" \\"
    return f"{{}}{row}" if row.startswith(("[", "*")) else row  # which the \\ before it would take for its own


def _heading(cell: Cell) -> str:
    """One word a line, where that leaves every line whole."""
    words = cell.body.split(" ")
    whole = all(word.count("{") == word.count("}") and word.count("$") % 2 == 0 for word in words)
    stacked = r"\\".join(words)
    return rf"\shortstack[r]{{{stacked}}}" if len(words) > 1 and whole else cell.body


def escape_latex(text: str) -> str:
    """Text as LaTeX prints it."""
    special = {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$",
        "↓": r"$\downarrow$", "τ": r"$\tau$", "α": r"$\alpha$", "Δ": r"$\Delta$", "ρ": r"$\rho$", "†": r"$\dagger$",
        "‡": r"$\ddagger$", "§": r"\S{}", "◦": r"$\circ$",
        "–": "--", "…": r"\ldots{}", "<": r"\textless{}", ">": r"\textgreater{}", "≤": r"$\leq$",
        "±": r"$\pm$",
    }  # fmt: skip
    return re.sub(r"[\\~^↑↓τΔαρ†‡§◦–…<>≤±&%$#_{}]", lambda m: special.get(m[0], "\\" + m[0]), visible(text))
