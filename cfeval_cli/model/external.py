"""Models trained elsewhere: turn whatever they return into one class, or probabilities of all classes, for each row."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import (
    Bools,
    Classifier,
    Codes,
    Dataset,
    DeclaresOutputType,
    Fingerprinted,
    Floats,
    HasUsedFeatures,
    Ints,
    Probabilistic,
)
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.errors import Failure, UserError, did_you_mean, excerpt_error, locate_error, refuse_system_exit, shorten

N_PROBE_ROWS = 20  # on which a model is tried before a run
_SUM_TOLERANCE = 1e-3  # of the sum of probabilities, which may be rounded or in low precision
_RANGE_TOLERANCE = 1e-6  # a probability may exceed 0 or 1 by this much, and is clipped
_PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")

_T = TypeVar("_T")
log = logging.getLogger("cfeval")


class InvalidOutput(ValueError):
    """The output of a model is not valid, for one row or (None) for all rows."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


@dataclass(frozen=True)
class Predictor(ABC):
    """A source of predictions for the rows of a dataset, in whatever form."""

    dataset: Dataset
    title: str  # in messages
    mark: str | None  # equal exactly if the predictions are; None if that is unknown
    batch_size: int  # rows that are evaluated at once

    @property
    def used_features(self) -> Bools:
        """Whether the predictions may depend on each feature (M,)."""
        return np.ones(self.dataset.n_features, dtype=bool)

    @abstractmethod
    def predict_raw(self, codes: Codes) -> Any:
        """Return the predictions of (n, M) codes, in whatever form."""

    def predict_batches(self, codes: Codes, read: Callable[[Any, int, Sequence[str]], NDArray[Any]]) -> NDArray[Any]:
        """Predict batch by batch, and convert the output with `read`; Failure with the row of an invalid output."""
        starts = range(0, len(codes), self.batch_size)
        parts = [self._predict_batch(codes[start : start + self.batch_size], read) for start in starts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _predict_batch(self, codes: Codes, read: Callable[[Any, int, Sequence[str]], NDArray[Any]]) -> NDArray[Any]:
        try:
            output = call_model(self.predict_raw, codes, self.dataset, self.title)
            return read(output, len(codes), self.dataset.classes)
        except InvalidOutput as invalid:
            raise Failure(describe_invalid_output(self.title, invalid, codes, self.dataset)) from invalid


@dataclass(frozen=True)
class LabelModel(Classifier, HasUsedFeatures, Fingerprinted):
    """A model trained elsewhere that returns classes."""

    source: Predictor

    def predict(self, codes: Codes) -> Ints:
        """Return classes (n,)."""
        return self.source.predict_batches(codes, read_labels) if len(codes) else np.zeros(0, dtype=np.int64)

    def get_used_features(self) -> Bools:
        """Return whether the model may read each feature (M,)."""
        return self.source.used_features

    def fingerprint(self) -> str | None:
        """Return what the predictions depend on."""
        return self.source.mark


@dataclass(frozen=True)
class ProbabilityModel(Probabilistic, HasUsedFeatures, Fingerprinted):
    """A model trained elsewhere that returns probabilities."""

    source: Predictor

    def predict_proba(self, codes: Codes) -> Floats:
        """Return probabilities (n, C)."""
        if not len(codes):
            return np.zeros((0, len(self.source.dataset.classes)))
        return self.source.predict_batches(codes, read_probabilities)

    def get_used_features(self) -> Bools:
        """Return whether the model may read each feature (M,)."""
        return self.source.used_features

    def fingerprint(self) -> str | None:
        """Return what the predictions depend on."""
        return self.source.mark


class PretrainedModel(DeclaresOutputType):
    """Settings of a model that is trained already."""

    @abstractmethod
    def make_predictor(self, dataset: Dataset) -> Predictor:
        """Return the source of predictions."""

    @abstractmethod
    def output_type(self, dataset: Dataset) -> type:
        """Return ProbabilityModel or LabelModel."""

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Return the model, which is trained already."""
        return self.output_type(dataset)(self.make_predictor(dataset))  # type: ignore[no-any-return]


class PredictionFunction(PretrainedModel):
    """A function that returns probabilities or labels; `gives="auto"` is resolved by its output for a few rows."""

    gives: str

    def output_type(self, dataset: Dataset) -> type:
        """Return ProbabilityModel or LabelModel."""
        kind = self.gives
        if kind == "auto":
            source = self.make_predictor(dataset)
            output = call_model(source.predict_raw, dataset.test.codes[:N_PROBE_ROWS], dataset, source.title)
            kind = infer_output_kind(output, dataset.classes)
        return ProbabilityModel if kind == "probabilities" else LabelModel

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Return the model, which is trained already; warn if it returns labels although none were requested."""
        model = super().fit(dataset, seed)
        if self.gives == "auto" and isinstance(model, LabelModel):
            log.warning(
                "%s returns labels. Explainers and metrics that need probabilities have no value, and few differences "
                "are significant. If the model has probabilities, return them",
                model.source.title,
            )
        return model


def read_probabilities(output: Any, n_rows: int, classes: Sequence[str]) -> Floats:
    """Return probabilities (n, C) from an output of that shape, or for two classes from P(1) as (n,) or (n, 1)."""
    array = _to_numbers(output)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise InvalidOutput(f"returns an array of shape {array.shape}, not ({n_rows}, {len(classes)})")
    if len(array) != n_rows:
        raise InvalidOutput(f"returns {len(array):,} predictions for {n_rows:,} rows, not one for each row")
    if array.ndim == 1:
        if len(classes) != 2:
            raise InvalidOutput(f"returns one number for each row, not one for each of {len(classes)} classes")
        _check_probabilities(array[:, None])
        array = np.clip(array, 0.0, 1.0)
        return np.stack([1.0 - array, array], axis=1)
    if array.shape[1] != len(classes):
        raise InvalidOutput(
            f"returns {array.shape[1]} columns, but there are {len(classes)} classes: {', '.join(classes)}"
        )
    _check_probabilities(array)
    sums = array.sum(axis=1)
    if (is_off := np.abs(sums - 1.0) > _SUM_TOLERANCE).any():
        row = int(is_off.argmax())
        raise InvalidOutput(f"returns probabilities that sum to {sums[row]:.6g}, not 1,", row)
    return np.clip(array, 0.0, 1.0)


def _to_numbers(output: Any) -> Floats:
    try:
        return np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidOutput(f"returns {_describe_type(output)}, not numbers") from error


def _to_array(output: Any) -> NDArray[Any]:
    try:
        return np.asarray(output)
    except ValueError as error:
        raise InvalidOutput(f"returns {_describe_type(output)} of rows that differ in length") from error


def _check_probabilities(array: Floats) -> None:
    is_invalid = ~np.isfinite(array)
    if not is_invalid.any():
        is_invalid = (array < -_RANGE_TOLERANCE) | (array > 1.0 + _RANGE_TOLERANCE)
    if is_invalid.any():
        row, column = (int(indices[0]) for indices in np.nonzero(is_invalid))
        raise InvalidOutput(f"returns {array[row, column]:.6g}, not a number between 0 and 1,", row)


def read_labels(output: Any, n_rows: int, classes: Sequence[str]) -> Ints:
    """Return class numbers (n,) from an output of class names or class numbers."""
    array = _to_array(output)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidOutput(f"returns an array of shape {array.shape}, not one class for each row")
    if len(array) != n_rows:
        raise InvalidOutput(f"returns {len(array):,} predictions for {n_rows:,} rows, not one for each row")
    return encode_classes(array, classes)


def encode_classes(labels: NDArray[Any], classes: Sequence[str]) -> Ints:
    """Return the class number of each label (n,), which may be a class number itself if no class name is a number."""
    if labels.dtype == bool:
        labels = labels.astype(np.int64)
    distinct, inverse = np.unique(labels.astype(str) if labels.dtype == object else labels, return_inverse=True)
    number_of = {str(name): number for number, name in enumerate(classes)}
    if not any(_parse_int(name) is not None for name in number_of):
        number_of = number_of | {str(number): number for number in range(len(classes))}
    numbers = []
    for index, label in enumerate(distinct.tolist()):
        integer = _parse_int(label)
        number = number_of.get(str(label), number_of.get(str(label if integer is None else integer)))
        if number is None:
            reason = f"returns the class {shorten(str(label))}, which is none of {', '.join(map(str, classes))},"
            raise InvalidOutput(reason, int((inverse == index).argmax()))
        numbers.append(number)
    return np.asarray(np.array(numbers, dtype=np.int64)[inverse])


def _parse_int(value: Any) -> int | None:
    """Return a whole number in whatever notation; None for other values."""
    try:
        return int(value) if float(value) == int(float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def infer_output_kind(output: Any, classes: Sequence[str]) -> str:
    """Return "probabilities" for a table, and for fractions if there are two classes; else "labels"."""
    try:
        array = _to_array(output)
    except InvalidOutput:  # raised again when the output is read
        return "probabilities"
    if array.ndim == 2 and array.shape[1] > 1:
        return "probabilities"
    return "probabilities" if array.dtype.kind == "f" and len(classes) == 2 else "labels"


@restore_working_directory()
def call_model(predict: Callable[[Codes], _T], codes: Codes, dataset: Dataset, title: str) -> _T:
    """Return predict(codes); if the function raises, a Failure with the first row that raises."""
    try:
        with refuse_system_exit():
            return predict(codes)
    except (UserError, Failure, InvalidOutput):
        raise
    except Exception as error:
        row, cause = _find_failing_row(predict, codes, error)
        reason, rows = excerpt_error(cause), f"{len(codes):,} rows together"
        if row is not None:
            rows = describe_row(dataset, codes[row])
            if _contains_row(reason, dataset, codes[row]):
                reason = type(cause).__name__
        raise Failure(f"{title} raised {reason} for {rows}, at {locate_error(cause)}.") from cause


def _find_failing_row(
    predict: Callable[[Codes], object], codes: Codes, error: Exception
) -> tuple[int | None, Exception]:
    """Return a row that fails by itself, found by bisection, and its error; None if no row does."""
    low, high = 0, len(codes)
    while high - low > 1:
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            try:
                predict(codes[start:end])
            except Exception as half_error:
                low, high, error = start, end, half_error
                break
        else:
            return None, error
    return low if high > low else None, error


def describe_invalid_output(title: str, invalid: InvalidOutput, codes: Codes, dataset: Dataset) -> str:
    """Return what is wrong with an output, and for which row."""
    reason = f"{title} {invalid}"
    if invalid.row is None:
        return f"{reason}."
    return f"{reason} for {describe_row(dataset, codes[invalid.row])}."


def describe_row(dataset: Dataset, row: Codes) -> str:
    """Name a row by its split and its number in the data, without its values, which may be personal."""
    kind = "text" if dataset.kind == "text" else "row"
    for name in ("test", "validation", "train"):
        split = getattr(dataset, name)
        matches = (split.codes == row).all(axis=1).nonzero()[0]
        if len(matches):
            return f"the {kind} {split.ids[matches[0]]} ({name} split)"
    return f"a {kind} with replaced values"


def has_predict_proba(model: object) -> bool:
    """Return whether a model has predict_proba; some classes have it with some settings only."""
    return callable(getattr(model, "predict_proba", None))


def _contains_row(text: str, dataset: Dataset, row: Codes) -> bool:
    """Return whether a text contains all values of a row."""
    rows = dataset.decode(row[None])
    values = rows if isinstance(rows, list) else rows.iloc[0].tolist()
    return all(re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) for value in values)


def _describe_type(output: Any) -> str:
    return "nothing" if output is None else f"a {type(output).__name__}"


def find_model_file(path: str, expected: str) -> Path:
    """Return the file that model.path names; UserError if it is missing, or a pickle, which can run any code."""
    file = Path(path).expanduser()
    if file.suffix.lower() in _PICKLE_SUFFIXES:
        raise UserError(
            f"model.path={path} is a pickle, which can run any code when it is opened. If you trust it, open it in a "
            "function of your own, in a file score.py, and use model=function model.path=score.py:predict_proba"
        )
    if not file.is_file():
        raise UserError(f"model.path={path}: there is no such file. It should be {expected}.")
    return file


def describe_missing_columns(required: Sequence[str], dataset: Dataset) -> str | None:
    """Return which columns of a model the dataset lacks; None if it has all of them."""
    names = [feature.name for feature in dataset.features]
    missing = [name for name in required if name not in names]
    if not missing:
        return None
    suffix = f" and {len(missing) - 3} more" * (len(missing) > 3)
    hint = did_you_mean(missing[0], names)
    return f"needs {', '.join(missing[:3])}{suffix}, but {dataset.name} has no such feature.{hint}"
