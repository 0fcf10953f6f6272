"""What a run works with: who computes, and where finished work is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cfeval_cli.core.model import Trainable
from cfeval_cli.core.npy import Arrays


@dataclass(frozen=True)
class Section:
    """Where a cache stores the results of one piece of work."""

    # a hash of all that they depend on: settings, data, model, and the code that computes them, cfeval's own too, so
    # that no version takes the results of another; None: not known, nothing is looked up or stored
    key: str | None
    label: str  # how `cfeval data cache` lists it


class Cache(Protocol):
    """What was computed before: arrays by key, in sections."""

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the entries of a section that are there."""
        ...

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries in a section."""
        ...


class Executor(Protocol):
    """Who does the work on instances."""

    def prepare(self, timeout: float | None) -> None:
        """Refuse, before anything is computed, what it cannot do: to keep to `timeout` seconds for each instance."""
        ...

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterable[Any]:
        """work(shared, item) for each item, in order; the results do not depend on who does it."""
        ...


class JudgeSettings(Protocol):
    """A model of known truth, to be run beside the one that is explained."""

    def trainable(self, explained: Trainable) -> Trainable:
        """The settings of the model to be trained beside the one that is explained."""
        ...
