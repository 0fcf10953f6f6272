"""Atomic writes, folder locks, refusal of symbolic links, and CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfeval_cli.errors import UserError, escape_controls

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("cfeval")

_BLOCK_BYTES = 1 << 20
_PARTIAL_SUFFIX = ".part"


def refuse_linked_path(path: Path) -> None:
    """Raise UserError if the path, or a folder that it leads through below the working directory, is a symbolic link.

    The working directory may be someone else's. An absolute path to another place is the user's own choice.
    """
    try:
        current = Path.cwd()
    except FileNotFoundError:
        return  # nothing is below a folder that was removed
    absolute = path.absolute()
    for parent in (*reversed(absolute.parents), absolute):
        if current in parent.parents and parent.is_symlink():
            raise UserError(
                f"{parent} is a symbolic link. cfeval does not write through links in the current folder: remove it, "
                f"or name the folder that it leads to, {parent.resolve()}."
            )


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; UserError if the path leads through a symbolic link."""
    refuse_linked_path(folder)
    folder.mkdir(parents=True, exist_ok=True)


def refuse_links(folder: Path) -> None:
    """Raise UserError if a folder is, or contains at any depth, a symbolic link: files elsewhere could be changed."""
    refuse_linked_path(folder)
    for parent, folders, files in os.walk(folder):  # does not follow links
        for name in (*folders, *files):
            _refuse_link(Path(parent) / name)


def make_subfolder(folder: Path, name: str) -> Path:
    """Make a folder inside another one, unless it exists, and return it; UserError if it is a symbolic link."""
    path = folder / name
    _refuse_link(path)
    path.mkdir(exist_ok=True)
    return path


def _refuse_link(path: Path) -> None:
    """Raise UserError if the path itself is a symbolic link; folders above it are not checked."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link. cfeval does not write through links: remove it.")


@contextmanager
def restore_working_directory() -> Iterator[None]:
    """Return to the current folder at the end, in case code that cfeval calls, such as a user's model, changes it."""
    before = None
    with suppress(FileNotFoundError):  # if it has been removed, there is nothing to return to
        before = os.getcwd()  # noqa: PTH109  # once a chunk, and Path.cwd() takes as long as a small search
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.chdir(before or ".")


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` that replaces it at the end; a link at `path` is replaced too."""
    refuse_linked_path(path.parent)
    partial = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=_PARTIAL_SUFFIX)
        os.close(handle)
        partial = Path(name)
        yield partial
        mask = os.umask(0)
        os.umask(mask)
        partial.chmod(0o666 & ~mask)  # mkstemp denies access to other users, who may share the folder
        partial.replace(path)
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(_PARTIAL_SUFFIX):
            error.filename = str(path)  # not the temporary name
        raise
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path, names: Container[str] | None = None) -> None:
    """Remove the temporary files of killed processes; the caller must hold the lock of the folder."""
    for path in (*folder.glob(f".*{_PARTIAL_SUFFIX}"), *folder.glob(f"*/.*{_PARTIAL_SUFFIX}")):
        match = re.fullmatch(rf"\.(.+)-[a-z0-9_]{{8}}\{_PARTIAL_SUFFIX}", path.name)
        if match and (names is None or match[1] in names):
            path.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder against other processes; yield whether the lock was acquired.

    The folder itself is locked, so that no lock file remains. On file systems without locks, acquiring always succeeds.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            is_locked = wait
            if wait:
                log.info("waiting for another process that works on %s", folder)
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            is_locked = True
        yield is_locked
    finally:
        os.close(handle)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def format_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV; text that a spreadsheet would take for a formula is escaped."""
    import pandas as pd  # importing this module should not import pandas

    def escape_column(column: pd.Series[Any]) -> pd.Series[Any]:
        if pd.api.types.is_numeric_dtype(column):
            return column
        # Not Series.map, which makes floats of integers beside missing values.
        return pd.Series([_escape_formula(cell) for cell in column.astype(object)], column.index, dtype=object)

    table = pd.DataFrame({name: escape_column(column) for name, column in frame.items()}, index=frame.index)
    return table.rename(columns=_escape_formula).to_csv(index=False, lineterminator="\n")


def _escape_formula(cell: object) -> object:
    """Put an apostrophe before text that looks like a formula, and escape control characters."""
    if not isinstance(cell, str):
        return cell
    text = escape_controls(cell)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def make_new_folder(wanted: Path) -> Path:
    """Make a folder that did not exist before: the given one, or the same with a number."""
    make_folder(wanted.parent)
    for number in count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("numbers do not end")
