"""What a run folder says of itself, checked before it is believed: the folder may be damaged, or of another hand."""

from __future__ import annotations

import io
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cfeval_cli.core.files import hash_file
from cfeval_cli.errors import UserError
from cfeval_cli.results.schema import TABLES

SCHEMA = 5
LARGEST = 1 << 26  # bytes of a table or a record
TOO_MUCH = (RecursionError, OverflowError, MemoryError)  # nested more deeply, or larger, than anything that runs write

# columns that are text, whatever their cells look like
WORDS = {name for schema in TABLES.values() for name in schema.text_columns}

_BETTER = ("higher", "lower", "none")


def complete(record: Mapping[str, Any], keys: Iterable[str]) -> None:
    """ValueError if a run is not complete, or its run.json does not tell something that is needed."""
    if record["status"] != "complete":
        raise ValueError(f"the run is not complete: its status is {record['status']}")
    tells(record, keys)


def tells(record: Mapping[str, Any], keys: Iterable[str]) -> None:
    """ValueError if run.json lacks something; `settings.seed` is the seed among the settings."""
    absent = [key for key in keys if not _there(record, key.split("."))]
    if absent:
        raise ValueError(f"run.json does not tell {', '.join(absent)}")


def _there(value: Any, path: Sequence[str]) -> bool:
    return not path or (isinstance(value, Mapping) and path[0] in value and _there(value[path[0]], path[1:]))


def listed(record: Mapping[str, Any], name: str) -> None:
    """Refuse to read a file of a run that its record does not vouch for."""
    if name not in record["files"]:
        raise ValueError(f"run.json does not list {name}")


def read_record(path: Path) -> dict[str, Any]:
    """run.json as plain values, whatever the state of the run."""
    file = path / "run.json"
    try:
        record = json.loads(text(file, LARGEST))
        if not isinstance(record, dict) or not isinstance(record.get("status"), str):
            raise UserError(f"{file} is not the record of a run.")
        check(record)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, AttributeError, *TOO_MUCH) as error:
        raise UserError(f"{file} is damaged: {error}.") from error
    if record.get("schema") != SCHEMA:
        raise UserError(
            f"{file} was written by another version of cfeval (schema {record.get('schema')!r}, not {SCHEMA}). "
            "Run it again; explanations that the cache has are not computed again."
        )
    return record


