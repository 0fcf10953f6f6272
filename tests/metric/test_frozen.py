"""Frozen against every value of every set of other features."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, AbsentScore, Access
from cfeval_cli.metric.frozen import Frozen
from cfeval_cli.search.discrete import Discrete
from tests.metric.inputs import InteractionModel, make_inputs
from tests.problems import add_constraints, is_permitted, make_dataset, make_linear, make_mixed

FIRST = Discrete("first")


def flips(dataset, model, row, label, features):
    """Return whether some permitted values of the features change the label."""
    present = [j for j in features if row[j] != ABSENT]
    options = [
        {int(row[j]), *(v for v in dataset.candidates[j].tolist() if is_permitted(dataset.features[j], row[j], v))}
        for j in present
    ]
    for values in product(*options):
        edited = row.copy()
        edited[present] = values
        if model.predict_proba(edited[None]).argmax() != label:
            return True
    return False


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from(["additive", "crossed", "constrained"]))
def test_score_equals_search_over_all_values(seed, k, kind):
    if kind == "constrained":
        dataset = add_constraints(make_mixed(seed, n=6, tried=3), seed)
    else:
        dataset = make_dataset([2, 3, 2, 3], n=6, seed=seed, absent=0.2 if kind == "additive" else 0.0)
    model = InteractionModel(dataset, seed) if kind == "crossed" else make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, k, seed)
    (score,) = Frozen(FIRST).score(inputs)
    assert score.variant == "all sets" and (score.denominator == 1).all()
    for i, row in enumerate(inputs.codes):
        other_values = [j for j in range(4) if j not in inputs.features[i]]
        sets = combinations(other_values, min(k, 4 - k))
        assert score.numerator[i] == any(
            flips(dataset, model, row, inputs.predicted_classes[i], features) for features in sets
        )


@given(st.integers(0, 10_000), st.integers(1, 2))
def test_growing_set_is_exact_for_additive_models(seed, k):
    dataset = make_dataset([2, 3, 2, 3, 2], n=6, seed=seed, absent=0.1)
    model = make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, k, seed)
    (all_sets,), (greedy,) = Frozen(FIRST).score(inputs), Frozen(FIRST, max_candidates=1).score(inputs)
    assert (all_sets.variant, greedy.variant) == ("all sets", "greedy")
    assert greedy.numerator.tolist() == all_sets.numerator.tolist()


@given(st.integers(0, 10_000))
def test_growing_set_flips_no_more_than_all_sets(seed):
    dataset = make_dataset([2, 3, 2, 3, 2], n=8, seed=seed)
    inputs = make_inputs(dataset, InteractionModel(dataset, seed), 2, seed)
    (all_sets,), (greedy,) = Frozen(FIRST).score(inputs), Frozen(FIRST, max_candidates=1).score(inputs)
    assert (greedy.numerator <= all_sets.numerator).all()


def test_growing_set_needs_probabilities_and_all_sets_do_not():
    dataset = make_dataset([2, 3, 2, 3], n=20, seed=2)
    model = make_linear(dataset, 3)
    full, labels = (make_inputs(dataset, model, 2, access=access) for access in (Access.PROBABILITY, Access.LABEL))
    labels = replace(labels, probability=None)
    (score,), (label_score,) = Frozen(FIRST).score(full), Frozen(FIRST).score(labels)
    assert score.numerator.tolist() == label_score.numerator.tolist() and 0 < score.numerator.mean() < 1
    (absent,) = Frozen(FIRST, max_candidates=1).score(labels)
    assert isinstance(absent, AbsentScore) and "needs probabilities" in absent.reason
    single = make_inputs(dataset, model, 1, access=Access.LABEL)
    (greedy,) = Frozen(FIRST, max_candidates=1).score(replace(single, probability=None))
    (all_sets,) = Frozen(FIRST).score(replace(single, probability=None))
    assert greedy.numerator.tolist() == all_sets.numerator.tolist()


def test_score_is_zero_without_other_features():
    dataset = make_dataset([2, 3], n=8)
    (score,) = Frozen(FIRST).score(make_inputs(dataset, make_linear(dataset), 2))
    assert not score.numerator.any() and np.all(score.denominator == 1)
    with pytest.raises(ValueError, match="max_candidates"):
        Frozen(FIRST, 0)
