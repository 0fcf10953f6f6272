"""Graded control explainers: each returns the ranking of the ground truth more often than the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, Truth
from cfeval_cli.errors import check_float, check_int

MAX_QUALITY_LEVELS = 1001  # names of more quality levels would need more than four digits
_STREAM_NAMES = {"graded": "ladder"}  # keys of random streams are frozen: the former name of this explainer


@dataclass(frozen=True)
class GradedControl(Explainer):
    """Ranking of the ground truth of an instance with probability `quality_level`, else a random one."""

    truth: Truth
    quality_level: float = 1.0
    truth_name: str = ""
    samples_of: str | None = None

    access = Access.WHITE_BOX
    display_order = 70
    scores_are_effects = False  # some are random numbers

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason of the ground truth."""
        return self.truth.not_applicable_reason(spec)

    def choose_access(self, spec: ModelSpec) -> Access:
        """Return the access that the ground truth needs."""
        return self.truth.access

    def __post_init__(self) -> None:
        check_float("quality_level", self.quality_level, 0, 1)

    @property
    def title(self) -> str:
        """The name in tables."""
        return f"Truth {self.quality_level:.4g}"

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Return the function that chooses the ground truth or a random ranking for each instance."""

        def explain(batch: Batch) -> Explanation:
            truth = self.truth.compute_masked_importance(dataset, model, batch)
            # Each quality level and instance has its own stream: the levels are independent, as real explainers are.
            draws = np.stack([batch.make_rng(i).random(dataset.n_features + 1) for i in range(len(batch))])
            scores = np.where(draws[:, :1] < self.quality_level, truth, draws[:, 1:])
            return Explanation.from_scores(scores, batch.codes != ABSENT)

        return explain


@dataclass(frozen=True)
class GradedControls(Explainer):
    """Controls of a number of quality levels, from the ground truth itself to a random ranking."""

    truth: Truth
    quality_levels: int = 11
    truth_name: str = ""

    access = Access.WHITE_BOX

    def __post_init__(self) -> None:
        check_int("quality_levels", self.quality_levels, 2)
        if self.quality_levels > MAX_QUALITY_LEVELS:
            raise ValueError(f"quality_levels must be at most {MAX_QUALITY_LEVELS}, not {self.quality_levels}")

    def expand(self, key: str) -> dict[str, Explainer]:
        """Return an explainer for each quality level; names end with the level."""
        levels = np.linspace(1.0, 0.0, self.quality_levels).round(4).tolist()
        truth_name, stream_name = self.truth_name or self.truth.name, _STREAM_NAMES.get(key, key)
        return {
            f"{key}_{level:.4g}": GradedControl(self.truth, level, truth_name, f"{stream_name}_{level:.4g}")
            for level in levels
        }

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Raise an error: only the members explain."""
        raise TypeError("graded controls have no explanations in common. Use the explainers of expand()")