def read(path: Path, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """run.json; of a finished run every file must be as the run left it, but those whose names begin so."""
    record = read_record(path)
    if record["status"] == "complete":
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


def files_of(path: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Name and sha256 of the files of a run; a name that leads out of its folder is none of ours."""
    files = record.get("files")
    if not isinstance(files, dict) or not all(isinstance(wanted, str) for wanted in files.values()):
        raise UserError(f"{path / 'run.json'} has no list of files with their sha256.")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
            raise UserError(f"{path / 'run.json'} lists {name!r}, which is not in the run's folder.")
    return files


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


def check(record: Any) -> None:
    """Refuse a run.json whose entries are not of the kinds that a run writes; ValueError names the first."""
    if not isinstance(record, dict):
        raise ValueError("run.json is not an object")
    json.dumps(record, ensure_ascii=False).encode("utf-8")  # halves of characters can be written to no file
    for key, (good, what) in _KINDS.items():
        node: Any = record
        *parents, last = key.split(".")
        for name in parents:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict) and last in node and not good(node[last]):
            raise ValueError(f"run.json: {key} is not {what}")
        if key in _NEEDED and isinstance(node, dict) and last not in node and record.get("status") == "complete":
            raise ValueError(f"run.json does not tell {key}")
    for name, facts in record.get("metrics", {}).items():
        for key, (good, what) in _FACTS.items():
            if not isinstance(facts, dict) or key not in facts or not good(facts[key]):
                raise ValueError(f"run.json: metrics.{name}.{key} is not {what}")


def check_tables(record: Mapping[str, Any], metrics: pd.DataFrame, correlations: pd.DataFrame) -> None:
    """Refuse tables that have a line twice, or are of metrics that run.json does not tell of."""
    for name, table, keys in (
        ("metrics.csv", metrics, ["metric", "variant", "explainer"]),
        ("correlations.csv", correlations, ["metric", "variant", "family", "gold", "agreement"]),
    ):
        if table.duplicated(keys).any():
            raise ValueError(f"{name} has two lines of the same {', '.join(keys)}")
    if not metrics["better"].isin(_BETTER).all():
        raise ValueError(f"metrics.csv: better is one of {', '.join(_BETTER)}")
    known = record["metrics"]
    if known and not {*metrics["metric"], *correlations["metric"]} <= set(known):
        raise ValueError("metrics.csv or correlations.csv has a metric that run.json does not tell of")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _words(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _switches(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, bool) for one in value.values())


def _shares(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(one) and 0 <= one <= 1 for one in value.values())


def _fidelity(value: Any) -> bool:
    return _shares({name: one for name, one in value.items() if name != "rows"}) if isinstance(value, dict) else False


def _objects(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())


def _definitions(value: Any) -> bool:
    return isinstance(value, dict) and all(_words(one) for one in value.values())


_NEEDED = ("data.name", "accuracy.test")  # of a run that is complete

_Kinds = Mapping[str, tuple[Callable[[Any], bool], str]]

_TEXT = (lambda value: isinstance(value, str), "text")
_OBJECT = (lambda value: isinstance(value, dict), "an object")
_WHOLE = (_whole, "a whole number")
_NAMES = (lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of words")
_KINDS: _Kinds = {
    "status": _TEXT,
    "settings": _OBJECT,
    "settings.seed": _WHOLE,
    "settings.k": _WHOLE,
    "settings.gold": _NAMES,
    "settings.agreement": _TEXT,
    "settings.incomplete": _TEXT,
    "settings.circular": _TEXT,
    "settings.support": _TEXT,
    "settings.tables": _OBJECT,
    "settings.figures": (
        lambda value: isinstance(value, list) and all(one in ("png", "svg", "pdf") for one in value),
        "a list of png, svg and pdf",
    ),
    "settings.tables.metrics": (lambda value: value is None or _NAMES[0](value), "a list of words"),
    "explainers": (_words, "a list of names with their titles"),
    "explainer_settings": (_objects, "a list of explainers with their settings"),
    "metrics": _OBJECT,
    "metrics_absent": (_words, "a list of names with reasons"),
    "explainers_absent": (_words, "a list of names with reasons"),
    "truths_absent": (_words, "a list of names with reasons"),
    "truths": (_objects, "a list of truths with what they say of themselves"),
    "removals": (_objects, "a list of ways to remove with what they say of themselves"),
    "definitions": (_definitions, "groups of names with what they mean"),
    "search": _TEXT,
    "setup": _TEXT,
    "data": _OBJECT,
    "data.name": _TEXT,
    "model": _OBJECT,
    "model.name": _TEXT,
    "model.settings": _OBJECT,
    "accuracy": _OBJECT,
    "accuracy.test": (lambda value: _number(value) and not math.isnan(value), "a number"),
    "doubts": _NAMES,
    "fidelity": (_fidelity, "a share with its interval"),
    "effects": (_switches, "a list of names with true or false"),
    "ordered": (_switches, "a list of names with true or false"),
    "majority": (_shares, "a list of shares"),
    "auc": (_shares, "a list of shares"),
    "instances": _WHOLE,
    "resampled": _WHOLE,
    "levels": _NAMES,
}
_FACTS: _Kinds = {
    "title": _TEXT,
    "latex": (lambda value: value is None or isinstance(value, str), "text"),
    "better": (lambda value: value in _BETTER if isinstance(value, str) else False, f"one of {', '.join(_BETTER)}"),
    "place": (_number, "a number"),
    "role": (lambda value: value in ("judged", "truth", "fact"), "judged, truth or fact"),
    "block": _TEXT,
    "detail": _TEXT,
}
