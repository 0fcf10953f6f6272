"""Explainers of known order: each names the truth more often than the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, Truth
from cfeval_cli.errors import check_float, check_int


@dataclass(frozen=True)
class Rung(Explainer):
    """With probability `rung` the ranking of the truth of an instance, else a random one."""

    truth: Truth
    quality_level: float = 1.0
    truth_name: str = ""

    access = Access.WHITE_BOX
    display_order = 70
    scores_are_effects = False  # some are random numbers

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Models that have this truth have this explainer."""
        return self.truth.not_applicable_reason(spec)

    def choose_access(self, spec: ModelSpec) -> Access:
        """Whatever the truth asks."""
        return self.truth.access

    def __post_init__(self) -> None:
        check_float("quality_level", self.quality_level, 0, 1)

    @property
    def title(self) -> str:
        """Its name in the tables."""
        return f"Truth {self.quality_level:.4g}"

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Nothing to prepare."""

        def explain(batch: Batch) -> Explanation:
            truth = self.truth.compute_masked_importance(dataset, model, batch)
            # a stream of its own for each rung and instance: rungs are as independent as real explainers
            draws = np.stack([batch.rng(i).random(dataset.n_features + 1) for i in range(len(batch))])
            scores = np.where(draws[:, :1] < self.quality_level, truth, draws[:, 1:])
            return Explanation.from_scores(scores, batch.codes != ABSENT)

        return explain


@dataclass(frozen=True)
class Ladder(Explainer):
    """So many rungs, from the truth itself to a random ranking."""

    truth: Truth
    rungs: int = 11
    truth_name: str = ""

    access = Access.WHITE_BOX

    def __post_init__(self) -> None:
        check_int("rungs", self.rungs, 2)
        if self.rungs > _MOST:
            raise ValueError(f"rungs must be at most {_MOST}, not {self.rungs}")

    def expand(self, key: str) -> dict[str, Explainer]:
        """A rung for each share, by what their names end in."""
        shares = np.linspace(1.0, 0.0, self.rungs).round(4).tolist()
        return {f"{key}_{share:.4g}": Rung(self.truth, share, self.truth_name or self.truth.name) for share in shares}

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """A ladder explains nothing itself."""
        raise TypeError("a ladder stands for its rungs")


_MOST = 1001  # more could not be told apart by four digits
