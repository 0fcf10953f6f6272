"""The results of a complete run, as reports read them: values and arrays only, no code from the folder is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from cfeval_cli.core import Floats, npy
from cfeval_cli.errors import UserError
from cfeval_cli.results.locations import PAGE_FILE
from cfeval_cli.results.recommendation import RECOMMENDATION_FILE, parse_recommendation
from cfeval_cli.results.record import Count, Entry, RunRecord, parse_entry
from cfeval_cli.results.schema import TABLES, get_table_file
from cfeval_cli.results.validation import (
    RESOURCE_ERRORS,
    check_complete,
    check_listed,
    read_table,
    read_text,
    read_verified_record,
)
from cfeval_cli.statistics.recommendation import Recommendation
from cfeval_cli.statistics.run_statistics import RunStatistics

REPORT_FILES = (PAGE_FILE, "figures/")  # can be made again from the others

_REQUIRED_ENTRIES = (
    "settings", "data", "explainers", "metrics", "search", "setup", "levels", "accuracy", "instances", "reference",
    "metrics_absent", "explainers_absent", "truths", "removals", "correlations_absent", "splits", "command",
    "resampled",
)  # fmt: skip


_MAX_DISPLAYED_GRADED = 6  # graded control explainers that are displayed, if there are no others
_EMBEDDING_ARRAYS = {"embeddings": (2, "f"), "starts": (1, "i"), "sizes": (1, "i")}  # dimensions and kinds
_PREDICTION_COLUMNS = ["instance", "label", "predicted", "probability", "predicted_probability"]
_REQUIRED_TABLES = ("instances.parquet", "explanations.parquet", "counterfactuals.parquet")


class FeatureDescription(Entry):
    """A feature in dataset.json."""

    name: str
    values: Count  # the position of its list of values


class DataDescription(Entry):
    """The content of dataset.json that reports read."""

    kind: str
    classes: list[str]
    features: list[FeatureDescription]
    values: list[list[str]]  # lists of names, which features can share
    unknown: int | None

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        for feature in self.features:
            if feature.values >= len(self.values):
                raise ValueError(f"feature {feature.name} has no list of values")
        return self

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        return [feature.name for feature in self.features]

    def get_names(self, feature: int) -> Sequence[str]:
        """Return the names of the values of a feature, by code."""
        return self.values[self.features[feature].values]

    def get_name(self, feature: int, code: int) -> str:
        """Return the name of a value."""
        return self.get_names(feature)[code]


@dataclass(frozen=True)
class StoredRun:
    """The record, tables and arrays of one complete run; large tables are read when they are used."""

    folder: Path
    record: RunRecord
    statistics: RunStatistics
    costs: pd.DataFrame
    data: DataDescription

    @property
    def metrics(self) -> pd.DataFrame:
        """Value, interval and rank of each metric, variant and explainer."""
        return self.statistics.metrics

    @property
    def correlations(self) -> pd.DataFrame:
        """How well each metric ranks the explainers, for each truth and subset."""
        return self.statistics.correlations

    @cached_property
    def named_explainers(self) -> list[str]:
        """The explainers that are no graded controls."""
        is_graded = self.metrics["quality_level"].notna()
        return list(dict.fromkeys(self.metrics.loc[~is_graded, "explainer"]))

    @cached_property
    def displayed_explainers(self) -> list[str]:
        """The explainers that are displayed one by one: no graded controls, or some of these if there are no others."""
        explainers = list(dict.fromkeys(self.metrics["explainer"]))
        if self.named_explainers or len(explainers) <= 1:
            return self.named_explainers or explainers
        n_displayed = min(len(explainers), _MAX_DISPLAYED_GRADED)
        positions = np.linspace(0, len(explainers) - 1, n_displayed).round().astype(int)
        return [explainers[i] for i in positions]

    @cached_property
    def instances(self) -> pd.DataFrame:
        """instances.parquet."""
        return self.read_frame("instances")

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """instances.parquet without the values of the features."""
        return pd.read_parquet(self.folder / "instances.parquet", columns=_PREDICTION_COLUMNS)

    @property
    def moves_embeddings(self) -> bool:
        """Whether the search moved embeddings."""
        import pyarrow.parquet as pq
        import pyarrow.types

        field = pq.read_schema(self.folder / "counterfactuals.parquet").field("vectors")
        return not pyarrow.types.is_null(field.type)

    def has_table(self, name: str) -> bool:
        """Return whether the run has an optional table, named without its suffix."""
        return get_table_file(name) in self.record.files

    def read_frame(self, name: str) -> pd.DataFrame:
        """Return a large table, named without its suffix."""
        return pd.read_parquet(self.folder / get_table_file(name))

    def read_rows(self, name: str, ids: Sequence[int]) -> pd.DataFrame:
        """Return the rows of a large table for some instances and the displayed explainers."""
        rows = pd.read_parquet(self.folder / get_table_file(name), filters=[("instance", "in", list(ids))])
        return rows[rows["explainer"].isin(self.displayed_explainers)] if "explainer" in rows else rows

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """Which explainer is most faithful, as in recommendation.json; None if the run has none."""
        return read_recommendation(self.folder) if RECOMMENDATION_FILE in self.record.files else None

    @cached_property
    def embeddings(self) -> list[Floats] | None:
        """The vectors of the values of each feature; None if model.npz has none as docs/run-folder.md describes."""
        if "model.npz" not in self.record.files:
            return None
        arrays = npy.read_npz(self.folder / "model.npz")
        kinds = {name: (arrays[name].ndim, arrays[name].dtype.kind) for name in _EMBEDDING_ARRAYS if name in arrays}
        if kinds != _EMBEDDING_ARRAYS:
            return None
        spans = list(zip(arrays["starts"].tolist(), arrays["sizes"].tolist(), strict=True))
        vectors = {span: arrays["embeddings"][span[0] : sum(span)] for span in spans}
        is_valid = len(spans) == len(self.data.features) and all(
            start >= 0 and len(vectors[start, size]) == size == len(self.data.get_names(j))
            for j, (start, size) in enumerate(spans)
        )
        return [vectors[span] for span in spans] if is_valid else None


def read_recommendation(folder: Path) -> Recommendation:
    """Return the recommendation of a run; UserError if its file is damaged."""
    path = folder / RECOMMENDATION_FILE
    try:
        return parse_recommendation(json.loads(read_text(path)))
    except (ValueError, *RESOURCE_ERRORS) as error:
        raise UserError(f"{path} is damaged: {error}.") from error


def read_results(path: Path, record: RunRecord | None = None) -> StoredRun:
    """Return the results of a complete run; UserError if a file is missing or was changed.

    A run that is about to be complete passes its record, because the folder does not have it yet.
    """
    record = read_verified_record(path, unverified=REPORT_FILES) if record is None else record
    try:
        check_complete(record, _REQUIRED_ENTRIES)
        files = {field.name: get_table_file(field.name) for field in fields(RunStatistics)}
        files = {
            name: file
            for name, file in files.items()
            if file.endswith(".csv") and (file in record.files or not TABLES[file].optional)
        }
        for file in (*files.values(), "costs.csv", "dataset.json", *_REQUIRED_TABLES):
            check_listed(record, file)
        statistics = RunStatistics(**{name: read_table(path / file) for name, file in files.items()})
        data = parse_entry(DataDescription, json.loads(read_text(path / "dataset.json")), "dataset.json")
        return StoredRun(path, record, statistics, read_table(path / "costs.csv"), data)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, *RESOURCE_ERRORS) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise UserError(f"{path} has no report: {' '.join(reason.split())}.") from error
