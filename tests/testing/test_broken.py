"""Components that break a promise are caught, with a message that states which."""

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
    HasReadFeatures,
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


class Order(Explainer):
    """A sound explainer, which others break."""

    access = Access.NOTHING

    def fit(self, dataset, model):
        return lambda batch: Explanation.from_scores(self.scores(batch, model), self.shown(batch))

    def scores(self, batch, model):
        return np.stack([batch.make_rng(i).random(batch.codes.shape[1]) for i in range(len(batch))])

    def shown(self, batch):
        return batch.codes != ABSENT


class Padding(Order):
    def shown(self, batch):
        return np.ones(batch.codes.shape, dtype=bool)


class ByPlace(Order):
    def scores(self, batch, model):
        return np.tile(np.arange(len(batch))[:, None] % 3 == np.arange(batch.codes.shape[1]), 1).astype(float)


class FromGlobal(Order):
    def scores(self, batch, model):
        return np.random.random(batch.codes.shape)  # noqa: NPY002


class Greedy(Order):
    def scores(self, batch, model):
        return model.predict_proba(batch.codes)[:, :1] + np.arange(batch.codes.shape[1])


class Blank(Order):
    def scores(self, batch, model):
        return np.full(batch.codes.shape, np.nan)


class Few(Order):
    def fit(self, dataset, model):
        return lambda batch: Explanation.from_scores(self.scores(batch, model), self.shown(batch)).take(slice(0, 1))


class Vandal(Order):
    def scores(self, batch, model):
        batch.codes[:] = 0
        return super().scores(batch, model)


class NoReason(Order):
    def not_applicable_reason(self, spec):
        return True


class Nowhere(Order):
    def not_applicable_reason(self, spec):
        return "needs images"


class Unknown(Order):
    output = "words"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Padding, "selects a feature that is absent"),
        (ByPlace, "gives another explanation when an instance is explained in another order"),
        (FromGlobal, "gives another explanation|global generator"),
        (Greedy, "declares nothing access but uses probability access"),
        (Blank, "every selected feature must have a finite score"),
        (Few, "explains 1 of 10 instances"),
        (Vandal, "changes the codes that it is given"),
        (NoReason, "must be a text or None, not True"),
        (Nowhere, "applies to none of the problems, pass others.*needs images"),
        (Unknown, "output must be 'set' or 'scores'"),
    ],
)
def test_explainers(broken, message):
    check_explainer(Order())
    with pytest.raises(AssertionError, match=message):
        check_explainer(broken())


class Share(Metric):
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


class Outside(Share):
    range = (0.0, 0.1)


class Relative(Share):
    def values(self, inputs):
        return super().values(inputs) / len(inputs)


class Negative(Share):
    def weights(self, inputs):
        return -np.ones(len(inputs))


class Short(Share):
    def values(self, inputs):
        return super().values(inputs)[:3]


class Asking(Share):
    def values(self, inputs):
        return inputs.model.predict_proba(inputs.codes)[:, 0]


class Silent(Share):
    def score(self, inputs):
        yield AbsentScore("all", " ")


class Never(Share):
    def score(self, inputs):
        yield AbsentScore("all", "no reason to")


class Twice(Share):
    def score(self, inputs):
        yield from [*super().score(inputs), *super().score(inputs)]


class Sideways(Share):
    better = "sideways"


class Fact(Share):
    role = "fact"


class Untitled(Metric):
    name = "untitled"

    def score(self, inputs):
        yield from ()


class Missed(Recall):
    better = "lower"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Outside, "is outside its range"),
        (Relative, "gives other scores for some of the instances alone"),
        (Negative, "denominators must not be negative"),
        (Short, r"numerator must have the shape \(10,\), not \(3,\)"),
        (Asking, "declares nothing access but uses probability access"),
        (Silent, "reason why all is absent must be a text that is not empty"),
        (Never, "has no score on any of the problems"),
        (Twice, "has the variant all twice"),
        (Sideways, "better must be 'higher', 'lower' or 'none'"),
        (Untitled, "Untitled must declare title, better, range, access, display_order"),
        (Missed, "better='lower' contradicts the scores of the ground truth"),
        (Fact, "better must be 'none' exactly for a metric of role 'fact'"),
    ],
)
def test_metrics(broken, message):
    check_metric(Share())
    with pytest.raises(AssertionError, match=message):
        check_metric(broken())


class Values(Truth):
    """A sound truth, which others break."""

    name = "values"
    question = "change"
    access = Access.LABEL

    def compute_importance(self, dataset, model, rows):
        return rows.codes.astype(float)


