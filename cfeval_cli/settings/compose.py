"""The packaged configs: compose a run, list groups and settings, and explain what Hydra objects to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, ConfigTypeError, OmegaConfBaseException

from cfeval_cli.errors import did_you_mean
from cfeval_cli.settings.renamed import describe_renamed_option, describe_renamed_setting


def _find_first_component(group: DictConfig) -> str:
    """Return the key of the first component of a group that is chosen several at a time."""
    return next((str(key) for key in group if isinstance(group[key], DictConfig)), "")


# Explainers that are made from a truth use the first of the run.
OmegaConf.register_new_resolver("first_component", _find_first_component, replace=True)


@contextmanager
def open_packaged_configs() -> Iterator[None]:
    """Open the packaged configs; a program that uses Hydra itself has its own again afterwards."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module("cfeval_cli.conf", version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def compose_run(overrides: Sequence[str], config_dir: str | None = None) -> DictConfig:
    """Compose the config of `cfeval run` with overrides."""
    return compose("run", [*overrides, *search_path(config_dir)])


def search_path(config_dir: str | None) -> list[str]:
    """Return the override that adds a folder to the search path of Hydra, after that of the package."""
    return [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []


def list_options(group: str, config_dir: str | None = None) -> list[str]:
    """List the options of a config group, those of the user's own folder included."""
    user_options = [path.stem for path in (Path(config_dir) / group).glob("*.yaml")] if config_dir else []
    return sorted({*GlobalHydra.instance().config_loader().get_group_options(group), *user_options})


def list_default_options(group: str) -> list[str]:
    """List the options of a group that run.yaml chooses."""
    defaults = _read(get_package_folder() / "run.yaml")["defaults"]
    (options,) = (entry[group] for entry in defaults if isinstance(entry, dict) and group in entry)
    return [options] if isinstance(options, str) else list(options)


def list_chosen_components(group: str, overrides: Sequence[str]) -> list[str]:
    """List the components of a group that a run with overrides has."""
    with open_packaged_configs():
        return [str(name) for name in compose_run(overrides)[group]]


@lru_cache(maxsize=1)
def list_top_level_keys() -> frozenset[str]:
    """Return the keys of the composed config: those of run.yaml and the groups that it chooses from."""
    content = _read(get_package_folder() / "run.yaml")
    groups = {
        group.rpartition("@")[2] for entry in content.pop("defaults") if isinstance(entry, dict) for group in entry
    }
    return frozenset({*content, *groups})


@lru_cache(maxsize=1)
def list_packaged_groups() -> frozenset[str]:
    """Return the config groups of cfeval: dataset, model, explainer and so on."""
    return frozenset(path.name for path in get_package_folder().iterdir() if path.is_dir() and any(path.glob("*.yaml")))


@lru_cache(maxsize=32)
def get_packaged_defaults(group: str) -> dict[str, list[Any]]:
    """Return the plain defaults, by dotted key, of all settings of run.yaml and of the packaged configs of a group."""
    general = _read(get_package_folder() / "run.yaml")
    del general["hydra"]
    # An experiment has settings of other groups.
    files = _list_files(group, None) if group != "experiment" else []
    collected: dict[str, list[Any]] = {}
    for prefix, config in [("", general), *((f"{group}.", _read(path)) for path in files)]:
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


def _read(path: Path) -> dict[str, Any]:
    """Read a config file, without resolving anything."""
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}


def _list_files(group: str, config_dir: str | None) -> list[Path]:
    folders = [get_package_folder(), *([Path(config_dir)] if config_dir else [])]
    return sorted(path for folder in folders for path in (folder / group).glob("*.yaml"))


def _list_keys(node: object, prefix: str) -> list[str]:
    if not isinstance(node, dict):
        return []
    return [key for name, child in node.items() for key in (f"{prefix}{name}", *_list_keys(child, f"{prefix}{name}."))]


def get_package_folder() -> Path:
    """Return the folder of the configs that come with cfeval."""
    return Path(str(resources.files("cfeval_cli.conf").joinpath("run.yaml"))).parent


