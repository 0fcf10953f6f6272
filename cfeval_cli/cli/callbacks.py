"""What Hydra calls around the jobs of a sweep."""

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

from cfeval_cli.cli import screen
from cfeval_cli.core.files import make_new_folder, refuse_links
from cfeval_cli.errors import UserError
from cfeval_cli.settings.compose import quote


class Gather(Callback):
    """Gives runs and sweeps folders of their own, and gathers the runs of a sweep in the sweep's."""

    running: Gather | None = None  # the one whose sweep has begun and is not gathered yet

    def __init__(self) -> None:
        self._folder = Path()
        self._page = True
        self._jobs: dict[Path, tuple[bool, list[str]]] = {}  # folder: failed or not, overrides

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """A folder of its own, even if another run starts in the same second."""
        _exit_if_linked(Path(config.hydra.run.dir))
        claim(config.hydra.run)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """A folder of its own, and remember the sweep: Hydra tells its end only if all jobs succeed."""
        _exit_if_linked(Path(config.hydra.sweep.dir))
        claimed = claim(config.hydra.sweep)
        if claimed is not None:
            with read_write(config.hydra):  # for the jobs, whose configs are composed anew
                config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quote(claimed)}")
        self._folder = Path(config.hydra.sweep.dir).absolute()
        self._page = config.get("report") is not False
        Gather.running = self

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a job outside the folder of its sweep, whatever `hydra.sweep.subdir` refers to."""
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            return
        folder, sweep = (Path(path).resolve() for path in (config.hydra.runtime.output_dir, config.hydra.sweep.dir))
        if not folder.is_relative_to(sweep):
            told = f"hydra.sweep.subdir={config.hydra.sweep.subdir} leads out of {sweep}, the folder of the sweep."
            _exit(UserError(told))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """Remember the job: one that fails early leaves no folder to be named by."""
        failed = job_return.status == JobStatus.FAILED
        self._jobs[Path(config.hydra.runtime.output_dir)] = failed, list(config.hydra.overrides.task)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Gather; if that fails, the exit code says so (Hydra makes a warning of anything but an exit)."""
        code = self.gather()
        if code:
            sys.exit(code)

    def gather(self) -> int:
        """Write and show what the runs say together; returns the exit code."""
        from cfeval_cli.cli.gather import show
        from cfeval_cli.cli.main import complain
        from cfeval_cli.study.sweep.gather import gather

        Gather.running = None
        if all(failed for failed, _ in self._jobs.values()) and not any(self._folder.rglob("run.json")):
            return 0  # nothing to gather, and every job, or the sweep itself, has said why
        lost = {
            path: overrides
            for path, (failed, overrides) in self._jobs.items()
            if failed and not (path / "run.json").exists()
        }
        try:
            show(gather(self._mine() or [self._folder], self._folder, lost, page=self._page))
        except Exception as error:
            if screen.get_options().traceback:
                traceback.print_exc()
            complain(error, job="the runs are intact, but could not be gathered:")
            return 1
        return 0

    def _mine(self) -> list[Path]:
        """The folders of this sweep's jobs, not of others beside them; none, if other processes did the jobs."""
        return [path for path in self._jobs if (path / "run.json").exists()]


def _exit_if_linked(folder: Path) -> None:
    """End with a message before Hydra writes through links in a folder."""
    try:
        refuse_links(folder)
    except UserError as error:
        _exit(error)


def _exit(error: UserError) -> NoReturn:
    """End with a message; Hydra makes a warning of any other error of a callback."""
    from cfeval_cli.cli.main import complain

    sys.exit(complain(error))


def claim(node: DictConfig) -> Path | None:
    """Make the folder that a node of Hydra's config names by the time, or if it is there, the same with a number."""
    if "${now:" not in str(OmegaConf.to_container(node, resolve=False)["dir"]):  # type: ignore[index, call-overload]
        return None  # the user's own choice
    try:
        folder = make_new_folder(Path(str(node.dir)))
    except OSError:
        return None  # Hydra will find out, and say so
    with read_write(node):
        node.dir = str(folder)
    return folder


def gather_unfinished() -> None:
    """Gather a sweep of which some jobs failed; the error that ended it decides the exit code."""
    if Gather.running is not None:
        Gather.running.gather()
