"""No cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.types import Told


@dataclass(frozen=True)
class Off:
    """Nothing is known from before, and nothing is kept."""

    def known(self, section: str, label: str, instances: Sequence[bytes]) -> dict[bytes, Told]:
        """None."""
        return {}

    def keep(self, section: str, label: str, told: Mapping[bytes, Told]) -> None:
        """Forget it."""