def explain_hydra_error(error: Exception, overrides: Sequence[str] = (), config_dir: str | None = None) -> str:
    """Return what is wrong with some overrides that Hydra refuses, and the closest names that exist."""
    cause = error.__cause__
    with open_packaged_configs():
        if isinstance(error, MissingConfigException) and "/" in (error.missing_cfg_file or ""):
            group, _, name = str(error.missing_cfg_file).rpartition("/")
            options = list_options(group, config_dir)
            return describe_renamed_option(group, name) or (
                f"there is no {group} {name!r}.{did_you_mean(name, options)} There is: {', '.join(options)}."
            )
        key = _find_overridden_key(cause, overrides) if isinstance(cause, OmegaConfBaseException) else None
        if key is not None and isinstance(cause, ConfigAttributeError | ConfigKeyError):
            return _explain_unknown_setting(key, overrides, config_dir)
        if key is not None and isinstance(cause, ConfigTypeError):
            return (
                f"{key} is a list in the yaml and a mapping here, or the reverse. Remove the first and add the "
                f"second: '~{key}' '+{key}=…'"
            )
    return " ".join(f"{error} {cause or ''}".split())


def _find_overridden_key(error: OmegaConfBaseException, overrides: Sequence[str]) -> str | None:
    """Return the key of the override that an error is about; None if there is none."""
    keys = [word.partition("=")[0].lstrip("+~") for word in overrides]
    place = f"{error.full_key}."
    # The error is about a key inside the value of the override, or about the first unknown part of its key.
    related = [key for key in keys if place.startswith(f"{key}.") or f"{key}.".startswith(place)]
    return max(related, key=len, default=None)


def _explain_unknown_setting(key: str, overrides: Sequence[str], config_dir: str | None) -> str:
    values = (word.partition("=")[2] for word in overrides if word.partition("=")[0] == key)
    if message := describe_renamed_setting(key, next(values, "…")):
        return message
    cfg = _compose_without(key, overrides, config_dir)
    if message := _explain_component_setting(cfg, key):
        return message
    group, _, subkey = key.partition(".")
    option = subkey.partition(".")[0]
    if option != subkey and option in list_options(group, config_dir):
        advice = f"choose {group}={option}" if "_target_" in cfg[group] else f"add it to {group}=[…]"
        return f"{key} is a setting of {group} {option!r}, which is not chosen: {advice}."
    known_keys = _list_keys(OmegaConf.to_container(cfg, resolve=False), "")
    return f"there is no setting {key!r}.{did_you_mean(key, known_keys)} See cfeval run --cfg job."


def _compose_without(key: str, overrides: Sequence[str], config_dir: str | None) -> DictConfig:
    """Compose a config without the override of one setting; without all overrides if another is wrong too."""
    other_overrides = [word for word in overrides if word.partition("=")[0] != key and not word.startswith("hydra")]
    try:
        return compose_run(other_overrides, config_dir)
    except Exception:
        return compose_run([])


def _explain_component_setting(cfg: DictConfig, key: str) -> str:
    """Return how to give a component a setting that its yaml lacks, or what it has instead; empty for other keys."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else None
    if not isinstance(node, DictConfig):
        return ""
    if "_target_" not in node:
        is_setting = any("_target_" in OmegaConf.select(cfg, above) for above in _list_parents(parent))
        close = did_you_mean(name, map(str, node))
        return f"{parent} has no {name!r}.{close} To add it, write +{key}=…" if is_setting else ""
    if name in node:
        return f"{key} is a mapping in the yaml: to add to it, write +{key}=…"
    target = str(node["_target_"])
    if target.startswith("cfeval_cli."):  # other classes are not imported for the sake of a message
        parameters = list(signature(get_object(target)).parameters)
        if name not in parameters:
            close = did_you_mean(name, parameters)
            return f"{parent} has no setting {name!r}.{close} There is: {', '.join(parameters) or 'none'}."
    return f"the yaml lists no setting {name!r} of {target}: to give it one, write +{key}=…"


def _list_parents(key: str) -> list[str]:
    """Return the keys of all mappings around a key: a and a.b of a.b.c."""
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


_PLAIN_WORD = re.compile(r"[A-Za-z_][\w.-]*")  # Hydra reads these as text without quotes, except the following.
_OTHER_WORDS = ("true", "false", "null", "nan", "inf")


def format_value(value: Any) -> str:
    """Write a value as Hydra reads it on a command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{format_value(key)}:{format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(format_value, value)) + "]"
    text = str(value)
    return text if _PLAIN_WORD.fullmatch(text) and text.lower() not in _OTHER_WORDS else quote(text)


def quote(text: Path | str) -> str:
    """Quote a text for Hydra's command line, whatever characters it has."""
    # A backslash counts before a quote, the end or an interpolation, and nowhere else.
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(text))
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", escaped)
    return "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"
