"""A SQLite file of results: several runs may read and write it at once, and nothing in it is ever executed."""

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

_TABLES = """
    PRAGMA auto_vacuum = FULL;
    CREATE TABLE IF NOT EXISTS section (id INTEGER PRIMARY KEY, key TEXT UNIQUE, label TEXT, used REAL);
    CREATE TABLE IF NOT EXISTS entry (section INTEGER, item BLOB, value BLOB, PRIMARY KEY (section, item))
        WITHOUT ROWID;
"""
_CHECKSUM_BYTES = 8


@dataclass(frozen=True)
class Disk:
    """A section has the results of one component, with its settings and code, for one model on one dataset."""

    folder: str
    max_mb: float = 1000.0
    file: str = "finished-1.sqlite"  # the number is that of the format
    makes_folder: bool = True

    def __post_init__(self) -> None:
        check_float("max_mb", self.max_mb, 0, open_low=True)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder).expanduser() / self.file

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the entries of a section that are there and undamaged."""

        def read(database: sqlite3.Connection) -> dict[bytes, Arrays]:
            section_id, entries = _touch_section(database, section), dict[bytes, Arrays]()
            for key in keys:
                query = "SELECT value FROM entry WHERE section = ? AND item = ?"
                row = database.execute(query, (section_id, key)).fetchone()
                arrays = None if row is None else _decode(section, key, row[0])
                if arrays is not None:
                    entries[key] = arrays
            return entries

        return {} if section.key is None else self._use(read, {})

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries, and remove the least recently used sections if the file becomes too large."""

        def write(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            section_id = _touch_section(
                database, section
            )  # a new section if another run has removed it in the meantime
            rows = ((section_id, key, _encode(section, key, arrays)) for key, arrays in entries.items())
            database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", rows)
            if self._shrink(database, section_id):
                database.execute("COMMIT")
            else:
                database.execute("ROLLBACK")
                _warn(self.path, f"cache.max_mb={self.max_mb:g} is too small for one section; the rest is not stored")

        if entries and section.key is not None:
            self._use(write, None)

    def list_sections(self) -> list[tuple[str, int, int, float]]:
        """Return label, entries, bytes and time of last use of every section, the latest first."""
        query = """SELECT label, COUNT(item), COALESCE(SUM(LENGTH(value) + 16), 0), used
                   FROM section LEFT JOIN entry ON section = id GROUP BY id ORDER BY used DESC, label"""
        return self._use(lambda database: database.execute(query).fetchall(), []) if self.path.exists() else []

    def clear(self) -> None:
        """Remove the file, and what SQLite writes beside it."""
        refuse_linked_path(self.path)
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            path.unlink(missing_ok=True)

    def _shrink(self, database: sqlite3.Connection, section_id: int) -> bool:
        """Remove other sections until the size is right; return whether it is."""

        def get_pragma(name: str) -> int:
            return int(database.execute(f"PRAGMA {name}").fetchone()[0])

        while (get_pragma("page_count") - get_pragma("freelist_count")) * get_pragma("page_size") > self.max_mb * 1e6:
            query = "SELECT id FROM section WHERE id != ? ORDER BY used LIMIT 1"
            oldest = database.execute(query, (section_id,)).fetchone()
            if oldest is None:
                return False
            database.execute("DELETE FROM entry WHERE section = ?", oldest)
            database.execute("DELETE FROM section WHERE id = ?", oldest)
        return True

    def _use(self, task: Callable[[sqlite3.Connection], _T], default: _T) -> _T:
        """Return what a task returns, or a default: a run does not fail because of its cache."""
        for attempt in range(2):
            try:
                refuse_linked_path(self.path)
                if self.makes_folder:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as database:
                    database.execute("PRAGMA synchronous = OFF")
                    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone() is None:
                        database.executescript(_TABLES)  # takes longer than most tasks
                    return task(database)
            except (sqlite3.OperationalError, OSError, UserError) as error:  # locked, read-only, full, a link
                _warn(self.path, str(error))
                return default
            # Damaged, or not a database at all; the message itself may be damaged text.
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                _warn(self.path, f"the file is damaged ({error}) and is replaced by an empty one")
                if attempt == 0:
                    self.clear()
        return default


@cache
def _warn(path: Path, reason: str) -> None:
    """Log a warning once, not for every entry."""
    log.warning("cache: %s: %s", path, reason)


def _touch_section(database: sqlite3.Connection, section: Section) -> int:
    """Return the id of a section, which is new or has been used now."""
    database.execute(
        "INSERT INTO section (key, label, used) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET label = ?2, used = ?3",
        (section.key, section.label, time.time()),
    )
    return int(database.execute("SELECT id FROM section WHERE key = ?", (section.key,)).fetchone()[0])


def _encode(section: Section, key: bytes, arrays: Arrays) -> bytes:
    """Return arrays as bytes, with a checksum."""
    body = npy.pack(arrays)
    return body + _compute_checksum(section, key, body)


def _decode(section: Section, key: bytes, value: object) -> Arrays | None:
    """Return the arrays of an entry; None if they are not what was stored."""
    if not isinstance(value, bytes):
        return None
    body, checksum = value[:-_CHECKSUM_BYTES], value[-_CHECKSUM_BYTES:]
    try:
        return npy.unpack(body) if checksum == _compute_checksum(section, key, body) else None
    except ValueError:
        return None


def _compute_checksum(section: Section, key: bytes, body: bytes) -> bytes:
    return blake2b(str(section.key).encode() + key + body, digest_size=_CHECKSUM_BYTES).digest()
