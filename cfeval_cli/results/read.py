"""A run folder as reports read it: values and arrays, nothing is instantiated from what lies in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from cfeval_cli.core import Codes, Floats, npy
from cfeval_cli.errors import UserError
from cfeval_cli.results import validation as checked
from cfeval_cli.results.recommendation import RecommendationRecord, parse_recommendation
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.findings import OPTIONAL_TABLES, Findings, get_file_name

MADE = ("report.html", "figures/")  # what can be made anew from the rest

_RECORD = (
    "settings", "data", "explainers", "metrics", "search", "setup", "levels", "accuracy", "instances", "reference",
    "metrics_absent", "explainers_absent", "truths", "removals", "correlations_absent", "splits", "command",
    "resampled",
)  # fmt: skip


_TABLES = {"embeddings": (2, "f"), "starts": (1, "i"), "sizes": (1, "i")}  # arrays with their dimensions and kinds
_PREDICTED = ["instance", "label", "predicted", "probability", "predicted_probability"]
_EDITS = ["instance", "explainer", "access", "probability", "distance", "converged", "steps"]
_FRAMES = ("instances.parquet", "explanations.parquet", "counterfactuals.parquet")


@dataclass(frozen=True)
class Described:
    """What dataset.json tells of the data."""

    kind: str
    classes: Sequence[str]
    features: Sequence[str]
    lists: Sequence[int]  # for each feature, the number of its list of values
    names: Sequence[Sequence[str]]  # the lists
    unknown: int | None

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.features)

    def values(self, feature: int) -> Codes:
        """Every value that a feature can have; the mask is none of them."""
        codes = np.arange(len(self.names[self.lists[feature]]), dtype=np.int32)
        return codes if self.unknown is None else codes[codes != self.unknown]

    def value(self, feature: int, code: int) -> str:
        """The name of a value."""
        return str(self.names[self.lists[feature]][code])


@dataclass(frozen=True)
class Results:
    """The results of one complete run; large tables are read when they are used."""

    folder: Path
    record: RunRecord
    findings: Findings
    costs: pd.DataFrame
    described: Described

    @property
    def metrics(self) -> pd.DataFrame:
        """Each metric, variant and explainer: value, interval, rank."""
        return self.findings.metrics

    @property
    def correlations(self) -> pd.DataFrame:
        """Each metric, variant, truth and subset: how well it ranks the explainers as the truth does."""
        return self.findings.correlations

    @cached_property
    def named(self) -> list[str]:
        """The explainers that are no rungs of a ladder."""
        return list(dict.fromkeys(self.findings.metrics.loc[self.findings.metrics["rung"].isna(), "explainer"]))

    @cached_property
    def shown(self) -> list[str]:
        """The explainers that are shown one by one: all but the rungs of a ladder, or some of these if it is alone."""
        everyone = list(dict.fromkeys(self.findings.metrics["explainer"]))
        if self.named or len(everyone) <= 1:
            return self.named or everyone
        some = np.linspace(0, len(everyone) - 1, min(len(everyone), 6)).round().astype(int)
        return [everyone[i] for i in some]

    @cached_property
    def instances(self) -> pd.DataFrame:
        """instances.parquet."""
        return pd.read_parquet(self.folder / "instances.parquet")

    @cached_property
    def predicted(self) -> pd.DataFrame:
        """instances.parquet without what the instances are."""
        return pd.read_parquet(self.folder / "instances.parquet", columns=_PREDICTED)

    def edits(self) -> Iterator[pd.DataFrame]:
        """counterfactuals.parquet without the edits themselves, of the explainers that are shown, a part at a time."""
        import pyarrow.parquet as pq

        labels = ["explainer", "access"]  # each of them in memory once
        with pq.ParquetFile(self.folder / "counterfactuals.parquet", read_dictionary=labels) as file:
            for number in range(file.num_row_groups):
                edits: pd.DataFrame = file.read_row_group(number, _EDITS).to_pandas()
                yield edits[edits["explainer"].isin(self.shown)]

    @property
    def moved(self) -> bool:
        """Whether edits moved embeddings."""
        import pyarrow.parquet as pq
        import pyarrow.types

        kept = pq.read_schema(self.folder / "counterfactuals.parquet").field("vectors")
        return not pyarrow.types.is_null(kept.type)

    def told(self, name: str, ids: Sequence[int]) -> pd.DataFrame:
        """The rows of a table about some instances, of the explainers that are shown; a row group is read at a time."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        found = []
        with pq.ParquetFile(self.folder / name) as file:
            for number in range(file.num_row_groups):
                mine = pc.is_in(file.read_row_group(number, ["instance"])["instance"], pa.array(ids, pa.int64()))
                if number == 0 or pc.any(mine).as_py():
                    found.append(file.read_row_group(number).filter(mine))
        told: pd.DataFrame = pa.concat_tables(found).to_pandas()
        return told[told["explainer"].isin(self.shown)] if "explainer" in told else told

    @cached_property
    def recommendation_record(self) -> RecommendationRecord | None:
        """recommendation.json, of a run that recommends something; ValueError if it is damaged."""
        if "recommendation.json" not in self.record.files:
            return None
        return parse_recommendation(json.loads(checked.text(self.folder / "recommendation.json", checked.LARGEST)))

    @cached_property
    def embeddings(self) -> list[Floats] | None:
        """For each feature the vectors of its values, if the model is stored as docs/run-folder.md says."""
        if "model.npz" not in self.record.files:
            return None
        arrays = npy.read(self.folder / "model.npz")
        shapes = {name: (arrays[name].ndim, arrays[name].dtype.kind) for name in _TABLES if name in arrays}
        if shapes != _TABLES:
            return None
        spans = list(zip(arrays["starts"].tolist(), arrays["sizes"].tolist(), strict=True))
        tables = {span: arrays["embeddings"][span[0] : sum(span)] for span in spans}
        fits = len(spans) == self.described.width and all(
            start >= 0 and len(tables[start, size]) == size == len(self.described.names[self.described.lists[j]])
            for j, (start, size) in enumerate(spans)
        )
        return [tables[span] for span in spans] if fits else None


def read(path: Path, record: RunRecord | None = None) -> Results:
    """The run in a folder, all its files as the run left them; one that is not complete has no report.

    A run that is about to be complete gives its record, which is not in the folder yet.
    """
    record = checked.read(path, but=MADE) if record is None else record
    try:
        checked.complete(record, _RECORD)
        told = {one.name: path / get_file_name(one) for one in fields(Findings) if get_file_name(one).endswith(".csv")}
        told = {name: file for name, file in told.items() if name not in OPTIONAL_TABLES or file.name in record.files}
        for name in (*(file.name for file in told.values()), "costs.csv", "dataset.json", *_FRAMES):
            checked.listed(record, name)
        findings = Findings(**{name: checked.table(file) for name, file in told.items()})
        described = json.loads(checked.text(path / "dataset.json", checked.LARGEST))
        features = described["features"]
        data = Described(
            described["kind"], described["classes"], [one["name"] for one in features],
            [one["values"] for one in features], described["values"], described["unknown"],
        )  # fmt: skip
        return Results(path, record, findings, checked.table(path / "costs.csv"), data)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, *checked.TOO_MUCH) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise UserError(f"{path} has no report: {' '.join(reason.split())}.") from error
