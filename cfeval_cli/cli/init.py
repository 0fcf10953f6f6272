"""`cfeval data init`: the config of a dataset, written from what a file seems to hold."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.cli import configs, screen
from cfeval_cli.core import Loadable
from cfeval_cli.core.files import make_folder, make_subfolder, refuse_linked_path, whole_file
from cfeval_cli.dataset.guess import Column, Guess, guess
from cfeval_cli.errors import UserError, short, visible

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what yaml takes for a text without quotes …
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")  # … but these
_TOKENS = 100  # of a text: each is a feature
_SPLIT = "[0.8, 0.1, 0.1]    # shares of training, validation and test rows"


def init(
    file: str,
    label: str | None,
    *,
    text: str | None,
    name: str | None,
    config_dir: str | None,
    data_dir: Path,
    force: bool,
) -> None:
    """Look at the file, write the config if it can be loaded, and show what was found."""
    path = Path(file).expanduser()
    if label is None:
        raise UserError(
            f"say which column is to be predicted: {shlex.join(['cfeval', 'data', 'init', file])} --label NAME"
        )
    name = name or re.sub(r"[^\w-]+", "_", path.stem).strip("-_") or "mine"
    if not re.fullmatch(r"\w[\w-]*", name):
        raise UserError(f"--name {name}: a name is of letters, digits, _ and -, and does not begin with -.")
    target = _target(name, config_dir, force)
    found = guess(path, label, text)
    if not found.features and found.text is None:
        told = "; ".join(f"{column.name}: {column.left_out}" for column in found.left_out)
        raise UserError(f"{path} has no column that could be a feature ({told}).")
    command = shlex.join(["cfeval", "data", "init", file, "--label", label, *(["--text", text] if text else [])])
    body = "\n".join(
        [f"# Written by {visible(command)}: change what is not as it should be.", *lines(found, name, data_dir)]
    )
    rows = _tried(body, data_dir)
    try:
        make_folder(target.parent.parent)
        make_subfolder(target.parent.parent, target.parent.name)
        with whole_file(target) as partial:
            partial.write_text(body + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror or error}).") from error
    _show(found, rows)
    own = [] if config_dir is None else ["--config-dir", config_dir]
    following = shlex.join(["cfeval", "run", *own, f"dataset={name}", *([] if found.text else ["model=estimator"])])
    sys.stdout.write(visible(f"Written: {target}\nNext:    {following}", keep="\n") + "\n")


def _target(name: str, config_dir: str | None, force: bool) -> Path:
    """The file to write, which is none of cfeval's own and none that is there."""
    ours = configs.package() / "dataset" / f"{name}.yaml"
    target = Path(config_dir or configs.PLACE) / "dataset" / f"{name}.yaml"
    refuse_linked_path(target)
    if ours.is_file() and ours.resolve() != target.resolve():
        raise UserError(
            f"cfeval has a dataset {name} itself ({ours}), and one of yours never takes its place: --name my_{name}"
        )
    if target.exists() and not force:
        raise UserError(f"{target} is there already. Say --force to write over it, or --name for another.")
    return target


def lines(found: Guess, name: str, data_dir: Path) -> Iterator[str]:
    """The yaml, with what was seen in comments."""
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
        yield f"#   {visible(column.name) or '(no name)'}: {visible(column.left_out or 'no text')}"


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
        yield f"# {visible(line)}"
    yield "features:"
    for column in found.features:
        yield f"  {_key(column.name)}: {_kind(column)}    # {visible(column.holds)}"


def _kind(column: Column) -> str:
    """Return the kind of a column as features has it: a word, or a class with settings."""
    if not column.options:
        return column.kind
    return _mapped({"_target_": f"cfeval_cli.dataset.tabular.{column.kind.capitalize()}", **column.options})


def _suspected(found: Guess) -> list[str]:
    """The line that makes missing values of numbers that look like it, and what is to be asked."""
    if not found.suspects:
        return []
    told = "; ".join(f"{visible(name)}: {', '.join(values)}" for name, values in found.suspects.items())
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
    yield f"classes: {_listed([str(one) for one in found.classes])}    # of two the positive one last; {_shares(found)}"
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
    yield f"classes: {_listed(found.classes)}    # of two the positive one last; {_shares(found)}"


def _delimiter(found: Guess) -> str:
    delimiter = "null" if found.delimiter in (None, ",") else _scalar(found.delimiter)
    return f"delimiter: {delimiter}    # null: detect"


def _shares(found: Guess) -> str:
    """How many rows each class has."""
    pairs = zip(found.classes, found.counts, strict=True)
    return visible(", ".join(f"{one}: {count:,}" for one, count in pairs)) + f" of {sum(found.counts):,} rows"


def _scalar(value: Any) -> str:
    """A value as yaml has it."""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    if not isinstance(value, str):
        return str(value)
    if "${" in value:
        raise UserError(
            f"{short(value)} cannot stand in a config, which would look for a setting of that name. Rename it."
        )
    return _key(value)


def _key(name: str) -> str:
    """A name as yaml has it, in quotes unless it can be taken for nothing else."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name, ensure_ascii=False)


def _listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_scalar, values))}]"


def _mapped(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_key(name)}: {_scalar(value)}" for name, value in values.items()) + "}"


def _tried(body: str, data_dir: Path) -> tuple[int, int, int]:
    """Load the data as a run will, before anything is written; how many rows each part has."""
    from omegaconf import OmegaConf

    from cfeval_cli.settings import make

    settings: Loadable = make(OmegaConf.create({"dataset": OmegaConf.create(body)}), "dataset")
    dataset = settings.load(data_dir, 0)
    return len(dataset.train), len(dataset.validation), len(dataset.test)


def _show(found: Guess, parts: tuple[int, int, int]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(visible(str(found.path)), style="table.title"), title_justify="left")
    for title in ("column", "kind", "what it holds"):
        table.add_column(title, overflow="fold")
    rows = [(found.label, "label", _shares(found))]
    if found.text is not None:
        rows.append((found.text, "texts", "each word of a text is a feature"))
    else:
        rows += [(column.name, column.kind, column.holds) for column in found.features]
    rows += [(column.name or "(no name)", "left out", column.left_out) for column in found.left_out]
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if not screen.quiet():
        screen.console().print(table)
    told = [f"Training, validation and test: {parts[0]:,}, {parts[1]:,} and {parts[2]:,} rows (dataset.split)."]
    if found.markers:
        told.append(f"Missing, besides empty cells: {', '.join(found.markers)}")
    if found.suspects:
        pairs = "; ".join(f"{name}: {', '.join(values)}" for name, values in found.suspects.items())
        told.append(f"Perhaps missing too ({pairs}): if so, replace `missing` in the config by the line below it.")
    told += [visible(line) for line in found.checks]
    sys.stdout.write(visible("\n".join(told), keep="\n") + "\n")
