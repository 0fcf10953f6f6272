"""Progress on standard error: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cfeval_cli.core.logs import SafeFormatter
from cfeval_cli.pipeline.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


@contextmanager
def display_progress(quiet: bool = False) -> Iterator[Progress]:
    """Show a live display if standard error is a terminal, log lines elsewhere, and only warnings if `quiet`."""
    root = logging.getLogger()
    with ExitStack() as stack:
        if quiet:
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
            handler.setLevel(logging.WARNING)
            handler.setFormatter(SafeFormatter("cfeval: %(message)s"))
            progress = Progress()
        elif sys.stderr.isatty():
            from rich.logging import RichHandler

            live = _create_live_display()
            handler = RichHandler(logging.WARNING, live.console, show_path=False, show_time=False)
            handler.setFormatter(SafeFormatter("%(message)s"))
            progress = Progress(stack.enter_context(live))
        else:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(SafeFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
            progress = Progress()
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        yield progress


def _create_live_display() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class SpeedColumn(ProgressColumn):
        """Items per second."""

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
        SpeedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    # The default period of 30 s is shorter than a chunk of a slow explainer, which would leave no speed to show.
    return RichProgress(*columns, console=Console(stderr=True), speed_estimate_period=600.0)
