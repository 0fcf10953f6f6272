"""`cfeval run`: one experiment, or several with --multirun."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from cfeval_cli.cli import callbacks, screen, usage
from cfeval_cli.cli.main import get_interrupt_exit_code, print_error
from cfeval_cli.cli.own_configs import OWN_FOLDER, find_conf_folder, get_config_dir, has_clash, list_used_configs
from cfeval_cli.cli.resume import QUIET, list_overrides_to_repeat, read_resume_arguments, read_task_overrides
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options
from cfeval_cli.errors import Failure, UserError, escape_controls, refuse_exit

if TYPE_CHECKING:
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.report.table import Table
    from cfeval_cli.results.folder import RunFolder

log = logging.getLogger("cfeval")


def main(options: Options = DEFAULT_OPTIONS) -> None:
    """Run one experiment, or the jobs of a sweep and then their aggregation."""
    topic = usage.find_help_topic(sys.argv[1:])
    if topic is not None:
        usage.print_help(topic)
        return
    sys.argv[1:] = move_overrides_last(sys.argv[1:])
    is_resumed = any(word.partition("=")[0] == "--resume" for word in sys.argv[1:])
    if is_resumed and not _insert_arguments_of_folder():
        return
    conf_folder = find_conf_folder()
    if get_config_dir() is None and conf_folder is not None:
        sys.argv[1:1] = ["--config-dir", conf_folder]
    if options.quiet and not any(word.startswith("hydra/hydra_logging=") for word in sys.argv):
        sys.argv.append(QUIET)

    def experiment(cfg: DictConfig) -> None:
        _run_experiment(cfg, is_resumed, options)

    run_hydra = hydra.main(version_base="1.3", config_path="pkg://cfeval_cli.conf", config_name="run")(experiment)
    try:
        run_hydra()
    except Exception:
        callbacks.gather_sweep(options)  # of the jobs that succeeded
        raise
    if code := callbacks.gather_sweep(options):
        sys.exit(code)


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


def _insert_arguments_of_folder() -> bool:
    """Replace --resume FOLDER by the arguments of its run or sweep; return False if that is complete."""
    words = [part for word in sys.argv[1:] for part in _split_resume(word)]
    position = words.index("--resume")
    if len(words) == position + 1:
        raise UserError("--resume needs the folder of a run or of a sweep: cfeval run --resume FOLDER")
    folder, own = Path(words[position + 1]), words[:position] + words[position + 2 :]
    arguments = read_resume_arguments(folder, own)
    if arguments is None:
        sys.stdout.write(escape_controls(f"The run is complete. Results: {folder}") + "\n")
        return False
    sys.argv[1:] = arguments
    return True


def _split_resume(word: str) -> list[str]:
    """Return --resume=FOLDER as two words, and any other word as it is."""
    return word.split("=", 1) if word.startswith("--resume=") else [word]


def _run_experiment(cfg: DictConfig, is_resumed: bool, options: Options) -> None:
    """Run the config and write the results to the folder that Hydra made."""
    from cfeval_cli.results.folder import RunFolder

    config = HydraConfig.get()
    words = [word for word in sys.argv[1:] if word != QUIET]
    path = Path(config.runtime.output_dir)
    folder = RunFolder(path, ["cfeval", "run", *words], list(config.overrides.task), is_resumed=is_resumed)
    try:
        with folder.open():
            output = _compute(cfg, folder, options)
    except KeyboardInterrupt as error:
        log.error("stopped by the user")
        sys.stderr.write(escape_controls(f"cfeval: stopped. {_close(folder, 'stopped', cfg)}") + "\n")
        sys.exit(get_interrupt_exit_code(error))
    except Exception as error:
        log.error("failed", exc_info=True)
        kept = _close(folder, "failed", cfg)
        if options.traceback:
            raise
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            # The other jobs go on, and the exit code reports the failure at the end.
            code = print_error(error, kept, f"job {HydraConfig.get().job.num}:")
            raise (UserError if code == 2 else Failure)("not all jobs of the sweep succeeded, see above") from error
        sys.exit(print_error(error, kept))
    # The folder is complete: a failure to print does not change it.
    _print_output(folder, output, options)
    if failures := folder.find_failed_explainers():
        _exit_with_failures(failures)


def _exit_with_failures(failures: list[str]) -> None:
    """Exit with code 1 because an explainer failed on every instance; all other results are complete."""
    error = Failure(f"{'; '.join(failures)}. All other results are complete.")
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        print_error(error, job=f"job {HydraConfig.get().job.num}:")
        raise Failure("not all jobs of the sweep succeeded, see above")
    sys.exit(print_error(error))


@dataclass(frozen=True)
class _Output:
    """The output of a run on the terminal."""

    is_new: bool  # False: the folder had the results before
    answer: tuple[Sequence[str], Table, Sequence[Table]] | None = None


def _compute(cfg: DictConfig, folder: RunFolder, options: Options) -> _Output:
    """Compute and write all results, and mark the run as complete."""
    from cfeval_cli.api.experiment import run_experiment
    from cfeval_cli.pipeline.progress_display import display_progress
    from cfeval_cli.settings.build import build_plan

    own_configs = _list_own_configs()
    with refuse_exit():
        plan = build_plan(cfg)
    if own_configs and not options.quiet:
        sys.stderr.write(escape_controls(f"Your configs: {', '.join(own_configs)}") + "\n")
    with display_progress(options.quiet) as progress:
        report = run_experiment(plan, folder, progress)
    return _Output(is_new=report is not None, answer=None if report is None else _build_answer(report))


def _print_output(folder: RunFolder, output: _Output, options: Options) -> None:
    """Print the answer and the names of the files; for a job of a sweep the names only."""
    results = f"{'' if output.is_new else 'computed before, with the same inputs. '}Results: {folder.path}"
    training = ["Contains training data (training.parquet). training=0 leaves it out."] if folder.has_training else []
    if HydraConfig.get().mode == RunMode.MULTIRUN:  # the answer of the whole sweep is printed at its end
        job = f"job {HydraConfig.get().job.num} ({HydraConfig.get().job.override_dirname or 'no overrides'}): "
        for line in [f"{job}{results}", *(training if HydraConfig.get().job.num == 0 else [])]:
            screen.print_line(screen.make_console(), line)
        return
    if output.answer is not None:
        screen.print_answer(*output.answer, [], options)
    page = folder.path / "report.html"
    lines = [f"Report:  {page}"] if page.exists() else []
    screen.print_tables([], "\n".join([*lines, results, *training]), options)


def _list_own_configs() -> list[str]:
    """Return the user's configs in ./conf that the run uses; UserError if one has the name of a packaged config."""
    folder, overrides = get_config_dir(), HydraConfig.get().overrides
    if folder is None or (folder != find_conf_folder() and not has_clash(folder)):
        return []  # listing the configs takes as long as composing them
    names = list_used_configs([*overrides.hydra, *overrides.task], folder)
    return [str(Path(OWN_FOLDER) / f"{name}.yaml") for name in names if folder == find_conf_folder()]


