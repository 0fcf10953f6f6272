"""Whether scores that were made elsewhere support the predicted class, or one class for all instances."""

from __future__ import annotations

import logging

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Batch, ExplainerResult, Floats, Ints, Ledger, Probabilistic
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.student_t import compute_t_interval

log = logging.getLogger("cfeval")

_SAMPLE = 20  # instances of each predicted class
_LEAST = 3  # instances of a class that tell anything
_DRAWS = 5  # values that take the place of a removed feature
_CONFIDENCE = 0.99


def find_reversed_signs(context: RunContext, name: str, done: ExplainerResult) -> str | None:
    """Return a warning if scores agree with the model for one predicted class and are reversed for another.

    The scores of a sample are compared with the drops in probability when single features are removed. These
    evaluations are not part of any component's cost.
    """
    explainer = context.plan.explainers[name]
    if explainer.portable or not explainer.effects or not isinstance(context.model, Probabilistic):
        return None
    rows = _sample(context, name, done)
    if not len(rows):
        return None
    agreement = _agreement(done, rows, _drops(context, rows))
    means = {}
    for label in np.unique(context.rows.labels[rows]).tolist():
        values = agreement[context.rows.labels[rows] == label]
        mean = compute_t_interval(values[np.isfinite(values)], _CONFIDENCE)
        if mean.low > 0 or mean.high < 0:
            means[label] = mean.mean
    agreeing, turned = ([label for label, mean in means.items() if mean * sign > 0] for sign in (1, -1))
    if not agreeing or not turned:
        return None
    said = {label: f"{context.dataset.classes[label]} ({mean:+.2f})" for label, mean in means.items()}
    those = ", ".join(context.dataset.classes[label] for label in turned)
    warning = (
        f"explainer.{name}: the scores seem to have the wrong sign where the model predicts {those}. Their mean rank "
        "correlation with the drop in probability when a feature is removed, by predicted class: "
        f"{', '.join(said[label] for label in [*agreeing, *turned])}. Scores must be high for what supports the "
        "predicted class. If they are effects on one class for all instances, as SHAP values of class 1 are, multiply "
        f"those of instances predicted as {those} by -1"
    )
    log.warning("%s", warning)
    return warning


def _sample(context: RunContext, name: str, done: ExplainerResult) -> Ints:
    """Return rows of explained instances, as many of each predicted class, without classes that have too few."""
    order = make_stream(context.plan.settings.seed, f"signs.{name}").permutation(len(context.rows))
    explained = order[(done.explanation.features[order] != NO_FEATURE).sum(axis=1) > 1]
    labels = context.rows.labels[explained]
    parts = [explained[labels == label][:_SAMPLE] for label in np.unique(labels)]
    return np.sort(np.concatenate([explained[:0], *(part for part in parts if len(part) >= _LEAST)]))


def _drops(context: RunContext, rows: Ints) -> Floats:
    """Return the drop (n, M) in the probability of the predicted class when each feature is removed."""
    client = Ledger().open_client(context.model, Access.PROBABILITY, "signs", padded=context.dataset.padded)
    some, way = context.rows.take(rows), Marginal(draws=_DRAWS)
    explain = Omission({way.name: way}, removal=way.name).fit(context.dataset, client)
    batch = Batch(some.ids, some.codes, some.labels, seed=context.plan.settings.seed, component="signs")
    return explain(batch).table(context.dataset.width)


def _agreement(done: ExplainerResult, rows: Ints, drops: Floats) -> Floats:
    """Return Spearman's correlation (n,) of scores and drops of the features that are named; NaN if all are equal."""
    from scipy.stats import rankdata

    found = np.full(len(rows), np.nan)
    for place, row in enumerate(rows.tolist()):
        named = done.explanation.features[row]
        there = named != NO_FEATURE
        ranks = rankdata(done.explanation.scores[row][there]), rankdata(drops[place, named[there]])
        if all(np.ptp(one) for one in ranks):
            found[place] = np.corrcoef(*ranks)[0, 1]
    return found
