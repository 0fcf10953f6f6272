"""Reading the files of a run folder, which can be damaged or come from others: everything is checked first."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from pydantic import BaseModel

from cfeval_cli.core.files import hash_file
from cfeval_cli.errors import UserError
from cfeval_cli.results.locations import RECORD
from cfeval_cli.results.record import RunRecord, parse_record
from cfeval_cli.results.schema import TABLES

SCHEMA_VERSION = 8
MAX_FILE_BYTES = 1 << 26  # of a table or a record
RESOURCE_ERRORS = (RecursionError, OverflowError, MemoryError)  # raised by files that no run writes

# columns of text, whatever their cells look like
TEXT_COLUMNS = {name for schema in TABLES.values() for name in schema.text_columns}


def check_complete(record: RunRecord, keys: Iterable[str]) -> None:
    """Raise ValueError if a run is not complete, or its record lacks one of the entries."""
    if record.status != "complete":
        raise ValueError(f"the run is not complete: its status is {record.status}")
    check_entries(record, keys)


def check_entries(record: RunRecord, keys: Iterable[str]) -> None:
    """Raise ValueError if the record lacks one of the entries; `settings.seed` is the seed among the settings."""
    absent = [key for key in keys if not _is_set(record, key.split("."))]
    if absent:
        raise ValueError(f"run.json has no entry {', '.join(absent)}")


def _is_set(entry: BaseModel, path: Sequence[str]) -> bool:
    name, *inner_path = path
    return name in entry.model_fields_set and (not inner_path or _is_set(getattr(entry, name), inner_path))


def check_listed(record: RunRecord, name: str) -> None:
    """Raise ValueError if the record does not list a file."""
    if name not in record.files:
        raise ValueError(f"run.json does not list {name}")


def read_record(path: Path) -> RunRecord:
    """Return run.json, whatever the state of the run."""
    file = path / RECORD
    try:
        content = json.loads(read_text(file))
        if not isinstance(content, dict) or not isinstance(content.get("status"), str):
            raise UserError(f"{file} is not the record of a run.")
        if content.get("schema") != SCHEMA_VERSION:
            raise UserError(
                f"{file} was written by another version of cfeval (schema {content.get('schema')!r}, not "
                f"{SCHEMA_VERSION}). Run it again; explanations in the cache are not computed again."
            )
        return parse_record(content)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, AttributeError, *RESOURCE_ERRORS) as error:
        raise UserError(f"{file} is damaged: {error}.") from error


def read_verified_record(path: Path, unverified: tuple[str, ...] = ()) -> RunRecord:
    """Return run.json; UserError if a file of a complete run is missing or was changed.

    Files whose names begin with one of `unverified` are not checked.
    """
    record = read_record(path)
    if record.status != "complete":
        return record
    for name, sha256 in _get_files(path, record).items():
        if unverified and name.startswith(unverified):
            continue
        file = path / name
        if not file.is_file() or file.is_symlink():
            raise UserError(f"{file} is missing, or a link, and run.json lists it. {_explain_repair(path)}")
        if hash_file(file) != sha256:
            raise UserError(
                f"{file} is not as the run left it: its sha256 is not the one in run.json. {_explain_repair(path)}"
            )
    return record


def _explain_repair(path: Path) -> str:
    return f"Put it back, or compute the run again: cfeval run --resume {shlex.quote(str(path))} redo=true"


def _get_files(path: Path, record: RunRecord) -> dict[str, str]:
    """Return the sha256 of the files of a run by name; UserError if one is outside its folder."""
    if "files" not in record.model_fields_set:
        raise UserError(f"{path / 'run.json'} has no list of files with their sha256.")
    for name in record.files:
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
            raise UserError(f"{path / 'run.json'} lists {name!r}, which is not in the run's folder.")
    return record.files


def read_text(path: Path) -> str:
    """Return the text of a file; ValueError if it is too large, a pipe or a device."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    with path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_FILE_BYTES:,} bytes")
    return content.decode("utf-8")


def read_table(path: Path) -> pd.DataFrame:
    """Return a csv file of a run; ValueError if its columns or rows are not those of its schema."""
    text = read_text(path)
    names = list(pd.read_csv(io.StringIO(text), nrows=0).columns)
    if schema := TABLES.get(path.name):
        schema.check_columns(names)
    numbers = [name for name in names if name not in TEXT_COLUMNS]
    table = pd.read_csv(
        io.StringIO(text),
        dtype=dict.fromkeys(TEXT_COLUMNS, str),  # an explainer may be called 1, or NA
        keep_default_na=False,
        na_values={name: [""] for name in numbers},
    )
    if schema:
        schema.check_rows(table)
    return table


def check_tables(record: RunRecord, metrics: pd.DataFrame, correlations: pd.DataFrame) -> None:
    """Raise ValueError if a metric of the tables is not in the record."""
    if record.metrics and not {*metrics["metric"], *correlations["metric"]} <= set(record.metrics):
        raise ValueError("metrics.csv or correlations.csv has a metric that is not in run.json")
