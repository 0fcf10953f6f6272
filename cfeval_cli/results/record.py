"""The entries of run.json with their types."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cfeval_cli.results.locations import RECORD
from cfeval_cli.settings.run_settings import FigureFormat, describe_problems

_MAX = 1 << 63

Count: TypeAlias = Annotated[int, Field(ge=0, lt=_MAX)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Number: TypeAlias = Annotated[float, Field(gt=-1e300, lt=1e300, allow_inf_nan=False)]
PlainSettings: TypeAlias = dict[str, bool | int | float | str | None]
Better: TypeAlias = Literal["higher", "lower", "none"]


class Entry(BaseModel):
    """An entry of run.json. Undeclared values are kept, so that runs of later minor versions can be read."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class TablesEntry(Entry):
    """The metrics in the LaTeX tables; None: all."""

    metrics: list[str] | None = None


class SettingsEntry(Entry):
    """The settings that results depend on.

    They are those of RunSettings and the names of the truths. Each has a default here, because a run that ended early
    has none of them, and no bounds, because readers of a record only need the types.
    """

    seed: Count = 0
    k: Count = 1
    n_explain: Count | None = None
    min_per_class: Count = 0
    access: str = ""
    truth: list[str] = []
    agreement: str = ""
    incomplete: str = ""
    bounds: Count = 0
    explainer_stability: Count | Literal["auto"] = 0
    reparametrisations: Count = 0
    training: Count = 0
    reference: Count | None = None
    budget: Count = 0
    circular: str = "keep"
    support: str = "common"
    resamples: Count | Literal["auto"] = 0
    confidence: Share = 0.95
    margin: Share = 0.05
    by: list[str] = []
    figures: list[FigureFormat] = []
    tables: TablesEntry = TablesEntry()
    timeout_per_instance: Number | None = None
    timeout_model: Number | None = None


class EmbeddingEntry(Entry):
    """The pretrained word vectors of a text."""

    name: str
    sha256: str = ""
    dim: Count = 0
    words: Count  # of the vocabulary that have a vector


class DataEntry(Entry):
    """Where the data come from."""

    name: str
    kind: str = ""
    file: str = ""
    source: str = ""
    sha256: list[str] = []  # of each file
    rows_read: Count = 0
    rows_used: Count = 0
    rows_whole: Count = 0
    complete: bool = True
    embedding: EmbeddingEntry | None = None
    vocabulary: Count | None = None
    search_words: Count | None = None
    fingerprint: str = ""


class ModelEntry(Entry):
    """The class of the model and its plain settings."""

    name: str
    settings: PlainSettings = {}


class ReferenceEntry(Entry):
    """Published values for the same data and model."""

    test_accuracy: Number | None = None


class MetricEntry(Entry):
    """How a metric is presented."""

    title: str
    latex: str | None = None
    better: Better
    display_order: Annotated[int, Field(gt=-_MAX, lt=_MAX)] = 0
    role: Literal["judged", "truth", "fact"]
    quantity: str | None = None
    block: str
    details: list[str]
    settings: PlainSettings = {}


class TruthEntry(Entry):
    """The question of a truth, and how it was computed."""

    question: str = "paper"
    arbitrary: bool = False
    settings: PlainSettings = {}
    exact: bool = True
    method: str = ""
    instances: Count | None = None
    error: Number | None = None
    largest_error: Number | None = None


class RemovalEntry(Entry):
    """A way to remove features, by its variant in the tables."""

    name: str
    title: str
    arbitrary: bool = False
    settings: PlainSettings = {}


class DefinitionsEntry(Entry):
    """The first sentence of the docstring of each component, by its name."""

    metric: dict[str, str] = {}
    explainer: dict[str, str] = {}
    truth: dict[str, str] = {}
    removal: dict[str, str] = {}


class FidelityEntry(Entry):
    """The share of rows for which a distilled model makes the prediction of its teacher, with its interval."""

    test: Share
    low: Share
    high: Share
    rows: Count


class ExplainedEntry(Entry):
    """The cost of the explanations of all instances, and the number of instances without one."""

    n_cached: Count = 0
    seconds: Number = 0.0
    faults: Count = 0
    reasons: str = ""


class StageEntry(Entry):
    """The seconds of a stage of a run, or of one component in it."""

    stage: str
    component: str = ""
    seconds: Number


