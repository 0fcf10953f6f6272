"""Any classifier with scikit-learn's interface, named by its class and trained on the training part."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cfeval_cli.core import (
    Bools,
    Codes,
    Dataset,
    DeclaresOutputType,
    Floats,
    HasEncodedEstimator,
    Ints,
    SupportsFeatureSubset,
)
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.core.memory import asked_once
from cfeval_cli.errors import UserError, check_int, check_option, excerpt_error
from cfeval_cli.model import blind as blindness
from cfeval_cli.model.encoding import Columns, Encoder, Words, columns
from cfeval_cli.model.outside import LabelModel, ProbabilityModel, Source, tells_probabilities
from cfeval_cli.seeding import draw_seed, make_stream

log = logging.getLogger("cfeval")

_SEED = 2**31  # below which every library takes a seed
_BINS = 255  # categories that histogram-based trees tell apart unless they say otherwise
_LONGEST = 500  # characters of what a library says


@runtime_checkable
class _Fits(Protocol):
    """What a classifier must be able to do."""

    def fit(self, x: Any, y: Any) -> Any: ...

    def predict(self, x: Any) -> Any: ...


@runtime_checkable
class _Settable(Protocol):
    """A classifier whose settings can be asked for and set."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **settings: Any) -> Any: ...


@dataclass(frozen=True)
class Estimator(DeclaresOutputType, SupportsFeatureSubset):
    """How the classifier is trained."""

    estimator: Any  # whatever `_target_` names
    encoder: str = "auto"  # onehot, native or ordinal; auto: native where the class knows categories, else onehot
    scale: str | bool = "auto"  # numbers to mean 0 and deviation 1; auto: with onehot
    batch_size: int = 10_000
    blind: blindness.Blind = ()  # features that it is not shown: names, or a share of them

    def __post_init__(self) -> None:
        blindness.check(self.blind)
        check_option("encoder", self.encoder, ("auto", "onehot", "native", "ordinal"))
        if self.scale != "auto" and not isinstance(self.scale, bool):
            raise ValueError(f"scale must be auto, true or false, not {self.scale!r}")
        check_int("batch_size", self.batch_size, 1)
        if isinstance(self.estimator, type) or not isinstance(self.estimator, _Fits):
            raise ValueError(
                f"estimator must be a classifier with fit and predict, and {_name(self.estimator)} is none"
            )
        if _regresses(self.estimator):
            raise ValueError(f"estimator must be a classifier, and {_name(self.estimator)} is for regression")
        if self.encoder == "native" and _native(self.estimator) is None:
            raise ValueError(f"encoder=native: {_name(self.estimator)} does not know categories. Use encoder=onehot")

    def output_type(self, dataset: Dataset) -> type:
        """Probabilities, if the class has them; of a table, whoever knows the class can look into it."""
        if not tells_probabilities(self.estimator):
            return LabelModel
        return ProbabilityModel if dataset.kind == "text" else TableModel

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Train a copy, with the seed wherever it draws and one thread."""
        estimator = _copied(self.estimator)
        reads = blindness.read(dataset, self.blind, seed)
        seen = blindness.narrowed(dataset, reads)
        encoder, settings, more = self._encoder(seen, estimator)
        _set(estimator, settings | _seeded(estimator, seed))
        _train(estimator, encoder.rows(seen.train.codes), seen.train.labels, more)
        source = _Trained(
            dataset,
            f"model={_name(estimator)}",
            of_work(Estimator, of_component(self), seed, dataset.fingerprint),  # its labels may be another model's
            self.batch_size,
            estimator=estimator,
            encoder=encoder,
            classes=np.asarray(estimator.classes_).astype(np.int64),
            columns=reads,
        )
        return self.output_type(dataset)(source)  # type: ignore[no-any-return]

    def _encoder(self, dataset: Dataset, estimator: Any) -> tuple[Encoder, dict[str, Any], dict[str, Any]]:
        """With settings of the estimator, and arguments of its fit, that tell it what are categories."""
        if dataset.kind == "text":
            return Words(len(dataset.features[0].values)), {}, {}
        knows = _native(estimator)
        onehot = self.encoder == "onehot" or (self.encoder == "auto" and knows is None)
        native = knows if self.encoder in ("auto", "native") else None
        made = columns(
            dataset,
            onehot=onehot,
            scale=onehot if self.scale == "auto" else bool(self.scale),
            fill=not _takes_missing(estimator),
            most=None if native is None else native.most,
        )
        return (made, {}, {}) if native is None else (made, *native.told(made.categories))


@dataclass(frozen=True)
class _Native:
    """How a library is told which columns are categories."""

    most: int | None  # values of a category
    setting: str = ""  # of the class
    types: bool = False  # that setting wants a switch, and the type of each column
    argument: str = ""  # of its fit

    def told(self, categories: Bools) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings, and arguments of fit."""
        if self.argument:
            return {}, {self.argument: np.flatnonzero(categories).tolist()}
        if self.types:
            return {self.setting: True, "feature_types": ["c" if one else "q" for one in categories]}, {}
        return {self.setting: categories}, {}


