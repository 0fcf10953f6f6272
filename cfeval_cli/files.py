"""Files that appear whole or not at all, and text in them that no program takes for an order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfeval_cli.errors import visible

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when all has been written."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        error.filename = str(path)  # not the temporary name, which nobody knows
        raise
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        mask = os.umask(0)
        os.umask(mask)
        partial.chmod(0o666 & ~mask)  # mkstemp lets nobody else read, which a shared folder is for
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def as_csv(frame: pd.DataFrame) -> str:
    """CSV text of a table with text from outside; a spreadsheet shows a cell that looks like a formula as it is."""

    def plain(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        text = visible(cell)
        return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text

    texts = [name for name in frame.columns if frame[name].dtype == object or frame[name].dtype == "str"]
    safe = frame.assign(**{name: frame[name].map(plain) for name in texts})
    return str(safe.rename(columns=plain).to_csv(index=False))


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
