"""Components that violate a contract are detected, with a message that names it."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cfeval_cli import testing
from cfeval_cli.core import (
    ABSENT,
    AbsentScore,
    Access,
    Counterfactuals,
    Distance,
    Explainer,
    Explanation,
    Fingerprinted,
    HasAdditiveEffects,
    HasEmbeddings,
    HasLinearLogit,
    HasUsedFeatures,
    Metric,
    Removal,
    Score,
    Search,
    Trainable,
    Truth,
    TruthEstimate,
)
from cfeval_cli.core.counterfactual import FittedConstant
from cfeval_cli.core.removal import SingleValue
from cfeval_cli.metric.ground_truth import Recall
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.testing import (
    check_cache,
    check_dataset,
    check_distance,
    check_executor,
    check_explainer,
    check_judge,
    check_metric,
    check_model,
    check_removal,
    check_search,
    check_truth,
)
from cfeval_cli.testing.problems import make_linear, make_table
from cfeval_cli.testing.require import require, require_array, require_reason


def test_every_kind_has_a_check():
    kinds = "dataset model explainer metric truth removal search distance judge executor cache"
    assert {f"check_{kind}" for kind in kinds.split()} <= set(testing.__all__)


def test_pytest_is_not_needed():
    for path in Path(testing.__file__).parent.glob("*.py"):
        assert "pytest" not in path.read_text()


def test_messages_are_plain():
    with pytest.raises(AssertionError, match=r"^wrong$"):
        require(False, "wrong")
    with pytest.raises(AssertionError, match=r"x must have the shape \(2,\), not \(3,\)"):
        require_array(np.zeros(3), (2,), "f", "x")
    with pytest.raises(AssertionError, match="x must not be of type float64"):
        require_array(np.zeros(2), (2,), "i", "x")
    with pytest.raises(AssertionError, match="x is an empty text"):
        require_reason("", "x")


class SoundExplainer(Explainer):
    """A sound explainer, which others break."""

    access = Access.NOTHING

    def fit(self, dataset, model):
        return lambda batch: Explanation.from_scores(self.scores(batch, model), self.is_present(batch))

    def scores(self, batch, model):
        return np.stack([batch.make_rng(i).random(batch.codes.shape[1]) for i in range(len(batch))])

    def is_present(self, batch):
        return batch.codes != ABSENT


class SelectsPadding(SoundExplainer):
    def is_present(self, batch):
        return np.ones(batch.codes.shape, dtype=bool)


class DependsOnPosition(SoundExplainer):
    def scores(self, batch, model):
        return np.tile(np.arange(len(batch))[:, None] % 3 == np.arange(batch.codes.shape[1]), 1).astype(float)


class UsesGlobalGenerator(SoundExplainer):
    def scores(self, batch, model):
        return np.random.random(batch.codes.shape)  # noqa: NPY002


class UsesTooMuchAccess(SoundExplainer):
    def scores(self, batch, model):
        return model.predict_proba(batch.codes)[:, :1] + np.arange(batch.codes.shape[1])


class ScoresNothing(SoundExplainer):
    def scores(self, batch, model):
        return np.full(batch.codes.shape, np.nan)


class ExplainsOneInstance(SoundExplainer):
    def fit(self, dataset, model):
        return lambda batch: Explanation.from_scores(self.scores(batch, model), self.is_present(batch)).take(
            slice(0, 1)
        )


class ChangesItsInput(SoundExplainer):
    def scores(self, batch, model):
        batch.codes[:] = 0
        return super().scores(batch, model)


class ReasonIsNoText(SoundExplainer):
    def not_applicable_reason(self, spec):
        return True


class AppliesNowhere(SoundExplainer):
    def not_applicable_reason(self, spec):
        return "needs images"


class UnknownOutput(SoundExplainer):
    output = "words"


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (SelectsPadding, "selects a feature that is absent"),
        (DependsOnPosition, "returns another explanation when an instance is explained in another order"),
        (UsesGlobalGenerator, "returns another explanation|global generator"),
        (UsesTooMuchAccess, "declares nothing access but uses probability access"),
        (ScoresNothing, "every selected feature must have a finite score"),
        (ExplainsOneInstance, "explains 1 of 10 instances"),
        (ChangesItsInput, "changes the codes that it is given"),
        (ReasonIsNoText, "must be a text or None, not True"),
        (AppliesNowhere, "applies to none of the problems, pass others.*needs images"),
        (UnknownOutput, "output must be 'set' or 'scores'"),
    ],
)
def test_explainers(broken_class, message):
    check_explainer(SoundExplainer())
    with pytest.raises(AssertionError, match=message):
        check_explainer(broken_class())


class SoundMetric(Metric):
    """A sound metric, which others break: the share of features that are selected."""

    name = "share"
    title = "Share"
    better = "lower"
    range = (0.0, 1.0)
    access = Access.NOTHING
    display_order = 1

    def score(self, inputs):
        yield Score("all", self.values(inputs), self.weights(inputs))

    def values(self, inputs):
        return (inputs.features >= 0).sum(axis=1) / inputs.dataset.n_features

    def weights(self, inputs):
        return np.ones(len(inputs))


class LeavesItsRange(SoundMetric):
    range = (0.0, 0.1)


class DependsOnOtherInstances(SoundMetric):
    def values(self, inputs):
        return super().values(inputs) / len(inputs)


class NegativeDenominators(SoundMetric):
    def weights(self, inputs):
        return -np.ones(len(inputs))


class TooFewScores(SoundMetric):
    def values(self, inputs):
        return super().values(inputs)[:3]


class MetricWithTooMuchAccess(SoundMetric):
    def values(self, inputs):
        return inputs.model.predict_proba(inputs.codes)[:, 0]


class EmptyReason(SoundMetric):
    def score(self, inputs):
        yield AbsentScore("all", " ")


class NoScoreAnywhere(SoundMetric):
    def score(self, inputs):
        yield AbsentScore("all", "no reason to")


class RepeatedVariant(SoundMetric):
    def score(self, inputs):
        yield from [*super().score(inputs), *super().score(inputs)]


class UnknownDirection(SoundMetric):
    better = "sideways"


class FactWithDirection(SoundMetric):
    role = "fact"


class WithoutDeclarations(Metric):
    name = "untitled"

    def score(self, inputs):
        yield from ()


class LowerIsBetterRecall(Recall):
    better = "lower"


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (LeavesItsRange, "is outside its range"),
        (DependsOnOtherInstances, "returns other scores for some of the instances alone"),
        (NegativeDenominators, "denominators must not be negative"),
        (TooFewScores, r"numerator must have the shape \(10,\), not \(3,\)"),
        (MetricWithTooMuchAccess, "declares nothing access but uses probability access"),
        (EmptyReason, "reason why all is absent must be a text that is not empty"),
        (NoScoreAnywhere, "has no score on any of the problems"),
        (RepeatedVariant, "has the variant all twice"),
        (UnknownDirection, "better must be 'higher', 'lower' or 'none'"),
        (WithoutDeclarations, "WithoutDeclarations must declare title, better, range, access, display_order"),
        (LowerIsBetterRecall, "better='lower' contradicts the scores of the ground truth"),
        (FactWithDirection, "better must be 'none' exactly for a metric of role 'fact'"),
    ],
)
def test_metrics(broken_class, message):
    check_metric(SoundMetric())
    with pytest.raises(AssertionError, match=message):
        check_metric(broken_class())


class SoundTruth(Truth):
    """A sound truth, which others break."""

    name = "values"
    question = "change"
    access = Access.LABEL

    def compute_importance(self, dataset, model, rows):
        return rows.codes.astype(float)


class UnknownQuestion(SoundTruth):
    question = "whose"


class TruthDependsOnOtherRows(SoundTruth):
    def compute_importance(self, dataset, model, rows):
        return rows.codes - rows.codes.mean(axis=0)


class NegativeErrors(SoundTruth):
    def estimate(self, dataset, model, rows):
        return TruthEstimate(self.compute_masked_importance(dataset, model, rows), np.full(len(rows), -1.0), "guessed")


class ImportanceOfAbsentFeatures(SoundTruth):
    def compute_masked_importance(self, dataset, model, rows):
        return self.compute_importance(dataset, model, rows)


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (UnknownQuestion, "question must be one of contribution, change"),
        (TruthDependsOnOtherRows, "has other values for an instance alone"),
        (NegativeErrors, "standard errors must not be negative"),
        (ImportanceOfAbsentFeatures, "absent features must have the importance -inf"),
    ],
)
def test_truths(broken_class, message):
    check_truth(SoundTruth())
    with pytest.raises(AssertionError, match=message):
        check_truth(broken_class())


class SoundRemoval(Removal):
    """A sound removal, which others break: the first value takes the place."""

    name = variant = title = "first"

    def not_applicable_reason(self, spec):
        return None

    def fit(self, dataset, model):
        return SingleValue(0)


class WeightsAboveOne(SoundRemoval):
    def fit(self, dataset, model):
        return SimpleNamespace(value=None, vectors=None, sample=lambda features: (
            np.zeros((2, len(features)), dtype=np.int32), np.ones(2)))  # fmt: skip


class UnknownValues(SoundRemoval):
    def fit(self, dataset, model):
        return SingleValue(99)


class DependsOnCalls(SoundRemoval):
    def fit(self, dataset, model):
        queries = []

        def sample(features):
            queries.append(features)
            return np.full((1, len(features)), len(queries) % 3, dtype=np.int32), np.ones(1)

        return SimpleNamespace(value=None, vectors=None, sample=sample)


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (WeightsAboveOne, "weights must add up to 1"),
        (UnknownValues, "uses values that do not exist"),
        (DependsOnCalls, "replaces features in another way after other calls"),
    ],
)
def test_removals(broken_class, message):
    check_removal(SoundRemoval())
    with pytest.raises(AssertionError, match=message):
        check_removal(broken_class())


class SoundSearch(Search):
    """A sound search, which others break: it finds what the exhaustive search finds."""

    title = "one"
    label = "one search"
    levels = (Access.LABEL,)

    def choose_chunk_size(self, dataset, k):
        return 10

    def find(self, task) -> Counterfactuals:
        return Discrete().find(task)


class WrongFlips(SoundSearch):
    def find(self, task):
        result = super().find(task)
        return replace(result, flipped=np.ones(len(task), dtype=bool))


class EditsOtherFeatures(SoundSearch):
    def find(self, task):
        result = super().find(task)
        codes = result.codes.copy()
        last = (codes != ABSENT).sum(axis=1) - 1
        rows = np.arange(len(codes))
        codes[rows, last] = (codes[rows, last] + 1) % 3
        labels = task.model.predict_labels(codes)
        return replace(result, codes=codes, labels=labels, flipped=labels != task.predicted_classes)


class ReturnsNoRows(SoundSearch):
    def find(self, task):
        return replace(super().find(task), codes=None)


class DistancesDependOnOrder(SoundSearch):
    def find(self, task):
        result = super().find(task)
        return replace(result, distance=result.distance + np.arange(len(task)))


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (WrongFlips, "flipped contradicts labels"),
        (EditsOtherFeatures, "may not edit|not among the candidates|data do not allow"),
        (ReturnsNoRows, "must return either codes or vectors"),
        (DistancesDependOnOrder, "finds another counterfactual in another order"),
    ],
)
def test_searches(broken_class, message):
    check_search(SoundSearch())
    with pytest.raises(AssertionError, match=message):
        check_search(broken_class())


class SoundDistance(Distance):
    """A sound distance, which others break."""

    label = "the same for all"

    def fit(self, dataset, model, access):
        return FittedConstant(self.value)

    value = 1.0


class NegativeDistance(SoundDistance):
    value = -1.0


class InconsistentMatrix(SoundDistance):
    def fit(self, dataset, model, access):
        measure = FittedConstant(1.0)
        return SimpleNamespace(
            compute_distances=measure.compute_distances,
            compute_distance_matrix=lambda *of: 2 * measure.compute_distance_matrix(*of),
            compute_embedding_distances=measure.compute_embedding_distances,
        )


class DistanceDependsOnOrder(SoundDistance):
    def fit(self, dataset, model, access):
        measure = FittedConstant(1.0)
        return SimpleNamespace(
            compute_distances=lambda codes, edited: np.arange(len(codes)) + 1.0,
            compute_distance_matrix=measure.compute_distance_matrix,
            compute_embedding_distances=measure.compute_embedding_distances,
        )


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (NegativeDistance, "distances must be finite and not negative"),
        (InconsistentMatrix, r"compute_distance_matrix\(\) and compute_distances\(\) disagree"),
        (DistanceDependsOnOrder, "returns other distances in another order"),
    ],
)
def test_distances(broken_class, message):
    check_distance(SoundDistance())
    with pytest.raises(AssertionError, match=message):
        check_distance(broken_class())


@dataclass(frozen=True)
class BrokenModelSettings(Trainable):
    """Settings whose model is another's, with something broken."""

    model_class: type = LinearModel

    def fit(self, dataset, seed):
        model = make_linear(dataset)
        return self.model_class(model.bias, model.weights, model.tables, model.means)


