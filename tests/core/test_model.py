"""What is known of a model before it is trained, and who is refused because of it."""

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
)
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from tests.problems import make_dataset

if TYPE_CHECKING:
    from nowhere import Unseen

DATASET = make_dataset([3, 2])


class Labels:
    """The least that a model can be."""

    def predict(self, codes):
        return codes[:, 0]


class Chances:
    """A black box with probabilities."""

    def predict_proba(self, codes):
        raise AssertionError


class Told:
    """Settings whose `fit` says what comes of it."""

    def fit(self, dataset, seed) -> Labels:
        return Labels()


class Itself(Chances):
    """Settings that are the model."""

    def fit(self, dataset, seed):
        return self


class ItselfTold(Labels):
    """The same, with an annotation that says nothing."""

    def fit(self, dataset, seed) -> Any:
        return self


class Mute:
    """Settings that say nothing."""

    def fit(self, dataset, seed):
        return Chances()


class Vague:
    """An annotation that is no model."""

    def fit(self, dataset, seed) -> dict[str, int]:
        return {}


class Hidden:
    """An annotation that only a type checker can follow."""

    def fit(self, dataset, seed) -> Unseen:
        raise AssertionError


class Stronger(Itself):
    """The annotation counts before the class that has it."""

    def fit(self, dataset, seed) -> LinearModel:
        raise AssertionError


@pytest.mark.parametrize(
    ("settings", "kind", "name"),
    [
        (Told(), Labels, "Labels"),
        (Itself(), Itself, "Itself"),
        (ItselfTold(), ItselfTold, "ItselfTold"),
        (Mute(), BlackBox, "a black box"),
        (Vague(), BlackBox, "a black box"),
        (Hidden(), BlackBox, "a black box"),
        (Stronger(), LinearModel, "LinearModel"),
        (Logistic({"tabular": 1, "text": 1}, {"tabular": 1, "text": 1}), LinearModel, "LinearModel"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_kind_of_model_is_known_before_training(settings, kind, name):
    spec = ModelSpec.from_settings(DATASET, settings)
    assert spec.kind is kind and spec.name == name and spec.dataset is DATASET


ABILITIES = {
    Labels: {Classifier},
    Chances: {Probabilistic},
    BlackBox: {Probabilistic},
    LinearModel: {
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
def test_abilities_are_those_that_the_class_has(kind):
    every = set().union(*ABILITIES.values())
    assert {ability for ability in every if ModelSpec(DATASET, kind).supports(ability)} == ABILITIES[kind]


class Lookalike(Chances):
    """A black box with methods that have the names of abilities, and mean something else."""

    def wrong(self, *_, **__):
        raise AssertionError

    positive = edited_positive = vectors = pick = proba_embedded = logits_embedded = slope = logits = slopes = wrong
    effects = value_effects = mean_effects = leaves = reads = inside = encode = owners = known_classes = wrong
    changes = reparametrised = arrays = fingerprint = wrong


def test_methods_with_the_names_of_abilities_grant_nothing():
    abilities = [
        core.BinaryModel, core.SupportsEdits, core.HasEmbeddings, core.SupportsBatchedEmbedding,
        core.HasGradient, core.HasLogits,
        core.HasAnalyticGradient, core.HasLinearLogit, core.HasAdditiveEffects, core.HasLeaves, core.HasReadFeatures,
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
    class Half(core.HasAdditiveEffects, Chances):
        def compute_effects(self, codes, of):
            raise AssertionError

    with pytest.raises(TypeError, match="mean_effects"):
        Half()


def test_settings_with_the_names_of_abilities_grant_nothing():
    class Settings(Told):
        blind, student, teacher = 0.5, None, None

        def output_type(self, dataset):
            raise AssertionError

        def restore(self, arrays):
            raise AssertionError

    kinds = core.DeclaresOutputType, core.SupportsFeatureSubset, core.DistilledModel, core.Restorable
    assert not isinstance(Settings(), kinds)
    assert ModelSpec.from_settings(DATASET, Settings()) == ModelSpec(DATASET, Labels)


def test_what_a_model_cannot_answer_is_refused_with_the_reason():
    answers = {
        kind: {level for level in Access if ModelSpec(DATASET, kind).missing_access_reason(level) is None}
        for kind in ABILITIES
    }
    assert answers == {
        Labels: {Access.NOTHING, Access.LABEL},
        Chances: {Access.NOTHING, Access.LABEL, Access.PROBABILITY},
        BlackBox: {Access.NOTHING, Access.LABEL, Access.PROBABILITY},
        LinearModel: set(Access),
    }
    black = ModelSpec(DATASET, BlackBox)
    assert black.missing_ability_reason(Probabilistic) is None and black.missing_ability_reason() is None
    assert black.missing_ability_reason(Probabilistic, HasLinearLogit, HasAdditiveEffects) == (
        "needs a logit that is linear in the embeddings, which this model (a black box) does not give"
    )
    for level in (Access.PROBABILITY, Access.WHITE_BOX):
        reason = ModelSpec(DATASET, Labels).missing_access_reason(level)
        assert reason.endswith(", but this model returns labels only: pass predict_proba to compute more"), reason
        assert "LabelModel" not in reason and "value_effects" not in reason
    assert "(Chances)" in ModelSpec(DATASET, Chances).missing_access_reason(Access.GRADIENT)


def test_a_black_box_is_a_kind_and_not_a_model():
    with pytest.raises(TypeError, match="not a model"):
        BlackBox().predict_proba(DATASET.test.codes)
