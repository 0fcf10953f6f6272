"""`cfeval data`: describe a data file, export instances, fetch and verify data, manage the cache."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf

from cfeval_cli.cli import screen
from cfeval_cli.cli.export import export_instances
from cfeval_cli.cli.init import init_dataset
from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.own_configs import find_conf_folder, is_own_config
from cfeval_cli.core import Loadable
from cfeval_cli.dataset.sources import File, Installed, Tar, Url, Wheel
from cfeval_cli.errors import UserError, did_you_mean, escape_controls, refuse_exit
from cfeval_cli.settings import compose

_HELP = """Manage data files; data_dir=PATH sets their folder. `cfeval data ACTION --help` shows the help of one
action."""

# by action: its arguments and its description
_ACTIONS = {
    "init": (
        "FILE --label COLUMN",
        "Write conf/dataset/FILE.yaml, the description of your table or texts. The kind of each column is detected "
        "and problems of the data are reported in one line each.",
    ),
    "export": (
        "KEY=VALUE ... --into FILE",
        "Write the instances that a run with the same settings explains, such as dataset=NAME seed=1 n_explain=50.",
    ),
    "list": ("[NAME ...]", "Show the files of data sets, their state and their sources; without a name, those of all."),
    "fetch": ("NAME ...", "Download the files of data sets into the data folder."),
    "verify": (
        "[NAME ...]",
        "Compare the existing files with their checksums; without a name, those of all data sets. The exit code is 1 "
        "if a file is damaged.",
    ),
    "cache": ("[KEY=VALUE ...]", "Show which results are stored for later runs, or remove them with --clear."),
}

# by option: the actions that accept it, and its description
_OPTIONS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "config-dir": (
        tuple(_ACTIONS),
        {"metavar": "FOLDER", "help": "your own configs (default: ./conf, if it exists)"},
    ),
    "clear": (("cache",), {"action": "store_true", "help": "remove all stored results"}),
    "label": (("init",), {"metavar": "COLUMN", "help": "the column to predict, by name or position"}),
    "text": (("init",), {"metavar": "COLUMN", "help": "the column of texts, if the file has other columns too"}),
    "name": (("init",), {"help": "name of the dataset (default: that of the file)"}),
    "into": (("export",), {"type": Path, "metavar": "FILE", "help": "csv, tsv or parquet"}),
    "force": (("init", "export"), {"action": "store_true", "help": "replace an existing file"}),
}


def _parser() -> Parser:
    """Make the parser of all actions."""
    parser = Parser("cfeval data", description=_HELP)
    parser.add_argument(
        "action", choices=tuple(_ACTIONS), help="; ".join(f"{name} {words[0]}" for name, words in _ACTIONS.items())
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a file, data sets or settings, depending on the action"
    )
    for option, (actions, settings) in _OPTIONS.items():
        where = "" if len(actions) == len(_ACTIONS) else f" ({', '.join(actions)})"
        parser.add_argument(f"--{option}", **{**settings, "help": settings["help"] + where})
    return parser


def _action_help(action: str) -> str:
    """Return the help of one action: its own arguments and options."""
    arguments, description = _ACTIONS[action]
    usage = f"cfeval data {action} {arguments} [OPTIONS]"
    parser = Parser(f"cfeval data {action}", usage=usage, description=description)
    for option, (actions, settings) in _OPTIONS.items():
        if action in actions:
            parser.add_argument(f"--{option}", **settings)
    return parser.format_help()


def main() -> None:
    """Parse the arguments and run the action."""
    words = sys.argv[1:]
    action = next((word for word in words if word in _ACTIONS), None)
    if action is not None and ("-h" in words or "--help" in words):
        sys.stdout.write(_action_help(action))
        return
    parser = _parser()
    arguments = parser.parse_intermixed_args()
    for option, (actions, _) in _OPTIONS.items():
        if getattr(arguments, option.replace("-", "_")) and arguments.action not in actions:
            where = " and ".join(actions)
            raise UserError(f"--{option} applies to {where} only. See cfeval data --help.")
    overrides = [name for name in arguments.names if "=" in name]
    names = [name for name in arguments.names if "=" not in name]
    if arguments.action == "init":
        _init(arguments, names, overrides)
        return
    arguments.config_dir = arguments.config_dir or find_conf_folder()
    if arguments.action == "export":
        if names:
            raise UserError(f"export takes settings of a run, such as dataset=NAME, not {names[0]}.")
        export_instances(overrides, arguments.config_dir, arguments.into, force=arguments.force)
        return
    if arguments.action == "cache":
        if names:
            raise UserError(f"cache takes no names, only settings such as data_dir=PATH: {', '.join(names)}")
        _cache(overrides, arguments.config_dir, arguments.clear)
        return
    all_names = _list_datasets(arguments.config_dir)
    for name in names:
        if name not in all_names:
            options = f"{did_you_mean(name, all_names)} There is: {', '.join(all_names)}."
            raise UserError(f"there is no dataset {name}.{options}")
    if arguments.action == "fetch" and not names:
        raise UserError(f"name the data sets to fetch: cfeval data fetch {' '.join(all_names)}")
    data_dir, files, datasets = _compose_datasets(
        names or all_names, overrides, arguments.config_dir, is_chosen=bool(names)
    )
    if arguments.action == "fetch":
        _fetch(data_dir, list(datasets.values()))
        return
    with refuse_exit():
        code = (_print_files if arguments.action == "list" else _verify)(data_dir, files)
    if code:
        sys.exit(code)


def _init(arguments: argparse.Namespace, names: list[str], overrides: list[str]) -> None:
    """Describe one file, whose name may contain an equals sign."""
    files = [*names, *(word for word in overrides if not word.startswith("data_dir="))]
    if len(files) != 1:
        raise UserError("name one file: cfeval data init loans.csv --label default")
    with compose.packaged_configs():
        cfg = compose.compose_run([word for word in overrides if word.startswith("data_dir=")])
    init_dataset(
        files[0], arguments.label, text=arguments.text, name=arguments.name, config_dir=arguments.config_dir,
        data_dir=Path(str(cfg.data_dir)).expanduser(), force=arguments.force,
    )  # fmt: skip


def _cache(overrides: list[str], config_dir: str | None, clear: bool) -> None:
    from datetime import datetime

    from rich.table import Table
    from rich.text import Text

    from cfeval_cli.cache.disk import Disk
    from cfeval_cli.settings.build import make

    with compose.packaged_configs():
        cache: object = make(compose.compose_run(overrides, config_dir), "cache")
    if not isinstance(cache, Disk):
        raise UserError("cache=off stores nothing. Leave that setting out to see what is stored.")
    sections = cache.sections()
    total = f"{sum(entries for _, entries, _, _ in sections):,} entries"
    if clear:
        cache.clear()
        sys.stdout.write(escape_controls(f"removed {total} from {cache.path}") + "\n")
        return
    sys.stdout.write(escape_controls(f"{cache.path.absolute()}: {total} (cache.max_mb={cache.max_mb:g})") + "\n")
    if not sections:
        return
    table = Table()
    for title in ("section", "entries", "kB", "last used"):
        table.add_column(title, justify="right" if title in ("entries", "kB") else "left")
    for label, entries, size, used in sections:
        try:
            last_used = datetime.fromtimestamp(used).strftime("%Y-%m-%d %H:%M")
        except (TypeError, ValueError, OverflowError, OSError):  # the file may be damaged
            last_used = "?"
        table.add_row(Text(escape_controls(label)), f"{entries:,}", f"{size / 1000:,.0f}", last_used)
    screen.make_console().print(table)


def _list_datasets(config_dir: str | None) -> list[str]:
    """Return the names of all datasets; UserError if a user's dataset has the name of a packaged one."""
    with compose.packaged_configs():
        names = compose.list_options("dataset", config_dir)
    for name in names if config_dir is not None else ():
        is_own_config(f"dataset/{name}", str(config_dir))
    return names


