"""The white box explains itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cfeval_cli.errors import one_of
from cfeval_cli.gold import DEFINITIONS, importance
from cfeval_cli.types import ABSENT, Access, Batch, Dataset, Explanation


@dataclass(frozen=True)
class Lr:
    """The gold ranking itself."""

    gold: str = "signed"

    access = Access.WHITE_BOX
    title = "LR"
    place = 60

    def __post_init__(self) -> None:
        one_of("gold", self.gold, DEFINITIONS)

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Nothing to prepare."""

        def explain(batch: Batch) -> Explanation:
            scores = importance(self.gold, model, dataset, batch.codes, batch.labels)
            return Explanation.ranked(scores, batch.codes != ABSENT)

        return explain
