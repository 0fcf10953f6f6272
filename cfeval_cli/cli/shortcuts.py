"""What Hydra composes and need not, a third of a second each time; where it might matter it is left to Hydra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra

from cfeval_cli.cli import configs

_all, _asked = BasicSweeper.validate_batch_is_legal, Hydra.get_mode


def take() -> None:
    """Let a run compose its config once, and a sweep in advance only the jobs that could be wrong in their own ways."""
    setattr(Hydra, "get_mode", _mode)  # noqa: B010  neither has a setting for that
    setattr(BasicSweeper, "validate_batch_is_legal", _some)  # noqa: B010


def _mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
    """What the config says of hydra.mode: nothing, unless somebody else's file or the command line could say so."""
    told = any(_key(word).startswith(("hydra.mode", "hydra.searchpath")) for word in overrides)
    own = configs.own()
    files = Path(own).rglob("*.yaml") if own else ()
    if told or any(b"mode" in path.read_bytes() for path in files):
        return _asked(self, config_name, overrides)
    return None


def _some(self: BasicSweeper, batch: Sequence[Sequence[str]]) -> None:
    """One job for each choice of files: all jobs set the same settings, and values are looked at when a job begins."""
    config = self.config
    groups = set() if config is None else {str(name) for name in config.hydra.runtime.choices}
    kinds: dict[tuple[str, ...], Sequence[str]] = {}
    for job in batch:
        kinds.setdefault(tuple(word for word in job if _key(word) in groups), job)
    _all(self, list(kinds.values()))


def _key(word: str) -> str:
    """The group or setting that an override is of."""
    return word.lstrip("+~").partition("=")[0]
