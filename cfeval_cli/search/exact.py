"""Beyond the paper: the nearest counterfactual of a linear model, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.errors import number
from cfeval_cli.search.edit import embedded, moved
from cfeval_cli.types import NONE, Access, Counterfactuals, Dataset, Quest


@dataclass(frozen=True)
class Exact:
    """The smallest distance at which the label flips is |logit| / ‖w‖ over the explained features, along w.

    Features without any weight cannot flip anything: the embedding then stays where it is, not converged.
    """

    margin: float = 1e-9  # how far beyond the boundary, in the logit

    title = "exact"
    levels = (Access.GRADIENT,)
    moves = True

    def __post_init__(self) -> None:
        number("margin", self.margin, 0, open_low=True)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return "exact search"

    def check(self, dataset: Dataset, k: int) -> None:
        """Any number of features can be moved."""

    def chunk(self, dataset: Dataset, k: int) -> int:
        """Instances to be given at a time."""
        return 4096

    def find(self, quest: Quest) -> Counterfactuals:
        """One step along w for all instances."""
        logits, slopes = quest.model.line(quest.codes)
        weights = np.where((quest.features != NONE)[:, :, None], slopes[quest.features], 0.0)
        squared = (weights**2).sum(axis=(1, 2))
        target = np.where(quest.labels == 1, -self.margin, self.margin)
        reach = np.divide(target - logits, squared, out=np.zeros_like(logits), where=squared > 0)
        vectors = embedded(quest) + reach[:, None, None] * weights
        return moved(quest, vectors, squared > 0)
