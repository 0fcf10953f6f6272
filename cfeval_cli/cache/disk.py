"""A SQLite file of finished work: several runs may read and write it at once, and nothing in it is ever executed."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from cfeval_cli.core import Arrays, Section, npy
from cfeval_cli.core.files import refuse_linked_path
from cfeval_cli.errors import UserError, check_float

log = logging.getLogger("cfeval")

_T = TypeVar("_T")

_FILE = "finished-1.sqlite"  # the number is that of the format
_TABLES = """
    PRAGMA auto_vacuum = FULL;
    CREATE TABLE IF NOT EXISTS section (id INTEGER PRIMARY KEY, key TEXT UNIQUE, label TEXT, used REAL);
    CREATE TABLE IF NOT EXISTS entry (section INTEGER, item BLOB, value BLOB, PRIMARY KEY (section, item))
        WITHOUT ROWID;
"""
_CHECK_BYTES = 8
_KEYS_PER_QUERY = 500  # older versions of SQLite take no more than 999


@dataclass(frozen=True)
class Disk:
    """A section holds what one component, as it is set and coded, made for one model on one dataset."""

    folder: str
    max_mb: float = 1000.0

    def __post_init__(self) -> None:
        check_float("max_mb", self.max_mb, 0, open_low=True)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder).expanduser() / _FILE

    @property
    def _files(self) -> tuple[Path, Path]:
        """The file, and what SQLite writes beside it."""
        return self.path, self.path.with_name(f"{self.path.name}-journal")

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the entries that are there; a damaged one is as good as none."""

        def read(database: sqlite3.Connection) -> dict[bytes, Arrays]:
            number_, entries = _number(database, section), dict[bytes, Arrays]()
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                some = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                query = f"SELECT item, value FROM entry WHERE section = ? AND item IN ({marks})"  # noqa: S608  no text
                for key, value in database.execute(query, (number_, *some)):
                    if (arrays := _open(section, key, value)) is not None:
                        entries[key] = arrays
            return entries

        return {} if section.key is None else self._use(read, {})

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries, and drop those sections that were not used for longest if need be."""

        def write(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            number_ = _number(database, section)  # new, if another run has dropped it in the meantime
            values = ((key, npy.pack(arrays)) for key, arrays in entries.items())
            lines = [(number_, key, value + _checksum(section, key, value)) for key, value in values]
            database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", lines)
            if self._shrink(database, number_):
                database.execute("COMMIT")
            else:
                database.execute("ROLLBACK")
                _warn(self.path, f"cache.max_mb={self.max_mb:g} is too small for one section; the rest is not kept")

        if entries and section.key is not None:
            self._use(write, None)

    def sections(self) -> list[tuple[str, int, int, float]]:
        """Label, entries, bytes and time of last use of every section, the latest first."""
        query = """SELECT label, COUNT(item), COALESCE(SUM(LENGTH(value) + 16), 0), used
                   FROM section LEFT JOIN entry ON section = id GROUP BY id ORDER BY used DESC, label"""
        return self._use(lambda database: database.execute(query).fetchall(), []) if self.path.exists() else []

    def clear(self) -> None:
        """Remove everything."""
        for path in self._files:
            refuse_linked_path(path)
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

    def _make_folder(self) -> None:
        for path in self._files:
            refuse_linked_path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _use(self, task: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Do something with the database; a run does not fail for want of a cache."""
        for first in (True, False):
            try:
                self._make_folder()
                with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as database:
                    database.execute("PRAGMA synchronous = OFF")
                    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone() is None:
                        database.executescript(_TABLES)  # which takes longer than what is done with them
                    return task(database)
            except (sqlite3.OperationalError, OSError, UserError) as error:  # locked, read-only, full, a link
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
    """Once, not for every entry."""
    log.warning("cache: %s: %s", path, reason)


def _number(database: sqlite3.Connection, section: Section) -> int:
    """Return the number of a section, which is used now."""
    database.execute(
        "INSERT INTO section (key, label, used) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET label = ?2, used = ?3",
        (section.key, section.label, time.time()),
    )
    return int(database.execute("SELECT id FROM section WHERE key = ?", (section.key,)).fetchone()[0])


def _open(section: Section, key: bytes, value: object) -> Arrays | None:
    """Return the arrays of an entry; None if they are not what was stored."""
    if not isinstance(value, bytes):
        return None
    body, check = value[:-_CHECK_BYTES], value[-_CHECK_BYTES:]
    try:
        return npy.unpack(body) if check == _checksum(section, key, body) else None
    except ValueError:
        return None


def _checksum(section: Section, key: bytes, value: bytes) -> bytes:
    return blake2b(str(section.key).encode() + key + value, digest_size=_CHECK_BYTES).digest()
