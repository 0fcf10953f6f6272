"""Plausibility against all training rows, sorted by distance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import AbsentScore, Access, Counterfactuals, ModelSpec
from cfeval_cli.core.space import Scaled
from cfeval_cli.metric.plausible import Plausible
from cfeval_cli.search.discrete import Discrete
from tests.metric.inputs import compute_values, make_inputs
from tests.problems import make_dataset, make_linear, make_mixed, make_task, make_text


def compute_expected_share(distances, is_same_class, size):
    """Return the share of `is_same_class` among the nearest rows; ties of the last neighbours are averaged."""
    order = np.argsort(distances, kind="stable")
    last = distances[order[size - 1]]
    nearer = [s for d, s in zip(distances, is_same_class, strict=True) if d < last - 1e-9]
    tied = [s for d, s in zip(distances, is_same_class, strict=True) if abs(d - last) <= 1e-9]
    return (sum(nearer) + (size - len(nearer)) * np.mean(tied)) / size


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 6))
def test_score_equals_share_among_all_training_rows(seed, mixed, size):
    dataset = make_mixed(seed, n=25) if mixed else make_dataset([3, 2, 3], n=25, seed=seed)
    model = make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, 2, seed)
    counterfactuals = Discrete("first").find(make_task(dataset, model, inputs.features, Access.LABEL))
    inputs = make_inputs(dataset, model, 2, seed, edits={Access.LABEL: counterfactuals})
    scores = compute_values(Plausible(size), inputs)["label"]
    space, train = Scaled(dataset), dataset.train.codes
    classes = model.predict_proba(train).argmax(axis=1)
    for i in range(len(inputs)):
        if not counterfactuals.flipped[i]:
            assert np.isnan(scores[i])
            continue
        distances = np.array(
            [space.compute_squared_distances(counterfactuals.codes[i][None], row[None])[0] for row in train]
        )
        assert scores[i] == pytest.approx(
            compute_expected_share(distances, classes == counterfactuals.labels[i], size), abs=1e-9
        )


def test_moved_embeddings_and_texts_are_not_applicable():
    dataset = make_dataset([3, 2], n=10)
    model = make_linear(dataset)
    moved = Counterfactuals(
        np.zeros((10, 1), int), np.zeros(10, int), np.zeros(10, bool), np.ones(10), vectors=np.zeros((10, 1, 2))
    )
    (score,) = Plausible().score(make_inputs(dataset, model, edits={Access.GRADIENT: moved}))
    assert isinstance(score, AbsentScore) and "embedding" in score.reason
    assert "table" in Plausible().not_applicable_reason(ModelSpec(make_text(), type(model)))
    assert Plausible().not_applicable_reason(ModelSpec(dataset, type(model))) is None
