"""A model in a skops file has the predictions of the exported model."""

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
from tests.model.mixed import make_mixed_table


@pytest.fixture(scope="module", autouse=True)
def package():
    """Import skops when the tests run, since the import takes a second."""
    global storage
    storage = pytest.importorskip("skops.io")


DATASET = make_mixed_table()
CODES = DATASET.test.codes
NAMES = np.array(DATASET.classes)[DATASET.train.labels]


def fit_pipeline(last, labels=NAMES, first=None):
    pick = first or ColumnTransformer([("c", OneHotEncoder(), ["colour", "flag"]), ("n", "passthrough", ["debt"])])
    return make_pipeline(pick, last).fit(DATASET.decode(DATASET.train.codes), labels)


def save_model(tmp_path, model):
    storage.dump(model, tmp_path / "model.skops")
    return str(tmp_path / "model.skops")


def test_probabilities_have_the_order_of_the_classes(tmp_path):
    model = fit_pipeline(LogisticRegression(max_iter=2000))
    settings = Skops(save_model(tmp_path, model), batch_size=7)
    assert ModelSpec.from_settings(DATASET, settings).kind is ProbabilityModel
    loaded = settings.fit(DATASET, 0)
    expected = model.predict_proba(DATASET.decode(CODES))
    assert loaded.predict_proba(CODES) == pytest.approx(expected)
    assert (pickle.loads(pickle.dumps(loaded)).predict_proba(CODES) == loaded.predict_proba(CODES)).all()
    assert loaded.fingerprint() == hash_component(settings) is not None
    reversed_data = make_mixed_table(classes=("good", "bad"))  # classes of the file are in alphabetical order
    assert settings.fit(reversed_data, 0).predict_proba(CODES) == pytest.approx(expected[:, ::-1])


def test_labels_can_be_class_numbers(tmp_path):
    model = fit_pipeline(RidgeClassifier(), DATASET.train.labels)
    settings = Skops(save_model(tmp_path, model))
    assert settings.output_type(DATASET) is LabelModel
    assert (settings.fit(DATASET, 0).predict(CODES) == model.predict(DATASET.decode(CODES))).all()


def test_unknown_columns_are_refused(tmp_path):
    table = DATASET.decode(DATASET.train.codes)[["debt"]].rename(columns={"debt": "debts"})
    model = LogisticRegression().fit(table, NAMES)
    with pytest.raises(UserError, match=r"needs debts, but mixed has no such feature. Did you mean debt\?"):
        Skops(save_model(tmp_path, model)).output_type(DATASET)


def test_unknown_classes_are_reported(tmp_path):
    from cfeval_cli.errors import Failure

    other = fit_pipeline(LogisticRegression(max_iter=2000), np.where(NAMES == "good", "ja", "nein"))
    with pytest.raises(Failure, match="the class 'ja', which is none of bad, good"):
        Skops(save_model(tmp_path, other)).fit(DATASET, 0).predict_proba(CODES)


def test_wrong_number_of_classes_is_reported(tmp_path):
    from cfeval_cli.errors import Failure

    model = fit_pipeline(LogisticRegression(max_iter=2000))
    model.steps[-1][1].classes_ = np.array(["bad", "bad"])
    with pytest.raises(Failure, match=r"has the classes bad, bad, but .* has bad, good"):
        Skops(save_model(tmp_path, model)).fit(DATASET, 0).predict_proba(CODES)


def return_unchanged(x):
    return x


def test_unknown_types_are_refused_unless_trusted(tmp_path):
    first = ColumnTransformer([("n", FunctionTransformer(return_unchanged), ["debt"])])
    path = save_model(tmp_path, fit_pipeline(LogisticRegression(), first=first))
    with pytest.raises(
        UserError, match=r"not known to be harmless: tests\.model\.test_skops\.return_unchanged.*model\.trusted=\["
    ):
        Skops(path).output_type(DATASET)
    assert Skops(path, trusted=["tests.model.test_skops.return_unchanged"]).output_type(DATASET) is ProbabilityModel


SCALER_SOURCE = """
from sklearn.base import BaseEstimator


class Scale(BaseEstimator):
    def fit(self, x, y=None):
        return self

    def transform(self, x):
        return x.to_numpy() / {by}
"""


def test_fingerprint_depends_on_code_of_trusted_types(tmp_path, monkeypatch, caplog):
    module = tmp_path / "scales_of_a_test.py"
    module.write_text(SCALER_SOURCE.format(by=1000))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    first = importlib.import_module("scales_of_a_test").Scale()
    first = ColumnTransformer([("n", first, ["debt"])])
    settings = Skops(
        save_model(tmp_path, fit_pipeline(LogisticRegression(), first=first)), trusted=["scales_of_a_test.Scale"]
    )
    before = settings.fit(DATASET, 0).fingerprint()
    assert before is not None
    module.write_text(SCALER_SOURCE.format(by=10))
    assert hash_component(settings) not in (before, None)
    assert not caplog.messages
    module.write_text(SCALER_SOURCE.format(by=10) + "\nimport os\n")
    assert settings.fit(DATASET, 0).fingerprint() is None
    (message,) = caplog.messages
    assert "results are not cached" in message and "model.trusted=[scales_of_a_test.Scale]" in message
    assert Skops(settings.path, trusted=["nowhere.Type"]).fingerprint() is None
    assert Skops(settings.path, trusted=["pandas.core.frame.DataFrame"]).fingerprint() is not None  # by its version


def test_invalid_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="is not a classifier: StandardScaler has no method predict"):
        Skops(save_model(tmp_path, StandardScaler())).output_type(DATASET)
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
