"""DataFrames as the dataset of a run, and a function of a DataFrame as its model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from cfeval_cli.core import Codes, Dataset, Feature, Fingerprinted, Loadable
from cfeval_cli.dataset.cells import make_matcher
from cfeval_cli.dataset.config_text import format_config
from cfeval_cli.dataset.describe import FileDescription, describe_file
from cfeval_cli.errors import UserError, check_int, check_option, did_you_mean, shorten
from cfeval_cli.model.encoded import EncodedModel, FittedPredictor, has_tree_estimator
from cfeval_cli.model.external import PredictionFunction
from cfeval_cli.settings.build import make_component

log = logging.getLogger("cfeval")


@dataclass(frozen=True)
class DataFrames:
    """Training and test rows with their label."""

    train: pd.DataFrame
    test: pd.DataFrame
    label: str

    def __post_init__(self) -> None:
        for name, frame in (("train", self.train), ("test", self.test)):
            if not isinstance(frame, pd.DataFrame):
                raise UserError(f"{name} must be a DataFrame, not a {type(frame).__name__}.")
            for column in frame.columns:
                if not isinstance(column, str):
                    raise UserError(f"{name} has a column called {column!r}: names must be text. {name}.columns = […]")
            if frame.columns.has_duplicates:
                raise UserError(f"{name} has two columns called {frame.columns[frame.columns.duplicated()][0]}.")
            if self.label not in frame:
                close = did_you_mean(str(self.label), frame.columns)
                raise UserError(f"label={self.label!r} is not a column of {name}.{close}")
            if frame.empty:
                raise UserError(f"{name} has no rows.")
        if missing := [column for column in self.train if column not in self.test]:
            raise UserError(f"test has no column {missing[0]}, which train has.")

    @cached_property
    def all_rows(self) -> pd.DataFrame:
        """The training rows and then the test rows, with the types of the training rows."""
        test = self.test[self.train.columns]
        rows = pd.concat([self.train, test], ignore_index=True)
        for name, dtype in self.train.dtypes.items():
            # pandas joins categories that differ as plain values.
            if isinstance(dtype, pd.CategoricalDtype) and test[name].dropna().isin(dtype.categories).all():
                rows[name] = pd.Categorical(rows[name], dtype=dtype)
        return rows

    def make_dataset(
        self, folder: Path, name: str, classes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> tuple[Loadable, list[str]]:
        """Write the rows to a folder; return the dataset that `cfeval data init` describes, and excluded columns."""
        paths = {key: folder / f"{key}.parquet" for key in ("train", "test", "data")}
        for path, frame in zip(paths.values(), (self.train, self.test, self.all_rows), strict=True):
            _write_parquet(frame, path)
        description = describe_file(paths["data"], self.label)
        if not description.features:
            raise UserError("train has no column that could be a feature. For texts use the command: cfeval run.")
        class_order = self._order_classes(description, classes)
        description = replace(description, path=paths["train"], text=None, classes=class_order)
        config = DictConfig(OmegaConf.create("\n".join(format_config(description, name, folder))))
        file = {"_target_": "cfeval_cli.dataset.sources.DataFile", "folder": str(folder)}
        OmegaConf.update(config, "file", file | {"name": paths["train"].name})
        OmegaConf.update(config, "split", {"test": file | {"name": paths["test"].name}}, merge=False)
        for column in description.features:
            if isinstance(self.train[column.name].dtype, pd.CategoricalDtype):
                config["features"][column.name] = "category"  # even if its values look like numbers
        for key, value in settings.items():
            is_merged = isinstance(value, Mapping) and OmegaConf.is_dict(OmegaConf.select(config, key))
            OmegaConf.update(config, key, value, merge=is_merged, force_add=True)
        dataset: Loadable = make_component(OmegaConf.create({"dataset": config}), "dataset")
        excluded = [column for column in description.excluded if column.name not in config["features"]]
        for column in excluded:
            log.warning("excluded column: %s (%s)", column.name, column.exclusion_reason)
        for line in description.warnings:
            log.warning("%s", line)
        return dataset, [column.name for column in excluded]

    def _order_classes(self, description: FileDescription, classes: Sequence[Any] | None) -> tuple[Any, ...]:
        """Return the classes in the order of the columns of predict_proba: by default sorted, as in scikit-learn."""
        values = description.classes
        if classes is None:
            return tuple(sorted(values, key=str)) if any(isinstance(value, str) for value in values) else values
        match = make_matcher(classes)
        if len(classes) != len(values) or {match(str(value)) for value in values} != set(range(len(classes))):
            raise UserError(
                f"classes={list(classes)} are not the values of {self.label}, which are {', '.join(map(str, values))}."
            )
        return tuple(classes)

    def number_instances(self, name: str, scores: pd.DataFrame) -> pd.DataFrame:
        """Return attributions with the instance numbers of the run, found by the index of the test rows."""
        if not isinstance(scores, pd.DataFrame):
            raise UserError(f"attributions[{name!r}] must be a DataFrame, not a {type(scores).__name__}.")
        index = self.test.index
        if not index.is_unique:
            raise UserError("the index of test has duplicates, so attributions cannot be matched to its rows by index.")
        is_long = {"instance", "feature", "score"} <= set(scores.columns)
        keys = pd.Index(scores["instance"]) if is_long else scores.index
        positions = index.get_indexer(keys)
        if (positions < 0).any():
            raise UserError(
                f"attributions[{name!r}] has a row for {keys[positions < 0][0]!r}, which is not in the index of test. "
                "Use index=test.index, with a row for each test row."
            )
        rows = scores if is_long else scores.reset_index(drop=True)
        return rows.assign(instance=positions + len(self.train))


def _check_distinct(feature: Feature, codes: Codes, values: pd.Series[Any]) -> None:
    """Raise UserError if different values share a code, such as NaN and inf: the model could get the wrong one.

    Equal numbers in different notations may share a code.
    """
    is_checked = codes == feature.missing_code if feature.kind == "number" else np.ones(len(codes), dtype=bool)
    value_ids, _ = pd.factorize(values)  # -1 for each value that pandas counts as missing
    first_rows: dict[int, int] = {}
    for row in np.flatnonzero(is_checked).tolist():
        first = first_rows.setdefault(int(codes[row]), row)
        if value_ids[first] != value_ids[row]:
            pair = " and ".join(sorted(shorten(str(values.iloc[position])) for position in (first, row)))
            raise UserError(
                f"column {feature.name}: {pair} count as the same value, so that the model could get one for the "
                "other. Replace one of them."
            )


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    try:
        frame.to_parquet(path, index=False)
    except (ValueError, TypeError, OverflowError) as error:
        mixed = [name for name in frame if frame[name].map(type, na_action="ignore").nunique() > 1]
        reason = f"column {mixed[0]} holds values of several types" if mixed else " ".join(str(error).split())[:200]
        raise UserError(f"{path.stem}: {reason}. Make them all numbers, or all texts.") from error


@dataclass(frozen=True)
class FunctionModel(PredictionFunction, Fingerprinted):
    """A trained model of which a function of a DataFrame returns the predictions."""

    function: Callable[[Any], Any]
    frames: DataFrames
    excluded_columns: Sequence[str] = ()  # columns that are not features
    gives: str = "auto"  # probabilities or labels; auto: inferred from its output for a few rows
    batch_size: int = 10_000

    def __post_init__(self) -> None:
        if not callable(self.function):
            kind = type(self.function).__name__
            raise UserError(f"predict_proba must be a function of a DataFrame, as model.predict_proba, not a {kind}.")
        check_option("gives", self.gives, ("auto", "probabilities", "labels"))
        check_int("batch_size", self.batch_size, 1)

    def fingerprint(self) -> None:
        """Return None: nothing is taken from the cache, because the inputs of a function are not known."""
        return

    def output_type(self, dataset: Dataset) -> type:
        """Return EncodedModel for the method predict_proba of a tree model, else what the output is."""
        is_encoded = self.gives != "labels" and has_tree_estimator(self._fitted_model)
        return EncodedModel if is_encoded else super().output_type(dataset)

    @property
    def _fitted_model(self) -> object:
        """The object whose method predict_proba is the function; None if there is none."""
        if isinstance(self.function, MethodType) and self.function.__name__ == "predict_proba":
            return self.function.__self__
        return None

    def make_predictor(self, dataset: Dataset) -> _FunctionPredictor:
        """Return the source of predictions, which worker processes can receive."""
        from joblib import wrap_non_picklable_objects

        # Functions of a notebook or a script cannot be pickled.
        function = wrap_non_picklable_objects(self.function)
        columns = self._collect_values(dataset)
        settings = {"function": function, "columns": columns, "model": self._fitted_model}
        return _FunctionPredictor(dataset, "predict_proba", None, self.batch_size, **settings)

    def _collect_values(self, dataset: Dataset) -> Mapping[str, pd.Series[Any]]:
        """Return the original values of each feature by code, and the value of each constant column."""
        rows = self.frames.all_rows
        splits = (dataset.train, dataset.validation, dataset.test)
        ids = np.concatenate([split.ids for split in splits])
        all_codes = np.concatenate([split.codes for split in splits])
        positions = {feature.name: j for j, feature in enumerate(dataset.features)}
        columns = {}
        for name in [str(column) for column in self.frames.train if column != self.frames.label]:
            if name in positions:
                feature, codes = dataset.features[positions[name]], all_codes[:, positions[name]]
                _check_distinct(feature, codes, rows[name].take(ids))
                used_codes, first = np.unique(codes, return_index=True)
                rows_by_code = np.zeros(len(feature.values), dtype=np.int64)
                rows_by_code[used_codes] = ids[first]
                columns[name] = rows[name].take(rows_by_code).reset_index(drop=True)
            elif name in self.excluded_columns and rows[name].nunique(dropna=False) == 1:
                columns[name] = rows[name].head(1)
        return columns


@dataclass(frozen=True)
class _FunctionPredictor(FittedPredictor):
    """The predictions of a function for rows with the names, order and types of the user's own columns."""

    function: Callable[[Any], Any]
    columns: Mapping[str, pd.Series[Any]] = field(repr=False)  # values by code, or the one value of a constant column
    model: object = None  # whose method the function is

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {feature.name: j for j, feature in enumerate(self.dataset.features)}

    def predict_raw(self, codes: Codes) -> Any:
        """Return the output of the function."""
        return self.function(self.make_rows(codes))

    def make_rows(self, codes: Codes) -> pd.DataFrame:
        """Return a DataFrame with the columns of the training rows."""
        zeros = np.zeros(len(codes), dtype=np.int64)
        values = {
            name: column.take(codes[:, self._positions[name]] if name in self._positions else zeros).array
            for name, column in self.columns.items()
        }
        return pd.DataFrame(values, copy=False)
