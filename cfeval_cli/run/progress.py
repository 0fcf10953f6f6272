"""How far a run is: its stages and their seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cfeval_cli.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

log = logging.getLogger("cfeval")

_EVERY = 10.0  # seconds between plain lines of one stage


class Progress:
    """Runs stages, shows them and keeps their seconds."""

    def __init__(self, live: RichProgress | None = None, before: str = "") -> None:
        self.seconds: dict[str, float] = {}
        self._live = live
        self._before = before  # in front of every title

    def part(self, name: str) -> Progress:
        """For a run within the run, which keeps its own seconds."""
        return Progress(self._live, f"{self._before}{name}: ")

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A stage of `total` items; call what it gives with the number of items just done."""
        title = f"{self._before}{title}"
        log.info("%s%s", title, "" if total is None else f": {total:,} to do")
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
        own = title.removeprefix(self._before)
        self.seconds[own] = self.seconds.get(own, 0.0) + time.perf_counter() - begun
        if self._live and task is not None:
            self._live.update(task, total=total or 1, completed=total or 1)
        log.info("%s: done in %.1f s", title, time.perf_counter() - begun)
