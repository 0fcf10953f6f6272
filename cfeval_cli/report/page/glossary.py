"""The glossary of a report: terms of every report, and terms from the record of the run."""

from __future__ import annotations

from collections.abc import Mapping

from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.report.render.html import Term
from cfeval_cli.report.table import CIRCULAR_MARK, NOT_IDENTIFIABLE_MARK
from cfeval_cli.results.record import RunRecord

_COMMON_TERMS = {
    "τ": "Kendall's τ: the share of pairs of explainers that two rankings order alike minus the share that they order "
    "differently. 1: the same order, -1: the opposite order, 0: no association.",
    "ρ": "Spearman's ρ: the correlation of the ranks of two rankings.",
    "p": "One-sided p-value: the probability that a random ordering of the explainers agrees with the ground truth as "
    "well.",
    "CI": "Confidence interval, in brackets: bootstrap over instances.",
    "Ground truth": "Reference attributions of the model, by a definition that is named beside it.",
    "Reference features": "The k most important features of an instance by the ground truth.",
    "Contribution": "What contributed to the prediction?",
    "Change": "What would change the prediction?",
    "Control": "An explainer for comparison: it selects random features or the reference features.",
    "Counterfactual": "The instance with other values of the selected features, found by a search.",
    "Erasure": "Metrics that remove the selected features, or all others, and compare the predictions.",
    "Instance": "A row or a text of the test set whose prediction is explained.",
    CIRCULAR_MARK: "Circular: the explainer is optimal for this metric or this ground truth by construction.",
    NOT_IDENTIFIABLE_MARK: f"It {NOT_IDENTIFIABLE_NOTE}.",
    "†": "Returns k features for too few of the instances.",
    "‡": "Outside its own interval: resamples are noisier than the sample.",
}


def list_terms(record: RunRecord) -> list[Term]:
    """Return the metrics, explainers, ground truths and removals of a run as it defines them, and the common terms."""
    definitions = record.definitions
    metrics = _define_metrics(record, definitions.metric)
    explainers = {title: definitions.explainer.get(name) for name, title in record.explainers.items()}
    truths = {f"{name} (ground truth)": definition for name, definition in definitions.truth.items()}
    removals = {
        f"{removal.title} (removal)": definitions.removal.get(removal.name) for removal in record.removals.values()
    }
    defined = {**metrics, **explainers, **truths, **removals, **_COMMON_TERMS}
    return [Term(name, definition) for name, definition in defined.items() if definition]


def _define_metrics(record: RunRecord, definitions: Mapping[str, str]) -> dict[str, str]:
    """Return the definitions of metrics by title, which several metrics may share."""
    names_of: dict[str, list[str]] = {}
    for name, entry in record.metrics.items():
        if definitions.get(name):
            names_of.setdefault(entry.title, []).append(name)
    return {
        title: definitions[names[0]] if len(names) == 1 else " ".join(f"{name}: {definitions[name]}" for name in names)
        for title, names in names_of.items()
    }
