"""The one way to look up what was computed before, and to keep what is new: models, explanations, counterfactuals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from cfeval_cli.core import Cache

_T = TypeVar("_T")

_EVERY = 0.25  # seconds of work that may be lost: to write each chunk of a fast explainer takes longer than to make it


@dataclass(frozen=True)
class Memo(Generic[_T]):
    """Where the results of one piece of work are kept."""

    cache: Cache
    section: str | None  # a hash of all that they depend on; None if that is not known: nothing is kept
    label: str  # what people are told of that place
    pack: Callable[[_T], bytes]
    unpack: Callable[[bytes], _T | None]  # None if it is nothing of ours

    def known(self, keys: Sequence[bytes]) -> dict[bytes, _T]:
        """What there is."""
        if self.section is None or not keys:
            return {}
        kept = self.cache.known(self.section, self.label, keys)
        opened = ((key, self.unpack(value)) for key, value in kept.items())
        return {key: value for key, value in opened if value is not None}

    @contextmanager
    def keeping(self) -> Iterator[Callable[[Mapping[bytes, _T]], None]]:
        """A function that keeps what it is given: soon, and all of it when the work ends or breaks off."""
        waiting: dict[bytes, bytes] = {}
        written = time.perf_counter()

        def write() -> None:
            nonlocal written
            if self.section is not None and waiting:
                self.cache.keep(self.section, self.label, waiting)
            waiting.clear()
            written = time.perf_counter()

        def keep(values: Mapping[bytes, _T]) -> None:
            if self.section is None:
                return
            waiting.update({key: self.pack(value) for key, value in values.items()})
            if time.perf_counter() - written >= _EVERY:
                write()

        try:
            yield keep
        finally:
            write()
