"""DataFrames as the data of a run, and the rows of a run as the DataFrames that they came from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from cfeval_cli.core import Codes, Dataset, Feature, Fingerprinted, Loadable
from cfeval_cli.dataset.cells import make_matcher
from cfeval_cli.dataset.config_text import format_config
from cfeval_cli.dataset.describe import FileDescription, describe_file
from cfeval_cli.errors import UserError, check_int, check_option, did_you_mean, shorten
from cfeval_cli.model.external import PredictionFunction, Predictor
from cfeval_cli.settings.build import make

log = logging.getLogger("cfeval")


@dataclass(frozen=True)
class Frames:
    """Training and test rows with their label."""

    train: pd.DataFrame
    test: pd.DataFrame
    label: str

    def __post_init__(self) -> None:
        for name, frame in (("train", self.train), ("test", self.test)):
            if not isinstance(frame, pd.DataFrame):
                raise UserError(f"{name} must be a DataFrame, not a {type(frame).__name__}.")
            odd = [column for column in frame.columns if not isinstance(column, str)]
            if odd:
                raise UserError(f"{name} has a column called {odd[0]!r}: names must be text. {name}.columns = […]")
            if frame.columns.has_duplicates:
                raise UserError(f"{name} has two columns called {frame.columns[frame.columns.duplicated()][0]}.")
            if self.label not in frame:
                close = did_you_mean(str(self.label), frame.columns)
                raise UserError(f"label={self.label!r} is no column of {name}.{close}")
            if frame.empty:
                raise UserError(f"{name} has no rows.")
        if lacking := [column for column in self.train if column not in self.test]:
            raise UserError(f"test has no column {lacking[0]}, which train has.")

    @cached_property
    def whole(self) -> pd.DataFrame:
        """All rows, those for training first, with the types that the training rows have."""
        test = self.test[self.train.columns]
        joined = pd.concat([self.train, test], ignore_index=True)
        for name, kind in self.train.dtypes.items():
            # categories that differ would be joined as plain values
            if isinstance(kind, pd.CategoricalDtype) and test[name].dropna().isin(kind.categories).all():
                joined[name] = pd.Categorical(joined[name], dtype=kind)
        return joined

    def table(
        self, folder: Path, name: str, classes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> tuple[Loadable, list[str]]:
        """The dataset, as `cfeval data init` would describe it, from files in a folder; and the columns left out."""
        files = {one: folder / f"{one}.parquet" for one in ("train", "test", "data")}
        for place, frame in zip(files.values(), (self.train, self.test, self.whole), strict=True):
            _put(frame, place)
        found = describe_file(files["data"], self.label)
        if not found.features:
            raise UserError("train has no column that could be a feature. Texts alone are for the command: cfeval run.")
        found = replace(found, path=files["train"], text=None, classes=self._classes(found, classes))
        node = DictConfig(OmegaConf.create("\n".join(format_config(found, name, folder))))
        given = {"_target_": "cfeval_cli.dataset.sources.File", "folder": str(folder)}
        OmegaConf.update(node, "file", given | {"name": files["train"].name})
        OmegaConf.update(node, "split", {"test": given | {"name": files["test"].name}}, merge=False)
        for column in found.features:
            if isinstance(self.train[column.name].dtype, pd.CategoricalDtype):
                node["features"][column.name] = "category"  # whatever its values look like
        for key, value in settings.items():
            both = isinstance(value, Mapping) and OmegaConf.is_dict(OmegaConf.select(node, key))
            OmegaConf.update(node, key, value, merge=both, force_add=True)
        loadable: Loadable = make(OmegaConf.create({"dataset": node}), "dataset")
        left_out = [column.name for column in found.excluded if column.name not in node["features"]]
        for column in found.excluded:
            if column.name in left_out:
                log.warning("no feature: %s (%s)", column.name, column.exclusion_reason)
        for line in found.warnings:
            log.warning("%s", line)
        return loadable, left_out

    def _classes(self, found: FileDescription, classes: Sequence[Any] | None) -> tuple[Any, ...]:
        """In the order of the columns of predict_proba: sorted, as most classifiers have them, or as it is said."""
        if classes is None:
            texts = any(isinstance(one, str) for one in found.classes)
            return tuple(sorted(found.classes, key=str) if texts else found.classes)
        match = make_matcher(classes)
        if len(classes) != len(found.classes) or {match(str(one)) for one in found.classes} != set(range(len(classes))):
            there = ", ".join(map(str, found.classes))
            raise UserError(f"classes={list(classes)} are not the values of {self.label}, which are {there}.")
        return tuple(classes)

    def numbered(self, name: str, scores: pd.DataFrame) -> pd.DataFrame:
        """Attributions with the numbers that a run gives the test rows; rows are known by the test rows' index."""
        if not isinstance(scores, pd.DataFrame):
            raise UserError(f"attributions[{name!r}] must be a DataFrame, not a {type(scores).__name__}.")
        index = self.test.index
        if not index.is_unique:
            raise UserError("the index of test has a label twice, so that attributions cannot be told apart by it.")
        long = {"instance", "feature", "score"} <= set(scores.columns)
        keys = pd.Index(scores["instance"]) if long else scores.index
        places = index.get_indexer(keys)
        if (places < 0).any():
            raise UserError(
                f"attributions[{name!r}] tells of {keys[places < 0][0]!r}, which is not in the index of test. "
                "A DataFrame with index=test.index has a row for each test row."
            )
        numbers = places + len(self.train)
        return scores.assign(instance=numbers) if long else scores.reset_index(drop=True).assign(instance=numbers)


