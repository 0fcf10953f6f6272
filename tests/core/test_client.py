"""A gate lets through what is declared, counts it, and gives the same answers whatever the model can do cheaply."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Classifier,
    Cost,
    HasGradient,
    InspectionDepth,
    Ledger,
    LedgerKey,
    Probabilistic,
)
from cfeval_cli.core.client import apply_edits, embed_features, embed_rows
from cfeval_cli.errors import Failure
from tests.problems import get_class_proba, make_dataset, make_linear, open_client, predict_labels, problems

DATASET = make_dataset([3, 2])
MODEL = make_linear(DATASET)
CODES = DATASET.test.codes
OF = predict_labels(MODEL, CODES)
ROWS = np.arange(len(CODES))

# the first feature of row 1, or both of row 4, set to values
FEATURES = np.array([[0, NO_FEATURE]] * 2 + [[1, 0]] * 18)
EDITS = (CODES, FEATURES, np.array([1, 4, 4]), np.array([[2, -1], [1, 0], [0, 2]], np.int32), OF)
VECTORS = np.random.default_rng(0).normal(size=(20, 2, 2))

CALLS = {
    Access.LABEL: [
        lambda g: g.predict_labels(CODES),
        lambda g: g.predict_with_proba(CODES, OF),
        lambda g: g.evaluate_edits(*EDITS),
    ],
    Access.PROBABILITY: [
        lambda g: g.predict_proba(CODES),
        lambda g: g.predict_class_proba(CODES, OF),
    ],
    Access.GRADIENT: [
        lambda g: g.embed_rows(CODES),
        lambda g: g.embed_values(0, CODES[:, 0]),
        lambda g: g.embed_features(CODES[:, 0] * 0, CODES[:, 0]),
        lambda g: g.make_gradient_function(CODES, FEATURES, OF, 1.0)(ROWS, VECTORS),
        lambda g: g.evaluate_embeddings(CODES, FEATURES, VECTORS, OF),
        lambda g: g.compute_linear_logits(CODES),
    ],
    Access.WHITE_BOX: [
        lambda g: g.compute_effects(CODES, OF),
        lambda g: g.compute_value_effects(0, 1),
        lambda g: g.compute_mean_effects(),
    ],
}


class Pairs(Probabilistic, HasGradient):
    """A model of two classes that tells (n, 2) probabilities and knows no shortcut."""

    def __init__(self, model):
        self._model = model

    def predict_proba(self, codes):
        return self._model.predict_proba(codes)

    def embed_values(self, feature, codes):
        return self._model.embed_values(feature, codes)

    def predict_proba_embedded(self, vectors):
        return self._model.predict_proba_embedded(vectors)


class ThreeClasses(Probabilistic):
    """Nothing but predict_proba; every feature moves every class."""

    def __init__(self, width=2, size=3):
        self.table = np.random.default_rng(1).normal(size=(width, size, 3))
        self.asked = []

    def predict_proba(self, codes):
        self.asked.append(codes.copy())
        told = np.exp(sum(np.where((codes[:, [j]] == ABSENT), 0, t[codes[:, j]]) for j, t in enumerate(self.table)))
        return told / told.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("level", list(Access))
def test_a_gate_lets_through_its_level_and_no_more(level):
    made = Ledger().open_client(MODEL, level, LedgerKey("someone"))
    for needed, calls in CALLS.items():
        for call in calls:
            if needed <= level:
                call(made)
            else:
                with pytest.raises(Failure, match=f"someone declares {level.name.lower()} access but uses"):
                    call(made)


def test_label_access_shows_no_probability():
    made = open_client(MODEL, Access.LABEL)
    assert made.predict_with_proba(CODES, OF)[1] is None and made.evaluate_edits(*EDITS)[1] is None
    assert (made.predict_with_proba(CODES, OF)[0] == OF).all() and (made.predict_labels(CODES) == OF).all()
    pairs = open_client(Pairs(MODEL), Access.LABEL)
    assert pairs.predict_with_proba(CODES, OF)[1] is None and pairs.evaluate_edits(*EDITS)[1] is None


@pytest.mark.parametrize("model", [MODEL, Pairs(MODEL)], ids=["binary", "pairs"])
def test_every_row_is_counted_on_the_askers_account(model):
    ledger = Ledger()
    made = ledger.open_client(model, Access.GRADIENT, LedgerKey("a"))
    counted = calls = 0
    for rows, call in (
        (20, lambda: made.predict_labels(CODES)),
        (20, lambda: made.predict_with_proba(CODES, OF)),
        (3, lambda: made.predict_class_proba(CODES[:3], OF[:3])),
        (4, lambda: made.predict_proba(CODES[:4])),
        (3, lambda: made.evaluate_edits(*EDITS)),
        (0, lambda: made.embed_rows(CODES)),
        (0, lambda: made.make_gradient_function(CODES, FEATURES, OF, 1.0)),
        (5, lambda: made.make_gradient_function(CODES, FEATURES, OF, 1.0)(ROWS[:5], VECTORS[:5])),
        (20, lambda: made.evaluate_embeddings(CODES, FEATURES, VECTORS, OF)),
    ):
        call()
        counted += rows
        calls += rows > 0
        assert (ledger.rows[LedgerKey("a")], ledger.calls[LedgerKey("a")]) == (counted, calls)
    ledger.open_client(model, Access.LABEL, LedgerKey("b"))
    assert ledger.rows[LedgerKey("b")] == 0
    ledger.record(LedgerKey("b"), Cost(3, 1.5, 0.5, 0.25))
    ledger.record(LedgerKey("b"), Cost(4, 2, 1.0, 0.5))
    assert ledger.get_cost(LedgerKey("b")) == Cost(7, 3.5, 1.5, 0.75)
    ledger.add(LedgerKey("c"), ledger)
    assert ledger.get_cost(LedgerKey("c")).rows == counted + 7 and ledger.get_cost(LedgerKey("c")).calls == calls + 3.5


@given(problems(absent=0.2), st.integers(0, 99), st.sampled_from([-2.0, 1.0, 300.0]))
def test_two_classes_as_one_number_or_as_two_give_the_same_answers(problem, seed, times):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    codes = dataset.test.codes
    n, k = len(codes), int(rng.integers(1, dataset.n_features + 1))
    of = rng.integers(0, 2, n)  # not the predicted class only
    features = np.stack([rng.permutation(dataset.n_features)[:k] for _ in codes])
    features[rng.random(features.shape) < 0.2] = NO_FEATURE
    one, two = open_client(model, Access.GRADIENT), open_client(Pairs(model), Access.GRADIENT)

    assert (one.predict_labels(codes) == two.predict_labels(codes)).all()
    for told in (one.predict_with_proba(codes, of), two.predict_with_proba(codes, of)):
        assert (told[0] == predict_labels(model, codes)).all()
        assert told[1] == pytest.approx(get_class_proba(model, codes, of))
    assert one.predict_class_proba(codes, of) == pytest.approx(two.predict_class_proba(codes, of))
    assert one.predict_proba(codes) == pytest.approx(two.predict_proba(codes))
    assert (one.predict_proba(codes).argmax(axis=1) == one.predict_labels(codes)).all()

    for rows in (rng.integers(0, n, 7), rng.integers(0, n, 1)):  # edits of several rows, and of one
        everyone = np.broadcast_to(rows, 7)
        values = np.full((7, k), ABSENT, dtype=np.int32)
        for edit, row in enumerate(everyone):
            for place, j in enumerate(features[row]):
                if j != NO_FEATURE:
                    values[edit, place] = rng.integers(-1, len(dataset.candidates[j]))
        whole = apply_edits(codes, features, everyone, values)
        for made in (one, two):
            flips, left = made.evaluate_edits(codes, features, rows, values, of)
            assert (flips == (predict_labels(model, whole) != of[everyone])).all()
            assert left == pytest.approx(get_class_proba(model, whole, of[everyone]))

    rows = rng.integers(0, n, 5)
    vectors = rng.normal(size=(5, k, 2))
    told = [made.make_gradient_function(codes, features, of, times)(rows, vectors) for made in (one, two)]
    assert told[0][0] == pytest.approx(told[1][0]) and told[0][1] == pytest.approx(told[1][1])
    assert (told[0][1][features[rows] == NO_FEATURE] == 0).all()  # a feature that is not named is not moved
    whole = embed_rows(model, codes[rows])
    for i, row in enumerate(rows):
        for place, j in enumerate(features[row]):
            if j != NO_FEATURE:
                whole[i, j] = vectors[i, place]
    expected = model.predict_proba_embedded(torch.as_tensor(whole)).numpy()
    assert told[0][0] == pytest.approx(expected[np.arange(5), of[rows]])
    for made in (one, two):
        said, left = made.evaluate_embeddings(codes[rows], features[rows], vectors, of[rows])
        assert left == pytest.approx(expected[np.arange(5), of[rows]])
        clear = np.abs(expected[:, 1] - 0.5) > 1e-9
        assert (said[clear] == expected.argmax(axis=1)[clear]).all()


def test_the_gradient_is_that_of_small_steps():
    made = open_client(MODEL, Access.GRADIENT)
    slope = made.make_gradient_function(CODES, FEATURES, OF, 3.0)
    _, gradient = slope(ROWS, VECTORS)
    for place, d in np.ndindex(2, 2):
        step = np.zeros_like(VECTORS)
        step[:, place, d] = 1e-6
        numeric = 3.0 * (slope(ROWS, VECTORS + step)[0] - slope(ROWS, VECTORS - step)[0]) / 2e-6
        assert gradient[:, place, d] == pytest.approx(numeric, abs=1e-6)


def test_a_black_box_of_three_classes_answers_all_that_needs_no_embeddings():
    model = ThreeClasses()
    made = open_client(model, Access.PROBABILITY)
    told = model.predict_proba(CODES)
    of = ROWS % 3
    assert made.predict_proba(CODES) == pytest.approx(told)
    assert (made.predict_labels(CODES) == told.argmax(axis=1)).all() and set(made.predict_labels(CODES).tolist()) <= {
        0,
        1,
        2,
    }
    said, left = made.predict_with_proba(CODES, of)
    assert (said == told.argmax(axis=1)).all() and left == pytest.approx(told[ROWS, of])
    assert made.predict_class_proba(CODES, of) == pytest.approx(told[ROWS, of])
    edits = (CODES, np.array([[0, NO_FEATURE]] * 2 + [[1, 0]] * 18), np.array([1, 4, 4]), EDITS[3], of)
    flips, left = made.evaluate_edits(*edits)
    after = model.predict_proba(apply_edits(*edits[:4]))
    assert (flips == (after.argmax(axis=1) != of[[1, 4, 4]])).all()
    assert left == pytest.approx(after[np.arange(3), of[[1, 4, 4]]])
    assert not made.has_embeddings
    for call in (
        lambda g: g.embed_rows(CODES),
        lambda g: g.make_gradient_function(CODES, FEATURES, of, 1.0),
        lambda g: g.compute_linear_logits(CODES),
    ):
        with pytest.raises(Failure, match=r"test needs .*embeddings, which this model does not give"):
            call(open_client(model, Access.GRADIENT))
    with pytest.raises(Failure, match=r"a sum of effects, .*, which this model does not give"):
        open_client(model, Access.WHITE_BOX).compute_effects(CODES, of)


def test_of_equally_likely_classes_the_first_is_predicted():
    class Even(Probabilistic):
        def predict_proba(self, codes):
            return np.full((len(codes), 4), 0.25)

    assert (open_client(Even(), Access.LABEL).predict_labels(CODES) == 0).all()
    assert (open_client(Even(), Access.PROBABILITY).predict_with_proba(CODES, OF)[0] == 0).all()


def test_a_model_that_only_predicts_gives_labels_and_flips():
    class Silent(Classifier):
        def predict(self, codes):
            return (codes.sum(axis=1) % 3).astype(np.int8)

    made = open_client(Silent(), Access.LABEL)
    assert made.predict_labels(CODES).dtype == np.int64 and (made.predict_labels(CODES) == CODES.sum(axis=1) % 3).all()
    said, none = made.predict_with_proba(CODES, OF)
    assert (said == CODES.sum(axis=1) % 3).all() and none is None
    flips, none = made.evaluate_edits(*EDITS)
    assert (flips == (apply_edits(*EDITS[:4]).sum(axis=1) % 3 != OF[[1, 4, 4]])).all() and none is None
    with pytest.raises(Failure, match="probabilities, which this model does not give"):
        open_client(Silent(), Access.PROBABILITY).predict_proba(CODES)


GONE = np.array([[0, ABSENT, 1], [1, 1, 2]], dtype=np.int32)  # a hole
ENDS = np.array([[0, 1, ABSENT], [1, ABSENT, ABSENT]], dtype=np.int32)  # padding only


@pytest.mark.parametrize("access", [Access.LABEL, Access.PROBABILITY])
def test_a_deleted_feature_never_reaches_a_model_without_embeddings(access):
    model = ThreeClasses(width=3)

    class Silent(Classifier):
        def predict(self, codes):
            return model.predict_proba(codes).argmax(axis=1)

    of = np.zeros(2, dtype=int)
    features, rows = np.array([[1], [1]]), np.array([0, 1])
    gone = np.full((2, 1), ABSENT, dtype=np.int32)
    for asked in [model, Silent()] if access is Access.LABEL else [model]:
        for padded, codes in ((False, GONE), (False, ENDS), (True, GONE)):
            made = open_client(asked, access, padded=padded)
            calls = [lambda: made.predict_labels(codes), lambda: made.predict_with_proba(codes, of)]  # noqa: B023
            calls += [lambda: made.evaluate_edits(np.maximum(codes, 0), features, rows, gone, of)]  # noqa: B023
            if access is Access.PROBABILITY:
                calls += [lambda: made.predict_proba(codes), lambda: made.predict_class_proba(codes, of)]  # noqa: B023
            for call in calls:
                with pytest.raises(Failure, match="test deletes features of an input, and this model has no embedding"):
                    call()
        assert model.asked == []
        through = open_client(asked, access, padded=True)
        through.predict_labels(ENDS)
        through.predict_with_proba(ENDS, of)
        assert len(model.asked) == 2 and all((codes == ENDS).all() for codes in model.asked)
        model.asked.clear()


def test_a_model_with_embeddings_is_asked_about_deleted_features():
    for model in (MODEL, Pairs(MODEL)):
        codes = np.where(ROWS[:, None] % 2 == [0, 1], ABSENT, CODES).astype(np.int32)
        assert (open_client(model).predict_labels(codes) == predict_labels(MODEL, codes)).all()
        assert open_client(model).predict_class_proba(codes, OF) == pytest.approx(get_class_proba(MODEL, codes, OF))


@given(problems(absent=0.3), st.integers(0, 99))
def test_single_values_are_embedded_as_in_whole_rows(problem, seed):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    codes = dataset.test.codes
    rows, features = rng.integers(0, len(codes), 9), rng.integers(0, dataset.n_features, 9)
    expected = embed_rows(model, codes)[rows, features]
    for known in (model, Pairs(model)):
        assert (embed_features(known, features, codes[rows, features]) == expected).all()
        assert (open_client(known).embed_features(features, codes[rows, features]) == expected).all()
        assert (open_client(known).embed_rows(codes)[rows, features] == expected).all()
        assert (open_client(known).embed_values(0, codes[:, 0]) == embed_rows(model, codes)[:, 0]).all()


def test_a_linear_model_tells_its_line():
    logits, slopes = open_client(MODEL, Access.GRADIENT).compute_linear_logits(CODES)
    assert (logits == MODEL.compute_logits(CODES)).all() and (slopes == MODEL.weights).all()


def looked(call, access=Access.WHITE_BOX, model=MODEL, padded=False):
    """How deep a call looks."""
    ledger = Ledger(records_depth=True)
    call(ledger.open_client(model, access, LedgerKey("who"), padded=padded))
    return ledger.get_depth(LedgerKey("who"))


def test_a_watching_ledger_knows_how_deep_an_asker_looked():
    for access, calls in CALLS.items():
        expected = {Access.GRADIENT: InspectionDepth.EMBEDDINGS, Access.WHITE_BOX: InspectionDepth.EFFECTS}.get(
            access, InspectionDepth.PREDICTIONS
        )
        assert [looked(call) for call in calls] == [expected] * len(calls)
    gone = CODES.copy()
    gone[3, 1] = ABSENT
    for call in (
        lambda g: g.predict_labels(gone),
        lambda g: g.predict_with_proba(gone, OF),
        lambda g: g.predict_proba(gone),
    ):
        assert looked(call) == InspectionDepth.EFFECTS
        assert looked(call, padded=True) == InspectionDepth.PREDICTIONS  # a sentence that ends early is a sentence
    gone[3] = [ABSENT, 0]
    assert looked(lambda g: g.predict_labels(gone), padded=True) == InspectionDepth.EFFECTS
    away = (CODES, np.array([[0]] * 20), np.array([2]), np.array([[ABSENT]], np.int32), OF)
    assert looked(lambda g: g.evaluate_edits(*away)) == InspectionDepth.EFFECTS
    none = (CODES, np.array([[NO_FEATURE]] * 20), np.array([2]), np.array([[ABSENT]], np.int32), OF)
    assert looked(lambda g: g.evaluate_edits(*none)) == InspectionDepth.PREDICTIONS

    def both(g):
        g.embed_values(0, CODES[:, 0])
        g.compute_effects(CODES, OF)
        g.predict_labels(CODES)

    assert looked(both) == InspectionDepth.EMBEDDINGS  # the deepest counts
    ledger = Ledger()
    ledger.open_client(MODEL, Access.WHITE_BOX, LedgerKey("who")).embed_rows(CODES)
    assert ledger.depths == {}  # who does not watch sees nothing


def test_a_gate_says_whether_the_model_is_a_line():
    assert (
        open_client(MODEL, Access.GRADIENT).has_linear_logit
        and not open_client(MODEL, Access.PROBABILITY).has_linear_logit
    )
    assert not open_client(Pairs(MODEL), Access.GRADIENT).has_linear_logit
