"""What the model looks at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, HasReadFeatures, ModelClient, ModelSpec, Rows, Truth


@dataclass(frozen=True)
class Used(Truth):
    """1 if the model reads the feature, else 0: known of a model that was trained without some of the features."""

    name = "used"
    question = "either"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Models that were trained blind."""
        if spec.blind and spec.supports(HasReadFeatures):
            return None
        return "is known of models that were trained without some of the features (model.blind) only"

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """The same for every row."""
        reads = model.get_used_features()
        every = np.ones(dataset.n_features) if reads is None else reads.astype(np.float64)
        return np.tile(every, (len(rows), 1))