class ProbabilitiesAboveOne(LinearModel):
    def predict_proba(self, codes):
        return 2 * super().predict_proba(codes)


class PredictionDependsOnRows(LinearModel):
    def predict_proba(self, codes):
        positive = np.full(len(codes), 1 / (1 + len(codes)))
        return np.stack([1 - positive, positive], axis=1)


class HidesReadFeatures(LinearModel):
    def get_used_features(self):
        return np.zeros(len(self.weights), dtype=bool)


class InconsistentLogits(LinearModel):
    def compute_logits(self, codes):
        return super().compute_logits(codes) + 1


class InconsistentEffects(LinearModel):
    def compute_value_effects(self, feature, of):
        return super().compute_value_effects(feature, of) / 2


class EmbedsAbsentFeatures(LinearModel):
    def embed_values(self, feature, codes):
        return super().embed_values(feature, np.maximum(codes, 0))


class NumericFingerprint(LinearModel, Fingerprinted):
    def fingerprint(self):
        return 3


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (ProbabilitiesAboveOne, "probabilities must be between 0 and 1"),
        (PredictionDependsOnRows, "predicts otherwise for a row alone"),
        (HidesReadFeatures, r"depend on a feature that get_used_features\(\) excludes"),
        (InconsistentLogits, r"compute_logits\(\) and predict_proba\(\) disagree"),
        (InconsistentEffects, r"compute_effects\(\) and compute_value_effects\(\) disagree"),
        (EmbedsAbsentFeatures, "embedding of an absent feature must be zero"),
        (NumericFingerprint, r"fingerprint\(\) must return a text or None, not 3"),
    ],
)
def test_models(broken_class, message):
    assert issubclass(LinearModel, (HasAdditiveEffects, HasEmbeddings, HasLinearLogit, HasUsedFeatures))
    check_model(BrokenModelSettings())
    with pytest.raises(AssertionError, match=message):
        check_model(BrokenModelSettings(broken_class))


