"""Models for tests of ground truths: random trees, and functions of codes."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import HasUsedFeatures, Probabilistic, Rows
from cfeval_cli.model.tree import TreeModel


class CodeFunctionModel(Probabilistic):
    """A black box with P(1|x) from a function of codes."""

    def __init__(self, compute_positive):
        self.compute_positive = compute_positive

    def predict_proba(self, codes):
        positive = self.compute_positive(codes)
        return np.stack([-positive if (positive < 0).any() or (positive > 1).any() else 1 - positive, positive], axis=1)


class PredictionsOnlyModel(Probabilistic, HasUsedFeatures):
    """Another model without its abilities, except for the features that it reads."""

    def __init__(self, model):
        self.model = model

    def predict_proba(self, codes):
        return self.model.predict_proba(codes)

    def get_used_features(self):
        return self.model.get_used_features()


def make_random_tree(dataset, seed, splits=6, classes=2):
    """Return a tree of random tests, possibly with repeated features, and random leaves."""
    rng = np.random.default_rng(seed)
    sizes = np.array([len(feature.values) for feature in dataset.features])
    feature, remaining, right, tests = [-1], [0], [0], [np.zeros(sizes.max(), dtype=bool)]
    leaves = [0]
    for _ in range(splits):
        node = leaves.pop(int(rng.integers(len(leaves))))
        j = int(rng.integers(len(sizes)))
        feature[node], remaining[node], right[node] = j, len(feature), len(feature) + 1
        tests[node][: sizes[j]] = rng.random(sizes[j]) < 0.5
        for child in (remaining[node], right[node]):
            leaves.append(child)
            feature.append(-1), remaining.append(0), right.append(0), tests.append(np.zeros(sizes.max(), dtype=bool))
    result = rng.dirichlet(np.ones(classes), len(feature))
    return TreeModel(np.array(feature), np.array(remaining), np.array(right), np.array(tests), sizes, result)


def predict_test_rows(dataset, model):
    """Return all test instances with the predictions of a model."""
    codes = dataset.test.codes
    result = model.predict_proba(codes)
    labels = result.argmax(axis=1)
    return Rows(dataset.test.ids, codes, labels, result[np.arange(len(codes)), labels])
