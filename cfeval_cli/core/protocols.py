"""Protocols of caches, executors and judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cfeval_cli.core.model import Trainable
from cfeval_cli.core.npy import Arrays


@dataclass(frozen=True)
class Section:
    """The place of the results of one computation in a cache."""

    # A hash of everything that determines the results: settings, data, model, and code. The code of cfeval is included:
    # no version uses the results of another. None: unknown, nothing is read or stored.
    key: str | None
    label: str  # in the list of `cfeval data cache`


class Cache(Protocol):
    """A store of computed arrays by section and key."""

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return the stored entries of a section."""
        ...

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store entries in a section."""
        ...


class Executor(Protocol):
    """A method to distribute work on instances."""

    def prepare(self, timeout: float | None) -> None:
        """Raise an error if it cannot enforce a time limit per instance, in seconds."""
        ...

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Yield work(shared, item) for each item, in order."""
        ...


class JudgeSettings(Protocol):
    """A model of known truth that is evaluated beside the explained model."""

    def make_trainable(self, explained: Trainable) -> Trainable:
        """Return the settings of the judge for an explained model."""
        ...
