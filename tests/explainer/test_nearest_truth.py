"""nearest_truth returns the ground truth of the nearest training row."""

import numpy as np
import pytest

from cfeval_cli.core import Batch, BlackBox, ModelSpec
from cfeval_cli.explainer import nearest_truth
from cfeval_cli.explainer.lr import Lr
from cfeval_cli.explainer.nearest_truth import NearestTruth
from cfeval_cli.model.linear import LinearModel
from tests.problems import (
    TRUTHS,
    draw_linear,
    make_batch,
    make_dataset,
    make_mixed,
    make_text,
    open_client,
    predict_labels,
)


def nearest(dataset, row):
    """By the definition, feature after feature."""
    train, distances = dataset.train.codes, np.zeros(len(dataset.train))
    for j, feature in enumerate(dataset.features):
        if feature.numbers is None:
            distances += 2.0 * (row[j] != train[:, j])
            continue
        other_values, own = feature.numbers[train[:, j]], feature.numbers[row[j]]
        estimate = other_values[~np.isnan(other_values)]
        middle = np.median(estimate)
        spread = np.median(np.abs(estimate - middle)) or np.std(estimate)
        distances += 2.0 * (np.isnan(own) != np.isnan(other_values))
        a, b = (np.where(np.isnan(first), middle, first) for first in (own, other_values))
        distances += ((a - b) / spread) ** 2
    return int(np.flatnonzero(distances <= distances.min() + 1e-12)[0])


@pytest.mark.parametrize(
    "dataset", [make_dataset([3, 2, 4, 5], n=40), make_mixed(1, n=40, missing=0.1)], ids=["categories", "numbers"]
)
def test_explanation_is_the_ground_truth_of_the_nearest_row_by_the_definition(dataset, monkeypatch):
    monkeypatch.setattr(nearest_truth, "_MAX_ARRAY_SIZE", 3 * len(dataset.train))
    model = draw_linear(dataset, 1, 2)
    batch = make_batch(dataset, model)
    explanation = NearestTruth(TRUTHS["shapley"]).fit(dataset, open_client(model))(batch)
    rows = [nearest(dataset, row) for row in batch.codes]
    codes = dataset.train.codes[rows]
    other_values = Batch(dataset.train.ids[rows], codes, predict_labels(model, codes), seed=0, component="x")
    reference = Lr(TRUTHS["shapley"]).fit(dataset, open_client(model))(other_values)
    assert np.array_equal(explanation.features, reference.features) and np.array_equal(
        explanation.scores, reference.scores
    )


def test_reason_for_texts_and_for_models_without_the_ground_truth():
    explainer = NearestTruth(TRUTHS["shapley"])
    assert "columns of a table" in explainer.not_applicable_reason(ModelSpec(make_text(), LinearModel))
    assert "needs a logit" in explainer.not_applicable_reason(ModelSpec(make_dataset([2, 2]), BlackBox))
    assert (
        explainer.not_applicable_reason(ModelSpec(make_dataset([2, 2]), LinearModel)) is None and explainer.is_control
    )
