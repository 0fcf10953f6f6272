"""Cases for metrics: a random order of all features with random scores, and models of which nothing adds up."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Explanation, MetricInput, Rows
from cfeval_cli.seeding import make_stream
from tests.problems import open_client, ready


class Crossed:
    """Three classes, logits from pairs of features: no order of features is the best for every length."""

    def __init__(self, dataset, seed, classes=2):
        rng = np.random.default_rng(seed)
        size = max(len(feature.values) for feature in dataset.features) + 1
        self.tables = rng.normal(0, 1.5, (classes, dataset.width, dataset.width, size, size))

    def predict_proba(self, codes):
        logits = np.zeros((len(codes), len(self.tables)))
        for c, table in enumerate(self.tables):
            for j in range(codes.shape[1]):
                for i in range(j + 1):
                    logits[:, c] += table[i, j][codes[:, i], codes[:, j]]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


def rows_of(model, codes, ids=None):
    """Rows with what a model says of them."""
    told = model.predict_proba(codes)
    labels = told.argmax(axis=1)
    return Rows(np.arange(len(codes)) if ids is None else ids, codes, labels, told[np.arange(len(codes)), labels])


def told(model, row, label):
    """The probability of one row's class."""
    return float(model.predict_proba(np.asarray(row, dtype=np.int32)[None])[0, label])


def make_explanation(codes, seed, short=False):
    """A random order of the features that are there, with falling random scores; of some instances only a part."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in codes:
        there = rng.permutation(np.flatnonzero(row != ABSENT))
        there = there[: rng.integers(1, len(there) + 1)] if short else there
        rows.append(list(zip(there.tolist(), np.sort(rng.normal(size=len(there)))[::-1].tolist(), strict=True)))
    return Explanation.ragged(rows)


def make_inputs(dataset, model, k=1, seed=0, ways=None, access=Access.WHITE_BOX, short=False, found=None, **more):
    """A case of all test instances; features are the first k of the explanation."""
    rows = rows_of(model, dataset.test.codes, dataset.test.ids)
    explanation = make_explanation(rows.codes, seed, short)
    features = explanation.top(k)
    return MetricInput(
        rows.ids, rows.codes, rows.labels, rows.probability, dataset=dataset,
        model=open_client(model, access, padded=dataset.padded), features=features, k=k,
        complete=(features != NO_FEATURE).all(axis=1), counterfactuals=found or {},
        removals=ready(dataset, model, ways), truth={}, explanation=explanation, **more,
    )  # fmt: skip


def values(metric, inputs):
    """Numerator over denominator of each instance, by variant; NaN where there is nothing to divide by."""
    scores = {}
    for score in metric.score(inputs):
        with np.errstate(invalid="ignore"):
            scores[score.variant] = score.numerator / np.where(score.denominator == 0, np.nan, score.denominator)
    return scores


def stand_ins(way, features):
    """Values and weights, as lists."""
    chosen, weights = way.stand_ins.sample(np.array(sorted(features), dtype=np.int64))
    return chosen.tolist(), weights.tolist()


def left_without(model, inputs, way, i, gone):
    """p(ŷ) of one instance without some features, draw by draw: (weight, p)."""
    gone = sorted(j for j in gone if inputs.codes[i, j] != ABSENT)
    values, weights = stand_ins(way, gone)
    rows = np.repeat(inputs.codes[i : i + 1], len(weights), axis=0)
    for row, chosen in zip(rows, values, strict=True):
        row[gone] = chosen
    return list(zip(weights, model.predict_proba(rows)[:, inputs.labels[i]].tolist(), strict=True))


def drop_without(model, inputs, way, i, gone):
    """p(ŷ|x) - p(ŷ|x without some features)."""
    return inputs.probability[i] - sum(weight * p for weight, p in left_without(model, inputs, way, i, gone))


def sets_of(row, subsets, share, seed, instance):
    """The features with the smallest of the instance's own random numbers."""
    numbers = make_stream(seed, "metric.subsets", instance).random((subsets, len(row)))
    there = [j for j in range(len(row)) if row[j] != ABSENT]
    size = max(1, round(share * len(there)))
    return [set(sorted(there, key=lambda j, line=line: line[j])[:size]) for line in numbers]
