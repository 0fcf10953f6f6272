"""The cache of one run: a file in its own folder, from which an interrupted run is resumed, and the cache of all runs.

Two related things are not caches. `core.scratch` moves arrays of a running process to the disk: they have no key and
disappear when the process ends. `core.evaluation_cache` holds the
model's predictions for edits of the instances that metrics score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Arrays, Cache, Section

PROGRESS_FILE = "unfinished.sqlite"


class RunCache:
    """Look up entries in the run's folder, then in the shared cache; store new entries in both.

    A run with `redo` does not look into the shared cache.
    """

    def __init__(self, folder: Path, shared: Cache, *, redo: bool = False) -> None:
        # A run folder that is removed during the run is not made again.
        self._progress = Disk(str(folder.absolute()), max_mb=1e9, file=PROGRESS_FILE, makes_folder=False)
        self._shared, self._redo = shared, redo

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the entries that either of the two has."""
        entries = self._progress.get(section, keys)
        missing = [] if self._redo else [key for key in keys if key not in entries]
        return entries | (self._shared.get(section, missing) if missing else {})

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries in both."""
        self._progress.put(section, entries)
        self._shared.put(section, entries)

    def clear(self) -> None:
        """Remove the file in the run's folder, because the run is complete or starts again."""
        self._progress.clear()
