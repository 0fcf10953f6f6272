"""run.json: what a run says of itself, with the type of every entry."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cfeval_cli.core.settings import describe_problems

_MAX = 1 << 63

Count: TypeAlias = Annotated[int, Field(ge=0, lt=_MAX)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Number: TypeAlias = Annotated[float, Field(gt=-1e300, lt=1e300, allow_inf_nan=False)]
Better: TypeAlias = Literal["higher", "lower", "none"]


class _Entry(BaseModel):
    """Entries that are not declared are kept, so that a run of a later minor version can be read."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class SettingsEntry(_Entry):
    """The settings that results depend on (RunSettings)."""

    seed: Count = 0
    k: Count = 1
    n_explain: Count | None = None
    access: str = ""
    gold: list[str] = []
    agreement: str = ""
    incomplete: str = ""
    circular: str = "keep"
    support: str = "common"
    figures: list[Literal["png", "svg", "pdf"]] = []
    tables: dict[Literal["metrics"], list[str] | None] = {}


class DataEntry(_Entry):
    """Where the data come from."""

    name: str


class ModelEntry(_Entry):
    """The class of the model and its plain settings."""

    name: str
    settings: dict[str, Any] = {}


class MetricEntry(_Entry):
    """How a metric is presented."""

    title: str
    latex: str | None
    better: Better
    place: Number
    role: Literal["judged", "truth", "fact"]
    block: str
    detail: str
    settings: dict[str, Any] = {}


class TruthEntry(_Entry):
    """What a truth answers, and how it was computed."""

    question: str = ""
    arbitrary: bool = False
    settings: dict[str, Any] = {}
    exact: bool = True
    how: str = "exact"
    instances: Count | None = None
    error: Number | None = None
    largest_error: Number | None = None


class RemovalEntry(_Entry):
    """A way to remove features, by its variant in the tables."""

    name: str = ""
    title: str = ""
    arbitrary: bool = False
    settings: dict[str, Any] = {}


class RunRecord(_Entry):
    """Everything in run.json. What is not known yet, while a run goes on, has its default."""

    schema_: int | None = Field(None, alias="schema")
    status: str
    cfeval: str = ""
    command: list[Any] = []
    overrides: list[Any] = []
    inputs: str | None = None
    settings: SettingsEntry = SettingsEntry()
    data: DataEntry | None = None
    model: ModelEntry | None = None
    splits: dict[str, Count] = {}
    reference: dict[str, Any] = {}
    explainers: dict[str, str] = {}
    explainer_settings: dict[str, dict[str, Any]] = {}
    effects: dict[str, bool] = {}
    ordered: dict[str, bool] = {}
    explainers_absent: dict[str, str] = {}
    metrics_absent: dict[str, str] = {}
    truths_absent: dict[str, str] = {}
    removals_absent: dict[str, str] = {}
    invariance_absent: str = ""
    correlations_absent: str = ""
    truths: dict[str, TruthEntry] = {}
    removals: dict[str, RemovalEntry] = {}
    definitions: dict[str, dict[str, str]] = {}
    metrics: dict[str, MetricEntry] = {}
    search: str = ""
    setup: str = ""
    levels: list[str] = []
    accuracy: dict[str, Number] = {}
    majority: dict[str, Share] = {}
    auc: dict[str, Share] = {}
    doubts: list[str] = []
    fidelity: dict[str, Number] | None = None
    instances: Count | None = None
    resampled: Count | None = None


def parse_record(record: Any) -> RunRecord:
    """Return a record; ValueError names the first entry that no run writes."""
    if not isinstance(record, dict):
        raise ValueError("run.json is not an object")
    json.dumps(record, ensure_ascii=False).encode("utf-8")  # lone surrogates cannot be written to any file
    try:
        parsed = RunRecord.model_validate(record)
    except ValidationError as error:
        problems = describe_problems(error, lambda location: ".".join(map(str, location)))
        raise ValueError(f"run.json: {problems[0].rstrip('.')}") from error
    if parsed.status == "complete" and "accuracy" in record and "test" not in parsed.accuracy:
        raise ValueError("run.json: accuracy.test is missing")
    return parsed
