"""Beyond the paper: the nearest counterfactual of a linear model, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Counterfactuals,
    Dataset,
    HasLinearLogit,
    Ints,
    ModelSpec,
    Search,
    SearchTask,
    Workload,
)
from cfeval_cli.errors import check_float
from cfeval_cli.search.edit import embedded, moved


@dataclass(frozen=True)
class Exact(Search):
    """The smallest distance at which the label flips is |logit| / ‖w‖ over the explained features, along w.

    Features without any weight cannot flip anything: the embedding then stays where it is, not converged.
    """

    margin: float = 1e-9  # how far beyond the boundary, in the logit

    title = "exact"
    levels = (Access.GRADIENT,)
    moves = True

    def __post_init__(self) -> None:
        check_float("margin", self.margin, 0, open_low=True)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return "exact search"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Only linear models have a closed form."""
        reason = spec.missing_ability_reason(HasLinearLogit)
        accepted = "discrete" if spec.missing_access_reason(Access.GRADIENT) else "continuous or search=discrete"
        return f"{reason}. Use search={accepted}" if reason else None

    def workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return one step."""
        return Workload(1)

    def chunk(self, dataset: Dataset, k: int) -> int:
        """Instances to be given at a time."""
        return 4096

    def find(self, task: SearchTask) -> Counterfactuals:
        """One step along w for all instances."""
        logits, slopes = task.model.compute_linear_logits(task.codes)
        weights = np.where((task.features != NO_FEATURE)[:, :, None], slopes[task.features], 0.0)
        squared = (weights**2).sum(axis=(1, 2))
        target = np.where(task.labels == 1, -self.margin, self.margin)
        reach = np.divide(target - logits, squared, out=np.zeros_like(logits), where=squared > 0)
        vectors = embedded(task) + reach[:, None, None] * weights
        return moved(task, vectors, squared > 0)

    def limit(self, task: SearchTask) -> Counterfactuals | None:
        """There is nothing to search."""
        return self.find(task)
