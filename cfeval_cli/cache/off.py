"""No cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Off:
    """Nothing is known from before, and nothing is kept."""

    def known(self, section: str, label: str, items: Sequence[bytes]) -> dict[bytes, bytes]:
        """None."""
        return {}

    def keep(self, section: str, label: str, values: Mapping[bytes, bytes]) -> None:
        """Forget it."""
