"""A judge: a model with a known ground truth, trained on the same data as the explained model."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.core import Trainable
from cfeval_cli.model.distilled import Distilled


@dataclass(frozen=True)
class Judge:
    """The model, and whether it is trained on labels or on the predictions of the explained model."""

    model: Trainable
    distill: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, Trainable):
            raise ValueError(f"model must derive from cfeval_cli.core.Trainable, and {self.model!r} does not")
        if not isinstance(self.distill, bool):
            raise ValueError(f"distill must be true or false, not {self.distill!r}")

    def make_trainable(self, explained: Trainable) -> Trainable:
        """Return the settings of the judge for an explained model."""
        return Distilled(self.model, explained) if self.distill else self.model
