"""Invalid models, each with its message."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cfeval_cli.core import BlackBox, Classifier, DeclaresOutputType, ModelSpec, Probabilistic, Rows
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.model_checks import (
    check_model,
    check_unchanged,
    determine_model_spec,
    evaluate_model,
    find_accuracy_warnings,
    get_tolerance,
)
from tests.problems import make_dataset, make_linear

DATASET = make_dataset([3, 4, 2], n=30)
RNG = np.random.default_rng(0)


def by_row(codes):
    """Different for different rows, the same for the same."""
    p = (codes @ np.array([1, 3, 12])) / 40
    return np.stack([1 - p, p], axis=1)


class Own(Probabilistic):
    """A class of the user's own."""

    def __init__(self, answer):
        self.answer = answer

    def predict_proba(self, codes):
        return self.answer(codes)


class FunctionClassifier(Classifier):
    def __init__(self, answer):
        self.answer = answer

    def predict(self, codes):
        return self.answer(codes)


def test_valid_models_pass():
    for model in (make_linear(DATASET), Own(by_row), FunctionClassifier(lambda codes: codes[:, 2])):
        check_model(model, DATASET, 0, 60)
    three = replace(DATASET, classes=("a", "b", "c"))
    check_model(Own(lambda codes: np.eye(3)[codes[:, 0]] * 0.7 + 0.1), three, 0, None)


def predict_rows(model):
    """Return the predictions that a run stores before it explains."""
    predictions = evaluate_model(model, DATASET, DATASET.test.codes)
    probabilities = predictions if hasattr(model, "predict_proba") else None
    return Rows(DATASET.test.ids, DATASET.test.codes, predictions.argmax(axis=1), None), probabilities


def drifting(by):
    return Own(lambda codes: np.clip(by_row(codes) + np.array([by, -by]), 0.0, 1.0))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_model_that_changes_during_the_run_fails(kind):
    before = Own(lambda codes: by_row(codes).astype(kind))
    rows, probabilities = predict_rows(before)
    tolerance = 1e-6 if kind is np.float64 else 1e-4
    assert get_tolerance(probabilities) == tolerance
    check_unchanged(before, DATASET, rows, probabilities, batch_size=7)
    check_unchanged(drifting(tolerance / 3), DATASET, rows, probabilities)
    joined_pair = r"for instance \d+ it gave P\(\w+\) = 0\.\d+ and then 0\.\d+; \d+ of "
    with pytest.raises(Failure, match=f"the model changed during the run: {joined_pair}"):
        check_unchanged(drifting(3 * tolerance), DATASET, rows, probabilities)


def test_a_changed_label_fails():
    rows, no_probabilities = predict_rows(FunctionClassifier(lambda codes: codes[:, 2]))
    assert no_probabilities is None
    check_unchanged(FunctionClassifier(lambda codes: codes[:, 2]), DATASET, rows, None)
    with pytest.raises(Failure, match=r"it gave class (\w+) and then class (?!\1)\w+; "):
        check_unchanged(FunctionClassifier(lambda codes: 1 - codes[:, 2]), DATASET, rows, None)


def with_row(codes, value):
    probabilities = by_row(codes)
    probabilities[(codes[:, 0] == 1) & (codes[:, 2] == 1)] = value
    return probabilities


def raises(codes):
    if (codes[:, 0] == 1).any():
        raise ValueError("not this one")
    return by_row(codes)


def forgets(codes):
    return by_row(codes)[:-1]


def normalises(codes):
    """By the rows that it happens to see."""
    p = codes[:, 1] / max(1, codes[:, 1].max())
    return np.stack([1 - p, p], axis=1)


