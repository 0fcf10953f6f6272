"""`cfeval data`: describing a file of one's own, writing what is to be explained, getting and checking data."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from cfeval_cli.commands import configs, screen
from cfeval_cli.commands.cli import Parser
from cfeval_cli.commands.export import export
from cfeval_cli.commands.init import init
from cfeval_cli.dataset.sources import File
from cfeval_cli.errors import UserError, did_you_mean, visible
from cfeval_cli.types import Loadable

_HELP = """Where data files are, and what can be done about it. data_dir=PATH chooses the folder.
`init FILE --label COLUMN` writes conf/dataset/FILE.yaml, the description of a table or of texts of your own.
`export dataset=NAME --into FILE` writes the instances that a run with the same settings explains.
`cache` tells which explanations are kept for later runs, and with --clear removes them."""


def main() -> None:
    """Show, fetch or verify data files."""
    parser = Parser("cfeval data", description=_HELP)
    parser.add_argument("action", choices=("init", "export", "list", "fetch", "verify", "cache"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="datasets; list and verify take all if none is named")
    parser.add_argument("--config-dir", help="a folder with configs of your own (default: ./conf, if it is there)")
    parser.add_argument("--clear", action="store_true", help="remove all that is kept (cache)")
    parser.add_argument("--label", metavar="COLUMN", help="what is to be predicted, by name or place (init)")
    parser.add_argument("--text", metavar="COLUMN", help="the texts, where a file has other columns too (init)")
    parser.add_argument("--name", help="of the dataset, if not the file's (init)")
    parser.add_argument("--into", type=Path, metavar="FILE", help="csv, tsv or parquet (export)")
    parser.add_argument("--force", action="store_true", help="write over a file that is there (init, export)")
    arguments = parser.parse_intermixed_args()
    for option, actions in _ONLY.items():
        if getattr(arguments, option) and arguments.action not in actions:
            where = " and ".join(actions)
            raise UserError(f"--{option} goes with {where} only. See cfeval data --help.")
    overrides = [name for name in arguments.names if "=" in name]
    names = [name for name in arguments.names if "=" not in name]
    if arguments.action == "init":
        _init(arguments, names, overrides)
        return
    arguments.config_dir = arguments.config_dir or configs.beside()
    if arguments.action == "export":
        if names:
            raise UserError(f"export takes settings of a run, such as dataset=NAME, not {names[0]}.")
        export(overrides, arguments.config_dir, arguments.into, force=arguments.force)
        return
    if arguments.action == "cache":
        if names:
            raise UserError(f"cache takes no names, only settings such as data_dir=PATH: {', '.join(names)}")
        _cache(overrides, arguments.config_dir, arguments.clear)
        return
    known = _known(arguments.config_dir)
    for name in names:
        if name not in known:
            raise UserError(f"there is no dataset {name}.{did_you_mean(name, known)} There is: {', '.join(known)}.")
    if arguments.action == "fetch" and not names:
        raise UserError(f"name what to fetch: cfeval data fetch {' '.join(known)}")
    data_dir, files, datasets = _files(names or known, overrides, arguments.config_dir)
    if arguments.action == "fetch":
        _fetch(data_dir, list(datasets.values()))
        return
    code = (_list if arguments.action == "list" else _verify)(data_dir, files)
    if code:
        sys.exit(code)


# which actions an option is for
_ONLY = {
    "clear": ("cache",), "label": ("init",), "text": ("init",), "name": ("init",), "into": ("export",),
    "force": ("init", "export"),
}  # fmt: skip


def _init(arguments: argparse.Namespace, names: list[str], overrides: list[str]) -> None:
    """One file, which may have an equals sign in its name."""
    files = [*names, *(word for word in overrides if not word.startswith("data_dir="))]
    if len(files) != 1:
        raise UserError("name one file: cfeval data init loans.csv --label default")
    with configs.opened():
        cfg = configs.run([word for word in overrides if word.startswith("data_dir=")])
    init(
        files[0], arguments.label, text=arguments.text, name=arguments.name, config_dir=arguments.config_dir,
        data_dir=Path(str(cfg.data_dir)).expanduser(), force=arguments.force,
    )  # fmt: skip


def _cache(overrides: list[str], config_dir: str | None, clear: bool) -> None:
    from datetime import datetime

    from rich.table import Table
    from rich.text import Text

    from cfeval_cli.cache.disk import Disk
    from cfeval_cli.config import make

    with configs.opened():
        cache: object = make(configs.run(overrides, config_dir), "cache")
    if not isinstance(cache, Disk):
        raise UserError("cache=off keeps nothing. Leave that setting out to see what is there.")
    sections = cache.sections()
    total = f"{sum(entries for _, entries, _, _ in sections):,} entries"
    if clear:
        cache.clear()
        sys.stdout.write(visible(f"removed {total} from {cache.path}") + "\n")
        return
    sys.stdout.write(visible(f"{cache.path.absolute()}: {total} (cache.max_mb={cache.max_mb:g})") + "\n")
    if not sections:
        return
    table = Table()
    for title in ("of", "entries", "kB", "last used"):
        table.add_column(title, justify="right" if title in ("entries", "kB") else "left")
    for label, entries, size, used in sections:
        try:
            when = datetime.fromtimestamp(used).strftime("%Y-%m-%d %H:%M")
        except (TypeError, ValueError, OverflowError, OSError):  # the file may be damaged
            when = "?"
        table.add_row(Text(visible(label)), f"{entries:,}", f"{size / 1000:,.0f}", when)
    screen.console().print(table)


def _known(config_dir: str | None) -> list[str]:
    """The datasets that are described; UserError if one of the user's own is called as ours is."""
    with configs.opened():
        known = configs.options("dataset", config_dir)
    for name in known if config_dir is not None else ():
        configs.adds(f"dataset/{name}", str(config_dir))
    return known


