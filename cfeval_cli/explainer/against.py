"""Control explainer that reverses the ground truth: every metric should rank it last."""

from collections.abc import Callable
from dataclasses import dataclass

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, Truth


@dataclass(frozen=True)
class Against(Explainer):
    """Ranking of the ground truth reversed: the least important feature first."""

    truth: Truth
    truth_name: str = ""

    access = Access.WHITE_BOX
    title = "Against truth"
    display_order = 12
    is_control = True

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Return the function that negates the importance."""

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(-self.truth.compute_importance(dataset, model, batch), batch.codes != ABSENT)

        return explain
