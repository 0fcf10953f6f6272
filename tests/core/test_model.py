"""The abilities of a model before it is trained, and the reasons why components are not applicable to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cfeval_cli import core
from cfeval_cli.core.fingerprint import hash_data_and_model
from cfeval_cli.core.model import (
    Access,
    BlackBox,
    Classifier,
    HasAdditiveEffects,
    HasAnalyticGradient,
    HasEmbeddings,
    HasGradient,
    HasLinearLogit,
    ModelSpec,
    Probabilistic,
    SupportsEdits,
    Trainable,
)
from cfeval_cli.errors import Failure
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from tests.problems import make_dataset

if TYPE_CHECKING:
    from nowhere import Unseen

DATASET = make_dataset([3, 2])


class LabelsOnlyModel(Classifier):
    """A model of classes only."""

    def predict(self, codes):
        return codes[:, 0]


class ProbabilitiesOnlyModel(Probabilistic):
    """A black box with probabilities."""

    def predict_proba(self, codes):
        raise AssertionError


class AnnotatedSettings(Trainable):
    """Settings whose `fit` is annotated with the class of the model."""

    def fit(self, dataset, seed) -> LabelsOnlyModel:
        return LabelsOnlyModel()


class ModelWithFit(Trainable, ProbabilitiesOnlyModel):
    """Settings that are the model."""

    def fit(self, dataset, seed):
        return self


class ModelWithVagueFit(Trainable, LabelsOnlyModel):
    """Settings that are the model, with an annotation without a class."""

    def fit(self, dataset, seed) -> Any:
        return self


class UnannotatedSettings(Trainable):
    """Settings without an annotation."""

    def fit(self, dataset, seed):
        return ProbabilitiesOnlyModel()


class SettingsOfNoModel(Trainable):
    """An annotation that is no model."""

    def fit(self, dataset, seed) -> dict[str, int]:
        return {}


class UnresolvedSettings(Trainable):
    """An annotation that only a type checker can resolve."""

    def fit(self, dataset, seed) -> Unseen:
        raise AssertionError


class ModelWithAnnotatedFit(ModelWithFit):
    """The annotation counts before the class that has it."""

    def fit(self, dataset, seed) -> LinearModel:
        raise AssertionError


@pytest.mark.parametrize(
    ("settings", "kind", "name"),
    [
        (AnnotatedSettings(), LabelsOnlyModel, "LabelsOnlyModel"),
        (ModelWithFit(), ModelWithFit, "ModelWithFit"),
        (ModelWithVagueFit(), ModelWithVagueFit, "ModelWithVagueFit"),
        (UnannotatedSettings(), BlackBox, "a black box"),
        (SettingsOfNoModel(), BlackBox, "a black box"),
        (UnresolvedSettings(), BlackBox, "a black box"),
        (ModelWithAnnotatedFit(), LinearModel, "LinearModel"),
        (Logistic({"tabular": 1, "text": 1}, {"tabular": 1, "text": 1}), LinearModel, "LinearModel"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_kind_of_model_is_determined_before_training(settings, kind, name):
    spec = ModelSpec.from_settings(DATASET, settings)
    assert spec.kind is kind and spec.name == name and spec.dataset is DATASET


ABILITIES = {
    LabelsOnlyModel: {Classifier},
    ProbabilitiesOnlyModel: {Classifier, Probabilistic},
    BlackBox: {Classifier, Probabilistic},
    LinearModel: {
        Classifier,
        Probabilistic,
        SupportsEdits,
        HasEmbeddings,
        HasGradient,
        HasAnalyticGradient,
        HasLinearLogit,
        HasAdditiveEffects,
    },
}


@pytest.mark.parametrize("kind", ABILITIES, ids=lambda kind: kind.__name__)
def test_abilities_are_those_of_the_base_classes(kind):
    all_abilities = set().union(*ABILITIES.values())
    assert {ability for ability in all_abilities if ModelSpec(DATASET, kind).supports(ability)} == ABILITIES[kind]


class Lookalike(ProbabilitiesOnlyModel):
    """A black box with unrelated methods that have the names of those of abilities."""

    def fail(self, *_, **__):
        raise AssertionError

    predict_positive = predict_edited = embed_values = embed_features = predict_proba_embedded = fail
    compute_logits_embedded = make_gradient_function = compute_logits = get_slopes = fail
    compute_effects = compute_value_effects = compute_mean_effects = get_leaves = get_used_features = fail
    get_estimator = encode = get_column_features = get_estimator_classes = fail
    list_changes = reparametrise = to_arrays = fingerprint = fail


def test_lookalike_has_the_name_of_every_method_of_an_ability():
    kinds = [kind for kind in vars(core).values() if getattr(kind, "__module__", "") == "cfeval_cli.core.model"]
    names = set().union(*(getattr(kind, "__abstractmethods__", ()) for kind in kinds))
    settings = {"fit", "output_type", "blind", "restore"}
    assert names - settings <= set(dir(Lookalike)) and names > settings


def test_methods_with_the_names_of_abilities_grant_nothing():
    abilities = [
        core.BinaryModel, core.SupportsEdits, core.HasEmbeddings, core.SupportsBatchedEmbedding,
        core.HasGradient, core.HasLogits,
        core.HasAnalyticGradient, core.HasLinearLogit, core.HasAdditiveEffects, core.HasLeaves, core.HasUsedFeatures,
        core.HasEncodedEstimator, core.Reparametrisable, core.HasArrays,
        core.Fingerprinted,
    ]  # fmt: skip
    model = Lookalike()
    spec = ModelSpec.from_model(DATASET, model)
    assert not [ability for ability in abilities if isinstance(model, ability) or spec.supports(ability)]
    assert not spec.blind and hash_data_and_model(DATASET, model) is None
    client = core.Ledger().open_client(model, Access.WHITE_BOX, core.LedgerKey("test"))
    assert (
        not client.has_embeddings
        and not client.has_effects
        and not client.has_leaves
        and client.get_used_features() is None
    )


def test_a_declared_ability_without_its_methods_is_refused():
    class IncompleteModel(core.HasAdditiveEffects, ProbabilitiesOnlyModel):
        def compute_effects(self, codes, of):
            raise AssertionError

    with pytest.raises(TypeError, match="mean_effects"):
        IncompleteModel()


def test_classes_that_merely_have_predict_or_fit_are_not_models():
    class UnrelatedEstimator:
        predict = predict_proba = ProbabilitiesOnlyModel.predict_proba

        def fit(self, dataset, seed) -> LabelsOnlyModel:
            return LabelsOnlyModel()

    estimator = UnrelatedEstimator()
    assert not isinstance(estimator, Classifier) and not isinstance(estimator, Trainable)
    client = core.Ledger().open_client(LabelsOnlyModel(), Access.WHITE_BOX, "test")
    with pytest.raises(Failure, match="needs probabilities"):
        client.predict_proba(DATASET.test.codes)


def test_settings_with_the_names_of_abilities_grant_nothing():
    class Settings(AnnotatedSettings):
        blind, student, teacher = 0.5, None, None

        def output_type(self, dataset):
            raise AssertionError

        def restore(self, arrays):
            raise AssertionError

    kinds = core.DeclaresOutputType, core.SupportsFeatureSubset, core.DistilledModel, core.Restorable
    assert not isinstance(Settings(), kinds)
    assert ModelSpec.from_settings(DATASET, Settings()) == ModelSpec(DATASET, LabelsOnlyModel)


def test_missing_abilities_give_a_reason():
    access_levels = {
        kind: {level for level in Access if ModelSpec(DATASET, kind).missing_access_reason(level) is None}
        for kind in ABILITIES
    }
    assert access_levels == {
        LabelsOnlyModel: {Access.NOTHING, Access.LABEL},
        ProbabilitiesOnlyModel: {Access.NOTHING, Access.LABEL, Access.PROBABILITY},
        BlackBox: {Access.NOTHING, Access.LABEL, Access.PROBABILITY},
        LinearModel: set(Access),
    }
    black_box = ModelSpec(DATASET, BlackBox)
    assert black_box.missing_ability_reason(Probabilistic) is None and black_box.missing_ability_reason() is None
    assert black_box.missing_ability_reason(Probabilistic, HasLinearLogit, HasAdditiveEffects) == (
        "needs a logit that is linear in the embeddings, which this model (a black box) does not give"
    )
    for level in (Access.PROBABILITY, Access.WHITE_BOX):
        reason = ModelSpec(DATASET, LabelsOnlyModel).missing_access_reason(level)
        assert reason.endswith(", but this model returns labels only: pass predict_proba to compute more"), reason
        assert "LabelModel" not in reason and "value_effects" not in reason
    assert "(ProbabilitiesOnlyModel)" in ModelSpec(DATASET, ProbabilitiesOnlyModel).missing_access_reason(
        Access.GRADIENT
    )


def test_black_box_is_not_a_usable_model():
    with pytest.raises(TypeError, match="not a model"):
        BlackBox().predict_proba(DATASET.test.codes)
