"""Plans and runs in this process, without the command line."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path

from omegaconf import DictConfig

from cfeval_cli.api.experiment import run_experiment
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.settings import build, compose
from cfeval_cli.settings.plan import Plan

CONF = compose.get_package_folder()


def compose_config(*overrides: str, folder: Path | None = None) -> DictConfig:
    """Return the config of a run as Hydra composes it, with a user's own configs from a folder."""
    return deepcopy(_compose(overrides, folder))


@lru_cache(maxsize=100)
def _compose(overrides: tuple[str, ...], folder: Path | None) -> DictConfig:
    with compose.open_packaged_configs():
        return compose.compose_run(list(overrides), None if folder is None else str(folder))


def make_plan(*overrides: str, folder: Path | None = None) -> Plan:
    """Return what a run with these overrides would do."""
    return build.build_plan(compose_config(*overrides, folder=folder))


def run(into: Path, *overrides: str, defaults: Sequence[str] = (), folder: Path | None = None) -> Path:
    """Run as the command does; `usual` settings are not in the record's overrides."""
    run_folder = RunFolder(into, ["cfeval", "run", *overrides])
    run_experiment(make_plan(*defaults, *overrides, folder=folder), run_folder, Progress())
    return into
