"""A judge: a model of known truth, trained on the same data as the model that is explained."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Trainable
from cfeval_cli.model.distilled import Distilled


@dataclass(frozen=True)
class Judge:
    """Which model, and whether it learns the labels or what the explained model predicts."""

    model: Trainable
    distill: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, Trainable):
            raise ValueError(f"model must be a model, with fit(dataset, seed), not {self.model!r}")
        if not isinstance(self.distill, bool):
            raise ValueError(f"distill must be true or false, not {self.distill!r}")

    def trainable(self, explained: Trainable) -> Trainable:
        """The settings of the model to be trained beside the one that is explained."""
        return Distilled(self.model, explained) if self.distill else self.model
