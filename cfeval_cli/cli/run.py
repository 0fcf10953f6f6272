"""`cfeval run`: one experiment, or with --multirun several."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from cfeval_cli.cli import callbacks, screen, usage
from cfeval_cli.cli.main import complain, stopped
from cfeval_cli.cli.own_configs import OWN_FOLDER, find_conf_folder, get_config_dir, has_clash, list_used_configs
from cfeval_cli.cli.resume import QUIET, arguments, sweep_task_overrides, words_to_repeat
from cfeval_cli.errors import Failure, UserError, escape_controls, refuse_exit

if TYPE_CHECKING:
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.report.table import Table
    from cfeval_cli.results.store import RunFolder

log = logging.getLogger("cfeval")


def main() -> None:
    """One experiment, or the jobs of a sweep and then what they say together."""
    topic = usage.asked(sys.argv[1:])
    if topic is not None:
        usage.show(topic)
        return
    is_resumed = any(word.partition("=")[0] == "--resume" for word in sys.argv[1:])
    if is_resumed and not _insert_arguments_of_folder():
        return
    beside = find_conf_folder()
    if get_config_dir() is None and beside is not None:
        sys.argv[1:1] = ["--config-dir", beside]
    if screen.quiet() and not any(word.startswith("hydra/hydra_logging=") for word in sys.argv):
        sys.argv.append(QUIET)
    options = screen.get_options()

    def experiment(cfg: DictConfig) -> None:
        screen.set_options(options)  # Hydra's launchers pickle this function for jobs in other processes
        _run_experiment(cfg, is_resumed)

    start = hydra.main(version_base="1.3", config_path="pkg://cfeval_cli.conf", config_name="run")(experiment)
    try:
        start()
    except Exception:
        callbacks.gather_unfinished()
        raise


def _insert_arguments_of_folder() -> bool:
    """Replace --resume FOLDER by the arguments of its run or sweep; return whether anything is left to do."""
    words = [word for one in sys.argv[1:] for word in (one.split("=", 1) if one.startswith("--resume=") else [one])]
    place = words.index("--resume")
    if len(words) == place + 1:
        raise UserError("--resume needs the folder of a run or of a sweep: cfeval run --resume FOLDER")
    folder, own = Path(words[place + 1]), words[:place] + words[place + 2 :]
    found = arguments(folder, own)
    if found is None:
        sys.stdout.write(escape_controls(f"Nothing is left to do, the run is complete. Results: {folder}") + "\n")
        return False
    sys.argv[1:] = found
    return True


def _run_experiment(cfg: DictConfig, is_resumed: bool) -> None:
    """Run what the config describes, into the folder that Hydra made."""
    from cfeval_cli.results.store import RunFolder

    config = HydraConfig.get()
    words = [word for word in sys.argv[1:] if word != QUIET]
    place = Path(config.runtime.output_dir)
    folder = RunFolder(place, ["cfeval", "run", *words], list(config.overrides.task), is_resumed=is_resumed)
    try:
        with folder.opened():
            shown = _compute(cfg, folder)
    except KeyboardInterrupt as error:
        log.error("stopped by the user")
        sys.stderr.write(escape_controls(f"cfeval: stopped. {_close(folder, 'stopped', cfg)}") + "\n")
        sys.exit(stopped(error))
    except Exception as error:
        log.error("failed", exc_info=True)
        kept = _close(folder, "failed", cfg)
        if screen.get_options().traceback:
            raise
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            # said now, not after the other jobs; they go on, and the exit code tells in the end
            code = complain(error, kept, f"job {HydraConfig.get().job.num}:")
            raise (UserError if code == 2 else Failure)("not all jobs of the sweep succeeded, see above") from error
        sys.exit(complain(error, kept))
    # The folder is complete: whatever happens to the output changes nothing about it.
    _print(folder, shown)
    if silent := folder.silent():
        _tell_silent(silent)


def _tell_silent(silent: list[str]) -> None:
    """End badly if an explainer explained nothing at all; the results of the others are complete."""
    error = Failure(f"{'; '.join(silent)}. The rest is complete.")
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        complain(error, job=f"job {HydraConfig.get().job.num}:")
        raise Failure("not all jobs of the sweep succeeded, see above")
    sys.exit(complain(error))


@dataclass(frozen=True)
class _Shown:
    """What the terminal is to show of a run."""

    computed: bool  # False: the folder had the results before
    answer: tuple[Sequence[str], Table, Sequence[Table]] | None = None


def _compute(cfg: DictConfig, folder: RunFolder) -> _Shown:
    """Compute and write everything, and mark the run as complete."""
    from cfeval_cli.api.experiment import run_experiment
    from cfeval_cli.pipeline.progress_display import display_progress
    from cfeval_cli.settings.build import build_plan

    own = _own()
    with refuse_exit():
        chosen = build_plan(cfg)
    if own and not screen.quiet():
        sys.stderr.write(escape_controls(f"Your own: {', '.join(own)}") + "\n")
    with display_progress(screen.quiet()) as stages:
        report = run_experiment(chosen, folder, stages)
    return _Shown(computed=report is not None, answer=None if report is None else _answer(report))


def _print(folder: RunFolder, shown: _Shown) -> None:
    """Print the answer, and where the files are; of a job of a sweep the latter only."""
    results = f"{'' if shown.computed else 'computed before, with the same inputs. '}Results: {folder.path}"
    training = ["Contains training data (training.parquet); training=0 leaves it out."] if folder.has_training else []
    if HydraConfig.get().mode == RunMode.MULTIRUN:  # what the jobs say together is shown in the end
        job = f"job {HydraConfig.get().job.num} ({HydraConfig.get().job.override_dirname or 'no overrides'}): "
        for line in [f"{job}{results}", *(training if HydraConfig.get().job.num == 0 else [])]:
            screen.tell(screen.console(), line)
        return
    if shown.answer is not None:
        screen.answer(*shown.answer, [])
    page = folder.path / "report.html"
    lines = [f"Report:  {page}"] if page.exists() else []
    screen.show([], "\n".join([*lines, results, *training]))


def _own() -> list[str]:
    """The user's own configs that were found without her saying where they are; refused if one is called as ours is."""
    folder, told = get_config_dir(), HydraConfig.get().overrides
    if folder is None or (folder != find_conf_folder() and not has_clash(folder)):
        return []  # without finding out which configs are read, which takes as long as composing them
    names = list_used_configs([*told.hydra, *told.task], folder)
    return [str(Path(OWN_FOLDER) / f"{name}.yaml") for name in names if folder == find_conf_folder()]


