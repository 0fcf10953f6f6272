"""AXE against votes of all training rows, sorted by distance."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, ModelSpec
from cfeval_cli.core.space import Scaled
from cfeval_cli.metric.axe import Axe
from tests.metric.inputs import InteractionModel, compute_values, make_inputs
from tests.metric.test_plausible import compute_expected_share
from tests.problems import make_dataset, make_linear, make_mixed, make_text


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 3), st.sampled_from([1, 5]))
def test_score_equals_vote_of_all_training_rows(seed, mixed, k, size):
    dataset = make_mixed(seed, n=25) if mixed else make_dataset([3, 4, 2], n=25, seed=seed)
    dataset = replace(dataset, classes=("a", "b", "c"))
    model = make_linear(dataset, seed) if mixed else InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, k, seed, short=True)
    scores = compute_values(Axe(size), inputs)["nearest"]
    space, train = Scaled(dataset), dataset.train.codes
    classes = model.predict_proba(train).argmax(axis=1)
    for i, row_features in enumerate(inputs.features):
        selected = row_features[row_features != NO_FEATURE]
        distances = np.array([
            space.compute_squared_distance_matrix(inputs.codes[i][None], selected, row[None, selected])[0, 0]
            for row in train
        ])  # fmt: skip
        votes = np.array([compute_expected_share(distances, classes == c, size) for c in range(3)])
        winners = np.flatnonzero(votes >= votes.max() - 1e-9)
        assert scores[i] == pytest.approx((inputs.predicted_classes[i] in winners) / len(winners))


def test_texts_are_not_applicable_and_invalid_settings_are_rejected():
    dataset = make_text()
    assert "table" in Axe().not_applicable_reason(ModelSpec(dataset, type(make_linear(dataset))))
    with pytest.raises(ValueError, match="neighbours"):
        Axe(0)
