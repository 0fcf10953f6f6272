"""What commands print: tables that fit the screen, and in the end what is to be known in any case."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cfeval_cli.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

    from cfeval_cli.report.tables import Table

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


def show(tables: Iterable[Table], said: str) -> None:
    """The tables but their details, which files have, and what is to be known in any case."""
    out = console()
    if not quiet():
        for table in tables:
            if not table.detail:
                out.print()
                out.print(table.rich(out.width))
        out.print()
    out.print(visible(said, keep="\n"), markup=False, highlight=False, soft_wrap=True)
