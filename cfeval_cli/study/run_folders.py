"""Run folders of a study: find them, read their tables, and write the files that a study makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from cfeval_cli.core.files import make_folder, write_atomically
from cfeval_cli.errors import UserError
from cfeval_cli.results import validation as checked
from cfeval_cli.results.folder import JUDGES_FOLDER
from cfeval_cli.results.locations import find_records, has_record
from cfeval_cli.results.record import RunRecord
from cfeval_cli.results.schema import get_table_file


def find_run_folders(folders: Sequence[Path], *, with_judges: bool = False) -> list[Path]:
    """Return the run folders among and below some folders; those of judges beside a run only on request."""
    run_folders: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}.")
        below = [path.parent for path in find_records(folder)]
        runs = [folder] if has_record(folder) else [run for run in below if with_judges or not _is_judge(run)]
        if not runs:
            raise UserError(f"neither {folder} nor a folder below it contains a run.json. Name a folder of runs.")
        run_folders |= dict.fromkeys(run.resolve() for run in runs)
    return list(run_folders)


def _is_judge(folder: Path) -> bool:
    """Return whether a run is a judge that belongs to the run above it."""
    return folder.parent.name == JUDGES_FOLDER and has_record(folder.parent.parent)


def read_columns(folder: Path, record: RunRecord, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of a table such as `metrics`; ValueError if the record does not list it or a column is missing."""
    file = get_table_file(name)
    checked.check_listed(record, file)
    if file.endswith(".parquet"):
        return pd.read_parquet(folder / file, columns=list(columns))
    table = checked.read_table(folder / file)
    if missing := [column for column in columns if column not in table]:
        raise ValueError(f"{file} has no column {', '.join(missing)}; another version of cfeval wrote it")
    return pd.DataFrame(table[list(columns)])


def read_scores(
    folder: Path, record: RunRecord, metric_columns: Sequence[str], correlation_columns: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return columns of the metrics and the correlations of a run, whose metrics must be in its record."""
    metrics = read_columns(folder, record, "metrics", metric_columns)
    correlations = read_columns(folder, record, "correlations", correlation_columns)
    checked.check_tables(record, metrics, correlations)
    return metrics, correlations


@contextmanager
def report_damage(problem: str) -> Iterator[None]:
    """Turn any error that damaged files cause into a UserError that begins with the problem."""
    try:
        yield
    except (OSError, ValueError, TypeError, LookupError, AttributeError, *checked.RESOURCE_ERRORS) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise UserError(f"{problem}: {' '.join(reason.split())}.") from error


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write text files by name; each is complete or keeps its earlier content."""
    make_folder(folder)
    for name, text in texts.items():
        with write_atomically(folder / name) as partial:
            partial.write_text(text, encoding="utf-8")
