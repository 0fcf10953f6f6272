"""Check of the signs of imported scores: they must support the predicted class, not one class for all instances."""

from __future__ import annotations

import logging

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Batch, ExplainerResult, Floats, Ints, Ledger, LedgerKey, Probabilistic
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.student_t import compute_t_interval

log = logging.getLogger("cfeval")

_MAX_INSTANCES_PER_CLASS = 20
_MIN_INSTANCES_PER_CLASS = 3
_N_DRAWS = 5  # values that replace a removed feature
_CONFIDENCE = 0.99


def find_reversed_signs(context: RunContext, name: str, result: ExplainerResult) -> str | None:
    """Return a warning if scores agree with the model for one predicted class and are reversed for another.

    The scores of a sample are compared with the drops in probability when single features are removed. These
    evaluations are not part of any component's cost.
    """
    explainer = context.plan.explainers[name]
    if explainer.portable or not explainer.scores_are_effects or not isinstance(context.model, Probabilistic):
        return None
    positions = _sample_positions(context, name, result)
    if not len(positions):
        return None
    agreement = _compute_agreement(result, positions, _compute_drops(context, positions))
    means = {}
    for label in np.unique(context.rows.predicted_classes[positions]).tolist():
        values = agreement[context.rows.predicted_classes[positions] == label]
        mean = compute_t_interval(values[np.isfinite(values)], _CONFIDENCE)
        if mean.low > 0 or mean.high < 0:
            means[label] = mean.mean
    agreeing, reversed_labels = ([label for label, mean in means.items() if mean * sign > 0] for sign in (1, -1))
    if not agreeing or not reversed_labels:
        return None
    means_text = ", ".join(
        f"{context.dataset.classes[label]} ({means[label]:+.2f})" for label in [*agreeing, *reversed_labels]
    )
    reversed_classes = ", ".join(context.dataset.classes[label] for label in reversed_labels)
    warning = (
        f"explainer.{name}: the scores seem to have the wrong sign where the model predicts {reversed_classes}. Their "
        "mean rank correlation with the drop in probability when a feature is removed, by predicted class: "
        f"{means_text}. Scores must be high for what supports the predicted class. If they are effects on one class "
        "for all instances, as SHAP values of class 1 are, multiply those of instances predicted as "
        f"{reversed_classes} by -1"
    )
    log.warning("%s", warning)
    return warning


def _sample_positions(context: RunContext, name: str, result: ExplainerResult) -> Ints:
    """Return positions of explained instances, as many of each predicted class, without classes that have too few."""
    order = make_stream(context.plan.settings.seed, f"signs.{name}").permutation(len(context.rows))
    explained = order[(result.explanation.features[order] != NO_FEATURE).sum(axis=1) > 1]
    labels = context.rows.predicted_classes[explained]
    samples = [explained[labels == label][:_MAX_INSTANCES_PER_CLASS] for label in np.unique(labels)]
    samples = [sample for sample in samples if len(sample) >= _MIN_INSTANCES_PER_CLASS]
    return np.sort(np.concatenate([explained[:0], *samples]))


def _compute_drops(context: RunContext, positions: Ints) -> Floats:
    """Return the drop (n, M) in the probability of the predicted class when each feature is removed."""
    client = Ledger().open_client(
        context.model, Access.PROBABILITY, LedgerKey("sign_check"), padded=context.dataset.padded
    )
    sample, removal = context.rows.take(positions), Marginal(draws=_N_DRAWS)
    explain = Omission({removal.name: removal}, removal=removal.name).fit(context.dataset, client)
    batch = Batch(
        sample.ids, sample.codes, sample.predicted_classes, seed=context.plan.settings.seed, component="signs"
    )
    return explain(batch).to_dense(context.dataset.n_features)


def _compute_agreement(result: ExplainerResult, positions: Ints, drops: Floats) -> Floats:
    """Return Spearman's correlation (n,) of scores and drops of the scored features; NaN if one of them is constant."""
    from scipy.stats import rankdata

    agreement = np.full(len(positions), np.nan)
    for i, position in enumerate(positions.tolist()):
        features = result.explanation.features[position]
        is_scored = features != NO_FEATURE
        ranks = rankdata(result.explanation.scores[position][is_scored]), rankdata(drops[i, features[is_scored]])
        if all(np.ptp(values) for values in ranks):
            agreement[i] = np.corrcoef(*ranks)[0, 1]
    return agreement
