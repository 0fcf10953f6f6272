"""Fitted tree models: SHAP reads the trees behind predict_proba, also at the end of a pipeline."""

import logging
import pickle

import numpy as np
import pandas as pd
import pytest
import shap
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

from cfeval_cli.api.frames import DataFrames, FunctionModel
from cfeval_cli.core import Access, Batch, ModelSpec
from cfeval_cli.explainer import coalitions
from cfeval_cli.explainer.shap import Shap
from cfeval_cli.model.encoded import EncodedModel, has_tree_estimator
from cfeval_cli.model.external import LabelModel, ProbabilityModel
from cfeval_cli.model.skops import Skops
from tests.problems import densify, open_client
from tests.tables import make_loans
from tests.tree_classifiers import TREE_CLASSIFIERS

TABLE = make_loans(300).assign(income=lambda rows: rows["income"].round())
TABLE["limit"] = TABLE["income"] % 7
NUMBERS, FEATURES = ["age", "income", "limit"], ["age", "home", "member", "income", "limit"]


def make_inputs(features, tmp_path):
    """The data of a run, and the rows for training."""
    rows = TABLE[[*features, "paid"]].assign(paid=(TABLE["paid"] == "yes").astype(int))
    frames = DataFrames(rows[:240], rows[240:], "paid")
    table, excluded = frames.make_dataset(tmp_path, "loans", None, {})
    return frames, table.load(tmp_path, 0), excluded


def fit_model(classifier, features, tmp_path):
    """The model of a run with the method predict_proba of a classifier, which is fitted here."""
    frames, dataset, excluded = make_inputs(features, tmp_path)
    classifier.fit(frames.train[features], frames.train["paid"])
    return dataset, FunctionModel(classifier.predict_proba, frames, excluded)


def explain(dataset, model, algorithm="auto", access=Access.WHITE_BOX):
    """SHAP values (n, M) of some instances."""
    codes = dataset.test.codes[:8]
    labels = model.predict_proba(codes).argmax(axis=1)
    batch = Batch(dataset.test.ids[:8], codes, labels, seed=0, component="explainer.shap")
    return densify(Shap(algorithm, 40).fit(dataset, open_client(model, access))(batch), dataset.n_features), batch


def compute_expected(classifier, model, batch, encode, owners):
    """The values of the package for encoded DataFrames, summed over the columns of each feature."""
    dataset, make_rows = model.source.dataset, model.source.make_rows
    background = encode(make_rows(coalitions.draw_background(dataset, 40, 0)))
    explainer = shap.TreeExplainer(
        classifier, shap.maskers.Independent(background, max_samples=40), model_output="probability"
    )
    values = np.asarray(explainer.shap_values(encode(make_rows(batch.codes)), check_additivity=False))
    signs = np.where(batch.predicted_classes == 1, 1, -1)[:, None]
    of_label = values[..., 1] * signs if values.ndim == 3 else values * signs
    names = [feature.name for feature in dataset.features]
    return np.stack([of_label[:, np.array(owners) == name].sum(axis=1) for name in names], axis=1)


@pytest.mark.parametrize("name", TREE_CLASSIFIERS)
def test_the_trees_of_a_classifier_on_numbers_are_read(name, tmp_path, caplog):
    package, _, kind = name.rpartition(".")
    classifier = getattr(pytest.importorskip(package), kind)(**TREE_CLASSIFIERS[name])
    dataset, settings = fit_model(classifier, NUMBERS, tmp_path)
    assert ModelSpec.from_settings(dataset, settings).kind is EncodedModel
    model = pickle.loads(pickle.dumps(settings.fit(dataset, 0)))
    with caplog.at_level(logging.INFO, "cfeval"):
        values, batch = explain(dataset, model)
    assert "shap uses algorithm=tree" in caplog.text
    expected = compute_expected(classifier, model, batch, lambda rows: rows[NUMBERS].to_numpy(float), NUMBERS)
    assert values == pytest.approx(expected, abs=1e-6)


