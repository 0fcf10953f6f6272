"""How far a run is: its stages and their seconds."""

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

_EVERY = 9.0  # seconds between plain lines of one stage
_POLL = 0.5  # seconds between looks at whether a line is due: no stage is silent for ten seconds
_LONG = 60.0  # seconds of work left that are announced


class Estimate(NamedTuple):
    """How long the items of a stage are expected to take, and the settings that shorten it."""

    shorten: str
    seconds_per_item: float | None = None  # in one process; None: unknown


class Progress:
    """Runs stages, shows them and keeps their seconds."""

    def __init__(self, live: RichProgress | None = None, before: str = "") -> None:
        self.seconds: dict[tuple[str, str], float] = {}  # by stage and component
        self._live = live
        self._before = before  # in front of every title

    def part(self, name: str) -> Progress:
        """For a run within the run, which keeps its own seconds."""
        return Progress(self._live, f"{self._before}{name}: ")

    @contextmanager
    def stage(
        self, name: str, total: int | None = None, estimate: Estimate | None = None, *, component: str = ""
    ) -> Iterator[Callable[[int], None]]:
        """A stage of `total` items, or its part of a component; call what it gives with the number of items just done.

        With an estimate, the time left and the settings that shorten it are printed once if it is more than a minute:
        before the work starts, or if the time for an item is unknown, by the first items.
        """
        title = f"{self._before}{name}" + (f": {component}" if component else "")
        log.info("%s%s", title, "" if total is None else f": {total:,} to do")
        begun = spoken = time.perf_counter()
        done = 0
        announced = estimate is None
        lock, ended = threading.Lock(), threading.Event()
        # when the first and the last items were done: the first were known from before, which says nothing of the speed
        base: tuple[float, int] | None = None
        last = begun
        task = self._live.add_task(escape_controls(title), total=total, count="") if self._live else None

        def advance(items: int) -> None:
            nonlocal base, done, last
            done += items
            last = time.perf_counter()
            base = base or (last, done)
            if self._live and task is not None:
                self._live.update(task, advance=items, count=f"{done:,}/{total:,}" if total else "")
            announce()
            speak()

        def announce() -> None:
            """Print once how long the rest will take and how to shorten it."""
            nonlocal announced
            if announced or estimate is None or not total or base is None:
                return
            measured = done > base[1]
            each = (last - base[0]) / (done - base[1]) if measured else estimate.seconds_per_item
            announced = measured
            if each is not None and each * (total - done) > _LONG:
                announced = True
                amount = f"{each * (total - done):.0f} s {'left' if measured else 'in one process'}"
                log.warning("%s: about %s. To shorten it, lower %s.", title, amount, estimate.shorten)

        def speak() -> None:
            """Write a line if none was written for some seconds."""
            nonlocal spoken
            with lock:
                now = time.perf_counter()
                if now - spoken < _EVERY or (total and done >= total):
                    return
                spoken = now
                count, rest = f"{done:,} of {total:,}, " if total else "", f"{now - begun:.0f} s elapsed"
                if total and base is not None and base[1] < done and base[0] < last:
                    speed = (done - base[1]) / (last - base[0])  # not until now: items are done in chunks
                    left = (total - done) / speed - (now - last)
                    count += f"{speed:,.0f}/s, " if speed >= 100 else f"{speed:.3g}/s, "
                    rest = f"about {left:.0f} s left" if left > 0 else rest
                log.info("%s: %s%s", title, count, rest)

        def watch() -> None:
            while not ended.wait(_POLL):
                speak()

        # one call of a model or an explainer may take minutes
        threading.Thread(target=watch, name="cfeval-progress", daemon=True).start()
        try:
            yield advance
        finally:
            ended.set()
        self.seconds[name, component] = self.seconds.get((name, component), 0.0) + time.perf_counter() - begun
        if self._live and task is not None:
            self._live.update(task, total=total or 1, completed=total or 1)
        log.info("%s: done in %.1f s", title, time.perf_counter() - begun)
