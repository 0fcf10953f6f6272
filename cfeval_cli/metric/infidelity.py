"""How far scores are from what removing features does, whatever their scale (Yeh et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.erasure import mean
from cfeval_cli.metric.subsets import Subsets


@dataclass(frozen=True)
class Infidelity(Subsets):
    """Mean over random sets of (β Σ scores - drop)², with the β of each instance that makes it smallest."""

    name = "infidelity"
    title = "Infidelity"
    better = "lower"
    range = (0.0, 1.0)
    place = 40

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """β is that of least squares through zero; scores of zero tell nothing, and leave the drops as they are."""
        sums, drops = self.sums(inputs, way)
        squares = (sums**2).sum(axis=1)
        scale = np.divide((sums * drops).sum(axis=1), squares, out=np.zeros(len(sums)), where=squares > 0)
        return mean(way, ((scale[:, None] * sums - drops) ** 2).mean(axis=1))
