"""What a run has finished so far, in its own folder, so that a run that was killed can go on from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cfeval_cli.cache.disk import Disk
from cfeval_cli.types import Cache

FILE = "unfinished.sqlite"


@dataclass(frozen=True)
class _Own(Disk):
    """In a folder that is not made again if somebody removes it."""

    max_mb: float = 1e9

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder) / FILE

    def _make_folder(self) -> None:
        pass


class Journal:
    """Looks first in the run's folder, then in the cache that all runs share; keeps what is new in both."""

    def __init__(self, folder: Path, shared: Cache) -> None:
        self._own, self._shared = _Own(str(folder)), shared

    def known(self, section: str, label: str, items: Sequence[bytes]) -> dict[bytes, bytes]:
        """What either has."""
        found = self._own.known(section, label, items)
        others = [item for item in items if item not in found]
        return found | (self._shared.known(section, label, others) if others else {})

    def keep(self, section: str, label: str, values: Mapping[bytes, bytes]) -> None:
        """In both."""
        self._own.keep(section, label, values)
        self._shared.keep(section, label, values)

    def done(self) -> None:
        """The run is complete, and its folder has everything in a form for people."""
        self._own.clear()


_EVERY = 0.25  # seconds of work that may be lost: to write each chunk of a fast explainer takes longer than to make it


@contextmanager
def keeping(cache: Cache, section: str | None, label: str) -> Iterator[Callable[[Mapping[bytes, bytes]], None]]:
    """Keep what comes in: soon, all of it when the work ends or breaks off, and nothing without a section."""
    waiting: dict[bytes, bytes] = {}
    written = time.perf_counter()

    def write() -> None:
        nonlocal written
        if section is not None and waiting:
            cache.keep(section, label, waiting)
        waiting.clear()
        written = time.perf_counter()

    def keep(values: Mapping[bytes, bytes]) -> None:
        waiting.update(values)
        if time.perf_counter() - written >= _EVERY:
            write()

    try:
        yield keep
    finally:
        write()
