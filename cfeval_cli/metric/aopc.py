"""Erasure down the whole list: features are removed one after the other, or all but these (DeYoung et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import FittedRemoval, MetricInput, Score
from cfeval_cli.metric.curve import Curve, places
from cfeval_cli.metric.erasure import mean


@dataclass(frozen=True)
class Aopc(Curve):
    """Mean drop in probability without the first 1, 2 … features."""

    name = "aopc"
    title = "AOPC"
    better = "higher"
    place = 33

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """The mean over i of p(ŷ|x) - p(ŷ|x without the first i)."""
        return mean(way, self.drops(inputs, way, np.arange(len(inputs)), places(inputs)))


@dataclass(frozen=True)
class AopcSufficiency(Curve):
    """Mean drop in probability with nothing but the first 1, 2 … features."""

    name = "aopc_suff"
    title = "AOPC suff."
    better = "lower"
    place = 34

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """The mean over i of p(ŷ|x) - p(ŷ|only the first i)."""
        return mean(way, self.drops(inputs, way, np.arange(len(inputs)), places(inputs), keep=True))
