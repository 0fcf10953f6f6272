"""`evaluate`: the run of `cfeval run`, on a function and DataFrames."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from cfeval_cli.core import Explainer, Metric
from cfeval_cli.core.files import make_folder
from cfeval_cli.errors import Failure, UserError, did_you_mean, refuse_exit, visible
from cfeval_cli.experiment import run
from cfeval_cli.frames import Asked, Frames
from cfeval_cli.stored import Run, load

__all__ = ["Run", "evaluate", "load", "run"]


_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")  # words that Hydra takes as they are, but for these
_WORDS = ("true", "false", "null", "nan", "inf")
_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    from cfeval_cli.cli.main import utf8_problem

    if problem := utf8_problem(*([] if into is None else [str(into)])):
        raise UserError(problem)
    frames = Frames(train, test, label)
    told = {"k": k, "n_explain": n_explain, "seed": seed, "judge": judges}
    chosen = {key: value for key, value in told.items() if value is not None} | _chosen("metric", metrics)
    explained = None if explainers is None and not attributions else _explainers(explainers, attributions or {})
    chosen |= _chosen("explainer", explained)
    own = _own("metric", metrics) | _own("explainer", explainers)
    general, of_data, of_model = _parted(settings or {}, chosen)
    call = _call(label, own, chosen | general | of_data | of_model, attributions or {})
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"cfeval-{os.getpid()}-"))
        stack.enter_context(_named(Path(place)))
        if not progress:
            stack.enter_context(_handled_by(_Warnings(Path(place))))
        files = _written(frames, attributions or {}, Path(place))
        if files:
            general["explainer.file.path"] = files
        table, left_out = frames.table(Path(place), name, classes, of_data)
        model = _model(predict_proba, frames, left_out, of_model)
        given = {"dataset": table, "model": model, **own}
        folder = _evaluate(_composed(chosen | general), given, _folder(into), call, progress)
    return load(folder)


def _explainers(
    explainers: Sequence[str | Explainer] | None, attributions: Mapping[str, pd.DataFrame]
) -> list[str | Explainer]:
    """The explainers to choose, `file` among them if there are attributions."""
    if explainers is None:
        from cfeval_cli.cli import configs

        explainers = configs.default("explainer")
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


class _Warnings(logging.Handler):
    """Issues what a run logs as a warning as a UserWarning of the line that called `evaluate`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.WARNING)
        caller = inspect.stack(0)[2]
        self._folder, self._place = folder, (caller.filename, caller.lineno)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is a warning; errors are raised."""
        return record.levelno == logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        """Issue it, every time."""
        message = visible(_renamed(record.getMessage(), self._folder), keep="\n")
        warnings.warn_explicit(message, UserWarning, *self._place)


@contextmanager
def _handled_by(handler: logging.Handler) -> Iterator[None]:
    """Give what cfeval logs to a handler too."""
    loggers = logging.getLogger("cfeval"), logging.getLogger("cfeval_cli")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


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


def _composed(settings: Mapping[str, Any]) -> DictConfig:
    """The config of a run; what Hydra objects to is told as the command tells it."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from cfeval_cli.cli import configs
    from cfeval_cli.cli.main import explain_hydra

    with _hydra():
        try:
            return configs.run([f"{key}={_value(value)}" for key, value in settings.items()])
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(explain_hydra(error)) from error


@contextmanager
def _hydra() -> Iterator[None]:
    """The packaged configs; a program that uses Hydra itself finds its own again."""
    from hydra.core.global_hydra import GlobalHydra

    from cfeval_cli.cli import configs

    before = GlobalHydra.instance().hydra
    try:
        with configs.opened():
            yield
    finally:
        GlobalHydra.instance().hydra = before


def _value(value: Any) -> str:
    """A value as Hydra reads it on a command line."""
    from cfeval_cli.cli.resume import quoted

    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_value(key)}:{_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_value, value)) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def _folder(into: str | Path | None) -> Path:
    from cfeval_cli.cli.callbacks import made

    if into is None:
        return made(Path("outputs") / datetime.now().strftime("%Y-%m-%d") / datetime.now().strftime("%H-%M-%S"))
    folder = Path(into).expanduser()
    make_folder(folder)
    return folder


def _call(
    label: str, own: Mapping[str, object], settings: Mapping[str, Any], attributions: Mapping[str, pd.DataFrame]
) -> str:
    """How it was called, for the record."""
    told = [f"label={label!r}", *(f"{key}={value!r}" for key, value in settings.items())]
    told += [f"{key}={type(one).__qualname__}" for key, one in own.items()]
    told += [f"attributions={list(attributions)}"] if attributions else []
    return f"evaluate(predict_proba, train, test, {', '.join(told)})"


def _evaluate(cfg: DictConfig, given: Mapping[str, object], path: Path, call: str, progress: bool) -> Path:
    """Compute and write, as the command does."""
    from cfeval_cli.cli import live
    from cfeval_cli.pipeline.progress import Progress
    from cfeval_cli.results.store import RunFolder
    from cfeval_cli.settings import plan

    folder = RunFolder(path, [call])
    try:
        with ExitStack() as stack:
            stack.enter_context(folder.opened())
            stack.enter_context(_one_thread())
            stack.enter_context(_logged(path / "run.log", progress))
            stages = stack.enter_context(live.terminal()) if progress else Progress()
            with refuse_exit():
                chosen = plan(cfg, given)
            run(chosen, folder, stages)
    except BaseException as error:
        if folder.begun:
            folder.close("stopped" if isinstance(error, KeyboardInterrupt) else "failed")
        else:
            folder.discard()
        raise
    for told in folder.silent():
        warnings.warn(told, RuntimeWarning, stacklevel=3)
    return path


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread in each library, as the command has it: the same bits on any number of cores."""
    from threadpoolctl import threadpool_limits

    from cfeval_cli.seeding import one_thread

    torch = one_thread() if "torch" in sys.modules else nullcontext()  # which reads the environment when it is loaded
    before = {name: os.environ.get(name) for name in _LIBRARIES}
    os.environ.update(dict.fromkeys(_LIBRARIES, "1"))  # for libraries that are loaded only now
    try:
        with torch, threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _logged(path: Path, progress: bool) -> Iterator[None]:
    """Write warnings, or if the user wants to see how far it is all that happens, to a file too."""
    from cfeval_cli.cli.live import Visible

    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(Visible("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    loggers = logging.getLogger("cfeval"), logging.getLogger("cfeval_cli")
    levels = [logger.level for logger in loggers]
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(logging.INFO if progress else level)
    try:
        with _handled_by(handler):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
