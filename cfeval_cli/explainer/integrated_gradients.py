"""Integrated gradients: captum's values up to rounding, without its overhead for each instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from cfeval_cli.core import Floats, ModelClient, ModelSpec, Removal, Workload
from cfeval_cli.errors import check_int
from cfeval_cli.explainer.gradients import GradientExplainer


@dataclass(frozen=True)
class IntegratedGradients(GradientExplainer):
    """The mean gradient of the logit of ŷ from the baseline to x, times the difference (Sundararajan 2017).

    The integral is computed by Gauss-Legendre quadrature, as in captum.
    """

    removals: Mapping[str, Removal]
    removal: str = "auto"  # defines the baseline: one of the removals; auto: mask for texts, mean for tables
    steps: int = 50

    title = "Integrated gradients"
    display_order = 53

    def __post_init__(self) -> None:
        self.check_removal()
        check_int("steps", self.steps, 1)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of steps from all baselines."""
        dataset, removal = spec.dataset, self._choose_removal(spec.dataset)
        settings = ("steps", *(f"removals.{removal.name}.{key}" for key in removal.cost_settings))
        return Workload(self.steps * removal.count_replacements(dataset, dataset.n_features), settings)

    def compute_slope(self, model: ModelClient, vectors: Floats, baselines: Floats, label: int) -> Floats:
        """Return the mean gradient on the line from each baseline to x."""
        points, weights = _compute_quadrature(self.steps)
        means = []
        for start in baselines:
            path = start + points[:, None, None] * (vectors - start)
            means.append((weights[:, None, None] * model.compute_logit_gradient(path, label)).sum(axis=0))
        return np.stack(means)


@cache
def _compute_quadrature(steps: int) -> tuple[Floats, Floats]:
    """Return the points between 0 and 1 at which gradients are computed, and the weight of each."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return (1.0 + nodes) / 2.0, weights / 2.0
