"""Plans and runs in this process, without the command: configs are composed once for each choice of components."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cfeval_cli.conf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from cfeval_cli import config
from cfeval_cli.commands import configs
from cfeval_cli.commands.run import report
from cfeval_cli.folder.write import RunFolder
from cfeval_cli.run import pipeline
from cfeval_cli.run.progress import Progress
from cfeval_cli.types import Plan

CONF = Path(next(iter(cfeval_cli.conf.__path__)))
GROUPS = {path.name for path in CONF.iterdir() if path.is_dir()}


def composed(*overrides: str, folder: Path | None = None) -> DictConfig:
    """The config of a run as Hydra composes it, with a user's own configs from a folder."""
    choices, settings = [], []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        plain = override.input_line.partition("=")[0] == override.key_or_group  # nothing is added, removed or moved
        chooses = override.key_or_group in GROUPS or override.key_or_group.startswith("hydra")
        (settings if plain and not chooses else choices).append(override)
    cfg = copy.deepcopy(_chosen(tuple(override.input_line for override in choices), folder))
    for override in settings:  # as Hydra does, when all is chosen
        OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
    return cfg


@cache
def _chosen(choices: tuple[str, ...], folder: Path | None) -> DictConfig:
    kept = GlobalHydra.instance().hydra
    try:
        with configs.opened():
            return _compose(list(choices), None if folder is None else str(folder))
    finally:
        GlobalHydra.instance().hydra = kept  # of who reads configs now


_compose = configs.run  # for which tests put `composed`, where Hydra's own work is not what they look at


def planned(*overrides: str, folder: Path | None = None) -> Plan:
    """What a run with these overrides would do."""
    return config.plan(composed(*overrides, folder=folder))


def run(into: Path, *overrides: str, usual: Sequence[str] = (), folder: Path | None = None) -> Path:
    """A run with its tables, as the command makes it; `usual` is what its record does not tell of."""
    plan, made = planned(*usual, *overrides, folder=folder), RunFolder(into, ["cfeval", "run", *overrides])
    pipeline.run(plan, made, Progress())
    report(made, plan)
    made.finish()
    return into