# of a run's config only the data are looked at: few files of the rest are read
_FEW = ("explainer=[random]", "metric=[validity]", "truth=[signed]", "removal=[zero]")


def _files(
    names: Sequence[str], overrides: list[str], config_dir: str | None
) -> tuple[Path, dict[str, list[File]], dict[str, DictConfig]]:
    """The data folder, and the files and configs of datasets."""
    few = [] if any(word.partition("=")[0] != "data_dir" for word in overrides) else _FEW
    files: dict[str, list[File]] = {}
    datasets: dict[str, DictConfig] = {}
    with configs.opened():
        for name in names:
            cfg = datasets[name] = configs.run([f"dataset={name}", *few, *overrides], config_dir)
            files[name] = [instantiate(node, _convert_="all") for node in _file_nodes(cfg.dataset)]
    return Path(str(cfg.data_dir)).expanduser(), files, datasets


def _file_nodes(node: Any) -> list[Any]:
    """All descriptions of files below a node of a config."""
    if OmegaConf.is_list(node):
        return [found for item in node for found in _file_nodes(item)]
    if not OmegaConf.is_dict(node):
        return []
    if str(node.get("_target_", "")).endswith("dataset.sources.File"):
        return [node]
    return [found for key in node for found in _file_nodes(node.get(key))]


def _list(data_dir: Path, files: dict[str, list[File]]) -> int:
    from rich.table import Table
    from rich.text import Text

    out = screen.console()
    screen.tell(out, f"Data in {data_dir.absolute()}")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("dataset", "file", "state", "sources, in order"):
        table.add_column(title, overflow="fold")
    for name, wanted in files.items():
        for file in wanted:
            sources = [source.label if screen.full() else _host(source.label) for source in file.sources]
            cells = name, file.name, file.state(data_dir), "\n".join(dict.fromkeys(sources))
            table.add_row(*(Text(visible(cell, keep="\n")) for cell in cells))
    out.print(table)
    return 0


def _host(source: str) -> str:
    """Of an address the host, of a file in a package the package; --full has the whole."""
    return urlsplit(source).hostname or source.partition(": ")[0]


def _fetch(data_dir: Path, datasets: list[DictConfig]) -> None:
    """As a run does it: what cannot be had is replaced by what the dataset has in its stead."""
    from cfeval_cli.commands.live import Visible
    from cfeval_cli.config import make

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Visible("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for cfg in datasets:
        dataset: Loadable = make(cfg, "dataset")
        for found in dataset.fetch(data_dir):
            sys.stdout.write(visible(f"{found.path}: from {found.source}, sha256 {found.sha256}") + "\n")


def _verify(data_dir: Path, files: dict[str, list[File]]) -> int:
    """Exit code 1 if a file that is there is not what it should be."""
    states = [(file.place(data_dir), file.state(data_dir)) for wanted in files.values() for file in wanted]
    for path, state in states:
        sys.stdout.write(visible(f"{path}: {'sha256 ok' if state == 'present' else state}") + "\n")
    return int(any(state == "damaged" for _, state in states))
