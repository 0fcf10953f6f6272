"""A client permits the declared access, counts evaluations and returns equal results for all abilities of models."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    BinaryModel,
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
LABELS = predict_labels(MODEL, CODES)
ROWS = np.arange(len(CODES))

# the first feature of row 1, or both of row 4, set to values
FEATURES = np.array([[0, NO_FEATURE]] * 2 + [[1, 0]] * 18)
EDITS = (CODES, FEATURES, np.array([1, 4, 4]), np.array([[2, -1], [1, 0], [0, 2]], np.int32), LABELS)
VECTORS = np.random.default_rng(0).normal(size=(20, 2, 2))

CALLS = {
    Access.LABEL: [
        lambda g: g.predict_labels(CODES),
        lambda g: g.predict_with_proba(CODES, LABELS),
        lambda g: g.evaluate_edits(*EDITS),
    ],
    Access.PROBABILITY: [
        lambda g: g.predict_proba(CODES),
        lambda g: g.predict_class_proba(CODES, LABELS),
    ],
    Access.GRADIENT: [
        lambda g: g.embed_rows(CODES),
        lambda g: g.embed_values(0, CODES[:, 0]),
        lambda g: g.embed_features(CODES[:, 0] * 0, CODES[:, 0]),
        lambda g: g.make_gradient_function(CODES, FEATURES, LABELS, 1.0)(ROWS, VECTORS),
        lambda g: g.evaluate_embeddings(CODES, FEATURES, VECTORS, LABELS),
        lambda g: g.compute_linear_logits(CODES),
    ],
    Access.WHITE_BOX: [
        lambda g: g.compute_effects(CODES, LABELS),
        lambda g: g.compute_value_effects(0, 1),
        lambda g: g.compute_mean_effects(),
    ],
}


class TwoColumnModel(Probabilistic, HasGradient):
    """A model of two classes with probabilities (n, 2) and without faster methods."""

    def __init__(self, model):
        self._model = model

    def predict_proba(self, codes):
        return self._model.predict_proba(codes)

    def embed_values(self, feature, codes):
        return self._model.embed_values(feature, codes)

    def predict_proba_embedded(self, vectors):
        return self._model.predict_proba_embedded(vectors)


class ThreeClassModel(Probabilistic):
    """A model with predict_proba only, in which every feature affects every class."""

    def __init__(self, width=2, size=3):
        self.table = np.random.default_rng(1).normal(size=(width, size, 3))
        self.evaluated_codes = []

    def predict_proba(self, codes):
        self.evaluated_codes.append(codes.copy())
        exponentials = np.exp(
            sum(np.where((codes[:, [j]] == ABSENT), 0, t[codes[:, j]]) for j, t in enumerate(self.table))
        )
        return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("level", list(Access))
def test_client_permits_its_access_level_only(level):
    client = Ledger().open_client(MODEL, level, LedgerKey("someone"))
    for required_level, calls in CALLS.items():
        for call in calls:
            if required_level <= level:
                call(client)
            else:
                with pytest.raises(Failure, match=f"someone declares {level.name.lower()} access but uses"):
                    call(client)


def test_label_access_has_no_probabilities():
    client = open_client(MODEL, Access.LABEL)
    assert client.predict_with_proba(CODES, LABELS)[1] is None and client.evaluate_edits(*EDITS)[1] is None
    assert (client.predict_with_proba(CODES, LABELS)[0] == LABELS).all()
    assert (client.predict_labels(CODES) == LABELS).all()
    two_column_client = open_client(TwoColumnModel(MODEL), Access.LABEL)
    assert (
        two_column_client.predict_with_proba(CODES, LABELS)[1] is None
        and two_column_client.evaluate_edits(*EDITS)[1] is None
    )


@pytest.mark.parametrize("model", [MODEL, TwoColumnModel(MODEL)], ids=["binary", "pairs"])
def test_evaluated_rows_are_counted_by_component(model):
    ledger = Ledger()
    client = ledger.open_client(model, Access.GRADIENT, LedgerKey("a"))
    n_rows = n_calls = 0
    for rows, call in (
        (20, lambda: client.predict_labels(CODES)),
        (20, lambda: client.predict_with_proba(CODES, LABELS)),
        (3, lambda: client.predict_class_proba(CODES[:3], LABELS[:3])),
        (4, lambda: client.predict_proba(CODES[:4])),
        (3, lambda: client.evaluate_edits(*EDITS)),
        (0, lambda: client.embed_rows(CODES)),
        (0, lambda: client.make_gradient_function(CODES, FEATURES, LABELS, 1.0)),
        (5, lambda: client.make_gradient_function(CODES, FEATURES, LABELS, 1.0)(ROWS[:5], VECTORS[:5])),
        (20, lambda: client.evaluate_embeddings(CODES, FEATURES, VECTORS, LABELS)),
    ):
        call()
        n_rows += rows
        n_calls += rows > 0
        assert (ledger.n_evaluations[LedgerKey("a")], ledger.calls[LedgerKey("a")]) == (n_rows, n_calls)
    ledger.open_client(model, Access.LABEL, LedgerKey("b"))
    assert ledger.n_evaluations[LedgerKey("b")] == 0
    ledger.record(LedgerKey("b"), Cost(3, 1.5, 0.5, 0.25))
    ledger.record(LedgerKey("b"), Cost(4, 2, 1.0, 0.5))
    assert ledger.get_cost(LedgerKey("b")) == Cost(7, 3.5, 1.5, 0.75)
    ledger.add(LedgerKey("c"), ledger)
    assert (
        ledger.get_cost(LedgerKey("c")).n_evaluations == n_rows + 7
        and ledger.get_cost(LedgerKey("c")).calls == n_calls + 3.5
    )


@given(problems(absent=0.2), st.integers(0, 99), st.sampled_from([-2.0, 1.0, 300.0]))
def test_models_with_one_or_two_columns_give_equal_results(problem, seed, factor):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    codes = dataset.test.codes
    n, k = len(codes), int(rng.integers(1, dataset.n_features + 1))
    of = rng.integers(0, 2, n)  # not the predicted class only
    features = np.stack([rng.permutation(dataset.n_features)[:k] for _ in codes])
    features[rng.random(features.shape) < 0.2] = NO_FEATURE
    single_column = open_client(model, Access.GRADIENT)
    two_columns = open_client(TwoColumnModel(model), Access.GRADIENT)

    assert (single_column.predict_labels(codes) == two_columns.predict_labels(codes)).all()
    for results in (single_column.predict_with_proba(codes, of), two_columns.predict_with_proba(codes, of)):
        assert (results[0] == predict_labels(model, codes)).all()
        assert results[1] == pytest.approx(get_class_proba(model, codes, of))
    assert single_column.predict_class_proba(codes, of) == pytest.approx(two_columns.predict_class_proba(codes, of))
    assert single_column.predict_proba(codes) == pytest.approx(two_columns.predict_proba(codes))
    assert (single_column.predict_proba(codes).argmax(axis=1) == single_column.predict_labels(codes)).all()

    for rows in (rng.integers(0, n, 7), rng.integers(0, n, 1)):  # edits of several rows and of one row
        edited_rows = np.broadcast_to(rows, 7)
        values = np.full((7, k), ABSENT, dtype=np.int32)
        for edit, row in enumerate(edited_rows):
            for position, j in enumerate(features[row]):
                if j != NO_FEATURE:
                    values[edit, position] = rng.integers(-1, len(dataset.candidates[j]))
        inputs = apply_edits(codes, features, edited_rows, values)
        for client in (single_column, two_columns):
            flips, probability = client.evaluate_edits(codes, features, rows, values, of)
            assert (flips == (predict_labels(model, inputs) != of[edited_rows])).all()
            assert probability == pytest.approx(get_class_proba(model, inputs, of[edited_rows]))

    rows = rng.integers(0, n, 5)
    vectors = rng.normal(size=(5, k, 2))
    results = [
        client.make_gradient_function(codes, features, of, factor)(rows, vectors)
        for client in (single_column, two_columns)
    ]
    assert results[0][0] == pytest.approx(results[1][0]) and results[0][1] == pytest.approx(results[1][1])
    assert (results[0][1][features[rows] == NO_FEATURE] == 0).all()  # only selected features have a gradient
    inputs = embed_rows(model, codes[rows])
    for i, row in enumerate(rows):
        for position, j in enumerate(features[row]):
            if j != NO_FEATURE:
                inputs[i, j] = vectors[i, position]
    expected = model.predict_proba_embedded(torch.as_tensor(inputs)).numpy()
    assert results[0][0] == pytest.approx(expected[np.arange(5), of[rows]])
    for client in (single_column, two_columns):
        labels, probability = client.evaluate_embeddings(codes[rows], features[rows], vectors, of[rows])
        assert probability == pytest.approx(expected[np.arange(5), of[rows]])
        is_decided = np.abs(expected[:, 1] - 0.5) > 1e-9
        assert (labels[is_decided] == expected.argmax(axis=1)[is_decided]).all()


def test_gradient_equals_finite_differences():
    client = open_client(MODEL, Access.GRADIENT)
    slope = client.make_gradient_function(CODES, FEATURES, LABELS, 3.0)
    _, gradient = slope(ROWS, VECTORS)
    for position, d in np.ndindex(2, 2):
        step = np.zeros_like(VECTORS)
        step[:, position, d] = 1e-6
        numeric = 3.0 * (slope(ROWS, VECTORS + step)[0] - slope(ROWS, VECTORS - step)[0]) / 2e-6
        assert gradient[:, position, d] == pytest.approx(numeric, abs=1e-6)


def test_black_box_of_three_classes_supports_calls_without_embeddings():
    model = ThreeClassModel()
    client = open_client(model, Access.PROBABILITY)
    probabilities = model.predict_proba(CODES)
    of = ROWS % 3
    assert client.predict_proba(CODES) == pytest.approx(probabilities)
    assert (client.predict_labels(CODES) == probabilities.argmax(axis=1)).all()
    assert set(client.predict_labels(CODES).tolist()) <= {0, 1, 2}
    labels, probability = client.predict_with_proba(CODES, of)
    assert (labels == probabilities.argmax(axis=1)).all() and probability == pytest.approx(probabilities[ROWS, of])
    assert client.predict_class_proba(CODES, of) == pytest.approx(probabilities[ROWS, of])
    edits = (CODES, np.array([[0, NO_FEATURE]] * 2 + [[1, 0]] * 18), np.array([1, 4, 4]), EDITS[3], of)
    flips, probability = client.evaluate_edits(*edits)
    after = model.predict_proba(apply_edits(*edits[:4]))
    assert (flips == (after.argmax(axis=1) != of[[1, 4, 4]])).all()
    assert probability == pytest.approx(after[np.arange(3), of[[1, 4, 4]]])
    assert not client.has_embeddings
    for call in (
        lambda g: g.embed_rows(CODES),
        lambda g: g.make_gradient_function(CODES, FEATURES, of, 1.0),
        lambda g: g.compute_linear_logits(CODES),
    ):
        with pytest.raises(Failure, match=r"test needs .*embeddings, which this model does not give"):
            call(open_client(model, Access.GRADIENT))
    with pytest.raises(Failure, match=r"a sum of effects, .*, which this model does not give"):
        open_client(model, Access.WHITE_BOX).compute_effects(CODES, of)


def test_first_of_equally_likely_classes_is_predicted():
    class UniformModel(Probabilistic):
        def predict_proba(self, codes):
            return np.full((len(codes), 4), 0.25)

    assert (open_client(UniformModel(), Access.LABEL).predict_labels(CODES) == 0).all()
    assert (open_client(UniformModel(), Access.PROBABILITY).predict_with_proba(CODES, LABELS)[0] == 0).all()


def test_label_model_gives_labels_and_flips():
    class RemainderModel(Classifier):
        def predict(self, codes):
            return (codes.sum(axis=1) % 3).astype(np.int8)

    client = open_client(RemainderModel(), Access.LABEL)
    assert (
        client.predict_labels(CODES).dtype == np.int64 and (client.predict_labels(CODES) == CODES.sum(axis=1) % 3).all()
    )
    labels, probability = client.predict_with_proba(CODES, LABELS)
    assert (labels == CODES.sum(axis=1) % 3).all() and probability is None
    flips, probability = client.evaluate_edits(*EDITS)
    assert (flips == (apply_edits(*EDITS[:4]).sum(axis=1) % 3 != LABELS[[1, 4, 4]])).all() and probability is None
    with pytest.raises(Failure, match="probabilities, which this model does not give"):
        open_client(RemainderModel(), Access.PROBABILITY).predict_proba(CODES)


class SumModel(BinaryModel):
    """A logit that is a sum of effects, without embeddings."""

    def predict_positive(self, codes):
        return 1 / (1 + np.exp(-np.where(codes == ABSENT, 0, codes - 0.6).sum(axis=1)))


CODES_WITH_HOLE = np.array([[0, ABSENT, 1], [1, 1, 2]], dtype=np.int32)  # a value is absent between others
CODES_WITH_PADDING = np.array([[0, 1, ABSENT], [1, ABSENT, ABSENT]], dtype=np.int32)  # padding only


def test_binary_models_predict_rows_with_deleted_features_by_every_method():
    client, classes = open_client(SumModel(), Access.PROBABILITY), np.array([0, 1])
    probabilities = client.predict_proba(CODES_WITH_HOLE)
    assert probabilities[:, 1] == pytest.approx([1 / (1 + np.exp(0.2)), 1 / (1 + np.exp(-2.2))])
    labels, probability = client.predict_with_proba(CODES_WITH_HOLE, classes)
    assert (labels == [0, 1]).all() and (labels == client.predict_labels(CODES_WITH_HOLE)).all()
    assert np.array_equal(probability, probabilities[[0, 1], classes])


@pytest.mark.parametrize("access", [Access.LABEL, Access.PROBABILITY])
def test_deleted_features_are_refused_without_embeddings(access):
    model = ThreeClassModel(width=3)

    class ArgmaxModel(Classifier):
        def predict(self, codes):
            return model.predict_proba(codes).argmax(axis=1)

    of = np.zeros(2, dtype=int)
    features, rows = np.array([[1], [1]]), np.array([0, 1])
    absent_values = np.full((2, 1), ABSENT, dtype=np.int32)
    for tested_model in [model, ArgmaxModel()] if access is Access.LABEL else [model]:
        for padded, codes in ((False, CODES_WITH_HOLE), (False, CODES_WITH_PADDING), (True, CODES_WITH_HOLE)):
            client = open_client(tested_model, access, padded=padded)
            calls = [lambda: client.predict_labels(codes), lambda: client.predict_with_proba(codes, of)]  # noqa: B023
            calls += [lambda: client.evaluate_edits(np.maximum(codes, 0), features, rows, absent_values, of)]  # noqa: B023
            if access is Access.PROBABILITY:
                calls += [lambda: client.predict_proba(codes), lambda: client.predict_class_proba(codes, of)]  # noqa: B023
            for call in calls:
                with pytest.raises(Failure, match="test deletes features of an input, and this model has no embedding"):
                    call()
        assert model.evaluated_codes == []
        padded_client = open_client(tested_model, access, padded=True)
        padded_client.predict_labels(CODES_WITH_PADDING)
        padded_client.predict_with_proba(CODES_WITH_PADDING, of)
        assert len(model.evaluated_codes) == 2 and all(
            (codes == CODES_WITH_PADDING).all() for codes in model.evaluated_codes
        )
        model.evaluated_codes.clear()


def test_deleted_features_are_evaluated_with_embeddings():
    for model in (MODEL, TwoColumnModel(MODEL)):
        codes = np.where(ROWS[:, None] % 2 == [0, 1], ABSENT, CODES).astype(np.int32)
        assert (open_client(model).predict_labels(codes) == predict_labels(MODEL, codes)).all()
        assert open_client(model).predict_class_proba(codes, LABELS) == pytest.approx(
            get_class_proba(MODEL, codes, LABELS)
        )


@given(problems(absent=0.3), st.integers(0, 99))
def test_single_values_have_the_embeddings_of_rows(problem, seed):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    codes = dataset.test.codes
    rows, features = rng.integers(0, len(codes), 9), rng.integers(0, dataset.n_features, 9)
    expected = embed_rows(model, codes)[rows, features]
    for embedding_model in (model, TwoColumnModel(model)):
        assert (embed_features(embedding_model, features, codes[rows, features]) == expected).all()
        assert (open_client(embedding_model).embed_features(features, codes[rows, features]) == expected).all()
        assert (open_client(embedding_model).embed_rows(codes)[rows, features] == expected).all()
        assert (open_client(embedding_model).embed_values(0, codes[:, 0]) == embed_rows(model, codes)[:, 0]).all()


def test_linear_model_gives_logits_and_slopes():
    logits, slopes = open_client(MODEL, Access.GRADIENT).compute_linear_logits(CODES)
    assert (logits == MODEL.compute_logits(CODES)).all() and (slopes == MODEL.weights).all()


def measure_depth(call, access=Access.WHITE_BOX, model=MODEL, padded=False):
    """Return the inspection depth of a call."""
    ledger = Ledger(records_depth=True)
    call(ledger.open_client(model, access, LedgerKey("who"), padded=padded))
    return ledger.get_depth(LedgerKey("who"))


def test_ledger_records_inspection_depth():
    for access, calls in CALLS.items():
        expected = {Access.GRADIENT: InspectionDepth.EMBEDDINGS, Access.WHITE_BOX: InspectionDepth.EFFECTS}.get(
            access, InspectionDepth.PREDICTIONS
        )
        assert [measure_depth(call) for call in calls] == [expected] * len(calls)
    partial_codes = CODES.copy()
    partial_codes[3, 1] = ABSENT
    for call in (
        lambda g: g.predict_labels(partial_codes),
        lambda g: g.predict_with_proba(partial_codes, LABELS),
        lambda g: g.predict_proba(partial_codes),
    ):
        assert measure_depth(call) == InspectionDepth.EFFECTS
        assert measure_depth(call, padded=True) == InspectionDepth.PREDICTIONS  # padding is not removal
    partial_codes[3] = [ABSENT, 0]
    assert measure_depth(lambda g: g.predict_labels(partial_codes), padded=True) == InspectionDepth.EFFECTS
    deletion = (CODES, np.array([[0]] * 20), np.array([2]), np.array([[ABSENT]], np.int32), LABELS)
    assert measure_depth(lambda g: g.evaluate_edits(*deletion)) == InspectionDepth.EFFECTS
    no_deletion = (CODES, np.array([[NO_FEATURE]] * 20), np.array([2]), np.array([[ABSENT]], np.int32), LABELS)
    assert measure_depth(lambda g: g.evaluate_edits(*no_deletion)) == InspectionDepth.PREDICTIONS

    def use_embeddings_and_effects(g):
        g.embed_values(0, CODES[:, 0])
        g.compute_effects(CODES, LABELS)
        g.predict_labels(CODES)

    assert measure_depth(use_embeddings_and_effects) == InspectionDepth.EMBEDDINGS  # the deepest counts
    ledger = Ledger()
    ledger.open_client(MODEL, Access.WHITE_BOX, LedgerKey("who")).embed_rows(CODES)
    assert ledger.depths == {}  # depths are recorded on request only


def test_client_has_linear_logit_with_gradient_access_only():
    assert (
        open_client(MODEL, Access.GRADIENT).has_linear_logit
        and not open_client(MODEL, Access.PROBABILITY).has_linear_logit
    )
    assert not open_client(TwoColumnModel(MODEL), Access.GRADIENT).has_linear_logit