def test_a_model_that_depends_on_more_than_its_seed():
    class ChangesWithEachFit(Trainable):
        fitted = 0

        def fit(self, dataset, seed):
            ChangesWithEachFit.fitted += 1
            return make_linear(dataset, ChangesWithEachFit.fitted)

    with pytest.raises(AssertionError, match="the same seed must give the same model"):
        check_model(ChangesWithEachFit())


@dataclass(frozen=True)
class InMemoryData:
    """Data that are there already."""

    change: object = staticmethod(lambda dataset: dataset)
    name: str = "loaded"

    def fetch(self, data_dir):
        return []

    def load(self, data_dir, seed):
        return self.change(make_table(seed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: replace(d, test=d.train), "a row is in more than one part"),
        (lambda d: replace(d, classes=("no",)), "at least two classes"),
        (lambda d: replace(d, frequencies=(d.frequencies[0] / 2, *d.frequencies[1:])), "frequencies must add up to 1"),
        (lambda d: replace(d, candidates=(d.candidates[0][::-1], *d.candidates[1:])), "candidates must be ascending"),
        (lambda d: replace(d, train=replace(d.train, codes=d.train.codes + 9)), "codes that are no values"),
        (lambda d: replace(d, train=replace(d.train, labels=d.train.labels + 1)), "labels that are no classes"),
    ],
)
def test_datasets(tmp_path, change, message):
    check_dataset(InMemoryData(), tmp_path)
    with pytest.raises(AssertionError, match=message):
        check_dataset(InMemoryData(staticmethod(change)), tmp_path)