# Only the data of the composed config are used: these choices keep the rest small.
_MINIMAL_CHOICES = ("explainer=[random]", "metric=[validity]", "truth=[signed]", "removal=[zero]")


_SOURCES = {f"{kind.__module__}.{kind.__name__}" for kind in (File, Installed, Tar, Url, Wheel)}


def _compose_datasets(
    names: Sequence[str], overrides: list[str], config_dir: str | None, *, is_chosen: bool
) -> tuple[Path, dict[str, list[File]], dict[str, DictConfig]]:
    """Return the data folder, and the files and configs of datasets.

    Only for datasets that the user has chosen by name, configs may name code that is not part of cfeval.
    """
    from cfeval_cli.settings.build import find_targets, instantiate_node

    choices = [] if any(word.partition("=")[0] != "data_dir" for word in overrides) else _MINIMAL_CHOICES
    files: dict[str, list[File]] = {}
    datasets: dict[str, DictConfig] = {}
    with compose.packaged_configs():
        for name in names:
            cfg = datasets[name] = compose.compose_run([f"dataset={name}", *choices, *overrides], config_dir)
            nodes = _file_nodes(cfg.dataset)
            targets = {*find_targets([OmegaConf.to_container(node, resolve=True) for node in nodes])}
            if not is_chosen and (others := targets - _SOURCES):
                reason = f"its config uses {min(others)}, which is not a source of cfeval. To include it, give its name"
                sys.stderr.write(escape_controls(f"cfeval: dataset {name} is omitted: {reason}.") + "\n")
                continue
            with refuse_exit():
                files[name] = [instantiate_node(node) for node in nodes]
    return Path(str(cfg.data_dir)).expanduser(), files, datasets


