"""Outputs of external models are converted, or reported if they are invalid."""

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
from tests.model.mixed import make_mixed_table, make_sentences

DATASET = make_mixed_table()
CODES = DATASET.test.codes
TWO_CLASSES, THREE_CLASSES = ("bad", "good"), ("a", "b", "c")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_single_column_is_the_probability_of_the_second_class(numbers):
    for output in (numbers, np.array(numbers)[:, None], pd.Series(numbers), np.array(numbers, dtype=object)):
        converted = read_probabilities(output, len(numbers), TWO_CLASSES)
        assert converted[:, 1] == pytest.approx(np.array(numbers)) and converted.sum(axis=1) == pytest.approx(1)


def test_valid_probabilities_are_unchanged():
    table = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    assert (read_probabilities(table, 8, THREE_CLASSES) == table).all()
    assert (read_probabilities(pd.DataFrame(table), 8, THREE_CLASSES) == table).all()
    assert read_probabilities(table.astype(np.float32), 8, THREE_CLASSES).dtype == np.float64
    assert (read_probabilities(table[:, :2] / table[:, :2].sum(axis=1, keepdims=True), 8, TWO_CLASSES) <= 1).all()
    # rounding errors are removed
    assert read_probabilities(np.array([[1 + 1e-9, -1e-9]]), 1, TWO_CLASSES).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("output", "classes", "message", "row"),
    [
        ([0.5, np.nan], TWO_CLASSES, "returns nan, not a number between 0 and 1,", 1),
        ([0.5, np.inf], TWO_CLASSES, "returns inf", 1),
        ([1.2, 0.5], TWO_CLASSES, r"returns 1\.2", 0),
        ([0.5, -0.1], TWO_CLASSES, r"returns -0\.1", 1),
        ([0.5], TWO_CLASSES, "returns 1 predictions for 2 rows", None),
        ([0.5] * 3, TWO_CLASSES, "returns 3 predictions for 2 rows", None),
        ([0.5, 0.5], THREE_CLASSES, "returns one number for each row, not one for each of 3 classes", None),
        ([[0.5, 0.5]] * 2, THREE_CLASSES, "returns 2 columns, but there are 3 classes: a, b, c", None),
        ([[0.5, 0.5], [0.5, 0.7]], TWO_CLASSES, r"sum to 1\.2, not 1", 1),
        ([[5.0, 5.0], [0.5, 0.7]], TWO_CLASSES, "returns 5", 0),
        (np.zeros((2, 2, 2)), TWO_CLASSES, r"shape \(2, 2, 2\)", None),
        (0.5, TWO_CLASSES, r"shape \(\)", None),
        (["yes", "no"], TWO_CLASSES, "returns a list, not numbers", None),
        (None, TWO_CLASSES, "shape|nothing", None),
        ([[0.1, 0.9], [1]], TWO_CLASSES, "returns a list", None),
    ],
)
def test_invalid_probabilities_are_reported_with_the_row(output, classes, message, row):
    with pytest.raises(InvalidOutput, match=message) as error:
        read_probabilities(output, 2, classes)
    assert error.value.row == row


@pytest.mark.parametrize(
    ("output", "classes", "expected"),
    [
        (["good", "bad"], TWO_CLASSES, [1, 0]),
        ([1, 0], TWO_CLASSES, [1, 0]),
        ([1.0, 0.0], TWO_CLASSES, [1, 0]),
        ([True, False], TWO_CLASSES, [1, 0]),
        (["1", "0"], TWO_CLASSES, [1, 0]),
        ([[1], [0]], TWO_CLASSES, [1, 0]),
        ([1, 2], ("1", "2"), [0, 1]),  # names take precedence over numbers
        ([2.0, 1.0], ("1", "2"), [1, 0]),
        (np.array(["c", "a"], dtype=object), THREE_CLASSES, [2, 0]),
        (pd.Series(["c", "a"]), THREE_CLASSES, [2, 0]),
    ],
)
def test_labels_are_class_names_or_numbers(output, classes, expected):
    assert read_labels(output, 2, classes).tolist() == expected


@pytest.mark.parametrize(
    ("output", "classes", "message"),
    [
        (["good", "fine"], TWO_CLASSES, "the class 'fine', which is none of bad, good"),
        ([0, 2], TWO_CLASSES, "the class '2'"),
        ([0, -1], TWO_CLASSES, "the class '-1'"),
        ([0, 1], ("1", "2"), "the class '0'"),
        ([0.5, 1], TWO_CLASSES, "the class '0.5'"),
        ([0, np.nan], TWO_CLASSES, "the class 'nan'"),
        ([None, 1], TWO_CLASSES, "the class 'None'"),
        ([0], TWO_CLASSES, "1 predictions for 2 rows"),
        ([[0, 1], [1, 0]], TWO_CLASSES, r"shape \(2, 2\)"),
    ],
)
def test_invalid_labels_are_reported(output, classes, message):
    with pytest.raises(InvalidOutput, match=message):
        read_labels(output, 2, classes)


