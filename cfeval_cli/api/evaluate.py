"""Run an experiment on a model and DataFrames (`evaluate`), or from settings (`run`)."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from cfeval_cli.api.frames import DataFrames, FunctionModel
from cfeval_cli.api.load import Results, load
from cfeval_cli.api.session import check_paths, issue_warnings, run_in_process
from cfeval_cli.core import Explainer, Metric
from cfeval_cli.errors import Failure, UserError, did_you_mean
from cfeval_cli.settings.compose import list_chosen_components

_MODEL_SETTINGS = ("gives", "batch_size")  # of FunctionModel
_MODEL_CHOICE = {"model": "function"}  # whose defaults a run has; the model itself is a FunctionModel


def evaluate(
    predict_proba: Callable[[Any], Any],
    train: pd.DataFrame,
    test: pd.DataFrame,
    *,
    label: str,
    explainers: Sequence[str | Explainer] | None = None,
    attributions: Mapping[str, pd.DataFrame] | None = None,
    judges: Sequence[str] | None = None,
    metrics: str | Sequence[str | Metric] | None = None,
    k: int | None = None,
    n_explain: int | None = None,
    seed: int | None = None,
    classes: Sequence[Any] | None = None,
    name: str = "data",
    settings: Mapping[str, Any] | None = None,
    into: str | Path | None = None,
    progress: bool = False,
) -> Results:
    """Evaluate explanations of a model's predictions for the rows of `test`, as `cfeval run` does.

    `predict_proba` takes a DataFrame with the columns of `train` except the label, and returns probabilities (n, C),
    P(1) or labels. `explainers` are names or objects of your own classes. `attributions` are explanations that were
    made elsewhere: for each method a DataFrame with a column for each feature and the index of `test`. An argument that
    is None has the default of `cfeval run model=function`. `settings` sets any other setting of `cfeval run` by its
    key. Results are written `into` a folder, by default outputs/<date>/<time>. The folder contains the training rows,
    in training.parquet, unless `settings` has {"training": 0}.

    UserError is raised for a mistake in the arguments, and Failure if the run fails. A warning of the command is a
    UserWarning; with `progress`, progress and warnings go to standard error.
    """
    check_paths(into)
    attributions = attributions or {}
    frames = DataFrames(train, test, label)
    values = {"k": k, "n_explain": n_explain, "seed": seed, "judge": judges}
    arguments = {key: value for key, value in values.items() if value is not None}
    components: dict[str, object] = {}
    for group, choice in (("metric", metrics), ("explainer", _list_explainers(explainers, attributions))):
        if choice is not None:
            arguments[group], objects = _separate_objects(group, choice)
            components |= objects
    run_settings, data_settings, model_settings = _split_settings(settings or {}, arguments)
    call = _format_call(label, components, arguments | dict(settings or {}), attributions)
    with tempfile.TemporaryDirectory(prefix=f"cfeval-{os.getpid()}-") as temporary:
        folder = Path(temporary)
        with (
            _name_arguments_in_errors(folder),
            issue_warnings(progress, lambda message: _name_arguments(message, folder)),
        ):
            if attributions:
                run_settings["explainer.file.path"] = _write_attributions(frames, attributions, folder)
            dataset, excluded_columns = frames.make_dataset(folder, name, classes, data_settings)
            model = _make_model(predict_proba, frames, excluded_columns, model_settings)
            components = {"dataset": dataset, "model": model, **components}
            results_folder = run_in_process(_MODEL_CHOICE | arguments | run_settings, components, into, call, progress)
    return load(results_folder)


def run(
    settings: Mapping[str, Any],
    *,
    config_dir: str | Path | None = None,
    into: str | Path | None = None,
    progress: bool = False,
) -> Results:
    """Run one experiment, as `cfeval run` does: `run({"dataset": "adults", "search": "discrete", "k": 2})`.

    `settings` has config groups and settings by key. `config_dir` is a folder with your own configs. `into`,
    `progress`, warnings and errors are as in `evaluate`.
    """
    check_paths(into)
    with issue_warnings(progress):
        folder = run_in_process(settings, {}, into, f"run({dict(settings)!r})", progress, config_dir)
    return load(folder)


def _list_explainers(
    explainers: Sequence[str | Explainer] | None, attributions: Mapping[str, pd.DataFrame]
) -> Sequence[str | Explainer] | None:
    """Return the explainers with `file`, which reads attributions, if there are any; None for the default ones."""
    if isinstance(explainers, str):
        raise UserError(f"explainers must be a list such as [{explainers!r}].")
    if not attributions:
        return explainers
    if explainers is None:
        choice = [f"{group}={option}" for group, option in _MODEL_CHOICE.items()]
        explainers = list_chosen_components("explainer", choice)
    return [*explainers, "file"]


def _separate_objects(group: str, choice: str | Sequence[Any]) -> tuple[list[str], dict[str, object]]:
    """Return the names among the components of a group, and the objects by key.

    The key of a metric has its name, that of any other object the name of its class.
    """
    items = [choice] if isinstance(choice, str) else choice
    objects: dict[str, object] = {}
    for item in items:
        if isinstance(item, str):
            continue
        name = item.name if isinstance(item, Metric) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(item).__name__)
        key = f"{group}.{name.lower()}"
        if key in objects:
            raise UserError(f"{group}: two objects have the name {name.lower()}. Give one of the classes another name.")
        objects[key] = item
    return [item for item in items if isinstance(item, str)], objects


def _split_settings(
    settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the settings of the run, those of the dataset, and those of the model."""
    parts: dict[str, dict[str, Any]] = {"run": {}, "dataset": {}, "model": {}}
    for key, value in settings.items():
        if key in arguments:
            raise UserError(f"{key} is given twice: as an argument and in settings. Remove one.")
        if key in ("dataset", "model"):
            raise UserError(f"settings has {key!r}, but evaluate(…) takes the {key} from its arguments. Remove it.")
        group, _, name = key.partition(".")
        if group in ("dataset", "model"):
            parts[group][name] = value
        else:
            parts["run"][key] = value
    return parts["run"], parts["dataset"], parts["model"]


