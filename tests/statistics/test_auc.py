"""The area under the ROC curve, against its definition by pairs of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.auc import compute_auc


def area_by_pairs(positive, scores):
    """How often a row of the class has a higher score than another row; a tie counts half."""
    differences = scores[positive][:, None] - scores[~positive]
    return (differences > 0).mean() + (differences == 0).mean() / 2


@given(st.integers(0, 2000), st.integers(2, 4), st.booleans())
def test_the_area_is_the_share_of_pairs_in_order(seed, classes, ties):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 20)])
    probabilities = rng.dirichlet(np.ones(classes), len(labels))
    if ties:
        probabilities = np.round(probabilities * 3)
        probabilities = (probabilities + 1) / (probabilities + 1).sum(axis=1, keepdims=True)
    class_numbers = [1] if classes == 2 else range(classes)
    areas = [area_by_pairs(labels == c, probabilities[:, c]) for c in class_numbers]
    assert compute_auc(labels, probabilities) == pytest.approx(np.mean(areas))


def test_absent_and_universal_classes_are_left_out():
    labels = np.array([0, 1, 0, 1])
    three = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.45, 0.35, 0.2]])
    by_hand = (1.0 + 0.75) / 2  # of class 0 all pairs are in order, of class 1 three of four
    assert compute_auc(labels, three) == pytest.approx(by_hand)
    assert np.isnan(compute_auc(np.zeros(4, dtype=int), three[:, :2]))
