"""Explainers of known order: each names the gold more often than the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, one_of, whole
from cfeval_cli.gold import DEFINITIONS, importance
from cfeval_cli.types import ABSENT, Access, Batch, Dataset, Explanation


@dataclass(frozen=True)
class Rung:
    """With probability `rung` the gold ranking of an instance, else a random one."""

    rung: float = 1.0
    gold: str = "signed"

    access = Access.WHITE_BOX
    place = 70

    def __post_init__(self) -> None:
        number("rung", self.rung, 0, 1)
        one_of("gold", self.gold, DEFINITIONS)

    @property
    def title(self) -> str:
        """Its name in the tables."""
        return f"Gold {self.rung:.4g}"

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Nothing to prepare."""

        def explain(batch: Batch) -> Explanation:
            truth = importance(self.gold, model, dataset, batch.codes, batch.labels)
            # a stream of its own for each rung and instance: rungs are as independent as real explainers
            draws = np.stack([batch.rng(i).random(dataset.width + 1) for i in range(len(batch))])
            scores = np.where(draws[:, :1] < self.rung, truth, draws[:, 1:])
            return Explanation.ranked(scores, batch.codes != ABSENT)

        return explain


@dataclass(frozen=True)
class Ladder:
    """So many rungs, from the gold itself to a random ranking."""

    rungs: int = 11
    gold: str = "signed"

    def __post_init__(self) -> None:
        whole("rungs", self.rungs, 2)
        if self.rungs > _MOST:
            raise ValueError(f"rungs must be at most {_MOST}, not {self.rungs}")
        one_of("gold", self.gold, DEFINITIONS)

    def members(self) -> dict[str, Rung]:
        """The explainers that it stands for, by what their names end in."""
        shares = np.linspace(1.0, 0.0, self.rungs).round(4).tolist()
        return {f"{share:.4g}": Rung(share, self.gold) for share in shares}


_MOST = 1001  # more could not be told apart by four digits