def _answer(made: Report) -> tuple[Sequence[str], Table, Sequence[Table]] | None:
    """What the screen is to have; a run is not lost for want of it."""
    try:
        return made.headlines, made.brief, made.tables
    except Exception as error:
        log.exception("no answer")
        log.warning("the answer could not be told (%s); all else is complete", error)
        return None


def _close(folder: RunFolder, status: str, cfg: DictConfig) -> str:
    """Keep what was computed and name it; leave no folder behind if nothing was."""
    if not folder.begun:
        folder.discard()
        return "Nothing had been computed yet."
    try:
        folder.close(status)
        contents = ", ".join(folder.contents())
    except (OSError, Failure):  # the disk is full, or somebody removed the folder
        if not folder.path.is_dir():
            return f"{folder.path} has been removed during the run, with all results."
        return f"{folder.path} could not be closed. Results that were complete before are still in it."
    return f"{folder.path} keeps the results so far: {contents}. To continue: {_again(folder, cfg)}"


def _again(folder: RunFolder, cfg: DictConfig) -> str:
    """The command that goes on, with what is not taken from a folder."""
    config = HydraConfig.get()
    sweep = config.mode == RunMode.MULTIRUN
    place = Path(config.sweep.dir).absolute() if sweep else folder.path
    words = ["cfeval", "run", "--resume", str(place)]
    own = get_config_dir()
    words += [] if own is None else ["--config-dir", own]
    elsewhere = ("hydra.run.", "hydra.sweep.", "hydra.mode=", QUIET)
    words += [word for word in config.overrides.hydra if not word.startswith(elsewhere)]
    # The overrides of a job have one value of each sweep, those of the sweep have all.
    words += words_to_repeat(sweep_task_overrides(place) if sweep else config.overrides.task)
    return shlex.join([*words, *(["strict=false"] if cfg.strict is True else [])])
