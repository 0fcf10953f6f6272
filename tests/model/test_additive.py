"""The additive model has the predictions of the package interpret, and exact effects."""

import sys

import numpy as np
import pytest

from cfeval_cli.core import (
    HasAdditiveEffects,
    HasArrays,
    HasEmbeddings,
    HasUsedFeatures,
    ModelSpec,
    Probabilistic,
    Rows,
    SupportsEdits,
)
from cfeval_cli.errors import UserError
from cfeval_cli.model.additive import (
    Additive,
    AdditiveClasses,
    AdditiveModel,
    compute_effects_of_values,
    subtract_other_classes,
)
from cfeval_cli.model.encoding import make_table_encoder
from cfeval_cli.seeding import draw_seed, make_stream
from cfeval_cli.truth.shapley import compute_coalition_values
from tests.model.test_tree import relabel_randomly
from tests.problems import make_dataset, make_mixed, make_text, open_client

SMALL_MODEL = Additive(bags=2, max_rounds=60)


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def fitted(request):
    pytest.importorskip("interpret")
    dataset = make_mixed(4, n=120, missing=0.1)
    dataset = dataset if request.param == 2 else relabel_randomly(dataset, 3)
    return dataset, SMALL_MODEL.fit(dataset, 5)


def test_predictions_equal_those_of_interpret(fitted):
    from interpret.glassbox import ExplainableBoostingClassifier

    dataset, model = fitted
    encoder = make_table_encoder(dataset, onehot=False, scale=False, fill=False, max_categories=None)
    reference = ExplainableBoostingClassifier(
        interactions=0, outer_bags=2, max_bins=256, learning_rate=0.015, max_rounds=60, n_jobs=1,
        feature_types=["nominal" if is_category else "continuous" for is_category in encoder.is_category],
        random_state=draw_seed(make_stream(5, "model")) % 2**31,
    ).fit(encoder.transform(dataset.train.codes), dataset.train.labels)  # fmt: skip
    for split in (dataset.train, dataset.test):
        assert model.predict_proba(split.codes) == pytest.approx(
            reference.predict_proba(encoder.transform(split.codes))
        )
    tables = compute_effects_of_values(reference, encoder)
    assert [len(table) for table in tables] == [len(feature.values) for feature in dataset.features]


def test_effects_sum_to_the_logit_of_a_class(fitted):
    dataset, model = fitted
    codes = dataset.test.codes
    logs = np.log(model.predict_proba(codes))
    classes = logs.shape[1]
    for label in range(classes):
        of = np.full(len(codes), label)
        other_logits = np.delete(logs, label, axis=1).mean(axis=1)
        effects = model.compute_effects(codes, of)
        gap = logs[:, label] - other_logits - effects.sum(axis=1)
        assert np.ptp(gap) < 1e-9  # up to the bias
        for j in range(dataset.n_features):
            assert np.array_equal(model.compute_value_effects(j, label)[codes[:, j]], effects[:, j])
        means = model.compute_effects(dataset.train.codes, np.full(len(dataset.train), label)).mean(axis=0)
        assert model.compute_mean_effects()[label] == pytest.approx(means)


def test_centred_effects_are_shapley_values_of_the_logit(fitted):
    dataset, model = fitted
    rows = Rows(dataset.test.ids[:5], dataset.test.codes[:5], np.zeros(5, dtype=np.int64))

    class LogitModel(Probabilistic):
        def predict_proba(self, codes):
            logs = np.log(model.predict_proba(codes))
            return np.stack([logs[:, 0] - logs[:, 1:].mean(axis=1)] * logs.shape[1], axis=1)

    values = compute_coalition_values(
        open_client(LogitModel()), dataset.train.codes, np.arange(dataset.n_features), rows
    )
    assert model.compute_effects(rows.codes, rows.predicted_classes) - model.compute_mean_effects()[0] == pytest.approx(
        values, abs=1e-9
    )


def test_abilities_are_determined_before_training(fitted):
    dataset, model = fitted
    spec = ModelSpec.from_settings(dataset, SMALL_MODEL)
    assert spec.kind is type(model) and all(
        spec.supports(ability) for ability in (HasAdditiveEffects, HasUsedFeatures, HasArrays)
    )
    assert not spec.supports(HasEmbeddings) and spec.supports(SupportsEdits) == (len(dataset.classes) == 2)
    assert type(model) is (AdditiveModel if len(dataset.classes) == 2 else AdditiveClasses)


def test_model_restored_from_its_arrays_is_equal(fitted):
    dataset, model = fitted
    restored = SMALL_MODEL.restore(model.to_arrays())
    assert type(restored) is type(model)
    assert np.array_equal(restored.predict_proba(dataset.test.codes), model.predict_proba(dataset.test.codes))
    assert np.array_equal(restored.get_used_features(), model.get_used_features())


def test_mean_of_other_classes_is_subtracted():
    differences = subtract_other_classes(np.array([[1.0, 2.0, 6.0]]))
    assert differences.tolist() == [[1 - 4, 2 - 3.5, 6 - 1.5]]


def test_unsupported_data_and_settings_are_refused(monkeypatch):
    with pytest.raises(UserError, match="model=additive is for tables"):
        SMALL_MODEL.fit(make_text(), 0)
    dataset = make_dataset([2, 3])
    dataset.train.labels[:] = 1
    with pytest.raises(UserError, match="lacks one of its classes"):
        SMALL_MODEL.fit(dataset, 0)
    monkeypatch.setitem(sys.modules, "interpret.glassbox", None)
    with pytest.raises(UserError, match=r"model=additive needs the package interpret: pip install 'cfeval\[judges\]'"):
        SMALL_MODEL.fit(make_dataset([2, 3]), 0)
    for setting in ("bags", "bins", "learning_rate", "max_rounds"):
        with pytest.raises(ValueError, match=setting):
            Additive(**{setting: 0})