def by_place(codes):
    p = np.arange(len(codes)) / len(codes)
    return np.stack([1 - p, p], axis=1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda codes: with_row(codes, np.nan), r"returns nan, .* for (the row \d+|a row with)"),
        (lambda codes: with_row(codes, [0.9, 0.9]), r"sum to 1\.8, not 1, for (the row \d+|a row with)"),
        (lambda codes: with_row(codes, [-1, 2]), "returns -1, not a number between 0 and 1,"),
        (raises, r"raised ValueError: not this one for (the row \d+|a row with)"),
        (forgets, "returns 19 predictions for 20 rows"),
        (lambda codes: by_row(codes)[:, 1], r"shape \(20,\) for 20 rows, where toy has 2 classes"),
        (lambda codes: np.full((len(codes), 3), 1 / 3), r"shape \(20, 3\)"),
        (lambda codes: RNG.dirichlet(np.ones(2), len(codes)), "model change: evaluated twice, it returns"),
        (by_place, "predictions of the model change: evaluated in another order"),
        (normalises, r"predictions of the model change: .* it returns .* for (the row \d+|a row with)"),
    ],
)  # fmt: skip
def test_invalid_models_fail_with_the_row(answer, message):
    with pytest.raises(Failure, match=message):
        check_model(Own(answer), DATASET, 0, 60)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda codes: codes[:, 0],
            r"predicts the class 2, where a number from 0 to 1 is needed for (the row \d+|a row with)",
        ),
        (lambda codes: -codes[:, 2], "predicts the class -1"),
        (lambda codes: codes[:-1, 2], r"returns labels of shape \(19,\) for 20 rows"),
        (lambda codes: RNG.integers(0, 2, len(codes)), "predictions of the model change"),
    ],
)
def test_invalid_labels_fail(answer, message):
    with pytest.raises(Failure, match=message):
        check_model(FunctionClassifier(answer), DATASET, 0, 60)


def test_a_model_without_an_answer_in_time_fails():
    with pytest.raises(
        Failure, match=r"gave no answer to 20 rows within 0\.05 s. If it needs more time, set timeout_model"
    ):
        check_model(Own(lambda codes: time.sleep(60)), DATASET, 0, 0.05)


class SingleEditModel(DeclaresOutputType):
    """Settings that must try the model to know what it is."""

    def __init__(self, seconds):
        self.seconds = seconds

    def output_type(self, dataset):
        time.sleep(self.seconds)
        return Own

    def fit(self, dataset, seed):
        return Own(by_row)


def test_output_type_is_determined_within_the_time_limit():
    result = determine_model_spec(
        SimpleNamespace(model=SingleEditModel(0), settings=SimpleNamespace(timeout_model=60)), DATASET
    )
    assert result == ModelSpec(DATASET, Own)
    with pytest.raises(Failure, match="set timeout_model"):
        determine_model_spec(
            SimpleNamespace(model=SingleEditModel(60), settings=SimpleNamespace(timeout_model=0.05)), DATASET
        )
    plain = SimpleNamespace(fit=lambda dataset, seed: None)
    assert (
        determine_model_spec(SimpleNamespace(model=plain, settings=SimpleNamespace(timeout_model=None)), DATASET).kind
        is BlackBox
    )


def test_which_rows_are_tried_belongs_to_the_seed():
    received_rows = []

    def remembers(codes):
        received_rows.append(codes.copy())
        return by_row(codes)

    for seed in (0, 0, 1):
        check_model(Own(remembers), DATASET, seed, None)
    first, repetition, other = received_rows[0], received_rows[8], received_rows[16]
    assert np.array_equal(first, repetition) and not np.array_equal(first, other)  # which may be another number of rows


def test_a_model_worse_than_a_guess_gives_a_warning(caplog):
    assert find_accuracy_warnings({"test": 0.5}, DATASET) == [] and not caplog.text
    (result,) = find_accuracy_warnings({"test": 0.123}, DATASET)
    assert result.startswith("the model is right for 12.3% of the test rows, less often than a guess (50.0%).")
    assert "in another order than no, yes?" in result and result in caplog.text
    three = replace(DATASET, classes=("a", "b", "c"))
    assert find_accuracy_warnings({"test": 0.34}, three) == [] and find_accuracy_warnings({"test": 0.33}, three)
