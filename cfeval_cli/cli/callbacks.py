"""Callbacks of Hydra: a folder for each run, and the aggregation of a sweep."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from cfeval_cli.cli.screen import Options
from cfeval_cli.core.files import make_new_folder, refuse_links
from cfeval_cli.errors import UserError
from cfeval_cli.results.locations import find_records, has_record
from cfeval_cli.settings.compose import quote


class Gather(Callback):
    """Give each run and sweep its own folder, and register the jobs of a sweep, which `gather_sweep` aggregates."""

    sweep: Gather | None = None  # the instance whose sweep is not aggregated yet

    def __init__(self) -> None:
        self._folder = Path()
        self._writes_page = True
        self._jobs: dict[Path, tuple[bool, list[str]]] = {}  # by folder: whether it failed, and its overrides

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Make a new folder, even if another run starts in the same second."""
        _exit_if_linked(Path(config.hydra.run.dir))
        claim_folder(config.hydra.run)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Make a new folder for the sweep, and register the sweep."""
        _exit_if_linked(Path(config.hydra.sweep.dir))
        folder = claim_folder(config.hydra.sweep)
        if folder is not None:
            with read_write(config.hydra):  # for the jobs, whose configs are composed again
                config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quote(folder)}")
        self._folder = Path(config.hydra.sweep.dir).absolute()
        self._writes_page = config.get("report") is not False
        Gather.sweep = self

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a job outside the folder of its sweep, whatever `hydra.sweep.subdir` refers to."""
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            return
        folder, sweep = (Path(path).resolve() for path in (config.hydra.runtime.output_dir, config.hydra.sweep.dir))
        if not folder.is_relative_to(sweep):
            subdir = config.hydra.sweep.subdir
            _exit_with_error(UserError(f"hydra.sweep.subdir={subdir} is outside {sweep}, the folder of the sweep."))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """Register the job: one that fails early leaves no folder."""
        failed = job_return.status == JobStatus.FAILED
        self._jobs[Path(config.hydra.runtime.output_dir)] = failed, list(config.hydra.overrides.task)

    def gather(self, options: Options) -> int:
        """Aggregate the runs, print the result and return the exit code."""
        from cfeval_cli.cli.gather import print_gathered
        from cfeval_cli.cli.main import print_error
        from cfeval_cli.study.sweep.gather import gather

        if all(failed for failed, _ in self._jobs.values()) and not find_records(self._folder):
            return 0  # there is nothing to gather, and each job has printed its error
        missing = {
            path: overrides for path, (failed, overrides) in self._jobs.items() if failed and not has_record(path)
        }
        try:
            folders = self._list_job_folders() or [self._folder]
            print_gathered(gather(folders, self._folder, missing, page=self._writes_page), options)
        except Exception as error:
            if options.traceback:
                traceback.print_exc()
            print_error(error, job="the runs are intact, but could not be gathered:")
            return 1
        return 0

    def _list_job_folders(self) -> list[Path]:
        """Return the folders of this sweep's jobs; an empty list if other processes ran them."""
        return [path for path in self._jobs if has_record(path)]


def _exit_if_linked(folder: Path) -> None:
    """Exit with a message before Hydra writes through links in a folder."""
    try:
        refuse_links(folder)
    except UserError as error:
        _exit_with_error(error)


def _exit_with_error(error: UserError) -> NoReturn:
    """Exit with a message; Hydra turns any other error of a callback into a warning."""
    from cfeval_cli.cli.main import print_error

    sys.exit(print_error(error))


def claim_folder(node: DictConfig) -> Path | None:
    """Make the time-stamped folder of a node of Hydra's config, with a number appended if it exists."""
    if "${now:" not in str(OmegaConf.to_container(node, resolve=False)["dir"]):  # type: ignore[index, call-overload]
        return None  # the user chose the folder
    try:
        folder = make_new_folder(Path(str(node.dir)))
    except OSError:
        return None  # Hydra reports the problem
    with read_write(node):
        node.dir = str(folder)
    return folder


def gather_sweep(options: Options) -> int:
    """Aggregate the sweep that has ended, if there is one, and return the exit code."""
    sweep, Gather.sweep = Gather.sweep, None
    return 0 if sweep is None else sweep.gather(options)
