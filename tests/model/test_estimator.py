"""Classifiers of other libraries have the predictions of classifiers that are trained directly."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from cfeval_cli.core import DeclaresOutputType, HasEncodedEstimator, ModelSpec
from cfeval_cli.errors import UserError
from cfeval_cli.model.estimator import Estimator, TableModel
from cfeval_cli.model.external import LabelModel, ProbabilityModel
from cfeval_cli.seeding import draw_seed, make_stream
from tests.model.mixed import COLOURS, make_mixed_table, make_sentences

DATASET = make_mixed_table()
CODES = DATASET.test.codes


def draw_model_seed(seed):
    return draw_seed(make_stream(seed, "model")) % 2**31


def make_frame(codes):
    """Return a table with categories of pandas."""
    table = DATASET.decode(codes)
    for name in ("colour", "flag"):
        table[name] = table[name].astype("category").cat.set_categories(COLOURS if name == "colour" else ["no", "yes"])
    return table


def test_gradient_boosting_gets_categories():
    model = Estimator(HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5)).fit(DATASET, 3)
    reference = HistGradientBoostingClassifier(
        max_iter=15, min_samples_leaf=5, categorical_features="from_dtype", random_state=draw_model_seed(3)
    ).fit(make_frame(DATASET.train.codes), DATASET.train.labels)
    probabilities = model.predict_proba(CODES)
    assert probabilities == pytest.approx(reference.predict_proba(make_frame(CODES)))
    # ordinal columns give another model
    ordinal = Estimator(HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5), encoder="ordinal")
    assert ordinal.fit(DATASET, 3).predict_proba(CODES) != pytest.approx(probabilities)


def test_lightgbm_gets_categories(capsys):
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"n_estimators": 10, "min_child_samples": 5, "min_data_per_group": 5}
    model = Estimator(lightgbm.LGBMClassifier(**settings)).fit(DATASET, 3)
    assert capsys.readouterr().out == ""  # output of libraries is suppressed
    reference = lightgbm.LGBMClassifier(**settings, random_state=draw_model_seed(3), n_jobs=1, verbose=-1)
    reference.fit(make_frame(DATASET.train.codes), DATASET.train.labels)
    assert model.predict_proba(CODES) == pytest.approx(reference.predict_proba(make_frame(CODES)))


def test_other_estimators_get_onehot_and_scaled_columns():
    model = Estimator(LogisticRegression(C=0.5)).fit(DATASET, 0)
    numbers = make_pipeline(StandardScaler(), SimpleImputer(strategy="median"))
    missing = FunctionTransformer(lambda age: np.isnan(age).astype(float))
    reference = make_pipeline(
        ColumnTransformer(
            [("c", OneHotEncoder(), ["colour", "flag"]), ("n", numbers, ["age", "debt"]), ("m", missing, ["age"])]
        ),
        LogisticRegression(C=0.5),
    ).fit(DATASET.decode(DATASET.train.codes), DATASET.train.labels)
    assert model.predict_proba(CODES) == pytest.approx(reference.predict_proba(DATASET.decode(CODES)), abs=1e-4)


def test_model_depends_on_the_seed():
    settings = Estimator(RandomForestClassifier(5, max_features=1))
    first, equal, other = (settings.fit(DATASET, seed) for seed in (0, 0, 1))
    assert (first.predict_proba(CODES) == equal.predict_proba(CODES)).all()
    assert (first.predict_proba(CODES) != other.predict_proba(CODES)).any()
    assert first.fingerprint() == equal.fingerprint() != other.fingerprint()
    assert settings.estimator.random_state is None  # settings are unchanged
    larger = Estimator(RandomForestClassifier(6, max_features=1)).fit(DATASET, 0)
    assert larger.fingerprint() != first.fingerprint() is not None
    seeded_by_user = Estimator(RandomForestClassifier(5, max_features=1, random_state=7))
    assert (
        seeded_by_user.fit(DATASET, 0).predict_proba(CODES) == seeded_by_user.fit(DATASET, 1).predict_proba(CODES)
    ).all()


def test_nested_estimators_are_seeded():
    settings = Estimator(make_pipeline(StandardScaler(), DecisionTreeClassifier(max_features=1)))
    a, b = (settings.fit(DATASET, 5).predict_proba(CODES) for _ in range(2))
    assert (a == b).all()


@pytest.mark.parametrize("classes", [("bad", "good"), ("1", "2"), ("low", "middle", "high")])
def test_estimator_without_probabilities_returns_labels(classes):
    data = make_mixed_table(classes=classes)
    settings = Estimator(RidgeClassifier())
    model = settings.fit(data, 0)
    assert isinstance(settings, DeclaresOutputType) and settings.output_type(data) is type(model) is LabelModel
    assert ModelSpec.from_settings(data, settings).kind is LabelModel
    assert set(model.predict(data.test.codes)) == set(range(len(classes)))
    assert (model.predict(data.test.codes) == data.test.labels).mean() > 1 / len(classes)
    assert Estimator(SVC(probability=False)).output_type(data) is LabelModel
    assert Estimator(LogisticRegression()).output_type(data) is TableModel
    assert Estimator(LogisticRegression()).output_type(make_sentences()) is ProbabilityModel


def test_class_without_training_rows_has_probability_0():
    from dataclasses import replace

    data = make_mixed_table(classes=("a", "b", "c"))
    train = data.train.take(np.flatnonzero(data.train.labels != 1))
    probabilities = Estimator(LogisticRegression()).fit(replace(data, train=train), 0).predict_proba(data.test.codes)
    assert (probabilities[:, 1] == 0).all() and (probabilities[:, [0, 2]] > 0).all()


def test_texts_are_bags_of_words():
    data = make_sentences(180)
    with pytest.raises(UserError, match=r"Sparse data was passed.* linear models accept them\."):
        Estimator(HistGradientBoostingClassifier()).fit(data, 0)
    model = Estimator(MultinomialNB()).fit(data, 0)
    assert (model.predict_proba(data.test.codes).argmax(axis=1) == data.test.labels).mean() > 0.8


def test_pickled_model_is_equal():
    model = Estimator(HistGradientBoostingClassifier(max_iter=3)).fit(DATASET, 0)
    unpickled = pickle.loads(pickle.dumps(model))
    assert (
        unpickled.predict_proba(CODES) == model.predict_proba(CODES)
    ).all() and unpickled.fingerprint() == model.fingerprint()


class ClassifierWithWarning(ClassifierMixin, BaseEstimator):
    """A classifier outside of installed packages that warns in training."""

    def __init__(self, fails=False):
        self.fails = fails

    def fit(self, x, y):
        if self.fails:
            raise ValueError("not\nthis")
        warnings.warn("mind the step", stacklevel=1)
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return np.ones(len(x), dtype=int)


def test_warnings_are_logged_and_unknown_classes_have_no_fingerprint(caplog):
    model = Estimator(ClassifierWithWarning()).fit(DATASET, 0)
    assert "UserWarning: mind the step" in caplog.text
    assert model.fingerprint() is None  # the dependencies of a user's class are unknown
    with pytest.raises(UserError, match=r"ClassifierWithWarning could not be trained: ValueError: not…$"):
        Estimator(ClassifierWithWarning(fails=True)).fit(DATASET, 0)
    with pytest.raises(UserError, match=r"LogisticRegression could not be trained: InvalidParameterError: The 'C'"):
        Estimator(LogisticRegression(C=-1)).fit(DATASET, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": LinearRegression()}, "LinearRegression is for regression"),
        ({"estimator": StandardScaler()}, "StandardScaler is not"),
        ({"estimator": 7}, "int is not"),
        ({"estimator": None}, "NoneType is not"),
        ({"estimator": LogisticRegression}, "LogisticRegression is not"),
        ({"estimator": LogisticRegression(), "encoder": "hashed"}, "encoder must be one of auto, onehot"),
        ({"estimator": LogisticRegression(), "encoder": "native"}, "does not support categories. Use encoder=onehot"),
        ({"estimator": LogisticRegression(), "scale": "yes"}, "scale must be auto, true or false"),
        ({"estimator": LogisticRegression(), "batch_size": 0}, "batch_size must"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Estimator(**settings)


def test_columns_are_assigned_to_features():
    data = make_mixed_table()
    model = Estimator(LogisticRegression()).fit(data, 0)
    assert isinstance(model, HasEncodedEstimator) and isinstance(model.get_estimator(), LogisticRegression)
    columns, column_features = model.encode(data.test.codes), model.get_column_features()
    probabilities = model.get_estimator().predict_proba(columns)
    assert np.array_equal(probabilities, model.predict_proba(data.test.codes)[:, model.get_estimator_classes()])
    for j, feature in enumerate(data.features):  # a feature affects its own columns only
        changed_codes = data.test.codes.copy()
        changed_codes[:, j] = (changed_codes[:, j] + 1) % len(feature.values)
        assert not (columns != model.encode(changed_codes))[:, column_features != j].any()
    assert not isinstance(Estimator(LogisticRegression()).fit(make_sentences(), 0), HasEncodedEstimator)
