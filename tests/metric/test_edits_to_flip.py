"""Edits to flip against every combination of values of the first i features."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, AbsentScore
from cfeval_cli.core.metric import fill_in_counts
from cfeval_cli.metric.edits_to_flip import EditsToFlip
from tests.metric.inputs import InteractionModel, make_inputs
from tests.metric.test_frozen import flips
from tests.problems import add_constraints, make_dataset, make_linear, make_mixed


def find_smallest(dataset, model, inputs, i, max_size):
    """Return the smallest i such that some values of the first i features change the label."""
    order = inputs.explanation.features[i]
    order = order[order != NO_FEATURE].tolist()
    flipping_sizes = (n for n in range(1, min(max_size, len(order)) + 1)
             if flips(dataset, model, inputs.codes[i], inputs.predicted_classes[i], order[:n]))  # fmt: skip
    return next(flipping_sizes, max_size + 1)


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.integers(1, 5))
def test_score_is_exact_for_additive_models(seed, constrained, short, max_features):
    if constrained:
        dataset = add_constraints(make_mixed(seed, n=6, tried=3), seed)
    else:
        dataset = make_dataset([2, 3, 2, 3], n=6, seed=seed, absent=0.2)
    model = make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, 1, seed, short=short)
    (score,) = EditsToFlip(max_features).score(inputs)
    max_edits = min(max_features, 4)
    assert score.numerator.tolist() == [find_smallest(dataset, model, inputs, i, max_edits) for i in range(len(inputs))]
    n_without_flip = int((score.numerator == max_edits + 1).sum())
    remark = fill_in_counts(score.remark, score.counts)
    assert (f"for {n_without_flip} of 6 instances, which count {max_edits + 1}" in remark) == (n_without_flip > 0)


def search_greedily(dataset, model, inputs, i, max_edits):
    """Edit one feature after the other to the value with the lowest probability of the label."""
    row, label, cached = inputs.codes[i].copy(), inputs.predicted_classes[i], inputs.probability[i]
    for step, j in enumerate(inputs.explanation.features[i].tolist()[:max_edits]):
        options = []
        for value in dataset.candidates[j].tolist():
            edited = row.copy()
            edited[j] = value
            if value != inputs.codes[i, j]:
                probabilities = model.predict_proba(edited[None])[0]
                if probabilities.argmax() != label:
                    return step + 1
                options.append((probabilities[label], value))
        if options and min(options)[0] < cached:
            cached, row[j] = min(options)
    return max_edits + 1


@given(st.integers(0, 10_000), st.integers(2, 3))
def test_score_equals_greedy_search_for_models_with_interactions(seed, classes):
    dataset = make_dataset([3, 3, 2, 3], n=8, seed=seed)
    model = InteractionModel(dataset, seed, classes)
    inputs = make_inputs(dataset, model, 1, seed)
    (score,) = EditsToFlip().score(inputs)
    assert score.numerator.tolist() == [search_greedily(dataset, model, inputs, i, 4) for i in range(len(inputs))]
    assert all(n >= find_smallest(dataset, model, inputs, i, 4) for i, n in enumerate(score.numerator))


def test_feature_sets_and_invalid_settings_are_refused():
    dataset = make_dataset([3, 2])
    model = make_linear(dataset)
    inputs = make_inputs(dataset, model)
    object.__setattr__(inputs, "explanation", None)
    (score,) = EditsToFlip().score(inputs)
    assert isinstance(score, AbsentScore) and "order" in score.reason
    for setting in ({"max_features": 0}, {"values": 0}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            EditsToFlip(**setting)


def test_most_frequent_values_are_used():
    from cfeval_cli.core.single_edit import select_candidates

    dataset = make_dataset([40, 3], n=200, seed=3)
    subset = select_candidates(dataset, 0, 7)
    shares = dataset.frequencies[0]
    assert len(subset) == 7 and (np.diff(subset) > 0).all()
    assert shares[subset].min() >= np.sort(shares)[-7]
    assert select_candidates(dataset, 1, 7).tolist() == [0, 1, 2]