@pytest.fixture
def pipeline():
    encoder = make_column_transformer((OneHotEncoder(), ["home", "member"]), ("passthrough", NUMBERS))
    return make_pipeline(encoder, RandomForestClassifier(8, max_depth=4, random_state=0))


def test_the_trees_at_the_end_of_a_pipeline_are_read(pipeline, tmp_path):
    dataset, settings = fit_model(pipeline, FEATURES, tmp_path)
    model = settings.fit(dataset, 0)
    names = [name.split("__")[1] for name in pipeline[0].get_feature_names_out()]
    owners = [next(feature for feature in FEATURES if name.startswith(feature)) for name in names]
    assert [dataset.features[j].name for j in model.get_column_features()] == owners
    values, batch = explain(dataset, model)
    assert values == pytest.approx(
        compute_expected(pipeline[-1], model, batch, pipeline[0].transform, owners), abs=1e-6
    )


def test_columns_of_several_features_are_explained_by_permutations(tmp_path, caplog):
    encoder = make_column_transformer((PolynomialFeatures(), NUMBERS))
    dataset, settings = fit_model(make_pipeline(encoder, RandomForestClassifier(4, random_state=0)), NUMBERS, tmp_path)
    model = settings.fit(dataset, 0)
    with caplog.at_level(logging.INFO, "cfeval"):
        values, _ = explain(dataset, model)
    assert "instead of tree: ValueError: a column that the trees read depends on several features" in caplog.text
    expected, _ = explain(dataset, model, "permutation", Access.PROBABILITY)
    assert np.array_equal(values, expected)


def test_native_categories_are_explained_by_permutations(tmp_path, caplog):
    classifier = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, categorical_features=[0, 2])
    dataset, settings = fit_model(classifier, NUMBERS, tmp_path)
    model = settings.fit(dataset, 0)
    with caplog.at_level(logging.INFO, "cfeval"):
        values, _ = explain(dataset, model)
    assert "shap uses algorithm=permutation instead of tree" in caplog.text
    expected, _ = explain(dataset, model, "permutation", Access.PROBABILITY)
    assert np.array_equal(values, expected)


def test_other_functions_have_no_trees(pipeline, tmp_path):
    frames, dataset, excluded = make_inputs(FEATURES, tmp_path)
    pipeline.fit(frames.train[FEATURES], frames.train["paid"])
    for function, gives, kind in (
        (lambda rows: pipeline.predict_proba(rows), "auto", ProbabilityModel),
        (pipeline.predict, "auto", LabelModel),
        (pipeline.predict_proba, "auto", EncodedModel),
    ):
        settings = FunctionModel(function, frames, excluded, gives=gives)
        assert ModelSpec.from_settings(dataset, settings).kind is kind
    assert not has_tree_estimator(None) and not has_tree_estimator(LogisticRegression())
    assert not has_tree_estimator(make_pipeline(LogisticRegression())) and has_tree_estimator(
        make_pipeline(pipeline[-1])
    )


def test_the_trees_of_a_skops_file_are_read(pipeline, tmp_path):
    storage = pytest.importorskip("skops.io")
    frames, dataset, _ = make_inputs(FEATURES, tmp_path)
    rows = dataset.decode(dataset.train.codes)
    pipeline.fit(rows, dataset.train.labels)
    storage.dump(pipeline, tmp_path / "model.skops")
    settings = Skops(str(tmp_path / "model.skops"), trusted=["sklearn.tree._tree.Tree"])
    assert ModelSpec.from_settings(dataset, settings).kind is EncodedModel
    model = settings.fit(dataset, 0)
    values, batch = explain(dataset, model)
    probabilities = model.predict_proba(batch.codes)[np.arange(8), batch.predicted_classes]
    background = model.predict_proba(coalitions.draw_background(dataset, 40, 0))
    expected = probabilities - background.mean(axis=0)[batch.predicted_classes]
    assert values.sum(axis=1) == pytest.approx(expected, abs=1e-6)
    assert isinstance(rows, pd.DataFrame) and frames.label == "paid"
