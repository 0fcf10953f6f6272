"""`cfeval run`: one experiment, or several with --multirun."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cfeval_cli.cli import callbacks, screen, usage
from cfeval_cli.cli.main import get_interrupt_exit_code, print_error
from cfeval_cli.cli.own_configs import (
    OWN_FOLDER,
    find_conf_folder,
    find_own_folder,
    get_config_dir,
    has_clash,
    list_overrides,
    list_used_configs,
)
from cfeval_cli.cli.resume import QUIET_OVERRIDE, list_overrides_to_repeat, read_resume_arguments, read_task_overrides
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options
from cfeval_cli.errors import Failure, UserError, escape_controls
from cfeval_cli.results.locations import PAGE_FILE
from cfeval_cli.settings.compose import explain_hydra_error

if TYPE_CHECKING:
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.report.table import Table
    from cfeval_cli.results.folder import RunFolder

log = logging.getLogger("cfeval")


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Run one experiment, or the jobs of a sweep and then their aggregation."""
    topic = usage.find_help_topic(arguments)
    if topic is not None:
        usage.print_help(topic, find_own_folder(arguments))
        return
    words = move_overrides_last(arguments)
    is_resumed = any(word.partition("=")[0] == "--resume" for word in words)
    if is_resumed:
        stored = _replace_resume(words)
        if stored is None:
            return
        words = stored
    conf_folder = find_conf_folder()
    if get_config_dir(words) is None and conf_folder is not None:
        words = ["--config-dir", conf_folder, *words]
    if options.quiet and not any(word.startswith("hydra/hydra_logging=") for word in words):
        words.append(QUIET_OVERRIDE)

    def run_job(cfg: DictConfig) -> None:
        _run_experiment(cfg, words, is_resumed, options)

    try:
        _call_hydra(run_job, words, options)
    except Exception:
        callbacks.gather_sweep(options)  # of the jobs that succeeded
        raise
    if code := callbacks.gather_sweep(options):
        sys.exit(code)


def _call_hydra(run_job: TaskFunction, words: Sequence[str], options: Options) -> None:
    """Call Hydra, which calls `run_job` for each job; raise a UserError with the reason if it refuses the config."""
    run_hydra = hydra.main(version_base="1.3", config_path="pkg://cfeval_cli.conf", config_name="run")(run_job)
    try:
        with _pass_arguments(words):
            run_hydra()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        # A job raises UserError and Failure only, except with tracebacks: Hydra raised this.
        if options.traceback:
            raise
        raise UserError(explain_hydra_error(error, list_overrides(words), find_own_folder(words))) from error


@contextmanager
def _pass_arguments(words: Sequence[str]) -> Iterator[None]:
    """Set the arguments of the process, where hydra.main reads them."""
    previous = sys.argv
    sys.argv = [previous[0], *words]
    try:
        yield
    finally:
        sys.argv = previous


def move_overrides_last(arguments: Sequence[str]) -> list[str]:
    """Move overrides behind all options, because Hydra's parser rejects an override between two options."""
    options_with_value = (
        "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p", "--resume",
    )  # fmt: skip
    options, overrides = list[str](), list[str]()
    for previous, word in pairwise(["", *arguments]):
        is_override = ("=" in word and word[0] != "-") or word.startswith("~")
        (overrides if is_override and previous not in options_with_value else options).append(word)
    return [*options, *overrides]


def _replace_resume(arguments: Sequence[str]) -> list[str] | None:
    """Replace --resume FOLDER by the arguments of its run or sweep; None if that is complete."""
    words = [part for word in arguments for part in _split_resume(word)]
    position = words.index("--resume")
    if len(words) == position + 1:
        raise UserError("--resume needs the folder of a run or of a sweep: cfeval run --resume FOLDER")
    folder, own = Path(words[position + 1]), words[:position] + words[position + 2 :]
    stored = read_resume_arguments(folder, own)
    if stored is None:
        sys.stdout.write(escape_controls(f"The run is complete. Results: {folder}") + "\n")
    return stored


def _split_resume(word: str) -> list[str]:
    """Return --resume=FOLDER as two words, and any other word as it is."""
    return word.split("=", 1) if word.startswith("--resume=") else [word]


def _run_experiment(cfg: DictConfig, words: Sequence[str], is_resumed: bool, options: Options) -> None:
    """Compute the run of a config in the folder that Hydra made, and print its results or its error."""
    from cfeval_cli.api.session import compute_run, open_session
    from cfeval_cli.pipeline.progress_display import display_progress
    from cfeval_cli.results.folder import RunFolder

    config = HydraConfig.get()
    command = ["cfeval", "run", *(word for word in words if word != QUIET_OVERRIDE)]
    folder = RunFolder(Path(config.runtime.output_dir), command, list(config.overrides.task), is_resumed=is_resumed)
    try:
        with open_session(folder):
            _print_own_configs(words, options)
            report = compute_run(cfg, folder, display_progress(options.quiet))
    except KeyboardInterrupt as error:
        log.error("stopped by the user")
        message = f"cfeval: stopped. {_describe_stored_results(folder, cfg, words)}"
        sys.stderr.write(escape_controls(message) + "\n")
        sys.exit(get_interrupt_exit_code(error))
    except Exception as error:
        log.error("failed", exc_info=True)
        if options.traceback:
            raise
        overrides = [*config.overrides.hydra, *config.overrides.task]
        _exit_with_error(error, _describe_stored_results(folder, cfg, words), overrides, find_own_folder(words))
    # The folder is complete: a failure to print does not change it.
    _print_results(folder, report, options)
    if failures := folder.find_failed_explainers():
        _exit_with_error(Failure(f"{'; '.join(failures)}. All other results are complete."))