class Whose(Values):
    question = "whose"


class Ranked(Values):
    def compute_importance(self, dataset, model, rows):
        return rows.codes - rows.codes.mean(axis=0)


class Errors(Values):
    def estimate(self, dataset, model, rows):
        return TruthEstimate(self.compute_masked_importance(dataset, model, rows), np.full(len(rows), -1.0), "guessed")


class Everywhere(Values):
    def compute_masked_importance(self, dataset, model, rows):
        return self.compute_importance(dataset, model, rows)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Whose, "question must be one of contribution, change"),
        (Ranked, "gives other values for an instance alone"),
        (Errors, "standard errors must not be negative"),
        (Everywhere, "absent features must have the importance -inf"),
    ],
)
def test_truths(broken, message):
    check_truth(Values())
    with pytest.raises(AssertionError, match=message):
        check_truth(broken())


class First(Removal):
    """A sound removal, which others break: the first value takes the place."""

    name = variant = title = "first"

    def not_applicable_reason(self, spec):
        return None

    def fit(self, dataset, model):
        return SingleValue(0)


class Heavy(First):
    def fit(self, dataset, model):
        return SimpleNamespace(value=None, vectors=None, sample=lambda features: (
            np.zeros((2, len(features)), dtype=np.int32), np.ones(2)))  # fmt: skip


class Strange(First):
    def fit(self, dataset, model):
        return SingleValue(99)


class Counting(First):
    def fit(self, dataset, model):
        queries = []

        def sample(features):
            queries.append(features)
            return np.full((1, len(features)), len(queries) % 3, dtype=np.int32), np.ones(1)

        return SimpleNamespace(value=None, vectors=None, sample=sample)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Heavy, "weights must add up to 1"),
        (Strange, "uses values that do not exist"),
        (Counting, "replaces features in another way after other calls"),
    ],
)
def test_removals(broken, message):
    check_removal(First())
    with pytest.raises(AssertionError, match=message):
        check_removal(broken())


class Search1(Search):
    """A sound search, which others break: it finds what the exhaustive search finds."""

    title = "one"
    label = "one search"
    levels = (Access.LABEL,)

    def choose_chunk_size(self, dataset, k):
        return 10

    def find(self, task) -> Counterfactuals:
        return Discrete().find(task)


class Lying(Search1):
    def find(self, task):
        result = super().find(task)
        return replace(result, flipped=np.ones(len(task), dtype=bool))


class Elsewhere(Search1):
    def find(self, task):
        result = super().find(task)
        codes = result.codes.copy()
        last = (codes != ABSENT).sum(axis=1) - 1
        rows = np.arange(len(codes))
        codes[rows, last] = (codes[rows, last] + 1) % 3
        labels = task.model.predict_labels(codes)
        return replace(result, codes=codes, labels=labels, flipped=labels != task.labels)


class Nothing(Search1):
    def find(self, task):
        return replace(super().find(task), codes=None)


class Wandering(Search1):
    def find(self, task):
        result = super().find(task)
        return replace(result, distance=result.distance + np.arange(len(task)))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Lying, "flipped contradicts labels"),
        (Elsewhere, "may not edit|not among the candidates|data do not allow"),
        (Nothing, "must return either codes or vectors"),
        (Wandering, "finds another counterfactual in another order"),
    ],
)
def test_searches(broken, message):
    check_search(Search1())
    with pytest.raises(AssertionError, match=message):
        check_search(broken())


class Same(Distance):
    """A sound distance, which others break."""

    label = "the same for all"

    def fit(self, dataset, model, access):
        return FittedConstant(self.value)

    value = 1.0


class Below(Same):
    value = -1.0


class Torn(Same):
    def fit(self, dataset, model, access):
        measure = FittedConstant(1.0)
        return SimpleNamespace(
            compute_distances=measure.compute_distances,
            compute_distance_matrix=lambda *of: 2 * measure.compute_distance_matrix(*of),
            compute_embedding_distances=measure.compute_embedding_distances,
        )


class Placed(Same):
    def fit(self, dataset, model, access):
        measure = FittedConstant(1.0)
        return SimpleNamespace(
            compute_distances=lambda codes, edited: np.arange(len(codes)) + 1.0,
            compute_distance_matrix=measure.compute_distance_matrix,
            compute_embedding_distances=measure.compute_embedding_distances,
        )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Below, "distances must be finite and not negative"),
        (Torn, r"compute_distance_matrix\(\) and compute_distances\(\) disagree"),
        (Placed, "gives other distances in another order"),
    ],
)
def test_distances(broken, message):
    check_distance(Same())
    with pytest.raises(AssertionError, match=message):
        check_distance(broken())


