"""What is true of a neighbour: nearly right, and about somebody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    Access,
    Batch,
    Codes,
    Dataset,
    Explainer,
    Explanation,
    Floats,
    Ints,
    ModelClient,
    ModelSpec,
    Rows,
    Truth,
)
from cfeval_cli.core.space import Scaled

_AT_ONCE = 1 << 22  # numbers of distances to be had at a time


@dataclass(frozen=True)
class NearestTruth(Explainer):
    """The ranking of the truth of the training row that is nearest; of several the first.

    Near by the values' own scale: a category is another or not, numbers differ in units of their usual distance.
    """

    truth: Truth
    truth_name: str = ""

    access = Access.WHITE_BOX
    title = "Nearest's truth"
    display_order = 58
    is_control = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """The third word of another sentence is another feature."""
        if spec.dataset.padded:
            return "needs features that mean the same in every row, and the words of a text do not"
        return super().not_applicable_reason(spec)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Put the training rows where they lie."""
        train, near = dataset.train, _Near(dataset)

        def explain(batch: Batch) -> Explanation:
            rows = near.row_of(batch.codes)
            codes = train.codes[rows]
            others = Rows(train.ids[rows], codes, model.predict_labels(codes))
            importance = self.truth.compute_importance(dataset, model, others)
            return Explanation.from_scores(importance, np.ones(importance.shape, dtype=bool))

        return explain


class _Near:
    """The training rows: squared distances add up feature by feature."""

    def __init__(self, dataset: Dataset) -> None:
        self.train, self.places = dataset.train.codes, Scaled(dataset).places

    def row_of(self, codes: Codes) -> Ints:
        """The number of the nearest (n,)."""
        step = max(1, _AT_ONCE // len(self.train))
        parts = [self._squared(codes[start : start + step]).argmin(axis=1) for start in range(0, len(codes), step)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _squared(self, codes: Codes) -> Floats:
        squared = np.zeros((len(codes), len(self.train)))
        for j, column in enumerate(self.train.T):
            if j not in self.places:
                squared += 2.0 * (codes[:, j, None] != column)
            else:
                for place in self.places[j].T:
                    squared += (place[codes[:, j]][:, None] - place[column]) ** 2
        return squared