def test_output_kind_is_inferred():
    assert (
        infer_output_kind(np.array([0.2, 0.9]), TWO_CLASSES) == "probabilities"
        and infer_output_kind([[0.2, 0.8]], TWO_CLASSES) == "probabilities"
    )
    assert (
        infer_output_kind([0, 1], TWO_CLASSES)
        == infer_output_kind(["bad", "good"], TWO_CLASSES)
        == infer_output_kind([True], TWO_CLASSES)
        == "labels"
    )
    assert infer_output_kind([0.0, 1.0, 2.0], THREE_CLASSES) == "labels"  # a single probability needs two classes
    assert encode_classes(np.array([1, 0]), TWO_CLASSES).tolist() == [1, 0]


class BatchRecorder(Predictor):
    """A model of the sum of the codes that records batch sizes."""

    def predict_raw(self, codes):
        self.__dict__.setdefault("sizes", []).append(len(codes))
        return 1 / (1 + np.exp(-(codes.sum(axis=1) - 5.0)))


def test_predictions_do_not_depend_on_batches():
    single_batch, small_batches = BatchRecorder(DATASET, "it", "mark", 1000), BatchRecorder(DATASET, "it", "mark", 7)
    assert (
        ProbabilityModel(single_batch).predict_proba(CODES) == ProbabilityModel(small_batches).predict_proba(CODES)
    ).all()
    assert single_batch.sizes == [40] and small_batches.sizes == [7, 7, 7, 7, 7, 5]
    assert ProbabilityModel(small_batches).predict_proba(CODES[:0]).shape == (0, 2)
    assert LabelModel(small_batches).predict(CODES[:0]).shape == (0,)
    assert ProbabilityModel(small_batches).fingerprint() == LabelModel(small_batches).fingerprint() == "mark"


class FailingPredictor(Predictor):
    """A model that fails or returns invalid probabilities for some rows."""

    def predict_raw(self, codes):
        if (codes[:, 0] == 2).any() and (codes[:, 1] == 3).any():
            is_failing_row = (codes[:, 0] == 2) & (codes[:, 1] == 3)
            if is_failing_row.any():
                raise KeyError("31.5 red")
        return np.where(codes[:, 2] == 3, np.nan, 0.5)


def test_failing_row_is_reported():
    failing_rows = [row for row in CODES if row[0] == 2 and row[1] == 3]
    with pytest.raises(
        Failure, match=r"it raised KeyError: '31.5 red' for (the row \d+ \(\w+ split\)|a row with replaced values)"
    ):
        ProbabilityModel(FailingPredictor(DATASET, "it", None, 100)).predict_proba(CODES)
    assert failing_rows
    other_rows = CODES[~((CODES[:, 0] == 2) & (CODES[:, 1] == 3))]
    with pytest.raises(Failure, match=r"it returns nan, .* for (the row \d+ \(\w+ split\)|a row with replaced values)"):
        ProbabilityModel(FailingPredictor(DATASET, "it", None, 100)).predict_proba(other_rows)


def test_failures_of_batches_and_of_texts_are_reported():
    def fail_on_batches(codes):
        if len(codes) > 1:
            raise MemoryError("too many")

    with pytest.raises(Failure, match=r"it raised MemoryError: too many for 40 rows together"):
        call_model(fail_on_batches, CODES, DATASET, "it")
    texts = make_sentences()

    def fail(codes):
        raise ValueError("no")

    with pytest.raises(Failure, match=r"for the text \d+ \(test split\)"):
        call_model(fail, texts.test.codes, texts, "it")
    with pytest.raises(UserError, match="said already"):
        call_model(lambda _: (_ for _ in ()).throw(UserError("said already")), CODES, DATASET, "it")


@pytest.mark.parametrize("name", ["model.pkl", "model.PKL", "m.joblib", "m.pickle"])
def test_pickle_is_refused_with_an_alternative(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(UserError, match=r"is a pickle.*model=function model.path=score.py:predict_proba"):
        find_model_file(str(tmp_path / name), "a model")


def test_missing_file_is_reported():
    with pytest.raises(UserError, match=r"there is no such file. It should be a model of ours"):
        find_model_file("nowhere.onnx", "a model of ours")


def test_missing_columns_are_reported():
    assert describe_missing_columns(["age", "colour"], DATASET) is None
    message = describe_missing_columns(["ages", "height", "x", "y"], DATASET)
    assert message == "needs ages, height, x and 1 more, but mixed has no such feature. Did you mean age?"
