"""Evaluated edits have the labels, probabilities and distances of the edited instances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, Access
from cfeval_cli.search.edit import embed_selected_features, evaluate_edited_embeddings, evaluate_edited_values
from tests.problems import choose_features, get_class_proba, make_task, predict_labels, problems


@given(problems(), st.integers(0, 99), st.sampled_from([Access.LABEL, Access.PROBABILITY]), st.sampled_from([1, 4, 99]))
def test_exchanged_values_are_evaluated_and_measured(problem, seed, access, batch_size):
    dataset, model = problem
    task = make_task(dataset, model, choose_features(dataset, 1, seed), access)
    rng = np.random.default_rng(seed)
    edited = task.codes.copy()
    for i, (j,) in enumerate(task.features):
        edited[i, j] = rng.integers(len(dataset.candidates[j]))
    counterfactuals = evaluate_edited_values(task, edited, batch_size)
    assert (counterfactuals.labels == predict_labels(model, edited)).all() and (
        counterfactuals.flipped == (counterfactuals.labels != task.predicted_classes)
    ).all()
    assert (counterfactuals.codes == edited).all() and counterfactuals.distance == pytest.approx(
        task.distance.compute_distances(task.codes, edited)
    )
    if access == Access.LABEL:
        assert counterfactuals.probability is None
    else:
        assert counterfactuals.probability == pytest.approx(get_class_proba(model, edited, task.predicted_classes))


@given(problems(), st.integers(0, 99))
def test_unchanged_embeddings_change_nothing(problem, seed):
    dataset, model = problem
    features = choose_features(dataset, min(2, dataset.n_features), seed)
    features[::2, 1:] = NO_FEATURE
    task = make_task(dataset, model, features, Access.GRADIENT)
    own = embed_selected_features(task)
    for i, row in enumerate(task.codes):
        for position, j in enumerate(features[i]):
            assert own[i, position].tolist() == (
                [0.0] * own.shape[2] if j == NO_FEATURE else model.tables[j][row[j]].tolist()
            )
    counterfactuals = evaluate_edited_embeddings(task, own, np.ones(len(own), bool))
    assert (
        counterfactuals.distance == pytest.approx(np.zeros(len(own)))
        and counterfactuals.converged.all()
        and counterfactuals.steps is None
    )
    assert counterfactuals.probability == pytest.approx(get_class_proba(model, task.codes, task.predicted_classes))
