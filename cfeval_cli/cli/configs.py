"""Reading the configs outside a run: what settings and options are there?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from cfeval_cli.errors import UserError, did_you_mean

PLACE = "conf"  # a user's own configs, in the folder that she is in


@contextmanager
def opened() -> Iterator[None]:
    """The packaged configs."""
    GlobalHydra.instance().clear()
    with initialize_config_module("cfeval_cli.conf", version_base="1.3"):
        yield


def run(overrides: list[str], config_dir: str | None = None) -> DictConfig:
    """The config of `cfeval run` with some overrides."""
    return compose("run", [*overrides, *_beyond(config_dir)])


def _beyond(config_dir: str | None) -> list[str]:
    """What adds a folder to where configs are looked for, after the package's own."""
    return [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []


def options(group: str, config_dir: str | None = None) -> list[str]:
    """The options of a config group, those of a user's own folder included."""
    own = [path.stem for path in (Path(config_dir) / group).glob("*.yaml")] if config_dir else []
    return sorted({*GlobalHydra.instance().config_loader().get_group_options(group), *own})


def default(group: str) -> list[str]:
    """The options of a group that a run has unless it is told otherwise."""
    listed = _said(package() / "run.yaml")["defaults"]
    (chosen,) = (one[group] for one in listed if isinstance(one, dict) and group in one)
    return [chosen] if isinstance(chosen, str) else list(chosen)


def settings(config_dir: str | None = None) -> list[str]:
    """Every key of the default config and of every explainer and metric, a user's own too, in dotted form."""
    known, chosen = list[str](), list[str]()
    # by their files: to compose a run with all of them takes seconds
    for group in ("explainer", "metric"):
        said = {path.stem: _said(path) for path in _files(group, config_dir)}
        far = [name for name, one in said.items() if any(not isinstance(of, str) for of in one.pop("defaults", []))]
        chosen += [f"{group}=[{','.join(far)}]"] if far else []  # which take something from other groups
        known += [key for one in said.values() for key in _keys(one, f"{group}.")]
    cfg = _composed(tuple(chosen), config_dir)
    return list(dict.fromkeys([*_keys(OmegaConf.to_container(cfg, resolve=False), ""), *known]))


@lru_cache(maxsize=1)
def packaged_groups() -> frozenset[str]:
    """Return the config groups of cfeval: dataset, model, explainer and so on."""
    return frozenset(path.name for path in package().iterdir() if path.is_dir() and any(path.glob("*.yaml")))


@lru_cache(maxsize=32)
def packaged_settings(group: str) -> dict[str, list[Any]]:
    """Return the plain defaults, by dotted key, of all settings of run.yaml and of the packaged configs of a group."""
    general = _said(package() / "run.yaml")
    del general["hydra"]
    # An experiment has settings of other groups.
    files = _files(group, None) if group != "experiment" else []
    collected: dict[str, list[Any]] = {}
    for prefix, config in [("", general), *((f"{group}.", _said(path)) for path in files)]:
        config.pop("defaults", None)
        _collect_plain(config, prefix, "_target_" in config, collected)
    return collected


def _collect_plain(node: dict[str, Any], prefix: str, in_component: bool, collected: dict[str, list[Any]]) -> None:
    """Collect the settings of a component, but not those of the components inside it, such as sources of data."""
    for name, value in node.items():
        is_component = isinstance(value, dict) and "_target_" in value
        if name.startswith("_") or (is_component and in_component):
            continue
        if "_target_" not in str(value):
            collected.setdefault(f"{prefix}{name}", []).append(value)
        if isinstance(value, dict):
            _collect_plain(value, f"{prefix}{name}.", in_component or is_component, collected)


def _said(path: Path) -> dict[str, Any]:
    """What a config file says, as it stands there."""
    said = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(key): value for key, value in said.items()} if isinstance(said, dict) else {}


def _files(group: str, config_dir: str | None) -> list[Path]:
    folders = [package(), *([Path(config_dir)] if config_dir else [])]
    return sorted(path for folder in folders for path in (folder / group).glob("*.yaml"))


def _keys(node: object, prefix: str) -> list[str]:
    if not isinstance(node, dict):
        return []
    return [key for name, child in node.items() for key in (f"{prefix}{name}", *_keys(child, f"{prefix}{name}."))]


def chosen(but: str, config_dir: str | None = None) -> list[str]:
    """Every key of the config that the command line composes without one of its settings."""
    cfg = _without(but, config_dir)
    return [] if cfg is None else _keys(OmegaConf.to_container(cfg, resolve=False), "")