def _native(estimator: Any) -> _Native | None:
    """Told by what its settings and its fit are called: scikit-learn's, XGBoost's or LightGBM's way."""
    settings = estimator.get_params(deep=False) if isinstance(estimator, _Settable) else {}
    if "categorical_features" in settings:
        return _Native(int(settings.get("max_bins", _BINS)), setting="categorical_features")
    if {"enable_categorical", "feature_types"} <= set(settings):
        return _Native(None, setting="enable_categorical", types=True)
    if "categorical_feature" in signature(estimator.fit).parameters:
        return _Native(None, argument="categorical_feature")
    return None


def _takes_missing(estimator: Any) -> bool:
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except (AttributeError, TypeError):  # a class that does not say
        return False


def _regresses(estimator: Any) -> bool:
    from sklearn.base import is_regressor

    try:
        return bool(is_regressor(estimator))
    except (AttributeError, TypeError):
        return False


def _copied(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator) if isinstance(estimator, _Settable) else copy.deepcopy(estimator)


def _seeded(estimator: Any, seed: int) -> dict[str, Any]:
    """A seed, and one thread, for all parts that have such a setting and were not given one."""
    if not isinstance(estimator, _Settable):
        return {}
    drawn = draw_seed(make_stream(seed, "model")) % _SEED
    fresh = {"random_state": drawn, "n_jobs": 1}
    settings = estimator.get_params(deep=True)
    last = {key: key.rpartition("__")[2] for key in settings}
    return {key: fresh[last[key]] for key, value in settings.items() if value is None and last[key] in fresh}


def _set(estimator: Any, settings: Mapping[str, Any]) -> None:
    if settings:
        estimator.set_params(**settings)


def _train(estimator: Any, x: Any, y: Ints, more: Mapping[str, Any]) -> None:
    """Fit; what the library prints or warns of goes to the log."""
    from threadpoolctl import threadpool_limits

    printed = io.StringIO()
    try:
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(printed), threadpool_limits(1):
            warnings.simplefilter("always")
            estimator.fit(x, y, **more)
    except Exception as error:
        reason = excerpt_error(error)
        if hasattr(x, "tocsr"):
            reason += ". Words of texts are sparse features; model=logistic and linear models accept them."
        raise UserError(f"model=estimator: {_name(estimator)} could not be trained: {reason}") from error
    for line in printed.getvalue().splitlines():
        log.debug("model: %s", line)
    for text in dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in warned):
        log.warning("model: %s", " ".join(text.split())[:_LONGEST])


@dataclass(frozen=True)
class _Trained(Source):
    """A trained classifier behind its encoder."""

    estimator: Any
    encoder: Encoder
    classes: Ints  # numbers of the classes that the training part has
    columns: Ints  # features that it is shown

    @property
    def reads(self) -> Bools:
        """Those."""
        return blindness.marked(self.dataset.width, self.columns)

    def rows(self, codes: Codes) -> Any:
        """What it is given of the features that it is shown."""
        return self.encoder.rows(self._shown(codes))

    def answer(self, codes: Codes) -> Any:
        """Probabilities of all classes, or the names of classes."""
        if len(self.columns) == codes.shape[1]:
            return self._answer(codes)
        return asked_once(self._answer, codes, self._shown(codes))

    def _shown(self, codes: Codes) -> Codes:
        return codes if len(self.columns) == codes.shape[1] else codes[:, self.columns]

    def _answer(self, codes: Codes) -> Any:
        rows = self.rows(codes)
        if not tells_probabilities(self.estimator):
            return np.array(self.dataset.classes)[np.asarray(self.estimator.predict(rows)).astype(np.int64)]
        told = np.asarray(self.estimator.predict_proba(rows), dtype=np.float64)
        every = np.zeros((len(codes), len(self.dataset.classes)))  # the training part may lack a class
        every[:, self.classes] = told
        return every


@dataclass(frozen=True)
class TableModel(ProbabilityModel, HasEncodedEstimator):
    """A trained classifier behind columns."""

    source: _Trained

    def get_estimator(self) -> object:
        """The classifier itself."""
        return self.source.estimator

    def encode(self, codes: Codes) -> Floats:
        """The columns (n, W) that it is given."""
        return np.asarray(self.source.rows(codes))

    def get_column_features(self) -> Ints:
        """The feature (W,) that each column belongs to."""
        if not isinstance(self.source.encoder, Columns):
            raise TypeError("a text has no columns")
        return self.source.columns[self.source.encoder.owners]

    def get_estimator_classes(self) -> Ints:
        """The classes that the training part has, in the classifier's order."""
        return self.source.classes


def _name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
