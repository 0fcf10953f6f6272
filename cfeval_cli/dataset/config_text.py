"""The config of a dataset as yaml, written from what a file seems to hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.dataset.guess import Column, Guess
from cfeval_cli.errors import UserError, escape_controls, shorten

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # yaml reads these as text without quotes
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")  # except these
_TOKENS = 100  # features of a text at most
_SPLIT = "[0.8, 0.1, 0.1]    # shares of training, validation and test rows"


def format_config(found: Guess, name: str, data_dir: Path) -> Iterator[str]:
    """Yield the lines of the config, with what was seen in comments."""
    if found.text is None:
        yield "_target_: cfeval_cli.dataset.tabular.Table"
        yield f"name: {_scalar(name)}"
        yield "file:"
        yield from _file(found.path, data_dir, "  ")
        yield from _of_table(found)
    else:
        yield "_target_: cfeval_cli.dataset.text.Text"
        yield f"name: {_scalar(name)}"
        yield from _of_texts(found, data_dir)
    others = [] if found.text is None else [column for column in found.features if column.name != found.text]
    left_out = [*found.left_out, *others]
    if left_out:
        yield "# Left out:"
    for column in left_out:
        yield f"#   {escape_controls(column.name) or '(no name)'}: {escape_controls(column.left_out or 'no text')}"


def _file(path: Path, data_dir: Path, indent: str) -> Iterator[str]:
    """Where the file is: in the data folder, below the current one, or elsewhere."""
    yield f"{indent}_target_: cfeval_cli.dataset.sources.File"
    yield f"{indent}name: {_scalar(path.name)}"
    folder = path.absolute().parent
    if folder.resolve() == data_dir.absolute().resolve():
        return
    here = Path.cwd()
    below = folder.relative_to(here) if folder.is_relative_to(here) else folder
    note = "" if below == folder else "    # from where cfeval is started"
    yield f"{indent}folder: {_scalar(str(below))}{note}"


def _of_table(found: Guess) -> Iterator[str]:
    yield from _label(found)
    yield "balance: false    # true: as many rows of each class as the smallest has"
    yield f"split: {_SPLIT}"
    if found.header:
        yield "columns: null    # names in the order of the file, for a file without a header"
        yield "header: null    # whether the first line has the names; null: detect"
    else:
        yield f"columns: {_listed(found.names)}    # in the order of the file: give them better names"
        yield "header: false"
    yield _delimiter(found)
    yield "skip_lines: 0    # before the table begins"
    yield f"positions: {_mapped(found.positions)}    # which of the columns of one name is meant, from 1"
    yield "immutable: []    # features that no search may change, such as [age, sex]"
    # null and not {}: Hydra replaces null, and adds no key to a mapping without +
    yield "only: null    # features that may change in one direction only, such as {age: up}"
    yield "candidates: 32    # values of a number that a search tries: quantiles of the training rows"
    yield f"missing: {_listed(found.markers)}    # cells that count as missing, besides empty ones"
    for line in _suspected(found):
        yield f"# {line}"
    for line in found.checks:
        yield f"# {escape_controls(line)}"
    yield "features:"
    for column in found.features:
        yield f"  {_key(column.name)}: {_kind(column)}    # {escape_controls(column.holds)}"


def _kind(column: Column) -> str:
    """Return the kind of a column as features has it: a word, or a class with settings."""
    if not column.options:
        return column.kind
    return _mapped({"_target_": f"cfeval_cli.dataset.tabular.{column.kind.capitalize()}", **column.options})


def _suspected(found: Guess) -> list[str]:
    """The line that makes missing values of numbers that look like it, and what is to be asked."""
    if not found.suspects:
        return []
    told = "; ".join(f"{escape_controls(name)}: {', '.join(values)}" for name, values in found.suspects.items())
    by_column = {
        column.name: [*column.markers, *(float(value) for value in column.suspects)]
        for column in found.features
        if column.suspects or column.markers
    }
    return [
        f"Do these numbers mean that there is none? {told}. If so, replace the line above by:",
        "missing: {" + ", ".join(f"{_key(name)}: {_listed(values)}" for name, values in by_column.items()) + "}",
    ]


def _of_texts(found: Guess, data_dir: Path) -> Iterator[str]:
    from cfeval_cli.dataset.text import length

    if found.text is None:
        return
    longest = length(found.path, found.text, found.names if not found.header else None, found.delimiter)
    classes = _listed([str(one) for one in found.classes])
    yield f"classes: {classes}    # of two the positive one last; {describe_shares(found)}"
    yield "tokens: words    # in small letters, signs apart; space: what white space separates"
    cut = (
        f"{_TOKENS}    # words of a text that are features; the longest text has {longest:,}. null: all"
        if longest > _TOKENS
        else "null    # words of a text that are features; null: all"
    )
    yield f"max_tokens: {cut}"
    yield "sample: null    # number of texts, drawn by the seed; null: all"
    yield "search_words: null    # number of frequent words that a search tries; null: all of the training texts"
    yield f"split: {_SPLIT}"
    yield "corpora:"
    yield "  - _target_: cfeval_cli.dataset.text.Table"
    yield "    file:"
    yield from _file(found.path, data_dir, "      ")
    yield f"    text: {_scalar(found.text)}"
    yield f"    label: {_scalar(found.label)}"
    yield f"    labels: {_listed(found.classes)}    # what the label is, in the order of the classes"
    columns = "null" if found.header else _listed(found.names)
    yield f"    columns: {columns}    # names in the order of the file, for a file without a header"
    yield f"    {_delimiter(found)}"


def _label(found: Guess) -> Iterator[str]:
    yield f"label: {_scalar(found.label)}"
    yield f"classes: {_listed(found.classes)}    # of two the positive one last; {describe_shares(found)}"


def _delimiter(found: Guess) -> str:
    delimiter = "null" if found.delimiter in (None, ",") else _scalar(found.delimiter)
    return f"delimiter: {delimiter}    # null: detect"


def describe_shares(found: Guess) -> str:
    """How many rows each class has."""
    pairs = zip(found.classes, found.counts, strict=True)
    return escape_controls(", ".join(f"{one}: {count:,}" for one, count in pairs)) + f" of {sum(found.counts):,} rows"


def _scalar(value: Any) -> str:
    """A value as yaml has it."""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    if not isinstance(value, str):
        return str(value)
    if "${" in value:
        raise UserError(
            f"{shorten(value)} cannot stand in a config, which would look for a setting of that name. Rename it."
        )
    return _key(value)


def _key(name: str) -> str:
    """A name as yaml has it, in quotes unless it can be taken for nothing else."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name, ensure_ascii=False)


def _listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_scalar, values))}]"


def _mapped(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_key(name)}: {_scalar(value)}" for name, value in values.items()) + "}"
