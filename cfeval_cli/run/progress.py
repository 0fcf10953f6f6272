"""Telling the user how far a run is: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cfeval_cli.commands import screen
from cfeval_cli.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

log = logging.getLogger("cfeval")

_EVERY = 10.0  # seconds between plain lines of one stage


class Visible(logging.Formatter):
    """Log lines in which what came from outside is shown, not obeyed; run.log is written with it too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the lines of a traceback."""
        return visible(super().format(record), keep="\n\t")


class Progress:
    """Runs stages, shows them and keeps their seconds."""

    def __init__(self, live: RichProgress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._live = live

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A stage of `total` items; call what it gives with the number of items just done."""
        log.info("%s%s", title, "" if total is None else f": {total:,} instances")
        begun = spoken = time.perf_counter()
        done = 0
        base: tuple[float, int] | None = None  # what was known from before comes first, and tells nothing of the speed
        task = self._live.add_task(visible(title), total=total, count="") if self._live else None

        def advance(items: int) -> None:
            nonlocal base, done, spoken
            done += items
            base = base or (time.perf_counter(), done)
            if self._live and task is not None:
                self._live.update(task, advance=items, count=f"{done:,}/{total:,}" if total else "")
            now = time.perf_counter()
            if total and now - spoken >= _EVERY and base[1] < done < total:
                spoken = now
                speed = (done - base[1]) / (now - base[0])
                told = f"{done:,} of {total:,}, {speed:,.3g}/s"
                log.info("%s: %s, about %.0f s left", title, told, (total - done) / speed)

        yield advance
        self.seconds[title] = self.seconds.get(title, 0.0) + time.perf_counter() - begun
        if self._live and task is not None:
            self._live.update(task, total=total or 1, completed=total or 1)
        log.info("%s: done in %.1f s", title, time.perf_counter() - begun)


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
                    return Text(f"{speed:,.3g}/s" if speed and task.fields["count"] else "", style="dim")

            columns = (
                SpinnerColumn(finished_text="✓"),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[count]}"),
                Speed(),
                TimeRemainingColumn(elapsed_when_finished=True),
            )
            live = RichProgress(*columns, console=Console(stderr=True))
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
