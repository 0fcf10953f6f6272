"""Classifiers of other libraries, trained here and beside it by hand."""

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
from tests.model.mixed import COLOURS, mixed, sentences

DATASET = mixed()
CODES = DATASET.test.codes


def seed_of(seed):
    return draw_seed(make_stream(seed, "model")) % 2**31


def frame(codes):
    """With categories as pandas has them."""
    table = DATASET.decode(codes)
    for name in ("colour", "flag"):
        table[name] = table[name].astype("category").cat.set_categories(COLOURS if name == "colour" else ["no", "yes"])
    return table


def test_gradient_boosting_is_told_which_columns_are_categories():
    model = Estimator(HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5)).fit(DATASET, 3)
    theirs = HistGradientBoostingClassifier(
        max_iter=15, min_samples_leaf=5, categorical_features="from_dtype", random_state=seed_of(3)
    ).fit(frame(DATASET.train.codes), DATASET.train.labels)
    told = model.predict_proba(CODES)
    assert told == pytest.approx(theirs.predict_proba(frame(CODES)))
    # as numbers it would be another model
    ordinal = Estimator(HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5), encoder="ordinal")
    assert ordinal.fit(DATASET, 3).predict_proba(CODES) != pytest.approx(told)


def test_lightgbm_is_told_which_columns_are_categories(capsys):
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"n_estimators": 10, "min_child_samples": 5, "min_data_per_group": 5}
    model = Estimator(lightgbm.LGBMClassifier(**settings)).fit(DATASET, 3)
    assert capsys.readouterr().out == ""  # what a library prints is not for the screen
    theirs = lightgbm.LGBMClassifier(**settings, random_state=seed_of(3), n_jobs=1, verbose=-1)
    theirs.fit(frame(DATASET.train.codes), DATASET.train.labels)
    assert model.predict_proba(CODES) == pytest.approx(theirs.predict_proba(frame(CODES)))


def test_others_get_columns_of_0_and_1_and_scaled_numbers():
    model = Estimator(LogisticRegression(C=0.5)).fit(DATASET, 0)
    numbers = make_pipeline(StandardScaler(), SimpleImputer(strategy="median"))
    missing = FunctionTransformer(lambda age: np.isnan(age).astype(float))
    theirs = make_pipeline(
        ColumnTransformer(
            [("c", OneHotEncoder(), ["colour", "flag"]), ("n", numbers, ["age", "debt"]), ("m", missing, ["age"])]
        ),
        LogisticRegression(C=0.5),
    ).fit(DATASET.decode(DATASET.train.codes), DATASET.train.labels)
    assert model.predict_proba(CODES) == pytest.approx(theirs.predict_proba(DATASET.decode(CODES)), abs=1e-4)


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    settings = Estimator(RandomForestClassifier(5, max_features=1))
    first, again, other = (settings.fit(DATASET, seed) for seed in (0, 0, 1))
    assert (first.predict_proba(CODES) == again.predict_proba(CODES)).all()
    assert (first.predict_proba(CODES) != other.predict_proba(CODES)).any()
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert settings.estimator.random_state is None  # the settings stay as they were
    more = Estimator(RandomForestClassifier(6, max_features=1)).fit(DATASET, 0)
    assert more.fingerprint() != first.fingerprint() is not None
    mine = Estimator(RandomForestClassifier(5, max_features=1, random_state=7))
    assert (mine.fit(DATASET, 0).predict_proba(CODES) == mine.fit(DATASET, 1).predict_proba(CODES)).all()


def test_parts_within_parts_are_seeded_too():
    settings = Estimator(make_pipeline(StandardScaler(), DecisionTreeClassifier(max_features=1)))
    a, b = (settings.fit(DATASET, 5).predict_proba(CODES) for _ in range(2))
    assert (a == b).all()


@pytest.mark.parametrize("classes", [("bad", "good"), ("1", "2"), ("low", "middle", "high")])
def test_a_class_that_has_no_probabilities_tells_classes(classes):
    data = mixed(classes=classes)
    settings = Estimator(RidgeClassifier())
    model = settings.fit(data, 0)
    assert isinstance(settings, DeclaresOutputType) and settings.output_type(data) is type(model) is LabelModel
    assert ModelSpec.from_settings(data, settings).kind is LabelModel
    assert set(model.predict(data.test.codes)) == set(range(len(classes)))
    assert (model.predict(data.test.codes) == data.test.labels).mean() > 1 / len(classes)
    assert Estimator(SVC(probability=False)).output_type(data) is LabelModel
    assert Estimator(LogisticRegression()).output_type(data) is TableModel
    assert Estimator(LogisticRegression()).output_type(sentences()) is ProbabilityModel


def test_a_class_that_the_training_part_lacks_has_probability_0():
    from dataclasses import replace

    three = mixed(classes=("a", "b", "c"))
    train = three.train.take(np.flatnonzero(three.train.labels != 1))
    told = Estimator(LogisticRegression()).fit(replace(three, train=train), 0).predict_proba(three.test.codes)
    assert (told[:, 1] == 0).all() and (told[:, [0, 2]] > 0).all()


def test_a_text_is_its_words():
    data = sentences(180)
    with pytest.raises(UserError, match=r"Sparse data was passed.* linear models accept them\."):
        Estimator(HistGradientBoostingClassifier()).fit(data, 0)
    model = Estimator(MultinomialNB()).fit(data, 0)
    assert (model.predict_proba(data.test.codes).argmax(axis=1) == data.test.labels).mean() > 0.8


def test_it_travels_to_other_processes():
    model = Estimator(HistGradientBoostingClassifier(max_iter=3)).fit(DATASET, 0)
    sent = pickle.loads(pickle.dumps(model))
    assert (sent.predict_proba(CODES) == model.predict_proba(CODES)).all() and sent.fingerprint() == model.fingerprint()


class Loud(ClassifierMixin, BaseEstimator):
    """Warns while it is trained, and is not of an installed package."""

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


def test_warnings_are_told_and_what_is_not_known_is_not_kept(caplog):
    model = Estimator(Loud()).fit(DATASET, 0)
    assert "UserWarning: mind the step" in caplog.text
    assert model.fingerprint() is None  # a class of one's own may depend on anything
    with pytest.raises(UserError, match=r"Loud could not be trained: ValueError: not…$"):
        Estimator(Loud(fails=True)).fit(DATASET, 0)
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
def test_what_is_no_classifier_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Estimator(**settings)


def test_what_stands_behind_the_columns_of_a_table_can_be_looked_into():
    data = mixed()
    model = Estimator(LogisticRegression()).fit(data, 0)
    assert isinstance(model, HasEncodedEstimator) and isinstance(model.get_estimator(), LogisticRegression)
    columns, owners = model.encode(data.test.codes), model.get_column_features()
    told = model.get_estimator().predict_proba(columns)
    assert np.array_equal(told, model.predict_proba(data.test.codes)[:, model.get_estimator_classes()])
    for j, feature in enumerate(data.features):  # to change a feature changes its own columns alone
        other = data.test.codes.copy()
        other[:, j] = (other[:, j] + 1) % len(feature.values)
        assert not (columns != model.encode(other))[:, owners != j].any()
    assert not isinstance(Estimator(LogisticRegression()).fit(sentences(), 0), HasEncodedEstimator)
