"""Gradient times input, as in captum, or times the difference from another baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfeval_cli.core import Floats, ModelClient, ModelSpec, Removal, Workload
from cfeval_cli.explainer.gradients import GradientExplainer


@dataclass(frozen=True)
class GradientInput(GradientExplainer):
    """The gradient of the logit of ŷ at x, times the difference of x from the baseline (Shrikumar 2017)."""

    removals: Mapping[str, Removal]
    removal: str = "zero"  # defines the baseline: one of the removals; auto: mask for texts, mean for tables

    title = "Gradient × input"
    display_order = 54

    def __post_init__(self) -> None:
        self.check_removal()

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return one gradient."""
        return Workload(1)

    def compute_slope(self, model: ModelClient, vectors: Floats, baselines: Floats, label: int) -> Floats:
        """Return the gradient at x, the same for every baseline."""
        return model.compute_logit_gradient(vectors[None], label)
