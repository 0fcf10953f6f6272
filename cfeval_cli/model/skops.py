"""A model in a skops file: scikit-learn's objects, of which only trusted types are made."""

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
from cfeval_cli.core.fingerprint import hash_type_code, of_component
from cfeval_cli.core.imports import make_importable
from cfeval_cli.errors import UserError, check_int, import_extra
from cfeval_cli.model.outside import (
    BadAnswer,
    Given,
    LabelModel,
    ProbabilityModel,
    Source,
    class_numbers,
    missing_columns,
    model_file,
    tells_probabilities,
)

log = logging.getLogger("cfeval")


@runtime_checkable
class _Predicts(Protocol):
    """What a model must be able to do."""

    def predict(self, x: Any) -> Any: ...


@runtime_checkable
class _Named(Protocol):
    """A model that was trained on columns with names."""

    feature_names_in_: Any


@dataclass(frozen=True)
class Skops(Given, Fingerprinted):
    """Where the file is; the model is given a DataFrame of rows, or a list of texts."""

    path: str
    trusted: Sequence[str] = ()  # types beyond those of scikit-learn and NumPy that skops knows to be harmless
    batch_size: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError("path must be given: model.path=model.skops")
        if isinstance(self.trusted, str) or not all(isinstance(one, str) for one in self.trusted):
            raise ValueError(f"trusted must be a list of types, not {self.trusted!r}")
        check_int("batch_size", self.batch_size, 1)
        for name in self.trusted:
            make_importable(name)

    def fingerprint(self) -> str | None:
        """Hash the code of the trusted types; None if not all that it depends on is known."""
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
        """Probabilities, if the model has them."""
        model = self.source(dataset).model
        if isinstance(model, _Named) and (reason := missing_columns(list(model.feature_names_in_), dataset)):
            raise UserError(f"model.path={self.path} {reason}")
        return ProbabilityModel if tells_probabilities(model) else LabelModel

    def source(self, dataset: Dataset) -> _Loaded:
        """The file, and the types that are trusted."""
        file = model_file(self.path, "a model that skops wrote").absolute()
        mark = of_component(self)
        return _Loaded(
            dataset, f"model.path={self.path}", mark, self.batch_size, file=file, trusted=tuple(self.trusted)
        )


@cache
def opened(file: Path, trusted: tuple[str, ...], mark: str | None) -> Any:
    """The model, once in each process for each content of the file, if it is made of trusted types only."""
    storage = import_extra("skops.io", "model=skops", "skops")
    try:
        unknown = [name for name in storage.get_untrusted_types(file=file) if name not in trusted]
        if not unknown:
            model = storage.load(file, trusted=list(trusted))
    except Exception as error:  # whatever a file of another hand brings about
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(f"model.path={file}: skops cannot open it: {told}") from error
    if unknown:
        raise UserError(
            f"model.path={file} has types that are not known to be harmless: {', '.join(unknown)}. If you trust "
            f"whom it is from: model.trusted=[{','.join(unknown)}]"
        )
    if not isinstance(model, _Predicts):
        raise UserError(f"model.path={file} holds a {type(model).__name__}, which is no classifier: it has no predict.")
    return model


@dataclass(frozen=True)
class _Loaded(Source):
    """The file, which each process opens for itself."""

    file: Path
    trusted: tuple[str, ...]

    @property
    def model(self) -> Any:
        """The model."""
        return opened(self.file, self.trusted, self.mark)

    def answer(self, codes: Codes) -> Any:
        """Given rows as people know them, with the columns that it was trained on."""
        model = self.model
        rows: Any = self.dataset.decode(codes)
        if not isinstance(rows, list):
            rows = rows[list(model.feature_names_in_)] if isinstance(model, _Named) else rows.to_numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not tells_probabilities(model):
                return model.predict(rows)
            told = np.asarray(model.predict_proba(rows), dtype=np.float64)
        places = class_numbers(np.asarray(model.classes_), self.dataset.classes)
        if sorted(places.tolist()) != list(range(len(self.dataset.classes))) or told.shape[1] != len(places):
            known = ", ".join(map(str, model.classes_))
            raise BadAnswer(f"knows the classes {known}, and {self.dataset.name} has {', '.join(self.dataset.classes)}")
        return told[:, np.argsort(places)]
