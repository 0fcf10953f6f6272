"""Plans and runs in this process, without the command: configs are composed once for each choice of components."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cfeval_cli.conf
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from cfeval_cli import experiment
from cfeval_cli import settings as config
from cfeval_cli.cli import configs
from cfeval_cli.core import Plan
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.results.store import RunFolder

CONF = Path(next(iter(cfeval_cli.conf.__path__)))
GROUPS = {path.name for path in CONF.iterdir() if path.is_dir()}


def composed(*overrides: str, folder: Path | None = None) -> DictConfig:
    """The config of a run as Hydra composes it, with a user's own configs from a folder."""
    choices, settings = [], []
    for word in overrides:
        override = _parsed(word)
        key = override.key_or_group
        chooses = key in GROUPS or "/" in key or "@" in override.input_line or key.startswith("hydra")
        (choices if chooses else settings).append(override)
    cfg: DictConfig = pickle.loads(_kept(tuple(override.input_line for override in choices), folder))
    ConfigLoaderImpl._apply_overrides_to_config(settings, cfg)  # as Hydra does, when all is chosen
    return cfg


@cache
def _parsed(word: str) -> Override:
    (override,) = OverridesParser.create().parse_overrides([word])
    return override


def copied(cfg: DictConfig) -> DictConfig:
    """Another config that is the same, in an eighth of the time that copy.deepcopy takes."""
    same: DictConfig = pickle.loads(pickle.dumps(cfg))
    return same


@cache
def _kept(choices: tuple[str, ...], folder: Path | None) -> bytes:
    return pickle.dumps(_chosen(choices, folder))


def _chosen(choices: tuple[str, ...], folder: Path | None) -> DictConfig:
    quick = _put_together(choices, folder) if choices else None
    if quick is not None:
        return quick
    kept = GlobalHydra.instance().hydra
    try:
        with configs.opened():
            return _compose(list(choices), None if folder is None else str(folder))
    finally:
        GlobalHydra.instance().hydra = kept  # of who reads configs now


_compose = configs.run  # for which tests put `instead`, where Hydra's own work is not what they look at


def instead(overrides: list[str], config_dir: str | None = None) -> DictConfig:
    """As configs.run."""
    return composed(*overrides, folder=None if config_dir is None else Path(config_dir))


def _put_together(choices: tuple[str, ...], folder: Path | None) -> DictConfig | None:
    """The default config with other files in the place of some groups; None where that is not all that Hydra does."""
    if not all(re.fullmatch(r"[a-z]+=(\[[\w, ]*\]|\w+)", choice) for choice in choices):
        return None
    cfg: DictConfig = pickle.loads(_kept((), None))
    for group, _, value in (choice.partition("=") for choice in choices):
        names = [name.strip() for name in value.strip("[]").split(",") if name.strip()]
        found = [_file(group, name, folder) for name in names]
        if group not in cfg or not found or any(one is None for one in found):
            return None
        cfg[group] = OmegaConf.merge(*found, _run().get(group, {}))  # what run.yaml says of a group comes last
    return cfg


def _file(group: str, name: str, folder: Path | None) -> DictConfig | None:
    """What a file of a group says, with the files of its group that it names; None if it does more than that."""
    places = [place / group / f"{name}.yaml" for place in (CONF, folder) if place is not None]
    path = next((place for place in places if place.is_file()), None)
    text = "" if path is None else path.read_text(encoding="utf-8")
    return _said(group, text, folder) if text and "@package" not in text else None


@cache
def _said(group: str, text: str, folder: Path | None) -> DictConfig | None:
    said = OmegaConf.create(text)
    named = list(said.pop("defaults", []))
    if named[-1:] == ["_self_"]:  # which is where it is if nothing is said
        named.pop()
    found = [_named(group, one, folder) for one in named]
    return None if any(one is None for one in found) else OmegaConf.merge(*found, said)


def _named(group: str, one: object, folder: Path | None) -> DictConfig | None:
    """A file of the same group, or some of another one at their place: /removal@omission.ways: [mask, zero]."""
    if isinstance(one, str):
        return _file(group, one, folder) if one.isidentifier() else None
    ((key, names),) = one.items()  # type: ignore[attr-defined]
    match = re.fullmatch(r"(/?)(\w+)@([\w.]+)", key)
    if match is None:
        return None
    other = match[2] if match[1] else f"{group}/{match[2]}"
    found = [_file(other, name, folder) for name in ([names] if isinstance(names, str) else names)]
    if any(file is None for file in found):
        return None
    merged = OmegaConf.merge(*found)
    for part in reversed(match[3].split(".")):
        merged = OmegaConf.create({part: merged})
    return merged


@cache
def _run() -> DictConfig:
    return OmegaConf.load(CONF / "run.yaml")


def planned(*overrides: str, folder: Path | None = None) -> Plan:
    """What a run with these overrides would do."""
    return config.plan(composed(*overrides, folder=folder))


def run(
    into: Path, *overrides: str, usual: Sequence[str] = (), folder: Path | None = None, tables: bool = True
) -> Path:
    """Run as the command does; `usual` settings are not in the record's overrides."""
    plan, made = planned(*usual, *overrides, folder=folder), RunFolder(into, ["cfeval", "run", *overrides])
    experiment.run(plan, made, Progress())
    return into
