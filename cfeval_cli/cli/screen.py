"""What commands print: the answer, a table that fits the screen, and where the rest is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from cfeval_cli.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

    from cfeval_cli.report.table import Table

_WIDE = 160  # columns of output that is no terminal: it is for files, and should not be folded to 80


def quiet() -> bool:
    """Whether the user wants results and complaints only (--quiet)."""
    return bool(os.environ.get("CFEVAL_QUIET"))


def console() -> Console:
    """Standard output; rich leaves colours out where there is no terminal, or NO_COLOR is set."""
    from rich.console import Console

    told = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(told) if told.isdecimal() and int(told) else _WIDE
    return Console(width=width)


def full() -> bool:
    """Whether the user wants all tables on the screen (--full)."""
    return bool(os.environ.get("CFEVAL_FULL"))


def show(tables: Iterable[Table], said: str) -> None:
    """The tables but their details, which files have and --full shows, and what is to be known in any case."""
    from cfeval_cli.report.render.terminal import render_terminal

    out = console()
    if not quiet():
        for table in tables:
            if full() or not table.detail:
                out.print()
                out.print(render_terminal(table, out.width))
    if said:
        if not quiet():
            out.print()
        out.print(visible(said, keep="\n"), markup=False, highlight=False, soft_wrap=True)


def answer(told: Sequence[str], brief: Table, tables: Iterable[Table], said: Sequence[str]) -> None:
    """The answer first; then one table, or all if the user wants that; then where the files are, if that is known."""
    from cfeval_cli.report.render.narrow import render_narrow

    out = console()
    for line in told:
        tell(out, line)
    if not quiet() and not full():
        out.print()
        for text in render_narrow(brief, out.width):
            out.print(text, soft_wrap=True)
    show(tables if full() else [], "\n".join(said))


def tell(out: Console, line: str) -> None:
    """A sentence in lines that fit, no word parted; in one line where it is for no screen."""
    whole = not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal()
    text = visible(line)
    lines = [text] if whole else wrap(text, out.width, break_long_words=False, break_on_hyphens=False)
    for one in lines:
        out.print(one, markup=False, highlight=False, soft_wrap=True)
