"""A sweep that begins at once: Hydra composes all of its jobs before the first, a third of a second for each."""

from __future__ import annotations

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

_all = BasicSweeper.validate_batch_is_legal


def begin_at_once() -> None:
    """Let Hydra's own sweeper compose in advance only as many jobs as could be wrong in ways of their own."""
    setattr(BasicSweeper, "validate_batch_is_legal", _some)  # noqa: B010  it has no setting for that


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
