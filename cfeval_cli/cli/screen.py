"""What commands print: the answer, a table that fits the screen, and the files that were written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO, cast

from cfeval_cli.errors import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from cfeval_cli.report.table import Table

_FILE_COLUMNS = 160  # output that is not a terminal goes to files and is not folded to 80 columns


class LossyStream:
    """A standard stream that discards what cannot be written, to a closed pipe or a full disk, instead of raising."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream, self._name = stream, name
        self.is_lost = False  # whether output was discarded that a reader still waits for

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._discard(error)
            return len(text)

    def flush(self) -> None:
        """Flush what was written, or discard it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error: OSError) -> None:
        """Send this and all further output to the null device; report it unless the reader of a pipe has ended."""
        with suppress(OSError), Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), self._stream.fileno())
            self._stream.flush()
        self.is_lost = self.is_lost or not isinstance(error, BrokenPipeError)
        if self.is_lost and self._name == "stdout":
            sys.stderr.write(f"cfeval: standard output cannot be written ({error.strerror}): the rest of it is lost.\n")


def protect_streams() -> None:
    """Make sure that printing never raises: a run does not fail because its output cannot be written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller, as by >&-
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        setattr(sys, name, cast(TextIO, LossyStream(stream, name)))


def is_output_lost() -> bool:
    """Return whether standard output could not be written, other than because the reader of a pipe has ended."""
    sys.stdout.flush()
    return isinstance(sys.stdout, LossyStream) and sys.stdout.is_lost


@dataclass(frozen=True)
class Options:
    """How much a command prints."""

    quiet: bool = False  # --quiet: results and errors only
    full: bool = False  # --full: all tables
    traceback: bool = False  # HYDRA_FULL_ERROR=1: the traceback of an error


DEFAULT_OPTIONS = Options()


def make_console() -> Console:
    """Return a console on standard output; rich omits colours without a terminal or if NO_COLOR is set."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _get_columns() or _FILE_COLUMNS)


def _get_columns() -> int:
    """Return the width that the environment variable COLUMNS sets; 0 if it sets none."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() else 0


def print_tables(tables: Iterable[Table], closing: str, options: Options = DEFAULT_OPTIONS) -> None:
    """Print tables and closing lines; supplementary tables only with --full, no table with --quiet."""
    from cfeval_cli.report.render.terminal import render_terminal

    console = make_console()
    if not options.quiet:
        for table in tables:
            if options.full or not table.is_supplementary:
                console.print()
                console.print(render_terminal(table, console.width))
    if closing:
        if not options.quiet:
            console.print()
        console.print(escape_controls(closing, keep="\n"), markup=False, highlight=False, soft_wrap=True)


def print_answer(
    answer: Sequence[str],
    brief: Table,
    tables: Iterable[Table],
    closing: Sequence[str],
    options: Options = DEFAULT_OPTIONS,
) -> None:
    """Print the answer, then the brief table (with --full all tables), then closing lines such as file names."""
    from cfeval_cli.report.render.narrow import render_narrow

    console = make_console()
    for sentence in answer:
        print_line(console, sentence)
    if not options.quiet and not options.full:
        console.print()
        for text in render_narrow(brief, console.width):
            console.print(text, soft_wrap=True)
    print_tables(tables if options.full else [], "\n".join(closing), options)


def print_line(console: Console, sentence: str) -> None:
    """Print a sentence, wrapped at spaces on a terminal and on one line otherwise."""
    text = escape_controls(sentence)
    is_wrapped = sys.stdout.isatty() or _get_columns()
    lines = wrap(text, console.width, break_long_words=False, break_on_hyphens=False) or [""]
    for line in lines if is_wrapped else [text]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
