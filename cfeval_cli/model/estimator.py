"""Any classifier with the interface of scikit-learn, trained on the training part."""

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
from cfeval_cli.core.evaluation_cache import evaluate_unique_rows
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.errors import UserError, check_int, check_option, excerpt_error
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.encoding import BagOfWords, Encoder, TableEncoder, make_table_encoder
from cfeval_cli.model.external import LabelModel, Predictor, ProbabilityModel, has_predict_proba
from cfeval_cli.seeding import draw_seed, make_stream

log = logging.getLogger("cfeval")

_MAX_SEED = 2**31  # every library accepts smaller seeds
_DEFAULT_MAX_BINS = 255  # of histogram-based trees, and so of the categories that they distinguish
_MAX_WARNING_CHARACTERS = 500


@runtime_checkable
class _Classifier(Protocol):
    """A classifier."""

    def fit(self, x: Any, y: Any) -> Any: ...

    def predict(self, x: Any) -> Any: ...


@runtime_checkable
class _HasParams(Protocol):
    """A classifier with settings that can be read and set."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **settings: Any) -> Any: ...


@dataclass(frozen=True)
class Estimator(DeclaresOutputType, SupportsFeatureSubset):
    """Settings of the classifier and its encoder."""

    estimator: Any  # an object of any class
    encoder: str = "auto"  # onehot, native or ordinal; auto: native if the class supports categories, else onehot
    scale: str | bool = "auto"  # whether to standardise numbers; auto: with onehot
    batch_size: int = 10_000
    blind: Blind = ()  # features that the model does not read: names, or the share that is drawn

    def __post_init__(self) -> None:
        check_blind(self.blind)
        check_option("encoder", self.encoder, ("auto", "onehot", "native", "ordinal"))
        if self.scale != "auto" and not isinstance(self.scale, bool):
            raise ValueError(f"scale must be auto, true or false, not {self.scale!r}")
        check_int("batch_size", self.batch_size, 1)
        if isinstance(self.estimator, type) or not isinstance(self.estimator, _Classifier):
            raise ValueError(
                f"estimator must be a classifier with fit and predict, and {_get_name(self.estimator)} is not"
            )
        if _is_regressor(self.estimator):
            raise ValueError(f"estimator must be a classifier, but {_get_name(self.estimator)} is for regression")
        if self.encoder == "native" and _detect_native_categories(self.estimator) is None:
            raise ValueError(
                f"encoder=native: {_get_name(self.estimator)} does not support categories. Use encoder=onehot"
            )

    def output_type(self, dataset: Dataset) -> type:
        """Return the class of the trained model: with labels, with probabilities, or with an encoded estimator."""
        if not has_predict_proba(self.estimator):
            return LabelModel
        return ProbabilityModel if dataset.kind == "text" else TableModel

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Train a copy of the estimator, with a seed for each of its parts and one thread."""
        estimator = _copy_estimator(self.estimator)
        features = choose_read_features(dataset, self.blind, seed)
        visible = keep_features(dataset, features)
        encoder, settings, fit_arguments = self._make_encoder(visible, estimator)
        settings |= _make_seed_settings(estimator, seed)
        if settings:
            estimator.set_params(**settings)
        _fit_estimator(estimator, encoder.transform(visible.train.codes), visible.train.labels, fit_arguments)
        source = _EstimatorPredictor(
            dataset,
            f"model={_get_name(estimator)}",
            hash_work(Estimator, hash_component(self), seed, dataset.fingerprint),  # labels may come from another model
            self.batch_size,
            estimator=estimator,
            encoder=encoder,
            classes=np.asarray(estimator.classes_).astype(np.int64),
            features=features,
        )
        return self.output_type(dataset)(source)  # type: ignore[no-any-return]

    def _make_encoder(self, dataset: Dataset, estimator: Any) -> tuple[Encoder, dict[str, Any], dict[str, Any]]:
        """Return the encoder, and the settings and fit arguments that declare categories to the estimator."""
        if dataset.kind == "text":
            return BagOfWords(len(dataset.features[0].values)), {}, {}
        supported = _detect_native_categories(estimator)
        onehot = self.encoder == "onehot" or (self.encoder == "auto" and supported is None)
        native = supported if self.encoder in ("auto", "native") else None
        encoder = make_table_encoder(
            dataset,
            onehot=onehot,
            scale=onehot if self.scale == "auto" else bool(self.scale),
            fill=not _accepts_missing(estimator),
            max_categories=None if native is None else native.max_categories,
        )
        return (encoder, {}, {}) if native is None else (encoder, *native.declare(encoder.is_category))


