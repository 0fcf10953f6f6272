"""The white box explains itself."""

from collections.abc import Callable
from dataclasses import dataclass

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, Truth


@dataclass(frozen=True)
class Lr(Explainer):
    """The gold ranking itself."""

    truth: Truth
    gold: str = ""  # its name

    access = Access.WHITE_BOX
    title = "LR"
    place = 60
    control = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Models that have this truth have this explainer."""
        return self.truth.not_applicable_reason(spec)

    def asks(self, spec: ModelSpec) -> Access:
        """Whatever the truth asks."""
        return self.truth.access

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Nothing to prepare."""

        def explain(batch: Batch) -> Explanation:
            return Explanation.ranked(self.truth.known(dataset, model, batch), batch.codes != ABSENT)

        return explain
