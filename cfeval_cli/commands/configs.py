"""Reading the configs outside a run: what settings and options are there?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf


@contextmanager
def opened() -> Iterator[None]:
    """The packaged configs."""
    GlobalHydra.instance().clear()
    with initialize_config_module("cfeval_cli.conf", version_base="1.3"):
        yield


def run(overrides: list[str], config_dir: str | None = None) -> DictConfig:
    """The config of `cfeval run` with some overrides."""
    own = [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []
    return compose("run", [*overrides, *own])


def options(group: str, config_dir: str | None = None) -> list[str]:
    """The options of a config group, those of a user's own folder included."""
    own = [path.stem for path in (Path(config_dir) / group).glob("*.yaml")] if config_dir else []
    return sorted({*GlobalHydra.instance().config_loader().get_group_options(group), *own})


def settings(config_dir: str | None = None) -> list[str]:
    """Every key of the default config, in dotted form."""

    def keys(node: object, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        return [key for name, child in node.items() for key in (f"{prefix}{name}", *keys(child, f"{prefix}{name}."))]

    # every explainer and metric, a user's own too, so that the settings of all are known
    chosen = [f"{group}=[{','.join(options(group, config_dir))}]" for group in ("explainer", "metric")]
    return keys(OmegaConf.to_container(run(chosen, config_dir), resolve=False), "")


def config_dir() -> str | None:
    """The folder that the command line names with --config-dir."""
    for flag, value in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if flag in ("--config-dir", "-cd"):
            return value
        if flag.startswith("--config-dir="):
            return flag.partition("=")[2]
    return None
