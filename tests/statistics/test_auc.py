import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from cfeval_cli.statistics.auc import auc


@given(st.integers(0, 2000), st.integers(2, 4), st.booleans())
def test_the_area_is_scikit_learns(seed, classes, ties):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 20)])
    probabilities = rng.dirichlet(np.ones(classes), len(labels))
    if ties:
        probabilities = np.round(probabilities * 3)
        probabilities = (probabilities + 1) / (probabilities + 1).sum(axis=1, keepdims=True)
    theirs = (
        roc_auc_score(labels, probabilities[:, 1])
        if classes == 2
        else roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    )
    assert auc(labels, probabilities) == pytest.approx(theirs)


def test_classes_that_nobody_or_everybody_has_are_left_out():
    labels = np.array([0, 1, 0, 1])
    three = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.45, 0.35, 0.2]])
    by_hand = (1.0 + 0.75) / 2  # of class 0 all pairs are right, of class 1 three of four
    assert auc(labels, three) == pytest.approx(by_hand)
    assert np.isnan(auc(np.zeros(4, dtype=int), three[:, :2]))
