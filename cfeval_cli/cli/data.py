"""`cfeval data`: describe a data file, export instances, download and verify data, manage the cache."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf
from rich.table import Table
from rich.text import Text

from cfeval_cli.cli.export import export_instances
from cfeval_cli.cli.init import init_dataset
from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.own_configs import find_conf_folder, is_own_config
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, make_console, print_line
from cfeval_cli.core import Loadable
from cfeval_cli.dataset.sources import DataFile, Installed, Tar, Url, Wheel
from cfeval_cli.errors import UserError, did_you_mean, escape_controls, refuse_exit
from cfeval_cli.settings import compose

_HELP = """\
Describe your data file, download and verify data files, export the instances of
a run, and manage the cache. `cfeval data ACTION --help` shows the arguments of
an action."""


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Run the action that the command line names."""
    actions: dict[str, Callable[[Sequence[str], Options], None]] = {
        "init": _init,
        "export": _export,
        "list": _list,
        "fetch": _fetch,
        "verify": _verify,
        "cache": _cache,
    }
    summaries = "\n".join(f"  {name:<8} {str(action.__doc__).splitlines()[0]}" for name, action in actions.items())
    parser = Parser(
        "cfeval data", usage="cfeval data ACTION ...", description=_HELP, epilog=f"actions:\n{summaries}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("action", choices=actions, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    values = parser.parse_args(arguments)
    actions[values.action](values.arguments, options)


def _make_parser(action: str, description: str) -> Parser:
    parser = Parser(f"cfeval data {action}", description=description)
    parser.add_argument("--config-dir", metavar="FOLDER", help="your own configs (default: ./conf, if it exists)")
    return parser


def _init(words: Sequence[str], options: Options) -> None:
    """Describe your table or texts in conf/dataset/FILE.yaml."""
    parser = _make_parser(
        "init",
        "Write conf/dataset/FILE.yaml, the description of your table or texts. The kind of each column is detected, "
        "and problems of the data are reported in one line each.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a CSV, TSV or Parquet file, and data_dir=PATH")
    parser.add_argument("--label", metavar="COLUMN", help="the column to predict, by name or position")
    parser.add_argument("--text", metavar="COLUMN", help="the column of texts, if the file has other columns too")
    parser.add_argument("--name", help="name of the dataset (default: that of the file)")
    parser.add_argument("--force", action="store_true", help="replace an existing config")
    arguments = parser.parse_intermixed_args(words)
    overrides = [word for word in arguments.files if word.startswith("data_dir=")]
    files = [word for word in arguments.files if word not in overrides]  # a file name may contain an equals sign
    if len(files) != 1:
        raise UserError("name one file: cfeval data init loans.csv --label default")
    with compose.open_packaged_configs():
        cfg = compose.compose_run(overrides)
    init_dataset(
        files[0], arguments.label, text=arguments.text, name=arguments.name, config_dir=arguments.config_dir,
        data_dir=Path(str(cfg.data_dir)).expanduser(), force=arguments.force, options=options,
    )  # fmt: skip


def _export(words: Sequence[str], options: Options) -> None:
    """Write the instances that a run explains."""
    parser = _make_parser(
        "export", "Write the instances that a run with the same settings explains, for explanations made elsewhere."
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings of the run, such as dataset=NAME seed=1"
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help="a file that ends in .csv, .tsv or .parquet")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    arguments = parser.parse_intermixed_args(words)
    overrides, names = _separate_overrides(arguments.overrides)
    if names:
        raise UserError(f"export takes settings of a run, such as dataset=NAME, not {names[0]}.")
    export_instances(overrides, _find_config_dir(arguments), arguments.into, force=arguments.force)


def _list(words: Sequence[str], options: Options) -> None:
    """Show the files of datasets, their state and their sources."""
    data_dir, files, _ = _parse_datasets("list", "Show the files of datasets, their state and their sources.", words)
    console = make_console()
    print_line(console, f"Data in {data_dir.absolute()}")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("dataset", "file", "state", "sources, in order"):
        table.add_column(title, overflow="fold")
    for name, files_of_dataset in files.items():
        for file in files_of_dataset:
            sources = [source.label if options.full else _shorten_source(source.label) for source in file.sources]
            cells = name, file.name, file.check_state(data_dir), "\n".join(dict.fromkeys(sources))
            table.add_row(*(Text(escape_controls(cell, keep="\n")) for cell in cells))
    console.print(table)


def _fetch(words: Sequence[str], options: Options) -> None:
    """Download the files of datasets into the data folder."""
    from cfeval_cli.core.logs import SafeFormatter
    from cfeval_cli.settings.build import make_component

    data_dir, _, datasets = _parse_datasets(
        "fetch", "Download the files of datasets into the data folder, as a run does.", words, is_name_required=True
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for cfg in datasets.values():
        dataset: Loadable = make_component(cfg, "dataset")
        with refuse_exit():
            files = list(dataset.fetch(data_dir))
        for file in files:
            sys.stdout.write(escape_controls(f"{file.path}: from {file.source}, sha256 {file.sha256}") + "\n")


def _verify(words: Sequence[str], options: Options) -> None:
    """Compare existing files with their checksums."""
    data_dir, files, _ = _parse_datasets(
        "verify", "Compare existing files with their checksums. The exit code is 1 if a file is damaged.", words
    )
    with refuse_exit():
        states = [(file.locate(data_dir), file.check_state(data_dir)) for dataset in files.values() for file in dataset]
    for path, state in states:
        sys.stdout.write(escape_controls(f"{path}: {'sha256 ok' if state == 'present' else state}") + "\n")
    if any(state == "damaged" for _, state in states):
        sys.exit(1)


def _cache(words: Sequence[str], options: Options) -> None:
    """Show or remove the results that are stored for later runs."""
    from cfeval_cli.cache.disk import Disk
    from cfeval_cli.settings.build import make_component

    parser = _make_parser("cache", "Show which results are stored for later runs, or remove them.")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, such as cache.folder=PATH")
    parser.add_argument("--clear", action="store_true", help="remove all stored results")
    arguments = parser.parse_intermixed_args(words)
    overrides, names = _separate_overrides(arguments.overrides)
    if names:
        raise UserError(f"cache takes no names, only settings such as cache.folder=PATH: {', '.join(names)}")
    with compose.open_packaged_configs():
        cache: object = make_component(compose.compose_run(overrides, _find_config_dir(arguments)), "cache")
    if not isinstance(cache, Disk):
        raise UserError("cache=off stores nothing. Leave that setting out to see what is stored.")
    sections = cache.list_sections()
    total = f"{sum(entries for _, entries, _, _ in sections):,} entries"
    if arguments.clear:
        cache.clear()
        sys.stdout.write(escape_controls(f"removed {total} from {cache.path}") + "\n")
        return
    sys.stdout.write(escape_controls(f"{cache.path.absolute()}: {total} (cache.max_mb={cache.max_mb:g})") + "\n")
    if not sections:
        return
    table = Table()
    for title in ("section", "entries", "kB", "last used"):
        table.add_column(title, justify="right" if title in ("entries", "kB") else "left")
    for label, entries, size, timestamp in sections:
        table.add_row(Text(escape_controls(label)), f"{entries:,}", f"{size / 1000:,.0f}", _format_time(timestamp))
    make_console().print(table)


def _format_time(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")
    except (TypeError, ValueError, OverflowError, OSError):  # the file may be damaged
        return "?"


def _separate_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words with an equals sign, and the others."""
    return [word for word in words if "=" in word], [word for word in words if "=" not in word]


def _find_config_dir(arguments: argparse.Namespace) -> str | None:
    return arguments.config_dir or find_conf_folder()


def _parse_datasets(
    action: str, description: str, words: Sequence[str], *, is_name_required: bool = False
) -> tuple[Path, dict[str, list[DataFile]], dict[str, DictConfig]]:
    """Return the data folder, and the files and configs of the datasets that the command line names, or of all."""
    parser = _make_parser(action, description)
    default = "" if is_name_required else " (default: all)"
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"datasets{default}, and data_dir=PATH")
    arguments = parser.parse_intermixed_args(words)
    config_dir, (overrides, names) = _find_config_dir(arguments), _separate_overrides(arguments.names)
    all_names = _list_datasets(config_dir)
    for name in names:
        if name not in all_names:
            suggestion = did_you_mean(name, all_names)
            raise UserError(f"there is no dataset {name}.{suggestion} There is: {', '.join(all_names)}.")
    if is_name_required and not names:
        raise UserError(f"name the datasets to {action}: cfeval data {action} {' '.join(all_names)}")
    return _compose_datasets(names or all_names, overrides, config_dir, is_chosen=bool(names))


def _list_datasets(config_dir: str | None) -> list[str]:
    """Return the names of all datasets; UserError if a user's dataset has the name of a packaged one."""
    with compose.open_packaged_configs():
        names = compose.list_options("dataset", config_dir)
    for name in names if config_dir is not None else ():
        is_own_config(f"dataset/{name}", str(config_dir))
    return names


_SOURCES = {f"{kind.__module__}.{kind.__name__}" for kind in (DataFile, Installed, Tar, Url, Wheel)}


def _compose_datasets(
    names: Sequence[str], overrides: list[str], config_dir: str | None, *, is_chosen: bool
) -> tuple[Path, dict[str, list[DataFile]], dict[str, DictConfig]]:
    """Return the data folder, and the files and configs of datasets.

    Only for datasets that the user has chosen by name, configs may name code that is not part of cfeval.
    """
    from cfeval_cli.settings.build import find_targets, instantiate_node

    # Only the data of the composed config are used: one option of the other groups keeps it small.
    is_default = all(word.partition("=")[0] == "data_dir" for word in overrides)
    groups = ("explainer", "truth", "removal") if is_default else ()
    choices = [f"{group}=[{compose.list_default_options(group)[0]}]" for group in groups]
    files: dict[str, list[DataFile]] = {}
    datasets: dict[str, DictConfig] = {}
    with compose.open_packaged_configs():
        for name in names:
            cfg = datasets[name] = compose.compose_run([f"dataset={name}", *choices, *overrides], config_dir)
            nodes = _find_file_nodes(cfg.dataset)
            targets = {*find_targets([OmegaConf.to_container(node, resolve=True) for node in nodes])}
            if not is_chosen and (foreign_targets := targets - _SOURCES):
                reason = f"its config uses {min(foreign_targets)}, which is not a source of cfeval"
                message = f"cfeval: dataset {name} is omitted: {reason}. To include it, give its name."
                sys.stderr.write(escape_controls(message) + "\n")
                continue
            with refuse_exit():
                files[name] = [instantiate_node(node) for node in nodes]
    return Path(str(cfg.data_dir)).expanduser(), files, datasets


def _find_file_nodes(node: Any) -> list[Any]:
    """Return all descriptions of files below a node of a config."""
    if OmegaConf.is_list(node):
        return [file for item in node for file in _find_file_nodes(item)]
    if not OmegaConf.is_dict(node):
        return []
    if node.get("_target_") == f"{DataFile.__module__}.{DataFile.__name__}":
        return [node]
    return [file for key in node for file in _find_file_nodes(node.get(key))]


def _shorten_source(source: str) -> str:
    """Return the host of an address, or the package of a file in a package; --full shows the whole source."""
    return urlsplit(source).hostname or source.partition(": ")[0]
