"""Predictions do not depend on features that were excluded from training."""

import numpy as np
import pytest

from cfeval_cli.core import ModelSpec, SupportsFeatureSubset
from cfeval_cli.errors import UserError
from cfeval_cli.model.additive import Additive
from cfeval_cli.model.blind import check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.estimator import Estimator
from cfeval_cli.model.logistic import Logistic
from cfeval_cli.model.mlp import Mlp
from cfeval_cli.model.tree import Tree
from cfeval_cli.pipeline.model_checks import evaluate_model
from tests.problems import make_dataset, make_mixed, make_text

RATES = {"learning_rate": {"tabular": 0.05, "text": 0.05}, "batch_size": {"tabular": 32, "text": 32}, "max_epochs": 4}


def make_boosting(**settings):
    from sklearn.ensemble import HistGradientBoostingClassifier

    return Estimator(HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2), **settings)


def make_tree(**settings):
    from sklearn.tree import DecisionTreeClassifier

    return Estimator(DecisionTreeClassifier(max_depth=4), encoder="onehot", **settings)


KINDS = {
    "tree": lambda **s: Tree(min_leaf=2, **s),
    "logistic": lambda **s: Logistic(**RATES, **s),
    "mlp": lambda **s: Mlp(**RATES, hidden=[5], **s),
    "additive": lambda **s: Additive(bags=1, max_rounds=20, **s),
    "estimator": make_boosting,
    "estimator with one-hot columns": make_tree,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blind", [["x0", "f1"], 0.5])
def test_predictions_do_not_depend_on_excluded_features(kind, blind):
    if kind == "additive":
        pytest.importorskip("interpret")
    dataset = make_mixed(7, n=60, categories=2, numbers=2, missing=0.1)
    settings = KINDS[kind](blind=blind)
    model = settings.fit(dataset, 3)
    unused_features = np.flatnonzero(~model.get_used_features())
    read_features = choose_read_features(dataset, blind, 3)
    assert set(unused_features) >= set(range(4)) - set(read_features)  # a tree may use fewer features
    rng = np.random.default_rng(0)
    codes = dataset.test.codes.copy()
    for j in unused_features:
        codes[:, j] = rng.integers(0, len(dataset.features[j].values), len(codes))
    assert np.array_equal(evaluate_model(model, dataset, codes), evaluate_model(model, dataset, dataset.test.codes))
    for j in read_features:
        codes[:, j] = rng.integers(0, len(dataset.features[j].values), len(codes))
    assert not np.array_equal(evaluate_model(model, dataset, codes), evaluate_model(model, dataset, dataset.test.codes))
    assert isinstance(settings, SupportsFeatureSubset) and ModelSpec.from_settings(dataset, settings).blind
    assert not ModelSpec.from_settings(dataset, KINDS[kind]()).blind


def test_excluded_features_are_given_by_name_or_share():
    dataset = make_dataset([2, 3, 4, 5, 6])
    assert (
        choose_read_features(dataset, [], 0).tolist() == choose_read_features(dataset, 0, 0).tolist() == [0, 1, 2, 3, 4]
    )
    assert choose_read_features(dataset, ["f3", "f0"], 0).tolist() == [1, 2, 4]
    halves = [tuple(choose_read_features(dataset, 0.4, seed).tolist()) for seed in range(20)]
    assert {len(half) for half in halves} == {3} and len(set(halves)) > 3  # two of five are drawn, by the seed
    assert halves[0] == tuple(choose_read_features(dataset, 0.4, 0).tolist())
    assert (
        len(choose_read_features(dataset, 0.01, 0)) == 4 and len(choose_read_features(dataset, 0.99, 0)) == 1
    )  # at least one feature is excluded, and at least one is used
    assert make_mask(4, np.array([1, 3])).tolist() == [False, True, False, True]


def test_dataset_is_restricted_to_features():
    dataset = make_mixed(2, n=10)
    restricted = keep_features(dataset, np.array([0, 2]))
    assert restricted.features == (dataset.features[0], dataset.features[2]) and restricted.n_features == 2
    assert np.array_equal(restricted.test.codes, dataset.test.codes[:, [0, 2]])
    assert restricted.candidates[1] is dataset.candidates[2] and restricted.frequencies[1] is dataset.frequencies[2]
    assert keep_features(dataset, np.arange(4)) is dataset


@pytest.mark.parametrize("blind", [1, -0.5, 1.5, True, "age", None, [1, 2], {"a": 1}])
def test_invalid_types_are_refused(blind):
    with pytest.raises(ValueError, match="blind must be a list of features"):
        check_blind(blind)


@pytest.mark.parametrize(
    ("blind", "message"),
    [
        (["f8"], "toy has no feature 'f8'. Its features are f0, f1"),
        (["f0", "f1"], "names all features of toy"),
    ],
)
def test_impossible_exclusions_are_refused(blind, message):
    with pytest.raises(UserError, match=message):
        choose_read_features(make_dataset([2, 2]), blind, 0)
    with pytest.raises(UserError, match="is for tables"):
        choose_read_features(make_text(), 0.5, 0)
    with pytest.raises(UserError, match="has one feature"):
        choose_read_features(make_dataset([2]), 0.5, 0)
