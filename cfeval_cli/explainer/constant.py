"""The same for everybody: what is important on the whole, whoever is asked about."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, Rows, Truth

_AT_ONCE = 4096  # training rows


@dataclass(frozen=True)
class Constant(Explainer):
    """The features by their mean importance over the training rows: an explanation that looks at no instance."""

    truth: Truth
    truth_name: str = ""

    access = Access.WHITE_BOX
    title = "Constant"
    display_order = 14
    is_control = True

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """The means, of each feature over the rows that have it."""
        sums, counts = np.zeros(dataset.n_features), np.zeros(dataset.n_features)
        for start in range(0, len(dataset.train), _AT_ONCE):
            codes = dataset.train.codes[start : start + _AT_ONCE]
            rows = Rows(dataset.train.ids[start : start + _AT_ONCE], codes, model.predict_labels(codes))
            there = codes != ABSENT
            sums += np.where(there, self.truth.compute_importance(dataset, model, rows), 0.0).sum(axis=0)
            counts += there.sum(axis=0)
        means = sums / np.maximum(counts, 1)

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(np.tile(means, (len(batch), 1)), batch.codes != ABSENT)

        return explain