def _check_distinct(feature: Feature, codes: Codes, values: pd.Series[Any]) -> None:
    """Refuse values that share a code, such as NaN and inf: the model would get one for the other.

    Equal numbers in different notations may share one.
    """
    checked = codes == feature.missing_code if feature.kind == "number" else np.ones(len(codes), dtype=bool)
    originals, _ = pd.factorize(values)  # -1 for all that pandas calls missing
    first: dict[int, int] = {}
    for row in np.flatnonzero(checked).tolist():
        other = first.setdefault(int(codes[row]), row)
        if originals[other] != originals[row]:
            pair = " and ".join(sorted(shorten(str(values.iloc[place])) for place in (other, row)))
            raise UserError(
                f"column {feature.name}: {pair} count as the same value, so that the model could get one for the "
                "other. Replace one of them."
            )


def _put(frame: pd.DataFrame, path: Path) -> None:
    try:
        frame.to_parquet(path, index=False)
    except (ValueError, TypeError, OverflowError) as error:  # a column of mixed types
        mixed = [name for name in frame if frame[name].map(type, na_action="ignore").nunique() > 1]
        about = f"column {mixed[0]} holds values of several types" if mixed else " ".join(str(error).split())[:200]
        raise UserError(f"{path.stem}: {about}. Make them all numbers, or all texts.") from error


@dataclass(frozen=True)
class Asked(PredictionFunction, Fingerprinted):
    """A function of a DataFrame, or a model's method, as the model of a run; it is trained already."""

    function: Callable[[Any], Any]
    frames: Frames
    left_out: Sequence[str] = ()  # columns that are no features
    # probabilities or labels; auto: as its answer to a few rows looks
    gives: str = field(default="auto", metadata={"setting": True})
    batch_size: int = field(default=10_000, metadata={"setting": True})

    def __post_init__(self) -> None:
        if not callable(self.function):
            kind = type(self.function).__name__
            raise UserError(f"predict_proba must be a function of a DataFrame, as model.predict_proba, not a {kind}.")
        check_option("gives", self.gives, ("auto", "probabilities", "labels"))
        check_int("batch_size", self.batch_size, 1)

    def fingerprint(self) -> None:
        """What its answers depend on is not known: nothing of it is taken from earlier runs."""
        return

    def source(self, dataset: Dataset) -> _FunctionPredictor:
        """The function, as workers can be given it."""
        from joblib import wrap_non_picklable_objects

        # functions of a notebook or a script go to workers too
        function = wrap_non_picklable_objects(self.function)
        return _FunctionPredictor(dataset, "predict_proba", None, self.batch_size, function, self._columns(dataset))

    def _columns(self, dataset: Dataset) -> Mapping[str, pd.Series[Any]]:
        """Each column of the rows: of a feature its values by code, of one that never varies its value."""
        whole = self.frames.whole
        parts = (dataset.train, dataset.validation, dataset.test)
        ids, codes = np.concatenate([part.ids for part in parts]), np.concatenate([part.codes for part in parts])
        place = {feature.name: j for j, feature in enumerate(dataset.features)}
        columns = {}
        for name in [str(column) for column in self.frames.train if column != self.frames.label]:
            if name in place:
                _check_distinct(dataset.features[place[name]], codes[:, place[name]], whole[name].take(ids))
                known, first = np.unique(codes[:, place[name]], return_index=True)
                rows = np.zeros(len(dataset.features[place[name]].values), dtype=np.int64)
                rows[known] = ids[first]
                columns[name] = whole[name].take(rows).reset_index(drop=True)
            elif name in self.left_out and whole[name].nunique(dropna=False) == 1:
                columns[name] = whole[name].head(1)
        return columns


@dataclass(frozen=True)
class _FunctionPredictor(Predictor):
    """The function, given rows as the user's own DataFrame has them: names, order and types of columns."""

    function: Callable[[Any], Any]
    columns: Mapping[str, pd.Series[Any]] = field(repr=False)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {feature.name: j for j, feature in enumerate(self.dataset.features)}

    def predict_raw(self, codes: Codes) -> Any:
        """What the function says."""
        return self.function(self.rows(codes))

    def rows(self, codes: Codes) -> pd.DataFrame:
        """A DataFrame like the training rows."""
        zeros = np.zeros(len(codes), dtype=np.int64)
        taken = {
            name: column.take(codes[:, self._places[name]] if name in self._places else zeros).array
            for name, column in self.columns.items()
        }
        return pd.DataFrame(taken, copy=False)
