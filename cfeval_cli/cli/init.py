"""`cfeval data init`: write the config of a dataset from the contents of a file."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from cfeval_cli.cli.own_configs import OWN_FOLDER
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, make_console
from cfeval_cli.core import Loadable
from cfeval_cli.core.files import make_folder, make_subfolder, refuse_linked_path, write_atomically
from cfeval_cli.dataset.config_text import describe_class_counts, format_config
from cfeval_cli.dataset.describe import FileDescription, describe_file
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.settings import compose


def init_dataset(
    file: str,
    label: str | None,
    *,
    text: str | None,
    name: str | None,
    config_dir: str | None,
    data_dir: Path,
    force: bool,
    options: Options = DEFAULT_OPTIONS,
) -> None:
    """Detect the columns of the file, write the config if it loads, and print what was detected."""
    path = Path(file).expanduser()
    if label is None:
        command = shlex.join(["cfeval", "data", "init", file])
        raise UserError(f"--label is missing, the column to be predicted: {command} --label NAME")
    name = name or re.sub(r"[^\w-]+", "_", path.stem).strip("-_") or "mine"
    if not re.fullmatch(r"\w[\w-]*", name):
        raise UserError(f"--name {name}: use letters, digits, _ and -, with no - at the beginning.")
    target = _choose_target(name, config_dir, force)
    detected = describe_file(path, label, text)
    if not detected.features and detected.text is None:
        reasons = "; ".join(f"{column.name}: {column.exclusion_reason}" for column in detected.excluded)
        raise UserError(f"{path} has no column that could be a feature ({reasons}).")
    command = shlex.join(["cfeval", "data", "init", file, "--label", label, *(["--text", text] if text else [])])
    body = "\n".join(
        [
            f"# Written by {escape_controls(command)}: correct what is wrong.",
            *format_config(detected, name, data_dir),
        ]
    )
    rows = _count_split_rows(body, data_dir)
    try:
        make_folder(target.parent.parent)
        make_subfolder(target.parent.parent, target.parent.name)
        with write_atomically(target) as partial:
            partial.write_text(body + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror or error}).") from error
    _print_description(detected, rows, options)
    own = [] if config_dir is None else ["--config-dir", config_dir]
    command = shlex.join(["cfeval", "run", *own, f"dataset={name}", *([] if detected.text else ["model=estimator"])])
    sys.stdout.write(escape_controls(f"Written: {target}\nNext:    {command}", keep="\n") + "\n")


def _choose_target(name: str, config_dir: str | None, force: bool) -> Path:
    """Return the file to write; UserError if it exists or has the name of a packaged config."""
    packaged = compose.get_package_folder() / "dataset" / f"{name}.yaml"
    target = Path(config_dir or OWN_FOLDER) / "dataset" / f"{name}.yaml"
    refuse_linked_path(target)
    if packaged.is_file() and packaged.resolve() != target.resolve():
        raise UserError(
            f"cfeval has a dataset {name} of its own ({packaged}), which cannot be replaced. Use --name my_{name}"
        )
    if target.exists() and not force:
        raise UserError(f"{target} exists. Use --force to replace it, or --name for another name.")
    return target


def _count_split_rows(body: str, data_dir: Path) -> tuple[int, int, int]:
    """Load the data as a run would, and return the number of rows of each split."""
    from omegaconf import OmegaConf

    from cfeval_cli.settings.build import make_component

    settings: Loadable = make_component(OmegaConf.create({"dataset": OmegaConf.create(body)}), "dataset")
    dataset = settings.load(data_dir, 0)
    return len(dataset.train), len(dataset.validation), len(dataset.test)


def _print_description(detected: FileDescription, split_sizes: tuple[int, int, int], options: Options) -> None:
    """Print the detected columns, the splits and the problems of the data."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(escape_controls(str(detected.path)), style="table.title"), title_justify="left")
    for title in ("column", "kind", "values"):
        table.add_column(title, overflow="fold")
    rows = [(detected.label, "label", describe_class_counts(detected))]
    if detected.text is not None:
        rows.append((detected.text, "texts", "each word of a text is a feature"))
    else:
        rows += [(column.name, column.kind, column.summary) for column in detected.features]
    rows += [(column.name or "(no name)", "left out", column.exclusion_reason) for column in detected.excluded]
    for row in rows:
        table.add_row(*(Text(escape_controls(cell)) for cell in row))
    if not options.quiet:
        make_console().print(table)
    train, validation, test = split_sizes
    lines = [f"Training, validation and test: {train:,}, {validation:,} and {test:,} rows (dataset.split)."]
    if detected.missing_markers:
        lines.append(f"Missing, besides empty cells: {', '.join(detected.missing_markers)}")
    if detected.suspected_missing:
        pairs = "; ".join(f"{name}: {', '.join(values)}" for name, values in detected.suspected_missing.items())
        lines.append(f"Possibly missing too ({pairs}): if so, replace `missing` in the config by the line below it.")
    lines += [escape_controls(line) for line in detected.warnings]
    sys.stdout.write(escape_controls("\n".join(lines), keep="\n") + "\n")