def _make_model(
    function: Callable[[Any], Any], frames: DataFrames, excluded_columns: list[str], settings: Mapping[str, Any]
) -> FunctionModel:
    for key in settings:
        if key not in _MODEL_SETTINGS:
            raise UserError(f"there is no setting model.{key}.{did_you_mean(key, _MODEL_SETTINGS)}")
    try:
        return FunctionModel(function, frames, excluded_columns, **settings)
    except ValueError as error:
        raise UserError(f"model.{error}.") from error


def _write_attributions(frames: DataFrames, attributions: Mapping[str, pd.DataFrame], folder: Path) -> list[str]:
    """Write a file for each table of attributions, with the name of the method, and return the paths."""
    paths = []
    for name, scores in attributions.items():
        if not re.fullmatch(r"\w[\w-]*", name):
            raise UserError(f"attributions[{name!r}]: use letters, digits, _ and -, with no - at the start.")
        path = folder / "attributions" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        frames.number_instances(name, scores).to_parquet(path, index=False)
        paths.append(str(path))
    return paths


@contextmanager
def _name_arguments_in_errors(folder: Path) -> Iterator[None]:
    """Name the arguments instead of temporary files in errors."""
    try:
        yield
    except (UserError, Failure) as error:
        raise type(error)(_name_arguments(str(error), folder)) from error


def _name_arguments(message: str, folder: Path) -> str:
    """Return a message with the names of the arguments instead of those of the temporary files.

    The arguments are written to files and read as any other data, so that messages name the files.
    """
    for file in folder.rglob("*.parquet"):
        for name in (str(file), file.relative_to(folder).as_posix(), file.name):
            message = message.replace(name, file.stem)
    return message


def _format_call(
    label: str, components: Mapping[str, object], settings: Mapping[str, Any], attributions: Mapping[str, pd.DataFrame]
) -> str:
    """Return the call of `evaluate` for the record of the run."""
    arguments = [f"label={label!r}", *(f"{key}={value!r}" for key, value in settings.items())]
    arguments += [f"{key}={type(component).__qualname__}" for key, component in components.items()]
    arguments += [f"attributions={list(attributions)}"] if attributions else []
    return f"evaluate(predict_proba, train, test, {', '.join(arguments)})"
