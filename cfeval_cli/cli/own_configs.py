"""The user's own folder of configs: ./conf, or that of --config-dir."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from cfeval_cli.errors import UserError
from cfeval_cli.settings import compose

OWN_FOLDER = "conf"  # of the working directory


def get_config_dir(arguments: Sequence[str]) -> str | None:
    """Return the value of --config-dir on a command line; None if it is not given."""
    for flag, value in pairwise([*arguments, ""]):
        if flag in ("--config-dir", "-cd"):
            return value
        if flag.startswith("--config-dir="):
            return flag.partition("=")[2]
    return None


def list_overrides(arguments: Sequence[str]) -> list[str]:
    """Return the overrides of a command line."""
    return [word for word in arguments if "=" in word and word[0] != "-"]


def find_conf_folder() -> str | None:
    """Return the folder ./conf if it has configs of cfeval's groups and is not the package's own, as in a clone."""
    folder, packaged = Path(OWN_FOLDER).absolute(), compose.get_package_folder()
    if not folder.is_dir() or folder.resolve() == packaged.resolve():
        return None
    groups = [path.name for path in packaged.iterdir() if path.is_dir()]
    return str(folder) if any(True for group in groups for _ in (folder / group).glob("*.yaml")) else None


def find_own_folder(arguments: Sequence[str]) -> str | None:
    """Return the folder of the user's own configs: that of --config-dir, else ./conf."""
    folder = get_config_dir(arguments)
    return find_conf_folder() if folder is None else folder


def list_used_configs(overrides: Sequence[str], folder: str) -> list[str]:
    """List the configs of the user's own folder that a run reads, such as dataset/loans."""
    loader = GlobalHydra.instance().config_loader()
    searched = [*overrides, *compose.search_path(folder)]
    entries = loader.compute_defaults_list("run", searched, RunMode.RUN).defaults
    names = dict.fromkeys(str(entry.config_path) for entry in entries if entry.config_path)
    return [name for name in names if is_own_config(name, folder)]


def has_clash(folder: str) -> bool:
    """Return whether the user's own folder has a config with the name of a packaged one."""
    packaged = compose.get_package_folder()
    return any((Path(folder) / path.relative_to(packaged)).is_file() for path in packaged.rglob("*.yaml"))


def is_own_config(name: str, folder: str) -> bool:
    """Return whether only the user's own folder has a config; UserError if cfeval has a different one of that name."""
    own, packaged = Path(folder) / f"{name}.yaml", compose.get_package_folder() / f"{name}.yaml"
    if not own.is_file() or not packaged.is_file():
        return own.is_file()
    if own.read_bytes() != packaged.read_bytes():
        raise UserError(
            f"{own} has the name of a config of cfeval, {packaged}, and cannot replace it. Give it another name."
        )
    return False
