"""How far a run is, on the screen: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cfeval_cli.cli import screen
from cfeval_cli.errors import Failure, UserError, excerpt_error, visible
from cfeval_cli.pipeline.progress import Progress


class Visible(logging.Formatter):
    """Log lines in which what came from outside is shown, not obeyed, and errors print no data; run.log has it too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the lines of a traceback."""
        return visible(super().format(record), keep="\n\t")

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's
        """A traceback whose messages are shortened but for those of cfeval: others may hold rows of data."""
        error: BaseException | None = ei[1]
        parts = list[str]()
        while error is not None:
            is_own = isinstance(error, UserError | Failure)
            message = f"{type(error).__name__}: {error}" if is_own else excerpt_error(error)
            places = traceback.format_tb(error.__traceback__)
            parts.append("".join(["Traceback (most recent call last):\n", *places, message]))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n\n".join(reversed(parts))


@contextmanager
def terminal() -> Iterator[Progress]:
    """A live display if standard error is a terminal, else log lines; if the user wants quiet, warnings only."""
    root = logging.getLogger()
    with ExitStack() as stack:
        if screen.quiet():
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
            handler.setLevel(logging.WARNING)
            handler.setFormatter(Visible("cfeval: %(message)s"))
            progress = Progress()
        elif sys.stderr.isatty():
            from rich.console import Console
            from rich.logging import RichHandler
            from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress
            from rich.text import Text

            class Speed(ProgressColumn):
                """Instances per second, of those that were not known from before."""

                def render(self, task: Task) -> Text:
                    speed = task.finished_speed or task.speed
                    if not speed or not task.fields["count"]:
                        return Text("")
                    return Text(f"{speed:,.0f}/s" if speed >= 100 else f"{speed:.3g}/s", style="dim")

            columns = (
                SpinnerColumn(finished_text="✓"),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[count]}"),
                Speed(),
                TimeRemainingColumn(elapsed_when_finished=True),
            )
            # By default what is older than 30 s is forgotten, and with it the speed of chunks that take longer.
            live = RichProgress(*columns, console=Console(stderr=True), speed_estimate_period=600.0)
            handler = RichHandler(logging.WARNING, live.console, show_path=False, show_time=False)
            handler.setFormatter(Visible("%(message)s"))
            progress = Progress(stack.enter_context(live))
        else:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(Visible("%(asctime)s %(message)s", "%H:%M:%S"))
            progress = Progress()
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        yield progress