@dataclass(frozen=True)
class _NativeCategories:
    """How the categories of columns are declared to a library."""

    max_categories: int | None  # values of a category
    setting: str = ""  # of the class
    needs_types: bool = False  # whether that setting is a switch beside the type of each column
    argument: str = ""  # of fit

    def declare(self, is_category: Bools) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return settings and arguments of fit."""
        if self.argument:
            return {}, {self.argument: np.flatnonzero(is_category).tolist()}
        if self.needs_types:
            return {self.setting: True, "feature_types": np.where(is_category, "c", "q").tolist()}, {}
        return {self.setting: is_category}, {}


def _detect_native_categories(estimator: Any) -> _NativeCategories | None:
    """Detect the way of scikit-learn, XGBoost or LightGBM from the names of settings and of arguments of fit."""
    settings = estimator.get_params(deep=False) if isinstance(estimator, _HasParams) else {}
    if "categorical_features" in settings:
        return _NativeCategories(int(settings.get("max_bins", _DEFAULT_MAX_BINS)), setting="categorical_features")
    if {"enable_categorical", "feature_types"} <= set(settings):
        return _NativeCategories(None, setting="enable_categorical", needs_types=True)
    if "categorical_feature" in signature(estimator.fit).parameters:
        return _NativeCategories(None, argument="categorical_feature")
    return None


def _accepts_missing(estimator: Any) -> bool:
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except (AttributeError, TypeError):  # a class without tags
        return False


def _is_regressor(estimator: Any) -> bool:
    from sklearn.base import is_regressor

    try:
        return bool(is_regressor(estimator))
    except (AttributeError, TypeError):
        return False


def _copy_estimator(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator) if isinstance(estimator, _HasParams) else copy.deepcopy(estimator)


def _make_seed_settings(estimator: Any, seed: int) -> dict[str, Any]:
    """Return a seed and one thread for all parts of the estimator that have such a setting and no value for it."""
    if not isinstance(estimator, _HasParams):
        return {}
    defaults = {"random_state": draw_seed(make_stream(seed, "model")) % _MAX_SEED, "n_jobs": 1}
    settings = estimator.get_params(deep=True)
    names = {key: key.rpartition("__")[2] for key in settings}
    return {key: defaults[names[key]] for key, value in settings.items() if value is None and names[key] in defaults}


def _fit_estimator(estimator: Any, x: Any, y: Ints, fit_arguments: Mapping[str, Any]) -> None:
    """Fit the estimator; output and warnings of the library go to the log."""
    from threadpoolctl import threadpool_limits

    printed = io.StringIO()
    try:
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(printed), threadpool_limits(1):
            warnings.simplefilter("always")
            estimator.fit(x, y, **fit_arguments)
    except Exception as error:
        reason = excerpt_error(error)
        if hasattr(x, "tocsr"):
            reason += ". Words of texts are sparse features; model=logistic and linear models accept them."
        raise UserError(f"model=estimator: {_get_name(estimator)} could not be trained: {reason}") from error
    for line in printed.getvalue().splitlines():
        log.debug("model: %s", line)
    for text in dict.fromkeys(f"{warning.category.__name__}: {warning.message}" for warning in warned):
        log.warning("model: %s", " ".join(text.split())[:_MAX_WARNING_CHARACTERS])


@dataclass(frozen=True)
class _EstimatorPredictor(Predictor):
    """Predictions of a trained classifier with its encoder."""

    estimator: Any
    encoder: Encoder
    classes: Ints  # numbers of the classes in the training part
    features: Ints  # that the model reads

    @property
    def used_features(self) -> Bools:
        """Whether the model reads each feature (M,)."""
        return make_mask(self.dataset.n_features, self.features)

    def transform(self, codes: Codes) -> Any:
        """Return the encoded rows."""
        return self.encoder.transform(self._select_features(codes))

    def predict_raw(self, codes: Codes) -> Any:
        """Return probabilities of all classes, or the names of classes."""
        if len(self.features) == codes.shape[1]:
            return self._predict(codes)
        return evaluate_unique_rows(self._predict, codes, self._select_features(codes))

    def _select_features(self, codes: Codes) -> Codes:
        return codes if len(self.features) == codes.shape[1] else codes[:, self.features]

    def _predict(self, codes: Codes) -> Any:
        rows = self.transform(codes)
        if not has_predict_proba(self.estimator):
            return np.array(self.dataset.classes)[np.asarray(self.estimator.predict(rows)).astype(np.int64)]
        # the training part may lack a class
        probabilities = np.zeros((len(codes), len(self.dataset.classes)))
        probabilities[:, self.classes] = np.asarray(self.estimator.predict_proba(rows), dtype=np.float64)
        return probabilities


@dataclass(frozen=True)
class TableModel(ProbabilityModel, HasEncodedEstimator):
    """A trained classifier on the encoded columns of a table."""

    source: _EstimatorPredictor

    def get_estimator(self) -> object:
        """Return the classifier itself."""
        return self.source.estimator

    def encode(self, codes: Codes) -> Floats:
        """Return the encoded columns (n, W)."""
        return np.asarray(self.source.transform(codes))

    def get_column_features(self) -> Ints:
        """Return the feature (W,) of each column."""
        if not isinstance(self.source.encoder, TableEncoder):
            raise TypeError("a text has no columns")
        return self.source.features[self.source.encoder.owners]

    def get_estimator_classes(self) -> Ints:
        """Return the classes of the training part, in the order of the classifier."""
        return self.source.classes


def _get_name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
