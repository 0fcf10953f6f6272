"""Write the config of a dataset as yaml, from the description of its file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.dataset.describe import ColumnDescription, FileDescription
from cfeval_cli.errors import UserError, escape_controls, shorten

_UNQUOTED_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # yaml reads these as texts, except its keywords
_YAML_KEYWORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")
_MAX_TOKENS = 100  # of a text that become features, in a config for long texts
_SPLIT = "[0.8, 0.1, 0.1]    # shares of training, validation and test rows"


def format_config(file: FileDescription, name: str, data_dir: Path) -> Iterator[str]:
    """Yield the lines of the config, with comments on settings and values."""
    if file.text is None:
        yield "_target_: cfeval_cli.dataset.tabular.TabularData"
        yield f"name: {_format_scalar(name)}"
        yield "file:"
        yield from _format_file(file.path, data_dir, "  ")
        yield from _format_table(file)
    else:
        yield "_target_: cfeval_cli.dataset.text.Text"
        yield f"name: {_format_scalar(name)}"
        yield from _format_text(file, data_dir)
    other_names = [] if file.text is None else [column for column in file.features if column.name != file.text]
    excluded_columns = [*file.excluded, *other_names]
    if excluded_columns:
        yield "# Left out:"
    for column in excluded_columns:
        name = escape_controls(column.name) or "(no name)"
        yield f"#   {name}: {escape_controls(column.exclusion_reason or 'no text')}"


def _format_file(path: Path, data_dir: Path, indent: str) -> Iterator[str]:
    """Yield the name of the file, and its folder unless that is the data folder."""
    yield f"{indent}_target_: cfeval_cli.dataset.sources.DataFile"
    yield f"{indent}name: {_format_scalar(path.name)}"
    folder = path.absolute().parent
    if folder.resolve() == data_dir.absolute().resolve():
        return
    current = Path.cwd()
    shown_path = folder.relative_to(current) if folder.is_relative_to(current) else folder
    note = "" if shown_path == folder else "    # relative to the folder in which cfeval is started"
    yield f"{indent}folder: {_format_scalar(str(shown_path))}{note}"


def _format_table(file: FileDescription) -> Iterator[str]:
    yield from _format_label(file)
    yield "balance: false    # true: as many rows of each class as the smallest has"
    yield f"split: {_SPLIT}"
    if file.header:
        yield "columns: null    # names in the order of the file, for a file without a header"
        yield "header: null    # whether the first line has the names; null: detect"
    else:
        yield f"columns: {_format_list(file.names)}    # in the order of the file: give them better names"
        yield "header: false"
    yield _format_delimiter(file)
    yield "skip_lines: 0    # before the table begins"
    yield f"positions: {_format_mapping(file.positions)}    # of the columns whose name occurs twice, from 1"
    yield "immutable: []    # features that no search may change, such as [age, sex]"
    # null and not {}: Hydra replaces null, and adds no key to a mapping without +
    yield "only: null    # features that may change in one direction only, such as {age: up}"
    yield "candidates: 32    # values of a number that a search tries: quantiles of the training rows"
    yield f"missing: {_format_list(file.missing_markers)}    # cells that count as missing, besides empty ones"
    for line in _format_suspected_missing(file):
        yield f"# {line}"
    for line in file.warnings:
        yield f"# {escape_controls(line)}"
    yield "features:"
    for column in file.features:
        yield f"  {_format_key(column.name)}: {_format_kind(column)}    # {escape_controls(column.summary)}"


def _format_kind(column: ColumnDescription) -> str:
    """Return the kind of a column for `features`: a word, or a class with settings."""
    if not column.options:
        return column.kind
    return _format_mapping({"_target_": f"cfeval_cli.dataset.tabular.{column.kind.capitalize()}", **column.options})


def _format_suspected_missing(file: FileDescription) -> list[str]:
    """Return a question on numbers that may stand for a missing value, and the line that declares them missing."""
    if not file.suspected_missing:
        return []
    suspects = "; ".join(
        f"{escape_controls(name)}: {', '.join(values)}" for name, values in file.suspected_missing.items()
    )
    by_column = {
        column.name: [*column.missing_markers, *(float(value) for value in column.suspected_missing)]
        for column in file.features
        if column.suspected_missing or column.missing_markers
    }
    return [
        f"Do these numbers stand for a missing value? {suspects}. If so, replace the line above by:",
        "missing: {"
        + ", ".join(f"{_format_key(name)}: {_format_list(values)}" for name, values in by_column.items())
        + "}",
    ]


def _format_text(file: FileDescription, data_dir: Path) -> Iterator[str]:
    from cfeval_cli.dataset.text import count_longest_text

    if file.text is None:
        return
    columns = None if file.header else file.names
    longest = count_longest_text(file.path, file.text, columns, file.delimiter)
    classes = _format_list([str(name) for name in file.classes])
    yield f"classes: {classes}    # of two the positive one last; {describe_class_counts(file)}"
    yield "tokens: words    # in lower case, punctuation separate; space: what white space separates"
    max_tokens = (
        f"{_MAX_TOKENS}    # words of a text that are features; the longest text has {longest:,}. null: all"
        if longest > _MAX_TOKENS
        else "null    # words of a text that are features; null: all"
    )
    yield f"max_tokens: {max_tokens}"
    yield "sample: null    # number of texts, drawn by the seed; null: all"
    yield "search_words: null    # number of frequent words that a search tries; null: all of the training texts"
    yield f"split: {_SPLIT}"
    yield "corpora:"
    yield "  - _target_: cfeval_cli.dataset.text.TextTable"
    yield "    file:"
    yield from _format_file(file.path, data_dir, "      ")
    yield f"    text: {_format_scalar(file.text)}"
    yield f"    label: {_format_scalar(file.label)}"
    yield f"    labels: {_format_list(file.classes)}    # values of the label, in the order of the classes"
    names = "null" if columns is None else _format_list(columns)
    yield f"    columns: {names}    # names in the order of the file, for a file without a header"
    yield f"    {_format_delimiter(file)}"


def _format_label(file: FileDescription) -> Iterator[str]:
    yield f"label: {_format_scalar(file.label)}"
    yield f"classes: {_format_list(file.classes)}    # of two the positive one last; {describe_class_counts(file)}"


def _format_delimiter(file: FileDescription) -> str:
    delimiter = "null" if file.delimiter in (None, ",") else _format_scalar(file.delimiter)
    return f"delimiter: {delimiter}    # null: detect"


def describe_class_counts(file: FileDescription) -> str:
    """Return the number of rows of each class, for people."""
    pairs = zip(file.classes, file.counts, strict=True)
    counts = escape_controls(", ".join(f"{name}: {count:,}" for name, count in pairs))
    return f"{counts} of {sum(file.counts):,} rows"


def _format_scalar(value: Any) -> str:
    """Return a value as yaml."""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    if not isinstance(value, str):
        return str(value)
    if "${" in value:
        raise UserError(
            f"{shorten(value)} cannot stand in a config, because ${{…}} refers to a setting there. Rename it."
        )
    return _format_key(value)


def _format_key(name: str) -> str:
    """Return a name as yaml, in quotes unless yaml reads it as a text without them."""
    return (
        name
        if _UNQUOTED_NAME.fullmatch(name) and name.lower() not in _YAML_KEYWORDS
        else json.dumps(name, ensure_ascii=False)
    )


def _format_list(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_format_scalar, values))}]"


def _format_mapping(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_format_key(name)}: {_format_scalar(value)}" for name, value in values.items()) + "}"
