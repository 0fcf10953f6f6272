"""What a run folder says of itself, checked before it is believed: the folder may be damaged, or of another hand."""

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
from cfeval_cli.results.record import RunRecord, parse_record
from cfeval_cli.results.schema import TABLES
from cfeval_cli.statistics.subsets import SUBSETS

SCHEMA = 6
LARGEST = 1 << 26  # bytes of a table or a record
TOO_MUCH = (RecursionError, OverflowError, MemoryError)  # nested more deeply, or larger, than anything that runs write

# columns that are text, whatever their cells look like
WORDS = {name for schema in TABLES.values() for name in schema.text_columns}

_BETTER = ("higher", "lower", "none")


def complete(record: RunRecord, keys: Iterable[str]) -> None:
    """ValueError if a run is not complete, or its run.json does not tell something that is needed."""
    if record.status != "complete":
        raise ValueError(f"the run is not complete: its status is {record.status}")
    tells(record, keys)


def tells(record: RunRecord, keys: Iterable[str]) -> None:
    """ValueError if run.json lacks something; `settings.seed` is the seed among the settings."""
    absent = [key for key in keys if not _is_set(record, key.split("."))]
    if absent:
        raise ValueError(f"run.json does not tell {', '.join(absent)}")


def _is_set(entry: BaseModel, path: Sequence[str]) -> bool:
    name, *rest = path
    return name in entry.model_fields_set and (not rest or _is_set(getattr(entry, name), rest))


def listed(record: RunRecord, name: str) -> None:
    """Refuse to read a file of a run that its record does not vouch for."""
    if name not in record.files:
        raise ValueError(f"run.json does not list {name}")


def read_record(path: Path) -> RunRecord:
    """Return run.json, whatever the state of the run."""
    file = path / "run.json"
    try:
        content = json.loads(text(file, LARGEST))
        if not isinstance(content, dict) or not isinstance(content.get("status"), str):
            raise UserError(f"{file} is not the record of a run.")
        if content.get("schema") != SCHEMA:
            raise UserError(
                f"{file} was written by another version of cfeval (schema {content.get('schema')!r}, not {SCHEMA}). "
                "Run it again; explanations that the cache has are not computed again."
            )
        return parse_record(content)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, AttributeError, *TOO_MUCH) as error:
        raise UserError(f"{file} is damaged: {error}.") from error


def read(path: Path, but: tuple[str, ...] = ()) -> RunRecord:
    """run.json; of a finished run every file must be as the run left it, but those whose names begin so."""
    record = read_record(path)
    if record.status == "complete":
        for name, wanted in files_of(path, record).items():
            if but and name.startswith(but):
                continue
            file = path / name
            if not file.is_file() or file.is_symlink():
                raise UserError(f"{file} is missing, or a link, and run.json lists it. {_again(path)}")
            if hash_file(file) != wanted:
                raise UserError(
                    f"{file} is not as the run left it: its sha256 is not the one in run.json. {_again(path)}"
                )
    return record


def _again(path: Path) -> str:
    return f"Put it back, or compute the run again: cfeval run --resume {shlex.quote(str(path))} redo=true"


def files_of(path: Path, record: RunRecord) -> dict[str, str]:
    """Name and sha256 of the files of a run; a name that leads out of its folder is none of ours."""
    if "files" not in record.model_fields_set:
        raise UserError(f"{path / 'run.json'} has no list of files with their sha256.")
    for name in record.files:
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
            raise UserError(f"{path / 'run.json'} lists {name!r}, which is not in the run's folder.")
    return record.files


def text(path: Path, most: int) -> str:
    """The text of a file of at most so many bytes; OSError or ValueError for anything else, a pipe or a device."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    with path.open("rb") as stream:
        body = stream.read(most + 1)
    if len(body) > most:
        raise ValueError(f"{path.name} has more than {most:,} bytes")
    return body.decode("utf-8")


def table(path: Path) -> pd.DataFrame:
    """Return a csv file of a run; ValueError if its columns are not those of its schema."""
    body = text(path, LARGEST)
    names = list(pd.read_csv(io.StringIO(body), nrows=0).columns)
    if path.name in TABLES and (problem := TABLES[path.name].find_problem(names)):
        raise ValueError(problem)
    numbers = [name for name in names if name not in WORDS]
    return pd.read_csv(
        io.StringIO(body),
        dtype=dict.fromkeys(WORDS, str),  # an explainer may be called 1, or NA
        keep_default_na=False,
        na_values={name: [""] for name in numbers},
    )


def check_tables(record: RunRecord, metrics: pd.DataFrame, correlations: pd.DataFrame) -> None:
    """Refuse tables that have a line twice, or are of metrics that run.json does not tell of."""
    for name, table, keys in (
        ("metrics.csv", metrics, ["metric", "variant", "explainer"]),
        ("correlations.csv", correlations, ["metric", "variant", "family", "gold", "agreement", "subset"]),
    ):
        if table.duplicated(keys).any():
            raise ValueError(f"{name} has two lines of the same {', '.join(keys)}")
    if not metrics["better"].isin(_BETTER).all():
        raise ValueError(f"metrics.csv: better is one of {', '.join(_BETTER)}")
    if not correlations["subset"].isin(SUBSETS).all():
        raise ValueError(f"correlations.csv: subset is one of {', '.join(SUBSETS)}")
    known = record.metrics
    if known and not {*metrics["metric"], *correlations["metric"]} <= set(known):
        raise ValueError("metrics.csv or correlations.csv has a metric that run.json does not tell of")