def _file_nodes(node: Any) -> list[Any]:
    """Return all descriptions of files below a node of a config."""
    if OmegaConf.is_list(node):
        return [file for item in node for file in _file_nodes(item)]
    if not OmegaConf.is_dict(node):
        return []
    if node.get("_target_") == f"{File.__module__}.{File.__name__}":
        return [node]
    return [file for key in node for file in _file_nodes(node.get(key))]


def _print_files(data_dir: Path, files: dict[str, list[File]]) -> int:
    from rich.table import Table
    from rich.text import Text

    console = screen.make_console()
    screen.print_line(console, f"Data in {data_dir.absolute()}")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("dataset", "file", "state", "sources, in order"):
        table.add_column(title, overflow="fold")
    for name, files_of_dataset in files.items():
        for file in files_of_dataset:
            sources = [source.label if screen.is_full() else _shorten_source(source.label) for source in file.sources]
            cells = name, file.name, file.check_state(data_dir), "\n".join(dict.fromkeys(sources))
            table.add_row(*(Text(escape_controls(cell, keep="\n")) for cell in cells))
    console.print(table)
    return 0


def _shorten_source(source: str) -> str:
    """Return the host of an address, or the package of a file in a package; --full shows the whole source."""
    return urlsplit(source).hostname or source.partition(": ")[0]


def _fetch(data_dir: Path, datasets: list[DictConfig]) -> None:
    """Fetch files as a run does: a file that is not available is replaced by its alternative."""
    from cfeval_cli.core.logs import SafeFormatter
    from cfeval_cli.settings.build import make

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for cfg in datasets:
        dataset: Loadable = make(cfg, "dataset")
        with refuse_exit():
            files = list(dataset.fetch(data_dir))
        for file in files:
            sys.stdout.write(escape_controls(f"{file.path}: from {file.source}, sha256 {file.sha256}") + "\n")


def _verify(data_dir: Path, files: dict[str, list[File]]) -> int:
    """Print the state of each file; return exit code 1 if one is damaged."""
    every_file = [file for files_of_dataset in files.values() for file in files_of_dataset]
    states = [(file.locate(data_dir), file.check_state(data_dir)) for file in every_file]
    for path, state in states:
        sys.stdout.write(escape_controls(f"{path}: {'sha256 ok' if state == 'present' else state}") + "\n")
    return int(any(state == "damaged" for _, state in states))
