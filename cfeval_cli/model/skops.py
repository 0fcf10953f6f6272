"""A scikit-learn model in a skops file, from which only trusted types are loaded."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cfeval_cli.core import Codes, Dataset, Fingerprinted
from cfeval_cli.core.fingerprint import hash_component, hash_type_code
from cfeval_cli.core.imports import make_importable
from cfeval_cli.errors import UserError, check_int, import_extra
from cfeval_cli.model.encoded import EncodedModel, FittedPredictor, has_tree_estimator
from cfeval_cli.model.external import (
    InvalidOutput,
    LabelModel,
    PretrainedModel,
    ProbabilityModel,
    describe_missing_columns,
    encode_classes,
    find_model_file,
    has_predict_proba,
)

log = logging.getLogger("cfeval")


@runtime_checkable
class _HasPredict(Protocol):
    """A classifier."""

    def predict(self, x: Any) -> Any: ...


@runtime_checkable
class _HasFeatureNames(Protocol):
    """A model that was trained on columns with names."""

    feature_names_in_: Any


@dataclass(frozen=True)
class Skops(PretrainedModel, Fingerprinted):
    """A model file; the model receives a DataFrame of rows or a list of texts."""

    path: str
    trusted: Sequence[str] = ()  # types to load besides those of scikit-learn and NumPy that skops trusts
    batch_size: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError("path must be given: model.path=model.skops")
        if isinstance(self.trusted, str) or not all(isinstance(name, str) for name in self.trusted):
            raise ValueError(f"trusted must be a list of types, not {self.trusted!r}")
        check_int("batch_size", self.batch_size, 1)
        for name in self.trusted:
            make_importable(name)

    def fingerprint(self) -> str | None:
        """Hash the code of the trusted types; None if its dependencies are unknown."""
        return hash_type_code(self.trusted)

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Return the model, which is trained already; warn if its results cannot be cached."""
        model = super().fit(dataset, seed)
        if model.source.mark is None:
            log.warning(
                "model.path=%s: results are not cached or resumed, because it is unknown what the code of "
                "model.trusted=[%s] depends on",
                self.path, ",".join(self.trusted),
            )  # fmt: skip
        return model

    def output_type(self, dataset: Dataset) -> type:
        """Return EncodedModel for trees on a table, ProbabilityModel for other probabilities, else LabelModel."""
        model = self.make_predictor(dataset).model
        if isinstance(model, _HasFeatureNames) and (
            reason := describe_missing_columns(list(model.feature_names_in_), dataset)
        ):
            raise UserError(f"model.path={self.path} {reason}")
        if not has_predict_proba(model):
            return LabelModel
        return EncodedModel if dataset.kind != "text" and has_tree_estimator(model) else ProbabilityModel

    def make_predictor(self, dataset: Dataset) -> _SkopsPredictor:
        """Return the file with the trusted types."""
        file = find_model_file(self.path, "a model that skops wrote").absolute()
        mark = hash_component(self)
        return _SkopsPredictor(
            dataset, f"model.path={self.path}", mark, self.batch_size, file=file, trusted=tuple(self.trusted)
        )


@cache
def load_model(file: Path, trusted: tuple[str, ...], mark: str | None) -> Any:
    """Load the model, once in each process for each content of the file; UserError if it has untrusted types."""
    skops_io = import_extra("skops.io", "model=skops", "skops")
    try:
        untrusted = [name for name in skops_io.get_untrusted_types(file=file) if name not in trusted]
        if not untrusted:
            model = skops_io.load(file, trusted=list(trusted))
    except Exception as error:  # damaged files raise errors of many types
        message = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(f"model.path={file}: skops cannot open it: {message}") from error
    if untrusted:
        raise UserError(
            f"model.path={file} has types that are not known to be harmless: {', '.join(untrusted)}. If you trust "
            f"the origin of the file, set model.trusted=[{','.join(untrusted)}]"
        )
    if not isinstance(model, _HasPredict):
        raise UserError(f"model.path={file} is not a classifier: {type(model).__name__} has no method predict.")
    return model


@dataclass(frozen=True)
class _SkopsPredictor(FittedPredictor):
    """Predictions of the file, which each process opens for itself."""

    file: Path
    trusted: tuple[str, ...]

    @property
    def model(self) -> Any:
        """The model."""
        return load_model(self.file, self.trusted, self.mark)

    def make_rows(self, codes: Codes) -> Any:
        """Return decoded rows, with the columns that the model was trained on."""
        model, rows = self.model, self.dataset.decode(codes)
        if isinstance(rows, list):
            return rows
        return rows[list(model.feature_names_in_)] if isinstance(model, _HasFeatureNames) else rows.to_numpy()

    def predict_raw(self, codes: Codes) -> Any:
        """Predict decoded rows."""
        model, rows = self.model, self.make_rows(codes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not has_predict_proba(model):
                return model.predict(rows)
            probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
        numbers = encode_classes(np.asarray(model.classes_), self.dataset.classes)
        is_complete = sorted(numbers.tolist()) == list(range(len(self.dataset.classes)))
        if not is_complete or probabilities.shape[1] != len(numbers):
            names = ", ".join(map(str, model.classes_))
            raise InvalidOutput(
                f"has the classes {names}, but {self.dataset.name} has {', '.join(self.dataset.classes)}"
            )
        return probabilities[:, np.argsort(numbers)]