def test_judges():
    class WithoutTruth(Trainable):
        def fit(self, dataset, seed):
            raise AssertionError("is not needed")

    with pytest.raises(AssertionError, match="has no known ground truth"):
        check_judge(SimpleNamespace(make_trainable=lambda model_to_explain: WithoutTruth()))
    logistic = Logistic({"tabular": 0.1, "text": 0.1}, {"tabular": 8, "text": 8})
    check_judge(SimpleNamespace(make_trainable=lambda model_to_explain: logistic))


def run_in_reverse(work, shared, items):
    return [work(shared, item) for item in items][::-1]


def hide_errors(work, shared, items):
    outcome = []
    for item in items:
        try:
            outcome.append(work(shared, item))
        except ValueError:
            outcome.append(None)
    return outcome


@pytest.mark.parametrize(
    ("broken_map", "message"), [(run_in_reverse, "in another order"), (hide_errors, "hides an error")]
)
def test_executors(broken_map, message):
    check_executor(SimpleNamespace(prepare=lambda timeout: None, map=lambda w, s, i: (w(s, item) for item in i)))
    with pytest.raises(AssertionError, match=message):
        check_executor(SimpleNamespace(prepare=lambda timeout: None, map=broken_map))


class SoundCache:
    """A sound cache, which others break."""

    def __init__(self):
        self.entries = {}

    def get(self, section, keys):
        places = {key: self.place(section, key) for key in keys}
        return {key: self.entries[place] for key, place in places.items() if place in self.entries}

    def put(self, section, entries):
        if section.key is not None:
            self.entries |= {self.place(section, key): arrays for key, arrays in entries.items()}

    def place(self, section, key):
        return section.key, key


class MixesSections(SoundCache):
    def place(self, section, key):
        return key


class KeepsReplacedValues(SoundCache):
    def put(self, section, entries):
        self.entries = {self.place(section, key): arrays for key, arrays in entries.items()} | self.entries


class ChangesValues(SoundCache):
    def get(self, section, keys):
        return {key: {**arrays, "a": arrays["a"] + 1} for key, arrays in super().get(section, keys).items()}


class StoresWithoutKey(SoundCache):
    def put(self, section, entries):
        self.entries |= {self.place(section, key): arrays for key, arrays in entries.items()}


@pytest.mark.parametrize(
    ("broken_class", "message"),
    [
        (MixesSections, "mixes up sections"),
        (KeepsReplacedValues, "a value that was replaced"),
        (ChangesValues, "other values than were stored"),
        (StoresWithoutKey, "without a key"),
    ],
)
def test_caches(broken_class, message):
    check_cache(SoundCache())
    with pytest.raises(AssertionError, match=message):
        check_cache(broken_class())
