"""Where run folders are; without the packages that reading them takes, for commands that have to start fast."""

from __future__ import annotations

from pathlib import Path

RECORD = "run.json"


def has_record(folder: Path) -> bool:
    """Return whether a folder is that of a run, in whatever state."""
    return (folder / RECORD).exists()


def find_records(folder: Path) -> list[Path]:
    """Return the records of all runs in a folder and below it, judges included."""
    return sorted(folder.rglob(RECORD))
