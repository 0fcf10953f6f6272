"""Control explainer with the same explanation for every instance."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, Rows, Truth

_MAX_BATCH_ROWS = 4096


@dataclass(frozen=True)
class ConstantScores(Explainer):
    """Features by their mean importance over the training rows, the same for all instances."""

    truth: Truth
    truth_name: str = ""

    access = Access.WHITE_BOX
    title = "Constant"
    display_order = 14
    is_control = True

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Compute the mean of each feature over the rows where it is present."""
        sums, counts = np.zeros(dataset.n_features), np.zeros(dataset.n_features)
        for start in range(0, len(dataset.train), _MAX_BATCH_ROWS):
            codes = dataset.train.codes[start : start + _MAX_BATCH_ROWS]
            rows = Rows(dataset.train.ids[start : start + _MAX_BATCH_ROWS], codes, model.predict_labels(codes))
            is_present = codes != ABSENT
            sums += np.where(is_present, self.truth.compute_importance(dataset, model, rows), 0.0).sum(axis=0)
            counts += is_present.sum(axis=0)
        means = sums / np.maximum(counts, 1)

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(np.tile(means, (len(batch), 1)), batch.codes != ABSENT)

        return explain
