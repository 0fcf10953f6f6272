"""The Python interface: `evaluate` for your own model and DataFrames, `run` for settings, `load` for results."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from cfeval_cli.api.frames import Asked, Frames
from cfeval_cli.api.load import Run, load
from cfeval_cli.api.session import check_paths, issue_warnings, run_session
from cfeval_cli.core import Explainer, Metric
from cfeval_cli.errors import Failure, UserError, did_you_mean
from cfeval_cli.results.read import Results

__all__ = ["Results", "Run", "evaluate", "load", "run"]


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
) -> Run:
    """Which explainer tells the truth about a model: the run of `cfeval run`, and what it found.

    `predict_proba` is asked about DataFrames with the columns of `train`, without the label, and gives probabilities
    (n, C), P(1) or labels. Explanations of the rows of `test` are compared: those of `explainers`, by name or of a
    class of your own, and `attributions`, one DataFrame a method with a column for each feature and the index of
    `test`. Whatever is None is as in `cfeval run`, and `settings` has any other of its settings by key. Results are
    written `into` a folder, by default outputs/<date>/<time>; UserError says what is to be mended, Failure what failed.
    What the command would warn of is a UserWarning; with `progress` it is among the lines on standard error.
    """
    check_paths(into)
    frames = Frames(train, test, label)
    told = {"k": k, "n_explain": n_explain, "seed": seed, "judge": judges}
    chosen = {key: value for key, value in told.items() if value is not None} | _chosen("metric", metrics)
    explained = None if explainers is None and not attributions else _explainers(explainers, attributions or {})
    chosen |= _chosen("explainer", explained)
    own = _own("metric", metrics) | _own("explainer", explainers)
    general, of_data, of_model = _parted(settings or {}, chosen)
    call = _call(label, own, chosen | general | of_data | of_model, attributions or {})
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"cfeval-{os.getpid()}-")))
        stack.enter_context(_named(place))
        stack.enter_context(issue_warnings(progress, lambda text: _renamed(text, place)))
        files = _written(frames, attributions or {}, place)
        if files:
            general["explainer.file.path"] = files
        table, left_out = frames.table(place, name, classes, of_data)
        components = {"dataset": table, "model": _model(predict_proba, frames, left_out, of_model), **own}
        folder = run_session(chosen | general, components, into, call, progress)
    return load(folder)


def run(
    settings: Mapping[str, Any],
    *,
    config_dir: str | Path | None = None,
    into: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Run one experiment, as `cfeval run` does: `run({"dataset": "adults", "search": "discrete", "k": 2})`.

    `settings` has groups and settings by key, and `config_dir` names a folder with configs of your own. `into`,
    `progress`, warnings and errors are as in `evaluate`.
    """
    check_paths(into)
    with issue_warnings(progress):
        folder = run_session(settings, {}, into, f"run({dict(settings)!r})", progress, config_dir)
    return load(folder)


def _explainers(
    explainers: Sequence[str | Explainer] | None, attributions: Mapping[str, pd.DataFrame]
) -> list[str | Explainer]:
    """The explainers to choose, `file` among them if there are attributions."""
    if explainers is None:
        from cfeval_cli.settings.compose import list_default_options

        explainers = list_default_options("explainer")
    if isinstance(explainers, str):
        raise UserError(f"explainers must be a list such as [{explainers!r}].")
    return [*explainers, *(["file"] if attributions else [])]


def _chosen(group: str, chosen: str | Sequence[Any] | None) -> dict[str, Any]:
    """The names of a group, for its setting; objects stand beside them."""
    if chosen is None:
        return {}
    names = [chosen] if isinstance(chosen, str) else [one for one in chosen if isinstance(one, str)]
    return {group: names}


def _own(group: str, chosen: str | Sequence[Any] | None) -> dict[str, object]:
    """Components that are given as objects, by key: a metric by its name, others by that of their class."""
    own: dict[str, object] = {}
    for one in [] if chosen is None or isinstance(chosen, str) else chosen:
        if isinstance(one, str):
            continue
        name = one.name if isinstance(one, Metric) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(one).__name__)
        key = f"{group}.{name.lower()}"
        if key in own:
            raise UserError(f"{group}: two are called {name.lower()}. Give one of the classes another name.")
        own[key] = one
    return own


def _parted(
    settings: Mapping[str, Any], chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings of the run, and those of the data and of the model, which are given."""
    parts: dict[str, dict[str, Any]] = {"": {}, "dataset": {}, "model": {}}
    for key, value in settings.items():
        group, dot, rest = key.partition(".")
        if key in chosen:
            raise UserError(f"{key} is said twice: as an argument, and in settings.")
        if group in parts and not dot:
            raise UserError(f"settings has {key!r}: the {group} is what evaluate(…) is given.")
        known = group if group in parts else ""
        parts[known][rest if known else key] = value
    return parts[""], parts["dataset"], parts["model"]


def _model(function: Callable[[Any], Any], frames: Frames, left_out: list[str], settings: Mapping[str, Any]) -> Asked:
    known = [field.name for field in fields(Asked) if field.metadata.get("setting")]
    if odd := [key for key in settings if key not in known]:
        raise UserError(f"there is no setting model.{odd[0]}.{did_you_mean(odd[0], known)}")
    try:
        return Asked(function, frames, left_out, **settings)
    except ValueError as error:
        raise UserError(f"model.{error}.") from error


def _written(frames: Frames, attributions: Mapping[str, pd.DataFrame], folder: Path) -> list[str]:
    """A file for each table of attributions, named as it is."""
    files = []
    for name, scores in attributions.items():
        if not re.fullmatch(r"\w[\w-]*", name):
            raise UserError(f"attributions[{name!r}]: a name is of letters, digits, _ and -.")
        place = folder / "attributions" / f"{name}.parquet"
        place.parent.mkdir(exist_ok=True)
        frames.numbered(name, scores).to_parquet(place, index=False)
        files.append(str(place))
    return files


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Messages that name train and test, and not files that nobody made."""
    try:
        yield
    except (UserError, Failure) as error:
        raise type(error)(_renamed(str(error), folder)) from error


def _renamed(message: str, folder: Path) -> str:
    """Return a message with the names of the arguments instead of those of the temporary files."""
    return re.sub(r"\b([\w-]+)\.parquet\b", r"\1", message.replace(f"{folder}{os.sep}", ""))


def _call(
    label: str, own: Mapping[str, object], settings: Mapping[str, Any], attributions: Mapping[str, pd.DataFrame]
) -> str:
    """How it was called, for the record."""
    told = [f"label={label!r}", *(f"{key}={value!r}" for key, value in settings.items())]
    told += [f"{key}={type(one).__qualname__}" for key, one in own.items()]
    told += [f"attributions={list(attributions)}"] if attributions else []
    return f"evaluate(predict_proba, train, test, {', '.join(told)})"
