"""Constant distance, with which C counts label changes only."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Access, Dataset, Distance, FittedDistance, Model
from cfeval_cli.core.counterfactual import FittedConstant
from cfeval_cli.errors import check_float


@dataclass(frozen=True)
class Constant(Distance):
    """The same distance for every edit."""

    value: float = 1.0

    def __post_init__(self) -> None:
        check_float("value", self.value, 0, open_low=True)

    @property
    def label(self) -> str:
        """The name of the distance in captions."""
        return f"constant distance ({self.value:g})"

    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """Return the constant."""
        return FittedConstant(float(self.value))
