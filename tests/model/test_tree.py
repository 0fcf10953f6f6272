"""A compiled tree has the predictions of scikit-learn, and its leaves determine all predictions."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from cfeval_cli.core import HasArrays, HasLeaves, HasUsedFeatures, ModelSpec, Probabilistic
from cfeval_cli.errors import UserError
from cfeval_cli.model.encoding import make_table_encoder
from cfeval_cli.model.tree import Tree, TreeModel, compile_tree
from tests.problems import make_dataset, make_mixed, make_text


def relabel_randomly(dataset, classes, seed=0):
    """Return the same rows with random labels of `classes` classes."""
    rng = np.random.default_rng(seed)
    parts = [
        replace(split, labels=rng.integers(0, classes, len(split)))
        for split in (dataset.train, dataset.validation, dataset.test)
    ]
    return replace(
        dataset, classes=tuple(f"c{c}" for c in range(classes)), train=parts[0], validation=parts[1], test=parts[2]
    )


@given(st.integers(0, 10_000))
def test_predictions_equal_those_of_scikit_learn(seed):
    dataset = relabel_randomly(make_mixed(seed, n=40, missing=0.1 * (seed % 3)), 2 + seed % 3, seed)
    encoder = make_table_encoder(dataset, onehot=True, scale=False, fill=True, max_categories=None)
    reference = DecisionTreeClassifier(max_depth=6, random_state=0)
    reference.fit(encoder.transform(dataset.train.codes), dataset.train.labels)
    model = compile_tree(reference, encoder, dataset, np.arange(dataset.n_features))
    for split in (dataset.train, dataset.test):
        assert model.predict_proba(split.codes) == pytest.approx(
            reference.predict_proba(encoder.transform(split.codes))
        )


@given(st.integers(0, 10_000))
def test_leaves_partition_the_inputs(seed):
    dataset = make_dataset([3, 2, 4], n=30, seed=seed)
    model = Tree(min_leaf=1).fit(dataset, seed)
    all_inputs = np.array(list(product(range(3), range(2), range(4))), dtype=np.int32)
    leaves = model.get_leaves()
    is_in_leaf = np.stack([leaves.accepts(j, all_inputs[:, j]) for j in range(3)], axis=2).all(axis=2)
    assert (is_in_leaf.sum(axis=1) == 1).all() and is_in_leaf.any(axis=0).all()
    assert np.array_equal(leaves.probabilities[is_in_leaf.argmax(axis=1)], model.predict_proba(all_inputs))


def test_depth_has_the_highest_validation_accuracy():
    dataset = make_mixed(3, n=60)
    model = Tree(max_depth=6, min_leaf=2).fit(dataset, 0)
    encoder = make_table_encoder(dataset, onehot=True, scale=False, fill=True, max_categories=None)
    train, held_out = (encoder.transform(split.codes) for split in (dataset.train, dataset.validation))
    accuracies = [
        DecisionTreeClassifier(max_depth=depth, min_samples_leaf=2, random_state=0)
        .fit(train, dataset.train.labels)
        .score(held_out, dataset.validation.labels)
        for depth in range(1, 7)
    ]
    accuracy = (model.predict_proba(dataset.validation.codes).argmax(axis=1) == dataset.validation.labels).mean()
    assert accuracy == pytest.approx(max(accuracies), abs=0.05)  # ties of splits are resolved by the seed
    assert np.array_equal(
        model.predict_proba(dataset.test.codes), Tree(6, 2).fit(dataset, 0).predict_proba(dataset.test.codes)
    )


def test_abilities_are_determined_before_training():
    spec = ModelSpec.from_settings(make_dataset([2, 2]), Tree())
    assert all(spec.supports(ability) for ability in (HasLeaves, HasUsedFeatures, Probabilistic, HasArrays))


def test_model_restored_from_its_arrays_is_equal():
    dataset = make_mixed(5, n=40)
    model = Tree(min_leaf=2).fit(dataset, 0)
    restored = Tree().restore(model.to_arrays())
    assert np.array_equal(restored.predict_proba(dataset.test.codes), model.predict_proba(dataset.test.codes))


def test_single_class_gives_a_single_leaf():
    dataset = make_dataset([3, 2], n=20)
    splits = [replace(split, labels=split.labels * 0) for split in (dataset.train, dataset.validation)]
    model = Tree().fit(replace(dataset, train=splits[0], validation=splits[1]), 0)
    assert model.predict_proba(dataset.test.codes).tolist() == [[1.0, 0.0]] * 20
    assert len(model.get_leaves().probabilities) == 1 and not model.get_used_features().any()
    assert model.predict_proba(dataset.test.codes[:0]).shape == (0, 2)


def test_texts_and_invalid_settings_are_refused():
    with pytest.raises(UserError, match="model=tree is for tables"):
        Tree().fit(make_text(), 0)
    for setting in ("max_depth", "min_leaf"):
        with pytest.raises(ValueError, match=setting):
            Tree(**{setting: 0})
    assert isinstance(Tree().fit(make_dataset([2, 2]), 0), TreeModel)
