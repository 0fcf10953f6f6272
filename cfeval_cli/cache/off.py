"""No cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.core import Arrays, Section


@dataclass(frozen=True)
class Off:
    """A cache that stores nothing."""

    def get(self, section: Section, keys: Sequence[bytes]) -> dict[bytes, Arrays]:
        """Return nothing."""
        return {}

    def put(self, section: Section, entries: Mapping[bytes, Arrays]) -> None:
        """Store nothing."""
