"""How much each feature truly matters to a prediction of the white box, under four definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfeval_cli.types import ABSENT, Codes, Dataset, Explanation, Floats, Ints


def _signed(model: Any, dataset: Dataset, codes: Codes, sign: Floats) -> Floats:
    """Weight times value, towards the predicted class: the paper's."""
    return np.asarray(sign * model.effects(codes))


def _centered(model: Any, dataset: Dataset, codes: Codes, sign: Floats) -> Floats:
    """The same, against the feature's mean over the training set."""
    return np.asarray(sign * (model.effects(codes) - model.mean_effects()))


def _contrast(model: Any, dataset: Dataset, codes: Codes, sign: Floats) -> Floats:
    """The largest drop that any other value of the feature causes."""
    others = [
        _lowest_other(model.value_effects(j)[values], values, codes[:, j], sign[:, 0])
        for j, values in ((j, dataset.values(j)) for j in range(dataset.width))
    ]
    return np.asarray(sign * model.effects(codes) - np.stack(others, axis=1))


def _absolute(model: Any, dataset: Dataset, codes: Codes, sign: Floats) -> Floats:
    """The size of the effect, whichever way it points."""
    return np.asarray(np.abs(model.effects(codes)))


DEFINITIONS = {"signed": _signed, "centered": _centered, "contrast": _contrast, "absolute": _absolute}


def importance(definition: str, model: Any, dataset: Dataset, codes: Codes, labels: Ints) -> Floats:
    """Importance (n, M) of each feature for the predicted labels; -inf where a feature is absent."""
    sign = np.where(labels == 1, 1.0, -1.0)[:, None]
    return np.where(codes == ABSENT, -np.inf, DEFINITIONS[definition](model, dataset, codes, sign))


def top(scores: Floats, k: int) -> Ints:
    """The k most important features (n, k), equal ones in the order of the features, NONE for absent ones."""
    return Explanation.ranked(scores, np.isfinite(scores)).top(k)


def _lowest_other(effects: Floats, values: Codes, own: Codes, sign: Floats) -> Floats:
    """For each row the lowest sign·effect among the values other than its own; its own where there is no other."""
    lowest = np.empty(len(own))
    for s in (1.0, -1.0):
        order = np.argsort(s * effects, kind="stable")[:2]
        best, second = order[0], order[-1]
        rows = sign == s
        lowest[rows] = s * effects[np.where(own[rows] == values[best], second, best)]
    return lowest
