"""The progress of a run: its stages and their seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from cfeval_cli.errors import escape_controls

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

log = logging.getLogger("cfeval")

_LINE_SECONDS = 9.0  # between two lines of a stage
_POLL_SECONDS = 0.5  # between checks whether a line is due
_MIN_ANNOUNCED_SECONDS = 60.0  # of remaining work


class TimeEstimate(NamedTuple):
    """How long an item of a stage is expected to take, and the settings that shorten the stage."""

    settings: str
    seconds_per_item: float | None = None  # in one process; None: unknown


class Progress:
    """Shows the stages of a run and records their seconds."""

    def __init__(self, live: RichProgress | None = None, prefix: str = "") -> None:
        self.seconds: dict[tuple[str, str], float] = {}  # by stage and component
        self._live = live
        self._prefix = prefix  # of every title

    def create_nested(self, name: str) -> Progress:
        """Return the progress of a run within this run, with seconds of its own."""
        return Progress(self._live, f"{self._prefix}{name}: ")

    @contextmanager
    def track_stage(
        self, name: str, total: int | None = None, estimate: TimeEstimate | None = None, *, component: str = ""
    ) -> Iterator[Callable[[int], None]]:
        """Show a stage of `total` items, or its part for one component.

        The context is a function to be called with the number of items that were just completed. With an estimate, a
        remaining time of more than a minute is announced once, with the settings that shorten it: before the work
        starts, or after the first items if the time for an item is unknown.
        """
        title = f"{self._prefix}{name}" + (f": {component}" if component else "")
        log.info("%s%s", title, "" if total is None else f": {total:,} to do")
        start_time = last_line = time.perf_counter()
        n_done = 0
        is_announced = estimate is None
        lock, end_event = threading.Lock(), threading.Event()
        # Time and number of the first items: they may come from the cache and do not tell the speed.
        first_items: tuple[float, int] | None = None
        last_time = start_time
        task = self._live.add_task(escape_controls(title), total=total, count="") if self._live else None

        def advance(items: int) -> None:
            nonlocal first_items, n_done, last_time
            n_done += items
            last_time = time.perf_counter()
            first_items = first_items or (last_time, n_done)
            if self._live and task is not None:
                self._live.update(task, advance=items, count=f"{n_done:,}/{total:,}" if total else "")
            announce_remaining_time()
            write_line()

        def announce_remaining_time() -> None:
            nonlocal is_announced
            if is_announced or estimate is None or not total or first_items is None:
                return
            is_measured = n_done > first_items[1]
            seconds_per_item = (
                (last_time - first_items[0]) / (n_done - first_items[1]) if is_measured else estimate.seconds_per_item
            )
            is_announced = is_measured
            if seconds_per_item is not None and seconds_per_item * (total - n_done) > _MIN_ANNOUNCED_SECONDS:
                is_announced = True
                amount = f"{seconds_per_item * (total - n_done):.0f} s {'left' if is_measured else 'in one process'}"
                log.warning("%s: about %s. To shorten it, lower %s.", title, amount, estimate.settings)

        def write_line() -> None:
            """Write a line, unless the last one is only a few seconds old."""
            nonlocal last_line
            with lock:
                current_time = time.perf_counter()
                if current_time - last_line < _LINE_SECONDS or (total and n_done >= total):
                    return
                last_line = current_time
                count, time_text = (
                    f"{n_done:,} of {total:,}, " if total else "",
                    f"{current_time - start_time:.0f} s elapsed",
                )
                if total and first_items is not None and first_items[1] < n_done and first_items[0] < last_time:
                    # Measured up to the last items, not up to now, because items are completed in chunks.
                    speed = (n_done - first_items[1]) / (last_time - first_items[0])
                    remaining_seconds = (total - n_done) / speed - (current_time - last_time)
                    count += f"{speed:,.0f}/s, " if speed >= 100 else f"{speed:.3g}/s, "
                    time_text = f"about {remaining_seconds:.0f} s left" if remaining_seconds > 0 else time_text
                log.info("%s: %s%s", title, count, time_text)

        def write_lines() -> None:
            while not end_event.wait(_POLL_SECONDS):
                write_line()

        # One call of a model or an explainer may take minutes.
        threading.Thread(target=write_lines, name="cfeval-progress", daemon=True).start()
        try:
            yield advance
        finally:
            end_event.set()
        self.seconds[name, component] = self.seconds.get((name, component), 0.0) + time.perf_counter() - start_time
        if self._live and task is not None:
            self._live.update(task, total=total or 1, completed=total or 1)
        log.info("%s: done in %.1f s", title, time.perf_counter() - start_time)
