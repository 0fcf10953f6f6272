"""Control explainer that returns the ground truth of a similar instance."""

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

_MAX_ARRAY_SIZE = 1 << 22  # numbers in one array of distances


@dataclass(frozen=True)
class NearestTruth(Explainer):
    """Ranking of the ground truth of the nearest training row; of rows at the same distance, the first.

    Categories differ or not; numbers differ in units of their median distance from the median.
    """

    truth: Truth
    truth_name: str = ""

    access = Access.WHITE_BOX
    title = "Nearest's truth"
    display_order = 58
    is_control = True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for texts: the third word of another text is a different feature."""
        if spec.dataset.padded:
            return "needs the columns of a table, because positions of different texts do not correspond"
        return super().not_applicable_reason(spec)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Prepare the search for the nearest training row."""
        train, neighbours = dataset.train, _Neighbours(dataset)

        def explain(batch: Batch) -> Explanation:
            nearest = neighbours.find_nearest(batch.codes)
            codes = train.codes[nearest]
            candidates = Rows(train.ids[nearest], codes, model.predict_labels(codes))
            importance = self.truth.compute_importance(dataset, model, candidates)
            return Explanation.from_scores(importance, np.ones(importance.shape, dtype=bool))

        return explain


class _Neighbours:
    """The training rows, with squared distances that are sums over features."""

    def __init__(self, dataset: Dataset) -> None:
        self.train, self.coordinates = dataset.train.codes, Scaled(dataset).coordinates

    def find_nearest(self, codes: Codes) -> Ints:
        """Return the position of the nearest training row (n,)."""
        step = max(1, _MAX_ARRAY_SIZE // len(self.train))
        parts = [
            self._compute_squared_distances(codes[start : start + step]).argmin(axis=1)
            for start in range(0, len(codes), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _compute_squared_distances(self, codes: Codes) -> Floats:
        squared = np.zeros((len(codes), len(self.train)))
        for j, column in enumerate(self.train.T):
            if j not in self.coordinates:
                squared += 2.0 * (codes[:, j, None] != column)
            else:
                for position in self.coordinates[j].T:
                    squared += (position[codes[:, j]][:, None] - position[column]) ** 2
        return squared
