"""Ground truth `contrast`: the largest drop that another value of a feature causes."""

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
from cfeval_cli.truth.alternatives import count_alternatives, evaluate_alternatives


@dataclass(frozen=True)
class Contrast(Truth):
    """Largest drop that another value of the feature causes: in the logit of an additive model, else in p(ŷ).

    Numbers take the candidate values of the searches. A feature that may not change has the value 0.
    """

    budget: int = 20_000  # largest number of model evaluations per instance; additive models need none

    name = "contrast"
    question = "change"

    def __post_init__(self) -> None:
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without probabilities, and for data with too many values."""
        if spec.supports(HasAdditiveEffects):
            return None
        if (n_rows := count_alternatives(spec.dataset)) > self.budget:
            return f"needs {n_rows:,} model evaluations per instance, more than truth.contrast.budget={self.budget}"
        return spec.missing_ability_reason(Probabilistic)

    def evaluates_model(self, spec: ModelSpec) -> bool:
        """Return whether the model has predictions only."""
        return not spec.supports(HasAdditiveEffects)

    def count_evaluations(self, spec: ModelSpec) -> int:
        """Return the number of other values of all features."""
        return count_alternatives(spec.dataset)

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the effect of x_j minus the lowest effect of another value."""
        if not model.has_effects:
            return _compute_drops(dataset, model, rows)
        lowest = [
            _find_lowest_permitted(dataset, model, j, rows)
            if dataset.features[j].allowed_change != "any"
            else _find_lowest_other(model, j, dataset.get_alternatives(j), rows.codes[:, j], rows.predicted_classes)
            for j in range(dataset.n_features)
        ]
        return model.compute_effects(rows.codes, rows.predicted_classes) - np.stack(lowest, axis=1)


def _compute_drops(dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
    """Return the largest drop (n, M) of p(ŷ); 0 for features that may not change."""
    before = model.predict_class_proba(rows.codes, rows.predicted_classes)
    drops = np.zeros(rows.codes.shape)
    for j in range(dataset.n_features):
        for batch in evaluate_alternatives(dataset, model, rows, (j,)):
            lowest = np.where(batch.is_allowed, batch.probability, np.inf).min(axis=1, initial=np.inf)
            drops[batch.rows, j] = np.where(np.isinf(lowest), 0.0, before[batch.rows] - lowest)
    return drops


def _find_lowest_other(model: ModelClient, feature: int, values: Codes, own_codes: Codes, labels: Ints) -> Floats:
    """Return for each row the lowest effect of the values other than its own; its own effect if there are none."""
    lowest = np.empty(len(own_codes))
    for label in np.unique(labels).tolist():
        effects = model.compute_value_effects(feature, label)[values]
        order = np.argsort(effects, kind="stable")[:2]
        best, second = order[0], order[-1]
        has_label = labels == label
        lowest[has_label] = effects[np.where(own_codes[has_label] == values[best], second, best)]
    return lowest


def _find_lowest_permitted(dataset: Dataset, model: ModelClient, feature: int, rows: Rows) -> Floats:
    """Return for each row the lowest effect of the values that its own may change to."""
    own_codes, values = rows.codes[:, feature], dataset.get_alternatives(feature)
    lowest = np.empty(len(own_codes))
    for label in np.unique(rows.predicted_classes).tolist():
        effects, has_label = model.compute_value_effects(feature, label), rows.predicted_classes == label
        is_allowed = dataset.find_allowed(feature, own_codes[has_label])
        other_effects = np.where(is_allowed, effects[values], np.inf).min(axis=1, initial=np.inf)
        lowest[has_label] = np.where(np.isinf(other_effects), effects[own_codes[has_label]], other_effects)
    return lowest
