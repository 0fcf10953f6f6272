"""Integrated gradients: captum's values to rounding, without the cost of its bookkeeping for each instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from cfeval_cli.core import Floats, ModelClient, ModelSpec, Removal, Workload
from cfeval_cli.errors import check_int
from cfeval_cli.explainer.gradients import ByGradient


@dataclass(frozen=True)
class IntegratedGradients(ByGradient):
    """The mean gradient of the logit of ŷ on the line from the baseline to x, times the way (Sundararajan 2017).

    The integral is Gauss and Legendre's sum, as in captum.
    """

    ways: Mapping[str, Removal]
    removal: str = "auto"  # what the baseline is: one of the ways, or auto: mask for text, mean for tables
    steps: int = 50

    title = "Integrated gradients"
    display_order = 53

    def __post_init__(self) -> None:
        self.check_removal()
        check_int("steps", self.steps, 1)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of steps from all baselines."""
        dataset, way = spec.dataset, self._way(spec.dataset)
        settings = ("steps", *(f"ways.{way.name}.{key}" for key in way.cost_settings))
        return Workload(self.steps * way.count_replacements(dataset, dataset.n_features), settings)

    def slope(self, model: ModelClient, vectors: Floats, baselines: Floats, label: int) -> Floats:
        """The mean along the way, from one baseline after the other."""
        points, weights = _points(self.steps)
        means = []
        for start in baselines:
            path = start + points[:, None, None] * (vectors - start)
            means.append((weights[:, None, None] * model.compute_logit_gradient(path, label)).sum(axis=0))
        return np.stack(means)


@cache
def _points(steps: int) -> tuple[Floats, Floats]:
    """Where on the line from 0 to 1 gradients are taken, and the weight of each."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return (1.0 + nodes) / 2.0, weights / 2.0