def _exit_with_error(
    error: Exception, results: str = "", overrides: Sequence[str] = (), config_dir: str | None = None
) -> NoReturn:
    """Print an error, and end the process or the job of a sweep."""
    config = HydraConfig.get()
    if config.mode != RunMode.MULTIRUN:
        sys.exit(print_error(error, results, overrides=overrides, config_dir=config_dir))
    # The other jobs go on, and the exit code reports the failure at the end.
    job = f"job {config.job.num}:"
    code = print_error(error, results, job, overrides=overrides, config_dir=config_dir)
    raise (UserError if code == 2 else Failure)("not all jobs of the sweep succeeded, see above") from error


def _print_results(folder: RunFolder, report: Report | None, options: Options) -> None:
    """Print the answer and the names of the files; for a job of a sweep the names only."""
    results = f"{'computed before, with the same inputs. ' if report is None else ''}Results: {folder.path}"
    training = ["Contains training data (training.parquet). training=0 leaves it out."] if folder.has_training else []
    config = HydraConfig.get()
    if config.mode == RunMode.MULTIRUN:  # the answer of the whole sweep is printed at its end
        job = f"job {config.job.num} ({config.job.override_dirname or 'no overrides'}): "
        for line in [f"{job}{results}", *(training if config.job.num == 0 else [])]:
            screen.print_line(screen.make_console(), line)
        return
    answer = None if report is None else _build_answer(report)
    if answer is not None:
        screen.print_answer(*answer, [], options)
    page = folder.path / PAGE_FILE
    lines = [f"Report:  {page}"] if page.exists() else []
    screen.print_tables([], "\n".join([*lines, results, *training]), options)


def _print_own_configs(words: Sequence[str], options: Options) -> None:
    """Print the user's configs in ./conf that the run uses; UserError if one has the name of a packaged config."""
    folder, overrides = get_config_dir(words), HydraConfig.get().overrides
    if folder is None or (folder != find_conf_folder() and not has_clash(folder)):
        return  # listing the configs takes as long as composing them
    names = list_used_configs([*overrides.hydra, *overrides.task], folder)
    if names and folder == find_conf_folder() and not options.quiet:
        files = ", ".join(str(Path(OWN_FOLDER) / f"{name}.yaml") for name in names)
        sys.stderr.write(escape_controls(f"Your configs: {files}") + "\n")


def _build_answer(report: Report) -> tuple[Sequence[str], Table, Sequence[Table]] | None:
    """Return what is printed of a report; None if that fails, because the results are complete without it."""
    try:
        return report.headlines, report.brief, report.tables
    except Exception as error:
        log.exception("no answer")
        log.warning("the answer could not be printed (%s); all results are complete", error)
        return None


def _describe_stored_results(folder: RunFolder, cfg: DictConfig, words: Sequence[str]) -> str:
    """Return which results the folder of an unfinished run has, and how to continue."""
    from cfeval_cli.results.validation import read_record

    if not folder.has_begun:
        return "Nothing was computed."
    if not folder.path.is_dir():
        return f"{folder.path} was removed during the run, with all results."
    try:
        is_closed = read_record(folder.path).status in ("stopped", "failed")
    except UserError:
        is_closed = False
    if not is_closed:
        return f"{folder.path} could not be closed. Results that were already complete are still in it."
    contents = ", ".join(folder.list_results())
    command = _format_resume_command(folder, cfg, words)
    return f"{folder.path} keeps the results so far: {contents}. To continue: {command}"


def _format_resume_command(folder: RunFolder, cfg: DictConfig, arguments: Sequence[str]) -> str:
    """Return the command that resumes the run, with the words that are not accepted from its folder."""
    config = HydraConfig.get()
    is_sweep = config.mode == RunMode.MULTIRUN
    path = Path(config.sweep.dir).absolute() if is_sweep else folder.path
    words = ["cfeval", "run", "--resume", str(path)]
    config_dir = get_config_dir(arguments)
    words += [] if config_dir is None else ["--config-dir", config_dir]
    in_folder = ("hydra.run.", "hydra.sweep.", "hydra.mode=", QUIET_OVERRIDE)
    words += [word for word in config.overrides.hydra if not word.startswith(in_folder)]
    # The overrides of a job have one value of each swept setting, those of the sweep have all.
    words += list_overrides_to_repeat(read_task_overrides(path) if is_sweep else config.overrides.task)
    return shlex.join([*words, *(["strict=false"] if cfg.strict is True else [])])
