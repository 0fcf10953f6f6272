"""How far a run is, on the screen: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cfeval_cli.core.logs import SafeFormatter
from cfeval_cli.pipeline.progress import Progress


@contextmanager
def display_progress(quiet: bool = False) -> Iterator[Progress]:
    """Show a live display if standard error is a terminal, else log lines; if quiet, warnings only."""
    root = logging.getLogger()
    with ExitStack() as stack:
        if quiet:
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
            handler.setLevel(logging.WARNING)
            handler.setFormatter(SafeFormatter("cfeval: %(message)s"))
            progress = Progress()
        elif sys.stderr.isatty():
            from rich.console import Console
            from rich.logging import RichHandler
            from rich.progress import (
                BarColumn,
                ProgressColumn,
                SpinnerColumn,
                Task,
                TextColumn,
                TimeRemainingColumn,
            )
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
            handler.setFormatter(SafeFormatter("%(message)s"))
            progress = Progress(stack.enter_context(live))
        else:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(SafeFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
            progress = Progress()
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        yield progress