def _build_answer(report: Report) -> tuple[Sequence[str], Table, Sequence[Table]] | None:
    """Return what is printed of a report; None if that fails, because the results are complete without it."""
    try:
        return report.headlines, report.brief, report.tables
    except Exception as error:
        log.exception("no answer")
        log.warning("the answer could not be printed (%s); all results are complete", error)
        return None


def _close(folder: RunFolder, status: str, cfg: DictConfig) -> str:
    """Close the folder of an unfinished run and return what it keeps; remove it if nothing was computed."""
    if not folder.has_begun:
        folder.discard()
        return "Nothing was computed."
    try:
        folder.close(status)
        contents = ", ".join(folder.list_results())
    except (OSError, Failure):  # The disk is full, or the folder was removed.
        if not folder.path.is_dir():
            return f"{folder.path} was removed during the run, with all results."
        return f"{folder.path} could not be closed. Results that were already complete are still in it."
    return f"{folder.path} keeps the results so far: {contents}. To continue: {_format_resume_command(folder, cfg)}"


def _format_resume_command(folder: RunFolder, cfg: DictConfig) -> str:
    """Return the command that resumes the run, with the words that are not accepted from its folder."""
    config = HydraConfig.get()
    is_sweep = config.mode == RunMode.MULTIRUN
    path = Path(config.sweep.dir).absolute() if is_sweep else folder.path
    words = ["cfeval", "run", "--resume", str(path)]
    config_dir = get_config_dir()
    words += [] if config_dir is None else ["--config-dir", config_dir]
    in_folder = ("hydra.run.", "hydra.sweep.", "hydra.mode=", QUIET)
    words += [word for word in config.overrides.hydra if not word.startswith(in_folder)]
    # The overrides of a job have one value of each swept setting, those of the sweep have all.
    words += list_overrides_to_repeat(read_task_overrides(path) if is_sweep else config.overrides.task)
    return shlex.join([*words, *(["strict=false"] if cfg.strict is True else [])])
