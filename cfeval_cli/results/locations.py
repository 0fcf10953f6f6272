"""Names and places of the files of run folders, without the imports that reading them needs: commands start fast."""

from __future__ import annotations

from pathlib import Path

RECORD = "run.json"
LOG_FILE = "run.log"
PAGE_FILE = "report.html"  # also of a sweep
MARKDOWN_FILE, LATEX_FILE = "tables.md", "tables.tex"  # also of a sweep
COSTS_TEXT_FILE = "costs.md"
SWEEP_FILE = "multirun.yaml"  # of Hydra, in the folder of a sweep


def has_record(folder: Path) -> bool:
    """Return whether a folder is that of a run, in whatever state."""
    return (folder / RECORD).exists()


def find_records(folder: Path) -> list[Path]:
    """Return the records of all runs in a folder and below it, judges included."""
    return sorted(folder.rglob(RECORD))
