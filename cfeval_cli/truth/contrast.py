"""What another value would change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.types import Codes, Dataset, Floats, Gate, Ints, Rows, Truth


@dataclass(frozen=True)
class Contrast(Truth):
    """The largest drop that another value of the feature causes in the logit of the predicted class.

    Of a number: another of the values that a search tries. What may not change causes none.
    """

    name = "contrast"
    place = 30
    question = "change"

    def importance(self, dataset: Dataset, model: Gate, rows: Rows) -> Floats:
        """s·c_j(x_j) less the lowest s·c_j of another value."""
        lowest = [
            _lowest_allowed(dataset, model, j, rows)
            if dataset.features[j].moves != "any"
            else _lowest_other(model, j, dataset.alternatives(j), rows.codes[:, j], rows.labels)
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


def _lowest_allowed(dataset: Dataset, model: Gate, feature: int, rows: Rows) -> Floats:
    """The same among the values that each row's may be exchanged for."""
    own, values = rows.codes[:, feature], dataset.alternatives(feature)
    lowest = np.empty(len(own))
    for label in np.unique(rows.labels).tolist():
        effects, some = model.value_effects(feature, label), rows.labels == label
        others = np.where(dataset.allowed(feature, own[some]), effects[values], np.inf).min(axis=1, initial=np.inf)
        lowest[some] = np.where(np.isinf(others), effects[own[some]], others)
    return lowest
