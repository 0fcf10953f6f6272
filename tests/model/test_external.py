"""Whatever a model made elsewhere answers becomes one row of numbers, or one message."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.model.external import (
    InvalidOutput,
    LabelModel,
    Predictor,
    ProbabilityModel,
    call_model,
    describe_missing_columns,
    encode_classes,
    find_model_file,
    infer_output_kind,
    read_labels,
    read_probabilities,
)
from tests.model.mixed import mixed, sentences

DATASET = mixed()
CODES = DATASET.test.codes
TWO, THREE = ("bad", "good"), ("a", "b", "c")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_one_number_a_row_is_the_probability_of_the_second_class(numbers):
    for output in (numbers, np.array(numbers)[:, None], pd.Series(numbers), np.array(numbers, dtype=object)):
        converted = read_probabilities(output, len(numbers), TWO)
        assert converted[:, 1] == pytest.approx(np.array(numbers)) and converted.sum(axis=1) == pytest.approx(1)


def test_a_table_stays_as_it_is():
    table = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    assert (read_probabilities(table, 8, THREE) == table).all()
    assert (read_probabilities(pd.DataFrame(table), 8, THREE) == table).all()
    assert read_probabilities(table.astype(np.float32), 8, THREE).dtype == np.float64
    assert (read_probabilities(table[:, :2] / table[:, :2].sum(axis=1, keepdims=True), 8, TWO) <= 1).all()
    assert read_probabilities(np.array([[1 + 1e-9, -1e-9]]), 1, TWO).tolist() == [[1.0, 0.0]]  # what rounding does


@pytest.mark.parametrize(
    ("output", "classes", "message", "row"),
    [
        ([0.5, np.nan], TWO, "returns nan, not a number between 0 and 1,", 1),
        ([0.5, np.inf], TWO, "returns inf", 1),
        ([1.2, 0.5], TWO, r"returns 1\.2", 0),
        ([0.5, -0.1], TWO, r"returns -0\.1", 1),
        ([0.5], TWO, "returns 1 predictions for 2 rows", None),
        ([0.5] * 3, TWO, "returns 3 predictions for 2 rows", None),
        ([0.5, 0.5], THREE, "returns one number for each row, not one for each of 3 classes", None),
        ([[0.5, 0.5]] * 2, THREE, "returns 2 columns, but there are 3 classes: a, b, c", None),
        ([[0.5, 0.5], [0.5, 0.7]], TWO, r"sum to 1\.2, not 1", 1),
        ([[5.0, 5.0], [0.5, 0.7]], TWO, "returns 5", 0),
        (np.zeros((2, 2, 2)), TWO, r"shape \(2, 2, 2\)", None),
        (0.5, TWO, r"shape \(\)", None),
        (["yes", "no"], TWO, "returns a list, not numbers", None),
        (None, TWO, "shape|nothing", None),
        ([[0.1, 0.9], [1]], TWO, "returns a list", None),
    ],
)
def test_what_is_no_probability_is_said_with_the_row(output, classes, message, row):
    with pytest.raises(InvalidOutput, match=message) as converted:
        read_probabilities(output, 2, classes)
    assert converted.value.row == row


@pytest.mark.parametrize(
    ("output", "classes", "wanted"),
    [
        (["good", "bad"], TWO, [1, 0]),
        ([1, 0], TWO, [1, 0]),
        ([1.0, 0.0], TWO, [1, 0]),
        ([True, False], TWO, [1, 0]),
        (["1", "0"], TWO, [1, 0]),
        ([[1], [0]], TWO, [1, 0]),
        ([1, 2], ("1", "2"), [0, 1]),  # a name that is a number is a name
        ([2.0, 1.0], ("1", "2"), [1, 0]),
        (np.array(["c", "a"], dtype=object), THREE, [2, 0]),
        (pd.Series(["c", "a"]), THREE, [2, 0]),
    ],
)
def test_classes_are_known_by_name_or_number(output, classes, wanted):
    assert read_labels(output, 2, classes).tolist() == wanted


@pytest.mark.parametrize(
    ("output", "classes", "message"),
    [
        (["good", "fine"], TWO, "the class 'fine', which is none of bad, good"),
        ([0, 2], TWO, "the class '2'"),
        ([0, -1], TWO, "the class '-1'"),
        ([0, 1], ("1", "2"), "the class '0'"),
        ([0.5, 1], TWO, "the class '0.5'"),
        ([0, np.nan], TWO, "the class 'nan'"),
        ([None, 1], TWO, "the class 'None'"),
        ([0], TWO, "1 predictions for 2 rows"),
        ([[0, 1], [1, 0]], TWO, r"shape \(2, 2\)"),
    ],
)
def test_what_is_no_class_is_said(output, classes, message):
    with pytest.raises(InvalidOutput, match=message):
        read_labels(output, 2, classes)


def test_what_an_answer_is_of():
    assert (
        infer_output_kind(np.array([0.2, 0.9]), TWO) == "probabilities"
        and infer_output_kind([[0.2, 0.8]], TWO) == "probabilities"
    )
    assert (
        infer_output_kind([0, 1], TWO)
        == infer_output_kind(["bad", "good"], TWO)
        == infer_output_kind([True], TWO)
        == "labels"
    )
    assert infer_output_kind([0.0, 1.0, 2.0], THREE) == "labels"  # P(1) is of two classes only
    assert encode_classes(np.array([1, 0]), TWO).tolist() == [1, 0]


class Counts(Predictor):
    """Answers by the sum of the codes, and remembers how it was asked."""

    def predict_raw(self, codes):
        self.__dict__.setdefault("sizes", []).append(len(codes))
        return 1 / (1 + np.exp(-(codes.sum(axis=1) - 5.0)))


def test_rows_are_asked_about_in_batches_and_the_answers_are_the_same():
    whole, parts = Counts(DATASET, "it", "mark", 1000), Counts(DATASET, "it", "mark", 7)
    assert (ProbabilityModel(whole).predict_proba(CODES) == ProbabilityModel(parts).predict_proba(CODES)).all()
    assert whole.sizes == [40] and parts.sizes == [7, 7, 7, 7, 7, 5]
    assert ProbabilityModel(parts).predict_proba(CODES[:0]).shape == (0, 2)
    assert LabelModel(parts).predict(CODES[:0]).shape == (0,)
    assert ProbabilityModel(parts).fingerprint() == LabelModel(parts).fingerprint() == "mark"


class Wrong(Predictor):
    """Fails, or answers nonsense, about some rows."""

    def predict_raw(self, codes):
        if (codes[:, 0] == 2).any() and (codes[:, 1] == 3).any():
            here = (codes[:, 0] == 2) & (codes[:, 1] == 3)
            if here.any():
                raise KeyError("31.5 red")
        return np.where(codes[:, 2] == 3, np.nan, 0.5)


def test_a_row_that_it_fails_on_is_named():
    bad = [row for row in CODES if row[0] == 2 and row[1] == 3]
    with pytest.raises(
        Failure, match=r"it raised KeyError: '31.5 red' for (the row \d+ \(\w+ split\)|a row with replaced values)"
    ):
        ProbabilityModel(Wrong(DATASET, "it", None, 100)).predict_proba(CODES)
    assert bad
    fine = CODES[~((CODES[:, 0] == 2) & (CODES[:, 1] == 3))]
    with pytest.raises(Failure, match=r"it returns nan, .* for (the row \d+ \(\w+ split\)|a row with replaced values)"):
        ProbabilityModel(Wrong(DATASET, "it", None, 100)).predict_proba(fine)


def test_a_failure_of_all_rows_together_is_told_as_that_and_texts_are_quoted():
    def together(codes):
        if len(codes) > 1:
            raise MemoryError("too many")

    with pytest.raises(Failure, match=r"it raised MemoryError: too many for 40 rows together"):
        call_model(together, CODES, DATASET, "it")
    texts = sentences()

    def never(codes):
        raise ValueError("no")

    with pytest.raises(Failure, match=r"for the text \d+ \(test split\)"):
        call_model(never, texts.test.codes, texts, "it")
    with pytest.raises(UserError, match="said already"):
        call_model(lambda _: (_ for _ in ()).throw(UserError("said already")), CODES, DATASET, "it")


@pytest.mark.parametrize("name", ["model.pkl", "model.PKL", "m.joblib", "m.pickle"])
def test_a_pickle_is_refused_with_the_way_out(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(UserError, match=r"is a pickle.*model=function model.path=score.py:predict_proba"):
        find_model_file(str(tmp_path / name), "a model")


def test_a_file_that_is_not_there():
    with pytest.raises(UserError, match=r"there is no such file. It should be a model of ours"):
        find_model_file("nowhere.onnx", "a model of ours")


def test_columns_that_a_model_wants_are_looked_for():
    assert describe_missing_columns(["age", "colour"], DATASET) is None
    converted = describe_missing_columns(["ages", "height", "x", "y"], DATASET)
    assert converted == "needs ages, height, x and 1 more, but mixed has no such feature. Did you mean age?"
