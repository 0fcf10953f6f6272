"""The cache of one run: a file in its own folder, from which a run that was killed goes on, and the cache of all runs.

Two things are no caches and stay apart. `core.scratch` puts aside arrays that a running process works on: they have no
key and are gone when it ends. `core.memory` remembers what metrics asked the model about the instances at hand, and
never outlives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Arrays, Cache, Section

FILE = "unfinished.sqlite"


@dataclass(frozen=True)
class _InRunFolder(Disk):
    """In a folder that is not made again if somebody removes it."""

    max_mb: float = 1e9

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder) / FILE

    def _make_folder(self) -> None:
        pass


class Resumable:
    """Looks first in the run's folder, then in the cache that all runs share; stores what is new in both.

    A run with `redo` does not look into the shared cache.
    """

    def __init__(self, folder: Path, shared: Cache, *, redo: bool = False) -> None:
        self._own, self._shared, self._redo = _InRunFolder(str(folder)), shared, redo

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the entries that either has."""
        entries = self._own.get(section, keys)
        others = [] if self._redo else [key for key in keys if key not in entries]
        return entries | (self._shared.get(section, others) if others else {})

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries in both."""
        self._own.put(section, entries)
        self._shared.put(section, entries)

    def clear(self) -> None:
        """Remove the file of the run, which is complete or begins anew."""
        self._own.clear()
