"""The plain settings of a run: each with its type and bounds, once.

Defaults and one-line descriptions are in conf/run.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cfeval_cli.errors import UserError, did_you_mean

MIN_RESAMPLES = 100  # the ends of an interval are rare among fewer

FigureFormat: TypeAlias = Literal["png", "svg", "pdf"]
FIGURE_FORMATS: tuple[str, ...] = get_args(FigureFormat)
Count: TypeAlias = Annotated[int, Field(ge=0)]
Size: TypeAlias = Annotated[int, Field(ge=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TableSettings(_Settings):
    """What the LaTeX tables show."""

    metrics: Names | None  # None: all

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names == ():
            raise ValueError("must be a list of metrics such as [a,b], or null for all")
        return names


class RunSettings(_Settings):
    """The settings of a run that are not components."""

    seed: Count
    k: Size
    n_explain: Size | None
    min_per_class: Count
    access: Literal["label", "probability", "gradient"]
    agreement: str
    incomplete: Literal["skip", "random", "keep"]
    bounds: Count
    explainer_stability: Count | Literal["auto"]
    reparametrisations: Count
    training: Count
    reference: Size | None
    budget: Size
    circular: Literal["keep", "drop"]
    support: Literal["common", "own"]
    resamples: Count | Literal["auto"]
    confidence: Annotated[float, Field(ge=0.5, le=0.9999)]
    margin: Annotated[float, Field(gt=0, le=1)]
    by: Names
    figures: Annotated[tuple[FigureFormat, ...], Field(strict=False)]
    report: bool
    tables: TableSettings
    redo: bool
    strict: bool
    timeout_per_instance: Seconds | None
    timeout_model: Seconds | None
    data_dir: Annotated[Path, Field(strict=False)]

    @field_validator("figures", mode="before")
    @classmethod
    def _list_formats(cls, formats: Any) -> Any:
        return [] if formats is None else formats

    @field_validator("resamples")
    @classmethod
    def _check_resamples(cls, resamples: int | str) -> int | str:
        if isinstance(resamples, int) and 0 < resamples < MIN_RESAMPLES:
            raise ValueError(f"must be 0, auto or at least {MIN_RESAMPLES}, not {resamples}")
        return resamples

    @field_validator("data_dir")
    @classmethod
    def _expand_home(cls, folder: Path) -> Path:
        return folder.expanduser()


def validate_settings(values: Mapping[str, Any]) -> RunSettings:
    """Return the settings; UserError names each key that has a wrong value."""
    try:
        return RunSettings.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(" ".join(describe_problems(error, RunSettings, _name_key))) from error


# What a value must be, by the type of pydantic's error.
_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a word",
    "tuple_type": "a list such as [a,b]",
    "list_type": "a list such as [a,b]",
    "finite_number": "finite",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "model_type": "a mapping",
    "dict_type": "a mapping",
}


Location: TypeAlias = tuple[int | str, ...]


def describe_problems(error: ValidationError, model: type[BaseModel], name_key: Callable[[Location], str]) -> list[str]:
    """Return one sentence for each key of a model with a wrong value."""
    problems: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    endings: dict[str, str] = {}
    for item in error.errors():
        key, context = name_key(item["loc"]), item.get("ctx", {})
        if item["type"] == "value_error":
            problems[key] = f"{context['error']}."
        elif item["type"] in ("missing", "extra_forbidden"):
            problems[key] = "is missing." if item["type"] == "missing" else "is not a setting."
        elif item["type"] == "literal_error":
            options = _list_options(model, item["loc"])
            expected.setdefault(key, []).append("one of " * (len(options) > 1) + ", ".join(options))
            endings[key] = f", not {_shorten(item['input'])}.{did_you_mean(str(item['input']), options)}"
        else:
            expected.setdefault(key, []).append(_EXPECTED.get(item["type"], item["msg"]).format(**context))
            endings.setdefault(key, f", not {_shorten(item['input'])}.")
    problems |= {key: f"must be {' or '.join(dict.fromkeys(values))}{endings[key]}" for key, values in expected.items()}
    return [f"{key} {problem}" for key, problem in problems.items()]


def _list_options(annotation: Any, location: Location) -> list[str]:
    """Return the words that a type allows at a location: those of its `Literal`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        depth = next(depth for depth, part in enumerate(location) if part in fields)
        return _list_options(fields[str(location[depth])].annotation, location[depth + 1 :])
    if get_origin(annotation) is Literal:
        return [str(option) for option in get_args(annotation)]
    return [option for argument in get_args(annotation) for option in _list_options(argument, location)]


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _name_key(location: Location) -> str:
    """Return the key of a setting as the command line has it, without the names of pydantic's alternatives."""
    first = str(location[0])
    if first == "budget":
        return "truth.budget"
    return "tables.metrics" if first == "tables" and location[1:2] == ("metrics",) else first
