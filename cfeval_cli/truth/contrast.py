"""What another value would change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.types import Codes, Dataset, Floats, Gate, Ints, Rows, Truth


@dataclass(frozen=True)
class Contrast(Truth):
    """The largest drop that another value of the feature causes in the logit of the predicted class.

    Of a number: another of the values that a search tries.
    """

    name = "contrast"
    place = 30
    question = "change"

    def importance(self, dataset: Dataset, model: Gate, rows: Rows) -> Floats:
        """s·c_j(x_j) less the lowest s·c_j of another value."""
        lowest = [
            _lowest_other(model, j, dataset.alternatives(j), rows.codes[:, j], rows.labels)
            for j in range(dataset.width)
        ]
        return model.effects(rows.codes, rows.labels) - np.stack(lowest, axis=1)


def _lowest_other(model: Gate, feature: int, values: Codes, own: Codes, labels: Ints) -> Floats:
    """For each row the lowest effect among the values other than its own; its own where there is no other."""
    lowest = np.empty(len(own))
    for label in np.unique(labels).tolist():
        effects = model.value_effects(feature, label)[values]
        order = np.argsort(effects, kind="stable")[:2]
        best, second = order[0], order[-1]
        rows = labels == label
        lowest[rows] = effects[np.where(own[rows] == values[best], second, best)]
    return lowest
