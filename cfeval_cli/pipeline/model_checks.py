"""Checks of a model: valid predictions, equal predictions for equal rows, an accuracy above chance."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from cfeval_cli.core import (
    Access,
    Codes,
    Dataset,
    Floats,
    Ints,
    Ledger,
    LedgerKey,
    Model,
    ModelSpec,
    Probabilistic,
    Rows,
)
from cfeval_cli.core.scratch import iterate_slabs
from cfeval_cli.errors import Failure
from cfeval_cli.model.external import (
    N_PROBE_ROWS,
    InvalidOutput,
    call_model,
    describe_invalid_output,
    describe_row,
    read_probabilities,
)
from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time
from cfeval_cli.seeding import make_stream
from cfeval_cli.settings.plan import Plan

log = logging.getLogger("cfeval")

MAX_ROWS_PER_CALL = 1 << 16
# Predictions may differ in the last digits, because small numbers are summed in another order among other rows.
_TOLERANCE_BETWEEN_CALLS = 1e-5
_TOLERANCE = 1e-6  # between the start and the end of a run, or between processes
_TOLERANCE_FLOAT32 = 1e-4  # the same for models that compute in float32
_N_SINGLE_ROWS = 5  # that are also predicted one by one


def determine_model_spec(plan: Plan, dataset: Dataset) -> ModelSpec:
    """Return the specification of the trained model; for some models, this takes an evaluation of a few rows."""
    with _limit_model_time(plan.settings.timeout_model):
        return ModelSpec.from_settings(dataset, plan.model)


def check_model(model: Model, dataset: Dataset, seed: int, timeout: float | None) -> None:
    """Raise a Failure if predictions are invalid, or differ for the same row.

    A few rows are predicted twice, in reverse order, and one by one.
    """
    rows = make_stream(seed, "trust").permutation(len(dataset.test))[:N_PROBE_ROWS]
    codes = dataset.test.codes[np.sort(rows)]
    is_reversed, is_single = np.arange(len(codes))[::-1], np.arange(min(_N_SINGLE_ROWS, len(codes)))
    with _limit_model_time(timeout):
        first = evaluate_model(model, dataset, codes)
        _check_equal(first, evaluate_model(model, dataset, codes), codes, dataset, "evaluated twice")
        reversed_predictions = evaluate_model(model, dataset, codes[is_reversed])
        _check_equal(
            first[is_reversed], reversed_predictions, codes[is_reversed], dataset, "evaluated in another order"
        )
        single = np.concatenate([evaluate_model(model, dataset, codes[row][None]) for row in is_single])
        _check_equal(first[is_single], single, codes[is_single], dataset, "evaluated among other rows and alone")


def evaluate_model(model: Model, dataset: Dataset, codes: Codes) -> Floats:
    """Return probabilities (n, C), with 1 for the predicted class if the model gives labels only; check them."""
    has_probabilities = isinstance(model, Probabilistic)
    access = Access.PROBABILITY if has_probabilities else Access.LABEL
    client = Ledger().open_client(model, access, LedgerKey("model"), padded=dataset.padded)
    predict: Callable[[Codes], Floats | Ints] = client.predict_proba if has_probabilities else client.predict_labels
    predictions = call_model(predict, codes, dataset, "the model")
    try:
        if has_probabilities:
            return _check_probabilities(predictions, len(codes), dataset)
        return np.eye(len(dataset.classes))[_check_labels(predictions, len(codes), dataset)]
    except InvalidOutput as error:
        raise Failure(describe_invalid_output("the model", error, codes, dataset)) from error


def compute_predictions(model: Model, dataset: Dataset, codes: Codes) -> tuple[Ints, Floats | None]:
    """Return the predicted classes (n,), and the probabilities (n, C) unless the model gives labels only."""
    batches = iterate_slabs(len(codes), MAX_ROWS_PER_CALL)
    probabilities = np.concatenate([evaluate_model(model, dataset, codes[batch]) for batch in batches])
    labels = np.argmax(probabilities, axis=1).astype(np.int64)
    return labels, probabilities if isinstance(model, Probabilistic) else None


def _check_probabilities(predictions: Floats | Ints, size: int, dataset: Dataset) -> Floats:
    """Return the probabilities of all classes; unlike elsewhere, one column is not taken as P(1)."""
    if predictions.ndim != 2 or predictions.shape[1] != len(dataset.classes):
        raise InvalidOutput(
            f"returns probabilities of shape {predictions.shape} for {size} rows, where {dataset.name} has "
            f"{len(dataset.classes)} classes: one column for each class is needed"
        )
    return read_probabilities(predictions, size, dataset.classes)


def _check_labels(predictions: Floats | Ints, size: int, dataset: Dataset) -> Ints:
    """Return the predicted classes as integers."""
    largest = len(dataset.classes) - 1
    if predictions.shape != (size,):
        raise InvalidOutput(
            f"returns labels of shape {predictions.shape} for {size} rows: one label for each row is needed"
        )
    is_invalid = (predictions < 0) | (predictions > largest)
    if is_invalid.any():
        row = int(is_invalid.argmax())
        raise InvalidOutput(f"predicts the class {predictions[row]}, where a number from 0 to {largest} is needed", row)
    return predictions.astype(np.int64)


def get_tolerance(probabilities: Floats | None) -> float:
    """Return by how much a repeated prediction may differ; models that compute in float32 are less precise."""
    # The last column, because that of class 0 may be computed from it in float64, as 1 - P(1).
    is_float32 = probabilities is not None and (probabilities[:, -1] == probabilities[:, -1].astype(np.float32)).all()
    return _TOLERANCE_FLOAT32 if is_float32 else _TOLERANCE


def check_unchanged(
    model: Model, dataset: Dataset, rows: Rows, probabilities: Floats | None, batch_size: int = MAX_ROWS_PER_CALL
) -> None:
    """Evaluate the explained instances again, in the same batches; Failure if a label or a probability has changed."""
    tolerance = get_tolerance(probabilities)
    for start in range(0, len(rows), batch_size):
        batch = slice(start, start + batch_size)
        predictions = evaluate_model(model, dataset, rows.codes[batch])
        labels = predictions.argmax(axis=1)
        has_changed = labels != rows.predicted_classes[batch]
        if probabilities is not None:
            has_changed |= np.abs(predictions - probabilities[batch]).max(axis=1) > tolerance
        if has_changed.any():
            row = int(has_changed.argmax())
            old, new = rows.predicted_classes[start + row], labels[row]
            first, second = dataset.classes[old], dataset.classes[new]
            values = [f"class {first} and then class {second}"] if old != new else []
            if probabilities is not None:
                column = int(np.abs(predictions[row] - probabilities[start + row]).argmax())
                pair = f"{probabilities[start + row, column]:.8g} and then {predictions[row, column]:.8g}"
                values.append(f"P({dataset.classes[column]}) = {pair}")
            difference = "changed" if probabilities is None else f"changed class or differ by more than {tolerance:g}"
            raise Failure(
                f"the model changed during the run: for instance {rows.ids[start + row]} it gave {', '.join(values)}; "
                f"{int(has_changed.sum()):,} of {len(labels):,} instances {difference}. A model must "
                "give the same answer to the same row: it must not keep state or learn between calls."
            )


def find_accuracy_warnings(accuracy: Mapping[str, float], dataset: Dataset) -> list[str]:
    """Return, and log, a warning if the model is less accurate than chance."""
    chance = 1 / len(dataset.classes)
    if accuracy["test"] >= chance:
        return []
    warning = (
        f"the model is right for {accuracy['test']:.1%} of the test rows, less often than a guess ({chance:.1%}). "
        f"Are its classes in another order than {', '.join(dataset.classes)}?"
    )
    log.warning("%s", warning)
    return [warning]


def _check_equal(first: Floats, second: Floats, codes: Codes, dataset: Dataset, condition: str) -> None:
    difference = np.abs(first - second).max(axis=1, initial=0.0)
    if (difference > _TOLERANCE_BETWEEN_CALLS).any():
        row = int(difference.argmax())
        before, after = (", ".join(f"{p:.6g}" for p in predictions[row]) for predictions in (first, second))
        raise Failure(
            f"the predictions of the model change: {condition}, it returns {before} and then {after} for "
            f"{describe_row(dataset, codes[row])}. A model must return the same prediction for the same row."
        )


@contextmanager
def _limit_model_time(seconds: float | None) -> Iterator[None]:
    try:
        with limit_time(seconds):
            yield
    except TimeLimitExceeded:
        raise Failure(
            f"the model gave no answer to {N_PROBE_ROWS} rows within {seconds:g} s. "
            "If it needs more time, set timeout_model."
        ) from None
