"""`cfeval data init`: the config of a dataset, written from what a file seems to hold."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from cfeval_cli.cli import screen
from cfeval_cli.cli.own_configs import OWN_FOLDER
from cfeval_cli.core import Loadable
from cfeval_cli.core.files import make_folder, make_subfolder, refuse_linked_path, whole_file
from cfeval_cli.dataset.config_text import describe_shares, format_config
from cfeval_cli.dataset.guess import Guess, guess
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.settings import compose


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
        [
            f"# Written by {escape_controls(command)}: change what is not as it should be.",
            *format_config(found, name, data_dir),
        ]
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
    sys.stdout.write(escape_controls(f"Written: {target}\nNext:    {following}", keep="\n") + "\n")


def _target(name: str, config_dir: str | None, force: bool) -> Path:
    """The file to write, which is none of cfeval's own and none that is there."""
    ours = compose.get_package_folder() / "dataset" / f"{name}.yaml"
    target = Path(config_dir or OWN_FOLDER) / "dataset" / f"{name}.yaml"
    refuse_linked_path(target)
    if ours.is_file() and ours.resolve() != target.resolve():
        raise UserError(
            f"cfeval has a dataset {name} itself ({ours}), and one of yours never takes its place: --name my_{name}"
        )
    if target.exists() and not force:
        raise UserError(f"{target} is there already. Say --force to write over it, or --name for another.")
    return target


def _tried(body: str, data_dir: Path) -> tuple[int, int, int]:
    """Load the data as a run will, before anything is written; how many rows each part has."""
    from omegaconf import OmegaConf

    from cfeval_cli.settings.build import make

    settings: Loadable = make(OmegaConf.create({"dataset": OmegaConf.create(body)}), "dataset")
    dataset = settings.load(data_dir, 0)
    return len(dataset.train), len(dataset.validation), len(dataset.test)


def _show(found: Guess, parts: tuple[int, int, int]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(escape_controls(str(found.path)), style="table.title"), title_justify="left")
    for title in ("column", "kind", "what it holds"):
        table.add_column(title, overflow="fold")
    rows = [(found.label, "label", describe_shares(found))]
    if found.text is not None:
        rows.append((found.text, "texts", "each word of a text is a feature"))
    else:
        rows += [(column.name, column.kind, column.holds) for column in found.features]
    rows += [(column.name or "(no name)", "left out", column.left_out) for column in found.left_out]
    for row in rows:
        table.add_row(*(Text(escape_controls(cell)) for cell in row))
    if not screen.quiet():
        screen.console().print(table)
    told = [f"Training, validation and test: {parts[0]:,}, {parts[1]:,} and {parts[2]:,} rows (dataset.split)."]
    if found.markers:
        told.append(f"Missing, besides empty cells: {', '.join(found.markers)}")
    if found.suspects:
        pairs = "; ".join(f"{name}: {', '.join(values)}" for name, values in found.suspects.items())
        told.append(f"Perhaps missing too ({pairs}): if so, replace `missing` in the config by the line below it.")
    told += [escape_controls(line) for line in found.checks]
    sys.stdout.write(escape_controls("\n".join(told), keep="\n") + "\n")
