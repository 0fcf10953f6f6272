"""Explanations in a SQLite file: several runs may read and write it at once, and nothing in it is ever executed."""

from __future__ import annotations

import logging
import sqlite3
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np

from cfeval_cli.errors import number
from cfeval_cli.types import Told

log = logging.getLogger("cfeval")

_T = TypeVar("_T")

_FILE = "explanations-1.sqlite"  # the number is that of the format
_TABLES = """
    PRAGMA auto_vacuum = FULL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS section (id INTEGER PRIMARY KEY, key TEXT UNIQUE, label TEXT, used REAL);
    CREATE TABLE IF NOT EXISTS entry (section INTEGER, instance BLOB, value BLOB, PRIMARY KEY (section, instance))
        WITHOUT ROWID;
"""
_HEAD = struct.Struct("<qd")  # rows asked of the model, seconds
_CHECK = 8  # bytes


@dataclass(frozen=True)
class Disk:
    """A section holds the explanations of one explainer, as it is set and coded, of one model on one dataset."""

    folder: str
    max_mb: float = 1000.0

    def __post_init__(self) -> None:
        number("max_mb", self.max_mb, 0, open_low=True)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder).expanduser() / _FILE

    def known(self, section: str, label: str, instances: Sequence[bytes]) -> dict[bytes, Told]:
        """What is there of the instances; a damaged entry is as good as none."""

        def read(database: sqlite3.Connection) -> dict[bytes, Told]:
            database.execute(
                "INSERT INTO section (key, label, used) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET label = ?2, used = ?3",
                (section, label, time.time()),
            )
            entries = database.execute(
                "SELECT instance, value FROM entry JOIN section ON section = id WHERE key = ?", (section,)
            )
            wanted = set(instances)
            found = {instance: _read(section, instance, value) for instance, value in entries if instance in wanted}
            return {instance: told for instance, told in found.items() if told is not None}

        return self._use(read, {})

    def keep(self, section: str, label: str, told: Mapping[bytes, Told]) -> None:
        """Add explanations to a section, and drop those sections that were not used for longest if need be."""

        def write(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            # another run may have dropped it in the meantime
            database.execute(
                "INSERT OR IGNORE INTO section (key, label, used) VALUES (?, ?, ?)", (section, label, time.time())
            )
            ((number_,),) = database.execute("SELECT id FROM section WHERE key = ?", (section,))
            values = [(number_, instance, _write(section, instance, one)) for instance, one in told.items()]
            database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", values)
            if self._shrink(database, number_):
                database.execute("COMMIT")
            else:
                database.execute("ROLLBACK")
                _warn(self.path, f"cache.max_mb={self.max_mb:g} is too small for one explainer; the rest is not kept")

        self._use(write, None)

    def sections(self) -> list[tuple[str, int, int, float]]:
        """Label, entries, bytes and time of last use of every section, the latest first."""
        query = """SELECT label, COALESCE(SUM(LENGTH(instance) = 16), 0), COALESCE(SUM(LENGTH(value) + 16), 0), used
                   FROM section LEFT JOIN entry ON section = id GROUP BY id ORDER BY used DESC, label"""
        return self._use(lambda database: database.execute(query).fetchall(), []) if self.path.exists() else []

    def clear(self) -> None:
        """Remove everything."""
        for path in (self.path, self.path.with_name(f"{_FILE}-journal")):
            path.unlink(missing_ok=True)

    def _shrink(self, database: sqlite3.Connection, kept: int) -> bool:
        """Drop sections until the size is right; whether that could be done without the one to be kept."""

        def pragma(name: str) -> int:
            return int(database.execute(f"PRAGMA {name}").fetchone()[0])

        while (pragma("page_count") - pragma("freelist_count")) * pragma("page_size") > self.max_mb * 1e6:
            oldest = database.execute("SELECT id FROM section WHERE id != ? ORDER BY used LIMIT 1", (kept,)).fetchone()
            if oldest is None:
                return False
            database.execute("DELETE FROM entry WHERE section = ?", oldest)
            database.execute("DELETE FROM section WHERE id = ?", oldest)
        return True

    def _use(self, task: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Do something with the database; a run does not fail for want of a cache."""
        for first in (True, False):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as database:
                    database.executescript(_TABLES)
                    return task(database)
            except (sqlite3.OperationalError, OSError) as error:  # locked, read-only, full
                _warn(self.path, str(error))
                return otherwise
            # damaged, or no database at all; the message itself may be damaged text
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                _warn(self.path, f"{error}; it is begun anew")
                if first:
                    self.clear()
        return otherwise


@cache
def _warn(path: Path, reason: str) -> None:
    """Once, not for every explanation."""
    log.warning("cache: %s: %s", path, reason)


def _write(section: str, instance: bytes, told: Told) -> bytes:
    features, scores = told.features.astype("<i4").tobytes(), told.scores.astype("<f8").tobytes()
    body = _HEAD.pack(told.rows, told.seconds) + features + scores
    return body + _checksum(section, instance, body)


def _read(section: str, instance: bytes, value: object) -> Told | None:
    if not isinstance(value, bytes):
        return None
    body, check = value[:-_CHECK], value[-_CHECK:]
    if check != _checksum(section, instance, body) or (len(body) - _HEAD.size) % 12:
        return None
    rows, seconds = _HEAD.unpack_from(body)
    size = (len(body) - _HEAD.size) // 12
    features = np.frombuffer(body, "<i4", size, _HEAD.size).astype(np.int64)
    return Told(features, np.frombuffer(body, "<f8", size, _HEAD.size + 4 * size).copy(), rows, seconds)


def _checksum(section: str, instance: bytes, body: bytes) -> bytes:
    return blake2b(section.encode() + instance + body, digest_size=_CHECK).digest()
