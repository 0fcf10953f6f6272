"""What a run has finished so far, in its own folder, so that a run that was killed can go on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Cache

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
    """Looks first in the run's folder, then in the cache that all runs share; keeps what is new in both.

    A run that is to compute everything again does not look into the cache.
    """

    def __init__(self, folder: Path, shared: Cache, *, again: bool = False) -> None:
        self._own, self._shared, self._again = _Own(str(folder)), shared, again

    def known(self, section: str, label: str, items: Sequence[bytes]) -> dict[bytes, bytes]:
        """What either has."""
        found = self._own.known(section, label, items)
        others = [] if self._again else [item for item in items if item not in found]
        return found | (self._shared.known(section, label, others) if others else {})

    def keep(self, section: str, label: str, values: Mapping[bytes, bytes]) -> None:
        """In both."""
        self._own.keep(section, label, values)
        self._shared.keep(section, label, values)

    def done(self) -> None:
        """The run is complete, and its folder has everything in a form for people."""
        self._own.clear()
