"""What is told of an edit is what the model says of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, Access
from cfeval_cli.search.edit import embedded, exchanged, moved
from tests.problems import choose_features, kept, labels, make_task, problems


@given(problems(), st.integers(0, 99), st.sampled_from([Access.LABEL, Access.PROBABILITY]), st.sampled_from([1, 4, 99]))
def test_exchanged_values_are_put_before_the_model_and_measured(problem, seed, access, at_once):
    dataset, model = problem
    task = make_task(dataset, model, choose_features(dataset, 1, seed), access)
    rng = np.random.default_rng(seed)
    edited = task.codes.copy()
    for i, (j,) in enumerate(task.features):
        edited[i, j] = rng.integers(len(dataset.candidates[j]))
    found = exchanged(task, edited, at_once)
    assert (found.labels == labels(model, edited)).all() and (found.flipped == (found.labels != task.labels)).all()
    assert (found.codes == edited).all() and found.distance == pytest.approx(task.measure.between(task.codes, edited))
    if access == Access.LABEL:
        assert found.probability is None
    else:
        assert found.probability == pytest.approx(kept(model, edited, task.labels))


@given(problems(), st.integers(0, 99))
def test_embeddings_that_stay_where_they_are_change_nothing(problem, seed):
    dataset, model = problem
    features = choose_features(dataset, min(2, dataset.width), seed)
    features[::2, 1:] = NO_FEATURE
    task = make_task(dataset, model, features, Access.GRADIENT)
    own = embedded(task)
    for i, row in enumerate(task.codes):
        for place, j in enumerate(features[i]):
            assert own[i, place].tolist() == (
                [0.0] * own.shape[2] if j == NO_FEATURE else model.tables[j][row[j]].tolist()
            )
    found = moved(task, own, np.ones(len(own), bool))
    assert found.distance == pytest.approx(np.zeros(len(own))) and found.converged.all() and found.steps is None
    assert found.probability == pytest.approx(kept(model, task.codes, task.labels))
