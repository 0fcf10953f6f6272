"""What another value would change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    Codes,
    Dataset,
    Floats,
    HasAdditiveEffects,
    Ints,
    ModelClient,
    ModelSpec,
    Probabilistic,
    Rows,
    Truth,
)
from cfeval_cli.errors import check_int
from cfeval_cli.truth.alternatives import cost, tried


@dataclass(frozen=True)
class Contrast(Truth):
    """The largest drop that another value of the feature causes: in the logit of an additive model, else in p(ŷ).

    Of a number: another of the values that a search tries. What may not change causes none.
    """

    budget: int = 20_000  # model rows an instance at most; effects that are known cost none

    name = "contrast"
    question = "change"

    def __post_init__(self) -> None:
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Any model that tells probabilities, if the values are not too many."""
        if spec.supports(HasAdditiveEffects):
            return None
        if (rows := cost(spec.dataset)) > self.budget:
            return f"needs {rows:,} model rows an instance, more than truth.contrast.budget={self.budget}"
        return spec.missing_ability_reason(Probabilistic)

    def asks(self, spec: ModelSpec) -> bool:
        """Where nothing is known but predictions."""
        return not spec.supports(HasAdditiveEffects)

    def cost(self, spec: ModelSpec) -> int:
        """Every other value of every feature."""
        return cost(spec.dataset)

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """What there is of x_j less the lowest of another value."""
        if not model.has_effects:
            return _drops(dataset, model, rows)
        lowest = [
            _lowest_allowed(dataset, model, j, rows)
            if dataset.features[j].allowed_change != "any"
            else _lowest_other(model, j, dataset.get_alternatives(j), rows.codes[:, j], rows.labels)
            for j in range(dataset.n_features)
        ]
        return model.compute_effects(rows.codes, rows.labels) - np.stack(lowest, axis=1)


def _drops(dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
    """The largest drop (n, M) of the predicted class's probability; 0 where nothing may change."""
    before = model.predict_class_proba(rows.codes, rows.labels)
    drops = np.zeros(rows.codes.shape)
    for j in range(dataset.n_features):
        for some, allowed, _, after in tried(dataset, model, rows, (j,)):
            lowest = np.where(allowed, after, np.inf).min(axis=1, initial=np.inf)
            drops[some, j] = np.where(np.isinf(lowest), 0.0, before[some] - lowest)
    return drops


def _lowest_other(model: ModelClient, feature: int, values: Codes, own: Codes, labels: Ints) -> Floats:
    """For each row the lowest effect among the values other than its own; its own where there is no other."""
    lowest = np.empty(len(own))
    for label in np.unique(labels).tolist():
        effects = model.compute_value_effects(feature, label)[values]
        order = np.argsort(effects, kind="stable")[:2]
        best, second = order[0], order[-1]
        rows = labels == label
        lowest[rows] = effects[np.where(own[rows] == values[best], second, best)]
    return lowest


def _lowest_allowed(dataset: Dataset, model: ModelClient, feature: int, rows: Rows) -> Floats:
    """The same among the values that each row's may be exchanged for."""
    own, values = rows.codes[:, feature], dataset.get_alternatives(feature)
    lowest = np.empty(len(own))
    for label in np.unique(rows.labels).tolist():
        effects, some = model.compute_value_effects(feature, label), rows.labels == label
        others = np.where(dataset.find_allowed(feature, own[some]), effects[values], np.inf).min(axis=1, initial=np.inf)
        lowest[some] = np.where(np.isinf(others), effects[own[some]], others)
    return lowest
