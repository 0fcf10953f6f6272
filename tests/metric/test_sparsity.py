"""Sparsity and redundancy against loops over the changed features."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, AbsentScore, Access, Counterfactuals
from cfeval_cli.metric.sparsity import Redundant, Sparsity
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.metric.inputs import InteractionModel, compute_values, make_explanation, make_inputs
from tests.problems import make_dataset, make_linear, make_task, predict_labels


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from(["first", "largest_drop"]))
def test_counts_of_exchanged_values(seed, additive, pick):
    dataset = make_dataset([3, 3, 2, 3], n=8, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else InteractionModel(dataset, seed)
    k = 3
    inputs = make_inputs(dataset, model, k, seed)
    if additive:
        counterfactuals = Discrete(pick).find(make_task(dataset, model, inputs.features, Access.PROBABILITY))
    else:
        rng, edited = np.random.default_rng(seed), inputs.codes.copy()
        for i, features in enumerate(inputs.features):
            edited[i, features] = rng.integers(0, 2, k)
        after = model.predict_proba(edited).argmax(axis=1)
        counterfactuals = Counterfactuals(
            inputs.features, after, after != inputs.predicted_classes, np.ones(len(inputs)), None, edited
        )
    inputs = make_inputs(dataset, model, k, seed, edits={Access.LABEL: counterfactuals})
    counts, redundant = compute_values(Sparsity(), inputs)["label"], compute_values(Redundant(), inputs)["label"]
    for i in range(len(inputs)):
        if not counterfactuals.flipped[i]:
            assert np.isnan(counts[i]) and np.isnan(redundant[i])
            continue
        changed = [j for j in range(4) if counterfactuals.codes[i, j] != inputs.codes[i, j]]
        assert counts[i] == len(changed)
        n_redundant = 0
        for j in changed:
            reset = counterfactuals.codes[i].copy()
            reset[j] = inputs.codes[i, j]
            n_redundant += int(model.predict_proba(reset[None]).argmax() != inputs.predicted_classes[i])
        assert redundant[i] == n_redundant


def test_counts_of_moved_embeddings():
    dataset = make_dataset([3, 3, 3], n=30, seed=5)
    model = make_linear(dataset, 6)
    features = make_explanation(dataset.test.codes, 3).top_k(2)
    features[::5, 1] = NO_FEATURE
    counterfactuals = Exact().find(make_task(dataset, model, features, Access.GRADIENT))
    inputs = make_inputs(dataset, model, 2, edits={Access.GRADIENT: counterfactuals})
    counts, redundant = compute_values(Sparsity(), inputs)["gradient"], compute_values(Redundant(), inputs)["gradient"]
    assert counterfactuals.flipped.sum() > 10
    for i in np.flatnonzero(counterfactuals.flipped):
        own = [model.tables[j][inputs.codes[i, j]] for j in range(3)]
        moved = {
            j: v
            for j, v in zip(features[i].tolist(), counterfactuals.vectors[i], strict=True)
            if j != NO_FEATURE and (v != own[j]).any()
        }
        assert counts[i] == len(moved)
        n_redundant = 0
        for j in moved if len(moved) > 1 else ():
            changed_values = [moved[m] if m in moved and m != j else own[m] for m in range(3)]
            total = model.bias + sum(float(model.weights[m] @ changed_values[m]) for m in range(3))
            n_redundant += int((total > 0) != bool(inputs.predicted_classes[i]))
        assert redundant[i] == n_redundant
    without_embeddings = make_inputs(
        dataset, model, 2, edits={Access.GRADIENT: counterfactuals}, access=Access.PROBABILITY
    )
    assert all(
        isinstance(score, AbsentScore)
        for metric in (Sparsity(), Redundant())
        for score in metric.score(without_embeddings)
    )
    assert (
        predict_labels(model, inputs.codes).tolist() == inputs.predicted_classes.tolist()
        and (inputs.codes != ABSENT).all()
    )
    assert counts[counterfactuals.flipped] == pytest.approx(counts[counterfactuals.flipped].round())