class RunRecord(Entry):
    """The content of run.json. Entries that a run has not written yet have their defaults."""

    schema_: int | None = Field(default=None, alias="schema")
    status: str
    cfeval: str = ""
    command: list[str] = []
    overrides: list[str] | None = None
    started: str = ""
    resumed_at: list[str] = []
    git_commit: str | None = None
    python: str = ""
    packages: dict[str, str] = {}
    inputs: str | None = None
    redo: bool = False
    settings: SettingsEntry = SettingsEntry()
    data: DataEntry = DataEntry(name="")
    model: ModelEntry = ModelEntry(name="")
    splits: dict[str, Count] = {}
    reference: ReferenceEntry = ReferenceEntry()
    explainers: dict[str, str] = {}
    explainer_settings: dict[str, PlainSettings] = {}
    effects: dict[str, bool] = {}
    ordered: dict[str, bool] = {}
    search: str = ""
    explainers_absent: dict[str, str] = {}
    metrics_absent: dict[str, str] = {}
    truths_absent: dict[str, str] = {}
    removals_absent: dict[str, str] = {}
    invariance_absent: str = ""
    truths: dict[str, TruthEntry] = {}
    removals: dict[str, RemovalEntry] = {}
    definitions: DefinitionsEntry = DefinitionsEntry()
    setup: str = ""
    levels: list[str] = []
    metrics: dict[str, MetricEntry] = {}
    accuracy: dict[str, Share] = {}
    majority: dict[str, Share] = {}
    auc: dict[str, Share] = {}
    warnings: list[str] = []
    fidelity: FidelityEntry | None = None
    instances: Count = 0
    explained: dict[str, ExplainedEntry] = {}
    resampled: Count = 0
    seconds: Number = 0.0
    stages: list[StageEntry] = []
    peak_memory_mb: Number | None = None
    correlations_absent: str = ""
    files: dict[str, str] = {}

    @property
    def questions(self) -> dict[str, str]:
        """The question of each truth that depends on no arbitrary constant of the model."""
        return {name: truth.question for name, truth in self.truths.items() if not truth.arbitrary}

    @property
    def is_sampled_by_class(self) -> bool:
        """Whether the explained instances have a minimum number of each predicted class."""
        n_explain = self.settings.n_explain
        return self.settings.min_per_class > 0 and n_explain is not None and n_explain < self.splits.get("test", 0)

    @property
    def arbitrary_removals(self) -> set[str]:
        """The variants that remove features by an arbitrary constant of the model."""
        return {variant for variant, removal in self.removals.items() if removal.arbitrary}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of run.json as plain values."""
        return self.model_dump(by_alias=True, exclude_unset=True)


_E = TypeVar("_E", bound=Entry)


@contextlib.contextmanager
def name_invalid_entry(entry: str) -> Iterator[None]:
    """Raise ValueError for an entry that cannot be built; `entry` is its path in run.json."""
    try:
        yield
    except ValidationError as error:
        kind = next(kind for kind in Entry.__subclasses__() if kind.__name__ == error.title)
        problems = describe_problems(error, kind, lambda location: ".".join(map(str, location)))
        raise ValueError(f"{RECORD}: {entry}.{problems[0].rstrip('.')}") from error


def parse_record(record: Any) -> RunRecord:
    """Return a record; ValueError names the first invalid entry."""
    if not isinstance(record, dict):
        raise ValueError(f"{RECORD} is not an object")
    json.dumps(record, ensure_ascii=False).encode("utf-8")  # lone surrogates cannot be written to any file
    parsed = parse_entry(RunRecord, record, RECORD)
    if parsed.status == "complete" and "accuracy" in record and "test" not in parsed.accuracy:
        raise ValueError(f"{RECORD}: accuracy.test is missing")
    return parsed


def parse_entry(kind: type[_E], content: Any, file: str) -> _E:
    """Return the content of a file; ValueError names the first invalid entry."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = describe_problems(error, kind, partial(_name_entry, content))
        raise ValueError(f"{file}: {problems[0].rstrip('.')}") from error


def _name_entry(record: Any, location: tuple[int | str, ...]) -> str:
    """Return the path of an entry, without the names of pydantic's alternatives for its type."""
    names = []
    for part in location:
        if isinstance(record, dict):
            record = record.get(part)
        elif isinstance(record, list) and isinstance(part, int):
            record = record[part]
        else:
            break
        names.append(str(part))
    return ".".join(names)