@dataclass(frozen=True)
class Settings(Trainable):
    """Settings whose model is another's, with something broken."""

    broken: type = LinearModel

    def fit(self, dataset, seed):
        model = make_linear(dataset)
        return self.broken(model.bias, model.weights, model.tables, model.means)


class Loud(LinearModel):
    def predict_proba(self, codes):
        return 2 * super().predict_proba(codes)


class Company(LinearModel):
    def predict_proba(self, codes):
        positive = np.full(len(codes), 1 / (1 + len(codes)))
        return np.stack([1 - positive, positive], axis=1)


class Blind(LinearModel):
    def get_used_features(self):
        return np.zeros(len(self.weights), dtype=bool)


class Shifted(LinearModel):
    def compute_logits(self, codes):
        return super().compute_logits(codes) + 1


class Halved(LinearModel):
    def compute_value_effects(self, feature, of):
        return super().compute_value_effects(feature, of) / 2


class Ghost(LinearModel):
    def embed_values(self, feature, codes):
        return super().embed_values(feature, np.maximum(codes, 0))


class Numbered(LinearModel, Fingerprinted):
    def fingerprint(self):
        return 3


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Loud, "probabilities must be between 0 and 1"),
        (Company, "predicts otherwise for a row alone"),
        (Blind, r"depend on a feature that get_used_features\(\) excludes"),
        (Shifted, r"compute_logits\(\) and predict_proba\(\) disagree"),
        (Halved, r"compute_effects\(\) and compute_value_effects\(\) disagree"),
        (Ghost, "embedding of an absent feature must be zero"),
        (Numbered, r"fingerprint\(\) must return a text or None, not 3"),
    ],
)
def test_models(broken, message):
    assert issubclass(LinearModel, (HasAdditiveEffects, HasEmbeddings, HasLinearLogit, HasReadFeatures))
    check_model(Settings())
    with pytest.raises(AssertionError, match=message):
        check_model(Settings(broken))


def test_a_model_that_depends_on_more_than_its_seed():
    class Restless(Trainable):
        fitted = 0

        def fit(self, dataset, seed):
            Restless.fitted += 1
            return make_linear(dataset, Restless.fitted)

    with pytest.raises(AssertionError, match="the same seed must give the same model"):
        check_model(Restless())


@dataclass(frozen=True)
class Loaded:
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
    check_dataset(Loaded(), tmp_path)
    with pytest.raises(AssertionError, match=message):
        check_dataset(Loaded(staticmethod(change)), tmp_path)


def test_judges():
    class Unknown(Trainable):
        def fit(self, dataset, seed):
            raise AssertionError("is not needed")

    with pytest.raises(AssertionError, match="has no known ground truth"):
        check_judge(SimpleNamespace(make_trainable=lambda explained: Unknown()))
    logistic = Logistic({"tabular": 0.1, "text": 0.1}, {"tabular": 8, "text": 8})
    check_judge(SimpleNamespace(make_trainable=lambda explained: logistic))


def in_reverse(work, shared, items):
    return [work(shared, item) for item in items][::-1]


def hiding(work, shared, items):
    outcome = []
    for item in items:
        try:
            outcome.append(work(shared, item))
        except ValueError:
            outcome.append(None)
    return outcome


@pytest.mark.parametrize(("broken", "message"), [(in_reverse, "in another order"), (hiding, "hides an error")])
def test_executors(broken, message):
    check_executor(SimpleNamespace(prepare=lambda timeout: None, map=lambda w, s, i: (w(s, item) for item in i)))
    with pytest.raises(AssertionError, match=message):
        check_executor(SimpleNamespace(prepare=lambda timeout: None, map=broken))


class AnswerCache:
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


class Mixed(AnswerCache):
    def place(self, section, key):
        return key


class Stale(AnswerCache):
    def put(self, section, entries):
        self.entries = {self.place(section, key): arrays for key, arrays in entries.items()} | self.entries


class Rotten(AnswerCache):
    def get(self, section, keys):
        return {key: {**arrays, "a": arrays["a"] + 1} for key, arrays in super().get(section, keys).items()}


class Careless(AnswerCache):
    def put(self, section, entries):
        self.entries |= {self.place(section, key): arrays for key, arrays in entries.items()}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Mixed, "mixes up sections"),
        (Stale, "a value that was replaced"),
        (Rotten, "other values than were stored"),
        (Careless, "without a key"),
    ],
)
def test_caches(broken, message):
    check_cache(AnswerCache())
    with pytest.raises(AssertionError, match=message):
        check_cache(broken())
