"""Tables as LaTeX, in a size that can be read; booktabs is the only package needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import ARROWS, DASH, Cell, Table, Title

# points: the width of a column and of a two-column page, the text being \footnotesize
_COLUMN_WIDTH, _PAGE_WIDTH = 240.0, 500.0
_COLUMN_GAP = 6.0
_NARROW_LETTERS = frozenset(" .,:;()[]'|!ijlIftrs")
_MAX_ROWS_PER_PAGE = 48


@dataclass(frozen=True)
class _CellText:
    """What LaTeX is given for a cell, and the text that it shows, whose width is estimated."""

    latex: str
    text: str
    bold: bool = False


_Line = Sequence[_CellText]
_Blocks = Sequence[Sequence[_Line]]


def render_latex(table: Table) -> str:
    """Write values and ranks; then the intervals, where there are any, in a table of their own."""
    header = [_write_title(title) for title in table.header]
    values = [[[_write_title(row.title), *map(_write_value, row.cells)] for row in block] for block in table.blocks]
    parts = [*_write_floats(table.title, header, values, table.notes)]
    with_intervals = [[row for row in block if any(cell.interval_text for cell in row.cells)] for block in table.blocks]
    intervals = [
        [[_write_title(row.title), *map(_write_interval, row.cells)] for row in block]
        for block in with_intervals
        if block
    ]
    if intervals:
        parts += _write_floats(f"{table.title}: intervals", header, intervals, [])
    return "\n".join(parts)


def _write_title(title: Title) -> _CellText:
    number = "" if title.number is None else f"{title.number} "
    name = title.latex if title.latex is not None and is_formula(title.latex) else escape_latex(title.name)
    latex = f"{number}{name}{escape_latex(title.marks + title.bracket)}"
    additions = [escape_latex(part) for part in (ARROWS[title.direction], title.suffix) if part]
    return _CellText(" ".join([latex, *additions]), title.text)


def _write_value(cell: Cell) -> _CellText:
    """Write a cell without its interval; a rank as a number."""
    if isinstance(cell.value, str) or cell.is_missing or cell.is_range:
        text = cell.text
    else:
        rank = f"{cell.rank:g}{'=' * cell.is_tied}{cell.rank_marks}" if cell.rank_text else ""
        bracket = cell.write_bracket(rank)
        text = f"{cell.value_text}{cell.marks}{' ' * bool(bracket)}{bracket}"
    is_negative = not isinstance(cell.value, str) and text.startswith("-")
    latex = f"$-${escape_latex(text[1:])}" if is_negative else escape_latex(text)
    return _CellText(rf"\textbf{{{latex}}}" if cell.bold else latex, text, cell.bold)


def _write_interval(cell: Cell) -> _CellText:
    text = cell.interval_text or DASH
    return _CellText(escape_latex(text), text)


def _write_floats(title: str, header: _Line, blocks: _Blocks, notes: Sequence[str]) -> Iterator[str]:
    """Write as many tables as it takes for columns and rows to fit; one too wide for a column spans the page."""
    widths = [
        _estimate_column_width(cells) for cells in zip(header, *(row for block in blocks for row in block), strict=True)
    ]
    groups = _split_columns(widths)
    pages = list(_split_rows(blocks))
    for number, (group, page) in enumerate((group, page) for group in groups for page in pages):
        wide = sum(widths[i] for i in (0, *group)) > _COLUMN_WIDTH
        last = number == len(groups) * len(pages) - 1
        caption = f"{title}{', continued' * (number > 0)}."
        float_blocks = [[[row[i] for i in (0, *group)] for row in block] for block in page]
        yield _write_float(caption, [header[i] for i in (0, *group)], float_blocks, notes if last else (), wide)


def _estimate_column_width(cells: _Line) -> float:
    """Estimate the width of a column in points; a heading may stand in several lines."""
    words = [_estimate_text_width(word) for word in escape_controls(cells[0].text).split()]
    return (
        max([*words, *(_estimate_text_width(escape_controls(cell.text), cell.bold) for cell in cells[1:])], default=0)
        + _COLUMN_GAP
    )


def _estimate_text_width(text: str, bold: bool = False) -> float:
    """Estimate the width of a text from above: Computer Modern at eight points."""
    wide = sum(3.0 if sign in _NARROW_LETTERS else 6.5 if sign.isupper() or sign in "mw=<>+" else 4.35 for sign in text)
    return wide * (1.17 if bold else 1)


def _split_columns(widths: Sequence[float]) -> list[list[int]]:
    """Return columns in groups that fit a page, each beside the first column."""
    groups: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        if groups[-1] and widths[0] + sum(widths[j] for j in groups[-1]) + widths[i] > _PAGE_WIDTH:
            groups.append([])
        groups[-1].append(i)
    return groups


def _split_rows(blocks: _Blocks) -> Iterator[_Blocks]:
    """Yield blocks of as many rows as a page has room for."""
    rows = [(number, row) for number, block in enumerate(blocks) for row in block]
    for start in range(0, max(1, len(rows)), _MAX_ROWS_PER_PAGE):
        page: dict[int, list[_Line]] = {}
        for number, row in rows[start : start + _MAX_ROWS_PER_PAGE]:
            page.setdefault(number, []).append(row)
        yield list(page.values())


def _write_float(caption: str, header: _Line, blocks: _Blocks, notes: Sequence[str], wide: bool) -> str:
    kind = "table*" if wide else "table"
    lines = [
        rf"\begin{{{kind}}}", r"\centering", r"\footnotesize", r"\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{escape_latex(caption)}}}", rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule",
        _write_line([header[0].latex, *map(_write_heading, header[1:])]),
    ]  # fmt: skip
    for block in blocks:
        lines += [r"\midrule", *(_write_line([cell.latex for cell in row]) for row in block)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if notes:
        text = " ".join(map(escape_latex, notes))
        lines += [r"\par\vspace{2pt}", rf"\parbox{{\linewidth}}{{\scriptsize\raggedright {text}}}"]
    return "\n".join([*lines, rf"\end{{{kind}}}"]) + "\n"


def _write_line(bodies: Sequence[str]) -> str:
    row = " & ".join(bodies) + r" \\"
    return f"{{}}{row}" if row.startswith(("[", "*")) else row  # the \\ of the line before would take these as its own


def _write_heading(cell: _CellText) -> str:
    """Write one word a line, if that leaves every group of LaTeX whole."""
    words = cell.latex.split(" ")
    is_balanced = all(word.count("{") == word.count("}") and word.count("$") % 2 == 0 for word in words)
    stacked = r"\\".join(words)
    return rf"\shortstack[r]{{{stacked}}}" if len(words) > 1 and is_balanced else cell.latex


_COMMANDS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "τ": r"$\tau$", "α": r"$\alpha$", "Δ": r"$\Delta$", "ρ": r"$\rho$", "†": r"$\dagger$",
    "‡": r"$\ddagger$", "§": r"\S{}", "◦": r"$\circ$",
    "–": "--", "…": r"\ldots{}", "<": r"\textless{}", ">": r"\textgreater{}", "≤": r"$\leq$",
    "±": r"$\pm$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Write text so that LaTeX prints it."""
    return re.sub(r"[\\~^↑↓τΔαρ†‡§◦–…<>≤±&%$#_{}]", lambda m: _COMMANDS.get(m[0], "\\" + m[0]), escape_controls(text))


# the characters and commands that a formula may have: a run folder from elsewhere could contain \input
_HARMLESS_FORMULA = re.compile(
    r"(?:[A-Za-z0-9 .,:;()+=/_^-]|\\(?:mathcal|mathrm|mathbf|mathit|mathsf|text|textit|textsc|alpha|beta|delta|tau|rho|"
    r"Delta|uparrow|downarrow)(?![A-Za-z])|[{}$])*"
)


def is_formula(latex: object) -> bool:
    """Return whether LaTeX from a run folder is a balanced formula of harmless commands."""
    if not isinstance(latex, str) or not _HARMLESS_FORMULA.fullmatch(latex) or latex.count("$") % 2:
        return False
    depth, inside = 0, False
    for sign in latex:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        inside ^= sign == "$"
        if depth < 0 or (sign == "$" and depth) or (sign in "_^" and not inside):
            return False
    return not depth and not re.search(r"[_^]\s*([_^$]|$)|[_^][^{}$]*[_^]|\$\$", latex)
