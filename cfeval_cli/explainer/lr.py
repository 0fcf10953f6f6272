"""Control explainer that returns the ground truth."""

from collections.abc import Callable
from dataclasses import dataclass

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, Truth


@dataclass(frozen=True)
class Lr(Explainer):
    """Ranking of the ground truth."""

    truth: Truth
    truth_name: str = ""
    evaluates_model: bool = False

    access = Access.WHITE_BOX
    title = "LR"
    display_order = 60
    is_control = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason of the ground truth, or the setting that permits model evaluations for every instance."""
        reason = self.truth.not_applicable_reason(spec)
        if reason is None and self.truth.evaluates_model(spec) and not self.evaluates_model:
            return f"needs model evaluations for every instance ({self.truth_name}): explainer.lr.evaluates_model=true"
        return reason

    def choose_access(self, spec: ModelSpec) -> Access:
        """Return the access that the ground truth needs."""
        return self.truth.access

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Return the function that computes the importance."""

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(
                self.truth.compute_masked_importance(dataset, model, batch), batch.codes != ABSENT
            )

        return explain
