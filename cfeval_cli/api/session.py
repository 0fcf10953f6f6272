"""A run in its folder, as the command and Python start it; for Python also its folder, log and warnings."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from cfeval_cli.api.experiment import run_experiment
from cfeval_cli.core.files import make_folder, make_new_folder
from cfeval_cli.core.logs import SafeFormatter
from cfeval_cli.errors import Failure, UserError, describe_encoding_problem, escape_controls, refuse_exit
from cfeval_cli.results.locations import LOG_FILE
from cfeval_cli.settings import compose

if TYPE_CHECKING:
    from cfeval_cli.pipeline.progress import Progress
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.results.folder import RunFolder

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def open_session(folder: RunFolder) -> Iterator[None]:
    """Lock the folder of a run, and use one thread in each library; close the folder if the run does not succeed."""
    try:
        with folder.open(), _limit_threads():
            yield
    except BaseException as error:
        if folder.has_begun:
            # If the disk is full or the folder was removed, the error of the run is the one to report.
            with contextlib.suppress(OSError, Failure):
                folder.close("stopped" if isinstance(error, KeyboardInterrupt) else "failed")
        else:
            folder.discard()
        raise


def compute_run(
    config: DictConfig,
    folder: RunFolder,
    progress: AbstractContextManager[Progress],
    components: Mapping[str, object] | None = None,
) -> Report | None:
    """Compute the run of a composed config in an open session; None if the folder had its results.

    `components` replace those of the config, by key.
    """
    from cfeval_cli.settings.build import build_plan

    with refuse_exit():
        plan = build_plan(config, components)
    with progress as stages:
        return run_experiment(plan, folder, stages)


def run_in_process(
    settings: Mapping[str, Any],
    components: Mapping[str, object],
    into: str | Path | None,
    call: str,
    progress: bool,
    config_dir: str | Path | None = None,
) -> Path:
    """Compose a run, compute it and return its folder; `components` replace those of the config, by key."""
    from cfeval_cli.pipeline.progress import Progress
    from cfeval_cli.pipeline.progress_display import display_progress
    from cfeval_cli.results.folder import RunFolder

    config = _compose(settings, None if config_dir is None else str(config_dir))
    path = _make_folder(into)
    folder = RunFolder(path, [call])
    display = display_progress() if progress else nullcontext(Progress())
    with open_session(folder), _write_log(path / LOG_FILE, progress):
        compute_run(config, folder, display, components)
    for message in folder.find_failed_explainers():
        warnings.warn_explicit(message, RuntimeWarning, *_find_caller())
    return path


@contextmanager
def issue_warnings(progress: bool, rewrite: Callable[[str], str] = str) -> Iterator[None]:
    """Issue warnings of a run as Python warnings, unless progress shows them; `rewrite` is applied to each."""
    with nullcontext() if progress else _add_handler(_WarningHandler(rewrite)):
        yield


def check_paths(into: str | Path | None) -> None:
    """Refuse a working directory or result folder whose name cannot be stored as UTF-8."""
    if problem := describe_encoding_problem(*([] if into is None else [str(into)])):
        raise UserError(problem)


def _compose(settings: Mapping[str, Any], config_dir: str | None) -> DictConfig:
    """Compose the config of a run; raise a UserError with the reason if Hydra refuses it."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = [f"{key}={compose.format_value(value)}" for key, value in settings.items()]
    with compose.open_packaged_configs():
        try:
            return compose.compose_run(overrides, config_dir)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(compose.explain_hydra_error(error, overrides, config_dir)) from error


def _make_folder(into: str | Path | None) -> Path:
    if into is None:
        now = datetime.now()
        return make_new_folder(Path("outputs") / now.strftime("%Y-%m-%d") / now.strftime("%H-%M-%S"))
    folder = Path(into).expanduser()
    make_folder(folder)
    return folder


def _find_caller() -> tuple[str, int]:
    """Return file and line of the code that called cfeval."""
    own_code = (f"{Path(__file__).parent}{os.sep}", contextlib.__file__)
    caller = next(frame for frame in inspect.stack(0) if not frame.filename.startswith(own_code))
    return caller.filename, caller.lineno


class _WarningHandler(logging.Handler):
    """Issue each warning that a run logs as a UserWarning at the line that called cfeval."""

    def __init__(self, rewrite: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._rewrite, self._caller = rewrite, _find_caller()

    def emit(self, record: logging.LogRecord) -> None:
        """Issue a warning; errors are raised by the run."""
        if record.levelno == logging.WARNING:
            message = escape_controls(self._rewrite(record.getMessage()), keep="\n")
            warnings.warn_explicit(message, UserWarning, *self._caller)


@contextmanager
def _add_handler(handler: logging.Handler, level: int | None = None) -> Iterator[None]:
    """Add a handler to cfeval's loggers, and set their level if one is given."""
    loggers = logging.getLogger("cfeval"), logging.getLogger("cfeval_cli")
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        if level is not None:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, previous_level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(previous_level)
        handler.close()


@contextmanager
def _limit_threads() -> Iterator[None]:
    """Use one thread in each library, as the command does: the same bits on any number of cores."""
    from threadpoolctl import threadpool_limits

    from cfeval_cli.seeding import use_one_thread

    # PyTorch reads the environment only when it is imported.
    torch_limit = use_one_thread() if "torch" in sys.modules else nullcontext()
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))  # for libraries that are imported during the run
    try:
        with torch_limit, threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _write_log(path: Path, progress: bool) -> AbstractContextManager[None]:
    """Write warnings, or with progress every message, to a file too."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(SafeFormatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    return _add_handler(handler, logging.INFO if progress else None)