def offer(key: str, config_dir: str | None = None) -> str:
    """How to give a class a setting that its yaml does not list, or what it has instead; empty if there is no class."""
    cfg, (parent, _, name) = _without(key, config_dir), key.rpartition(".")
    node = None if cfg is None or not parent else OmegaConf.select(cfg, parent)
    if isinstance(node, DictConfig) and "_target_" not in node and _is_in_component(cfg, parent):
        return f"{parent} has no {name!r}.{did_you_mean(name, map(str, node))} To add it, write +{key}=…"
    target = str(node.get("_target_") or "") if isinstance(node, DictConfig) else ""
    if not target:
        return ""
    if isinstance(node, DictConfig) and name in node:  # Hydra adds no key to a mapping without being told to
        return f"{key} is a mapping in the yaml: to add to it, write +{key}=…"
    if target.startswith("cfeval_cli."):  # other classes are not imported for the sake of a message
        parameters = list(signature(get_object(target)).parameters)
        if name not in parameters:
            close = did_you_mean(name, parameters)
            return f"{parent} has no setting {name!r}.{close} There is: {', '.join(parameters) or 'none'}."
    return f"the yaml lists no setting {name!r} of {target}: to give it one, write +{key}=…"


def _is_in_component(cfg: DictConfig | None, key: str) -> bool:
    """Return whether a mapping belongs to the settings of a class, so that its keys are the user's to choose."""
    while "." in key:
        key = key.rpartition(".")[0]
        node = OmegaConf.select(cfg, key) if cfg is not None else None
        if isinstance(node, DictConfig) and "_target_" in node:
            return True
    return False


@lru_cache(maxsize=2)
def _composed(overrides: tuple[str, ...], config_dir: str | None) -> DictConfig:
    """To be read only: what is wrong with a command line is looked up in the same config more than once."""
    return run(list(overrides), config_dir)


def _without(key: str, config_dir: str | None) -> DictConfig | None:
    """The config of the command line without one of its settings; None if that cannot be composed either."""
    words = [word for word in sys.argv[1:] if "=" in word and word[0] != "-" and word.partition("=")[0] != key]
    try:
        return _composed(tuple(word for word in words if not word.startswith("hydra")), config_dir)
    except Exception:  # something else is wrong too
        return None


def config_dir(words: Sequence[str] | None = None) -> str | None:
    """The folder that a command line, by default this one, names with --config-dir."""
    told = [*(sys.argv if words is None else words), ""]
    for flag, value in pairwise(told):
        if flag in ("--config-dir", "-cd"):
            return value
        if flag.startswith("--config-dir="):
            return flag.partition("=")[2]
    return None


def package() -> Path:
    """The folder of the configs that come with cfeval."""
    return Path(str(resources.files("cfeval_cli.conf").joinpath("run.yaml"))).parent


def beside() -> str | None:
    """The folder ./conf, if it has configs of groups that there are; in a clone of cfeval it is the package's own."""
    folder, ours = Path(PLACE).absolute(), package()
    if not folder.is_dir() or folder.resolve() == ours.resolve():
        return None
    groups = [path.name for path in ours.iterdir() if path.is_dir()]
    return str(folder) if any(True for group in groups for _ in (folder / group).glob("*.yaml")) else None


def own() -> str | None:
    """The folder of the user's own configs: the one that the command line names, else ./conf."""
    named = config_dir()
    return beside() if named is None else named


def used(overrides: Sequence[str], folder: str) -> list[str]:
    """The configs of a user's own folder that a run reads, such as dataset/loans."""
    loader = GlobalHydra.instance().config_loader()
    every = loader.compute_defaults_list("run", [*overrides, *_beyond(folder)], RunMode.RUN).defaults
    named = dict.fromkeys(str(one.config_path) for one in every if one.config_path)
    return [name for name in named if adds(name, folder)]


def clashes(folder: str) -> bool:
    """Whether a user's own folder has any config that is called as one of cfeval's is."""
    ours = package()
    return any((Path(folder) / path.relative_to(ours)).is_file() for path in ours.rglob("*.yaml"))


def adds(name: str, folder: str) -> bool:
    """Whether a user's own folder has a config that cfeval has not; UserError if both have one, and not the same."""
    mine, ours = Path(folder) / f"{name}.yaml", package() / f"{name}.yaml"
    if not mine.is_file() or not ours.is_file():
        return mine.is_file()
    if mine.read_bytes() != ours.read_bytes():
        raise UserError(
            f"{mine} is called as one of cfeval's own configs is, {ours}, and never takes its place. Rename it."
        )
    return False
