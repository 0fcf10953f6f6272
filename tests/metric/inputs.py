"""Inputs of metrics: random explanations of all features, and models without additive effects."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Explanation, MetricInput, Probabilistic, Rows
from cfeval_cli.seeding import make_stream
from tests.problems import fit_removals, open_client


class InteractionModel(Probabilistic):
    """A model with logits from pairs of features, for which no order of features is the best at every length."""

    def __init__(self, dataset, seed, classes=2):
        rng = np.random.default_rng(seed)
        size = max(len(feature.values) for feature in dataset.features) + 1
        self.tables = rng.normal(0, 1.5, (classes, dataset.n_features, dataset.n_features, size, size))

    def predict_proba(self, codes):
        logits = np.zeros((len(codes), len(self.tables)))
        for c, table in enumerate(self.tables):
            for j in range(codes.shape[1]):
                for i in range(j + 1):
                    logits[:, c] += table[i, j][codes[:, i], codes[:, j]]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


def make_rows(model, codes, ids=None):
    """Return rows with the predictions of a model."""
    probabilities = model.predict_proba(codes)
    labels = probabilities.argmax(axis=1)
    return Rows(
        np.arange(len(codes)) if ids is None else ids, codes, labels, probabilities[np.arange(len(codes)), labels]
    )


def make_explanation(codes, seed, short=False):
    """Return the present features in random order with decreasing scores; with `short` only some of them."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in codes:
        present = rng.permutation(np.flatnonzero(row != ABSENT))
        present = present[: rng.integers(1, len(present) + 1)] if short else present
        rows.append(list(zip(present.tolist(), np.sort(rng.normal(size=len(present)))[::-1].tolist(), strict=True)))
    return Explanation.from_lists(rows)


def make_inputs(dataset, model, k=1, seed=0, removals=None, access=Access.WHITE_BOX, short=False, edits=None, **extra):
    """Return inputs of all test instances; the features are the first k of the explanation."""
    rows = make_rows(model, dataset.test.codes, dataset.test.ids)
    explanation = make_explanation(rows.codes, seed, short)
    features = explanation.top_k(k)
    return MetricInput(
        rows.ids, rows.codes, rows.predicted_classes, rows.probability, dataset=dataset,
        model=open_client(model, access, padded=dataset.padded), features=features, k=k,
        complete=(features != NO_FEATURE).all(axis=1), counterfactuals=edits or {},
        removals=fit_removals(dataset, model, removals), truth={}, explanation=explanation, **extra,
    )  # fmt: skip


def compute_values(metric, inputs):
    """Return the value of each instance by variant: numerator over denominator, NaN if the denominator is 0."""
    scores = {}
    for score in metric.score(inputs):
        with np.errstate(invalid="ignore"):
            scores[score.variant] = score.numerator / np.where(score.denominator == 0, np.nan, score.denominator)
    return scores


def sample_replacements(fitted, features):
    """Return the values and weights that replace some features, as lists."""
    values, weights = fitted.replacement.sample(np.array(sorted(features), dtype=np.int64))
    return values.tolist(), weights.tolist()


def list_remaining_probabilities(model, inputs, fitted, i, remove_selected):
    """Return (weight, p(ŷ)) of one instance without some features, for each draw."""
    remove_selected = sorted(j for j in remove_selected if inputs.codes[i, j] != ABSENT)
    values, weights = sample_replacements(fitted, remove_selected)
    rows = np.repeat(inputs.codes[i : i + 1], len(weights), axis=0)
    for row, replacement in zip(rows, values, strict=True):
        row[remove_selected] = replacement
    return list(zip(weights, model.predict_proba(rows)[:, inputs.predicted_classes[i]].tolist(), strict=True))


def compute_drop(model, inputs, fitted, i, remove_selected):
    """Return p(ŷ|x) - p(ŷ|x without some features)."""
    return inputs.probability[i] - sum(
        weight * p for weight, p in list_remaining_probabilities(model, inputs, fitted, i, remove_selected)
    )


def draw_sets(row, subsets, share, seed, instance):
    """Return sets of the present features with the smallest random numbers of the instance's own stream."""
    numbers = make_stream(seed, "metric.subsets", instance).random((subsets, len(row)))
    present = [j for j in range(len(row)) if row[j] != ABSENT]
    size = max(1, round(share * len(present)))
    return [set(sorted(present, key=lambda j, line=line: line[j])[:size]) for line in numbers]
