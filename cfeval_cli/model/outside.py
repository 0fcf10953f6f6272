"""Models made elsewhere: whatever answers about rows becomes classes or probabilities, one for each row."""

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

from cfeval_cli.core import Bools, Codes, Dataset, DeclaresOutputType, Fingerprinted, Floats, HasReadFeatures, Ints
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.errors import Failure, UserError, did_you_mean, excerpt_error, locate_error, refuse_system_exit, shorten

FEW = 20  # rows on which a model is tried before it is believed
_NEAR = 1e-3  # of 1, to which probabilities sum: those that were rounded, or come from a small kind of number
_OVER = 1e-6  # a probability may pass 0 or 1 by so much, and is put back
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")

_T = TypeVar("_T")
log = logging.getLogger("cfeval")


class BadAnswer(ValueError):
    """An answer that is none, and of which row; None if of all."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


@dataclass(frozen=True)
class Source(ABC):
    """Who answers about the rows of a dataset."""

    dataset: Dataset
    title: str  # as messages call it
    mark: str | None  # the same exactly if its answers are; None if that is not known
    batch_size: int  # rows that it is asked about at once

    @property
    def reads(self) -> Bools:
        """The features (M,) that it may look at."""
        return np.ones(self.dataset.width, dtype=bool)

    @abstractmethod
    def answer(self, codes: Codes) -> Any:
        """What it says of (n, M) codes, in whatever form."""

    def told(self, codes: Codes, read: Callable[[Any, int, Sequence[str]], NDArray[Any]]) -> NDArray[Any]:
        """All answers, read batch by batch; Failure with the row for one that is none."""
        starts = range(0, len(codes), self.batch_size)
        parts = [self._batch(codes[start : start + self.batch_size], read) for start in starts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _batch(self, codes: Codes, read: Callable[[Any, int, Sequence[str]], NDArray[Any]]) -> NDArray[Any]:
        try:
            answer = asked(self.answer, codes, self.dataset, self.title)
            return read(answer, len(codes), self.dataset.classes)
        except BadAnswer as bad:
            raise Failure(blamed(self.title, bad, codes, self.dataset)) from bad


@dataclass(frozen=True)
class LabelModel(HasReadFeatures, Fingerprinted):
    """A model made elsewhere that tells classes."""

    source: Source

    def predict(self, codes: Codes) -> Ints:
        """Classes (n,)."""
        return self.source.told(codes, as_labels) if len(codes) else np.zeros(0, dtype=np.int64)

    def get_used_features(self) -> Bools:
        """The features (M,) that it may look at."""
        return self.source.reads

    def fingerprint(self) -> str | None:
        """What its answers depend on."""
        return self.source.mark


@dataclass(frozen=True)
class ProbabilityModel(HasReadFeatures, Fingerprinted):
    """A model made elsewhere that tells probabilities."""

    source: Source

    def predict_proba(self, codes: Codes) -> Floats:
        """Probabilities (n, C)."""
        if not len(codes):
            return np.zeros((0, len(self.source.dataset.classes)))
        return self.source.told(codes, as_probabilities)

    def get_used_features(self) -> Bools:
        """The features (M,) that it may look at."""
        return self.source.reads

    def fingerprint(self) -> str | None:
        """What its answers depend on."""
        return self.source.mark


class Given(DeclaresOutputType):
    """A model that is there already."""

    @abstractmethod
    def source(self, dataset: Dataset) -> Source:
        """Who answers."""

    @abstractmethod
    def output_type(self, dataset: Dataset) -> type:
        """What it gives: a model of probabilities, or of labels."""

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """It is trained already."""
        return self.output_type(dataset)(self.source(dataset))  # type: ignore[no-any-return]


class Called(Given):
    """A function, which may give probabilities or labels; `auto`: as its answer to a few rows looks."""

    gives: str

    def output_type(self, dataset: Dataset) -> type:
        """What it gives, seen on a few rows."""
        kind = self.gives
        if kind == "auto":
            source = self.source(dataset)
            kind = gives(asked(source.answer, dataset.test.codes[:FEW], dataset, source.title), dataset.classes)
        return ProbabilityModel if kind == "probabilities" else LabelModel

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """It is trained already; of one that need not give labels it is said what is lost by them."""
        made = super().fit(dataset, seed)
        if self.gives == "auto" and isinstance(made, LabelModel):
            log.warning(
                "%s returns labels: explainers and metrics that need probabilities have no value, and little can be "
                "told. If the model has probabilities, return them",
                made.source.title,
            )
        return made


def as_probabilities(answer: Any, size: int, classes: Sequence[str]) -> Floats:
    """Probabilities (n, C) from (n, C), or of two classes from P(1) as (n,) or (n, 1)."""
    array = _numbers(answer)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise BadAnswer(f"gives an array of shape {array.shape}, where ({size}, {len(classes)}) is wanted")
    if len(array) != size:
        raise BadAnswer(f"gives {len(array):,} answers for {size:,} rows: one for each is wanted")
    if array.ndim == 1:
        if len(classes) != 2:
            raise BadAnswer(f"gives one number a row, and there are {len(classes)} classes: one for each is wanted")
        _check_numbers(array[:, None])
        array = np.clip(array, 0.0, 1.0)
        return np.stack([1.0 - array, array], axis=1)
    if array.shape[1] != len(classes):
        raise BadAnswer(f"gives {array.shape[1]} columns, and there are {len(classes)} classes: {', '.join(classes)}")
    _check_numbers(array)
    sums = array.sum(axis=1)
    if (off := np.abs(sums - 1.0) > _NEAR).any():
        row = int(off.argmax())
        raise BadAnswer(f"gives probabilities that sum to {sums[row]:.6g}, not 1", row)
    return np.clip(array, 0.0, 1.0)


def _numbers(answer: Any) -> Floats:
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadAnswer(f"gives {_kind(answer)}, where numbers are wanted") from error


def _array(answer: Any) -> NDArray[Any]:
    try:
        return np.asarray(answer)
    except ValueError as error:  # rows of different lengths
        raise BadAnswer(f"gives {_kind(answer)} of rows that are not alike") from error


def _check_numbers(array: Floats) -> None:
    wrong = ~np.isfinite(array)
    if not wrong.any():
        wrong = (array < -_OVER) | (array > 1.0 + _OVER)
    if wrong.any():
        row, column = (int(places[0]) for places in np.nonzero(wrong))
        raise BadAnswer(f"gives {array[row, column]:.6g}, where a number between 0 and 1 is wanted", row)


def as_labels(answer: Any, size: int, classes: Sequence[str]) -> Ints:
    """Classes (n,) from their names, or from their numbers."""
    array = _array(answer)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BadAnswer(f"gives an array of shape {array.shape}, where one class a row is wanted")
    if len(array) != size:
        raise BadAnswer(f"gives {len(array):,} answers for {size:,} rows: one for each is wanted")
    return class_numbers(array, classes)


def class_numbers(labels: NDArray[Any], classes: Sequence[str]) -> Ints:
    """The place of each label (n,) among the classes: by its name, or by number where no name is one."""
    if labels.dtype == bool:
        labels = labels.astype(np.int64)
    kinds, places = np.unique(labels.astype(str) if labels.dtype == object else labels, return_inverse=True)
    known = {str(name): place for place, name in enumerate(classes)}
    if not any(_whole(name) is not None for name in known):
        known = known | {str(place): place for place in range(len(classes))}
    numbers = []
    for place, kind in enumerate(kinds.tolist()):
        name = str(kind if _whole(kind) is None else _whole(kind))
        found = known.get(str(kind), known.get(name))
        if found is None:
            told = f"gives the class {shorten(str(kind))}, which is none of {', '.join(map(str, classes))}"
            raise BadAnswer(told, int((places == place).argmax()))
        numbers.append(found)
    return np.asarray(np.array(numbers, dtype=np.int64)[places])


def _whole(value: Any) -> int | None:
    """A whole number, written in whatever way."""
    try:
        return int(value) if float(value) == int(float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def gives(answer: Any, classes: Sequence[str]) -> str:
    """Whether an answer is of labels or of probabilities: a table is, and a list of fractions is P(1)."""
    try:
        array = _array(answer)
    except BadAnswer:  # which is told when it is read
        return "probabilities"
    if array.ndim == 2 and array.shape[1] > 1:
        return "probabilities"
    return "probabilities" if array.dtype.kind == "f" and len(classes) == 2 else "labels"


@restore_working_directory()
def asked(ask: Callable[[Codes], _T], codes: Codes, dataset: Dataset, title: str) -> _T:
    """An answer; Failure with the first row that it fails on, if it does."""
    try:
        with refuse_system_exit():
            return ask(codes)
    except (UserError, Failure, BadAnswer):
        raise
    except Exception as error:
        row, cause = _culprit(ask, codes, error)
        reason, rows = excerpt_error(cause), f"{len(codes):,} rows together"
        if row is not None:
            rows = of_row(dataset, codes[row])
            if _holds_row(reason, dataset, codes[row]):
                reason = type(cause).__name__
        raise Failure(f"{title} raised {reason} for {rows}, at {locate_error(cause)}.") from cause


def _culprit(ask: Callable[[Codes], object], codes: Codes, error: Exception) -> tuple[int | None, Exception]:
    """The first row found that fails by itself, by halves; None if none does."""
    low, high = 0, len(codes)
    while high - low > 1:
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            try:
                ask(codes[start:end])
            except Exception as one:
                low, high, error = start, end, one
                break
        else:
            return None, error
    return low if high > low else None, error


def blamed(title: str, bad: BadAnswer, codes: Codes, dataset: Dataset) -> str:
    """What is wrong with an answer, and for which row."""
    return f"{title} {bad}" + ("." if bad.row is None else f" for {of_row(dataset, codes[bad.row])}.")


def of_row(dataset: Dataset, row: Codes) -> str:
    """Name a row by its split and its number in the data, without its values, which may be personal."""
    kind = "text" if dataset.kind == "text" else "row"
    for name in ("test", "validation", "train"):
        split = getattr(dataset, name)
        same = (split.codes == row).all(axis=1).nonzero()[0]
        if len(same):
            return f"the {kind} {split.ids[same[0]]} ({name} split)"
    return f"a {kind} with replaced values"


def tells_probabilities(model: object) -> bool:
    """Whether it has predict_proba: some classes have it with some settings only, which no protocol sees."""
    return callable(getattr(model, "predict_proba", None))


def _holds_row(text: str, dataset: Dataset, row: Codes) -> bool:
    """Return whether a text has all values of a row in it."""
    rows = dataset.decode(row[None])
    values = rows if isinstance(rows, list) else rows.iloc[0].tolist()
    return all(re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) for value in values)


def _kind(answer: Any) -> str:
    return "nothing" if answer is None else f"a {type(answer).__name__}"


def model_file(path: str, what: str) -> Path:
    """A file that a setting names; a pickle is none, since to open one can run anything."""
    found = Path(path).expanduser()
    if found.suffix.lower() in _PICKLES:
        raise UserError(
            f"model.path={path} is a pickle, and to open one can run anything in it. If you trust it, open it in a "
            "function of your own, in a file score.py, and use model=function model.path=score.py:predict_proba"
        )
    if not found.is_file():
        raise UserError(f"model.path={path}: there is no such file. It should be {what}.")
    return found


def missing_columns(wanted: Sequence[str], dataset: Dataset) -> str | None:
    """What a model wants and the data do not have, if anything."""
    there = [feature.name for feature in dataset.features]
    lost = [name for name in wanted if name not in there]
    if not lost:
        return None
    more = f" and {len(lost) - 3} more" * (len(lost) > 3)
    return f"wants {', '.join(lost[:3])}{more}, and {dataset.name} has no such feature.{did_you_mean(lost[0], there)}"
