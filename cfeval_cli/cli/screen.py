"""What commands print: the answer, a table that fits the screen, and where the rest is."""

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

_WIDE = 160  # columns of output that is no terminal: it is for files, and should not be folded to 80


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
    """Whether standard output could not be written, other than because the reader of a pipe has ended."""
    sys.stdout.flush()
    return isinstance(sys.stdout, LossyStream) and sys.stdout.is_lost


@dataclass(frozen=True)
class Options:
    """How much the user wants to see."""

    quiet: bool = False  # --quiet: results and complaints only
    full: bool = False  # --full: all tables
    traceback: bool = False  # HYDRA_FULL_ERROR=1: the traceback of an error


_options = Options()


def set_options(options: Options) -> None:
    """Set the options of this process."""
    global _options
    _options = options


def get_options() -> Options:
    """Return the options of this process."""
    return _options


def quiet() -> bool:
    """Whether the user wants results and complaints only (--quiet)."""
    return _options.quiet


def console() -> Console:
    """Standard output; rich leaves colours out where there is no terminal, or NO_COLOR is set."""
    from rich.console import Console

    told = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(told) if told.isdecimal() and int(told) else _WIDE
    return Console(width=width)


def full() -> bool:
    """Whether the user wants all tables on the screen (--full)."""
    return _options.full


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
        out.print(escape_controls(said, keep="\n"), markup=False, highlight=False, soft_wrap=True)


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
    text = escape_controls(line)
    lines = [text] if whole else wrap(text, out.width, break_long_words=False, break_on_hyphens=False) or [""]
    for one in lines:
        out.print(one, markup=False, highlight=False, soft_wrap=True)
