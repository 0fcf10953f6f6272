"""Fitted tree models, alone or at the end of a pipeline, with the columns that their trees read."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.core import Codes, Floats, HasEncodedEstimator, Ints
from cfeval_cli.model.external import Predictor, ProbabilityModel, encode_classes

_TREE_MODULES = ("sklearn.tree", "sklearn.ensemble", "lightgbm", "xgboost")


@dataclass(frozen=True)
class FittedPredictor(Predictor):
    """Predictions of a fitted model object for rows in the form that it reads."""

    @property
    @abstractmethod
    def model(self) -> Any:
        """The model object."""

    @abstractmethod
    def make_rows(self, codes: Codes) -> Any:
        """Return the rows of (n, M) codes as the model reads them."""


@dataclass(frozen=True)
class EncodedModel(ProbabilityModel, HasEncodedEstimator):
    """A fitted tree model; the steps of a pipeline before it encode the rows."""

    source: FittedPredictor

    def get_estimator(self) -> object:
        """Return the last step of the pipeline, or the model itself."""
        return _split_steps(self.source.model)[1]

    def encode(self, codes: Codes) -> Floats:
        """Return the columns (n, W) that the trees read."""
        encoder, _ = _split_steps(self.source.model)
        rows = self.source.make_rows(codes)
        columns: Any = rows if encoder is None else encoder.transform(rows)
        return np.asarray(columns.toarray() if hasattr(columns, "toarray") else columns, dtype=np.float64)

    def get_column_features(self) -> Ints:
        """Return the feature (W,) that each column depends on; ValueError if one depends on several.

        A column that is equal for all rows has no effect, and belongs to the first feature.
        """
        dataset = self.source.dataset
        codes = np.concatenate([dataset.train.codes, dataset.test.codes])
        columns = self.encode(codes)
        owners = np.zeros(columns.shape[1], dtype=np.int64)
        is_owned = np.zeros(columns.shape[1], dtype=bool)
        for feature in range(dataset.n_features):
            shifted = codes.copy()
            shifted[:, feature] = np.roll(shifted[:, feature], 1)
            encoded = self.encode(shifted)
            is_changed = ((encoded != columns) & ~(np.isnan(encoded) & np.isnan(columns))).any(axis=0)
            if (is_changed & is_owned).any():
                raise ValueError("a column that the trees read depends on several features")
            owners[is_changed], is_owned = feature, is_owned | is_changed
        return owners

    def get_estimator_classes(self) -> Ints:
        """Return the classes of the model, in its order."""
        return encode_classes(np.asarray(self.source.model.classes_), self.source.dataset.classes)


def has_tree_estimator(model: object) -> bool:
    """Return whether a model, or the last step of a pipeline, is a tree or an ensemble of trees."""
    modules = [kind.__module__ for kind in type(_split_steps(model)[1]).__mro__]
    return any(f"{module}.".startswith(f"{name}.") for module in modules for name in _TREE_MODULES)


def _split_steps(model: Any) -> tuple[Any, Any]:
    """Return the steps before the last one, None if there are none, and the last step."""
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return None, model
    return (model[:-1] if len(model.steps) > 1 else None), model.steps[-1][1]
