"""A model in a skops file, beside the model that was written to it."""

import importlib
import pickle

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cfeval_cli.core import ModelSpec
from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import UserError
from cfeval_cli.model.external import LabelModel, ProbabilityModel
from cfeval_cli.model.skops import Skops
from tests.model.mixed import mixed


@pytest.fixture(scope="module", autouse=True)
def package():
    """Imported where these tests run, for it takes a second."""
    global storage
    storage = pytest.importorskip("skops.io")


DATASET = mixed()
CODES = DATASET.test.codes
NAMES = np.array(DATASET.classes)[DATASET.train.labels]


def fitted(last, labels=NAMES, first=None):
    pick = first or ColumnTransformer([("c", OneHotEncoder(), ["colour", "flag"]), ("n", "passthrough", ["debt"])])
    return make_pipeline(pick, last).fit(DATASET.decode(DATASET.train.codes), labels)


def kept(tmp_path, model):
    storage.dump(model, tmp_path / "model.skops")
    return str(tmp_path / "model.skops")


def test_probabilities_in_the_order_of_the_classes(tmp_path):
    model = fitted(LogisticRegression(max_iter=2000))
    settings = Skops(kept(tmp_path, model), batch_size=7)
    assert ModelSpec.from_settings(DATASET, settings).kind is ProbabilityModel
    made = settings.fit(DATASET, 0)
    wanted = model.predict_proba(DATASET.decode(CODES))
    assert made.predict_proba(CODES) == pytest.approx(wanted)
    assert (pickle.loads(pickle.dumps(made)).predict_proba(CODES) == made.predict_proba(CODES)).all()
    assert made.fingerprint() == hash_component(settings) is not None
    turned = mixed(classes=("good", "bad"))  # the file's classes are in the order of the alphabet
    assert settings.fit(turned, 0).predict_proba(CODES) == pytest.approx(wanted[:, ::-1])


def test_classes_by_number_and_a_model_of_classes_only(tmp_path):
    model = fitted(RidgeClassifier(), DATASET.train.labels)
    settings = Skops(kept(tmp_path, model))
    assert settings.output_type(DATASET) is LabelModel
    assert (settings.fit(DATASET, 0).predict(CODES) == model.predict(DATASET.decode(CODES))).all()


def test_a_model_that_knows_other_columns_or_classes_is_refused(tmp_path):
    table = DATASET.decode(DATASET.train.codes)[["debt"]].rename(columns={"debt": "debts"})
    strange = LogisticRegression().fit(table, NAMES)
    with pytest.raises(UserError, match=r"needs debts, but mixed has no such feature. Did you mean debt\?"):
        Skops(kept(tmp_path, strange)).output_type(DATASET)


def test_other_classes_are_told(tmp_path):
    from cfeval_cli.errors import Failure

    other = fitted(LogisticRegression(max_iter=2000), np.where(NAMES == "good", "ja", "nein"))
    with pytest.raises(Failure, match="the class 'ja', which is none of bad, good"):
        Skops(kept(tmp_path, other)).fit(DATASET, 0).predict_proba(CODES)


def test_a_class_more_or_less_is_told(tmp_path):
    from cfeval_cli.errors import Failure

    one = fitted(LogisticRegression(max_iter=2000))
    one.steps[-1][1].classes_ = np.array(["bad", "bad"])
    with pytest.raises(Failure, match=r"has the classes bad, bad, but .* has bad, good"):
        Skops(kept(tmp_path, one)).fit(DATASET, 0).predict_proba(CODES)


def double(x):
    return x


def test_types_that_nobody_vouches_for_are_refused_until_the_user_does(tmp_path):
    first = ColumnTransformer([("n", FunctionTransformer(double), ["debt"])])
    path = kept(tmp_path, fitted(LogisticRegression(), first=first))
    with pytest.raises(
        UserError, match=r"not known to be harmless: tests\.model\.test_skops\.double.*model\.trusted=\["
    ):
        Skops(path).output_type(DATASET)
    assert Skops(path, trusted=["tests.model.test_skops.double"]).output_type(DATASET) is ProbabilityModel


MINE = """
from sklearn.base import BaseEstimator


class Scale(BaseEstimator):
    def fit(self, x, y=None):
        return self

    def transform(self, x):
        return x.to_numpy() / {by}
"""


def test_the_code_of_trusted_types_is_part_of_its_identity(tmp_path, monkeypatch, caplog):
    module = tmp_path / "scales_of_a_test.py"
    module.write_text(MINE.format(by=1000))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    first = importlib.import_module("scales_of_a_test").Scale()
    first = ColumnTransformer([("n", first, ["debt"])])
    settings = Skops(kept(tmp_path, fitted(LogisticRegression(), first=first)), trusted=["scales_of_a_test.Scale"])
    before = settings.fit(DATASET, 0).fingerprint()
    assert before is not None
    module.write_text(MINE.format(by=10))
    assert hash_component(settings) not in (before, None)
    assert not caplog.messages
    module.write_text(MINE.format(by=10) + "\nimport os\n")
    assert settings.fit(DATASET, 0).fingerprint() is None
    (message,) = caplog.messages
    assert "results are not cached" in message and "model.trusted=[scales_of_a_test.Scale]" in message
    assert Skops(settings.path, trusted=["nowhere.Type"]).fingerprint() is None
    assert Skops(settings.path, trusted=["pandas.core.frame.DataFrame"]).fingerprint() is not None  # by its version


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a classifier: StandardScaler has no method predict"):
        Skops(kept(tmp_path, StandardScaler())).output_type(DATASET)
    for name, body in {
        "a.skops": b"",
        "b.skops": b"PK\x03\x04junk",
        "c.skops": pickle.dumps(LogisticRegression()),
    }.items():
        (tmp_path / name).write_bytes(body)
        with pytest.raises(UserError, match="skops cannot open it"):
            Skops(str(tmp_path / name)).output_type(DATASET)
    with pytest.raises(UserError, match="is a pickle"):
        Skops(str(tmp_path / "x.pkl")).output_type(DATASET)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path must be given"),
        ({"path": "x", "trusted": "y"}, "trusted must be a list"),
        ({"path": "x", "batch_size": 0}, "batch_size must"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Skops(**settings)
