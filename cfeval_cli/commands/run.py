"""`cfeval run`: one experiment, or with --multirun several."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from cfeval_cli.errors import Failure, UserError

log = logging.getLogger("cfeval")


@hydra.main(version_base="1.3", config_path="pkg://cfeval_cli.conf", config_name="run")
def main(cfg: DictConfig) -> None:
    """Run what the config describes, into the folder that Hydra made."""
    from cfeval_cli.store import RunFolder

    folder = RunFolder(Path(HydraConfig.get().runtime.output_dir), ["cfeval", "run", *sys.argv[1:]])
    try:
        _run(cfg, folder)
    except (UserError, Failure) as error:
        log.error("%s", error)
        _close(folder, "failed")
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise  # the other jobs go on, and Hydra names this one
        sys.exit(_complain(error))
    except KeyboardInterrupt:
        log.error("stopped by the user")
        kept = _close(folder, "stopped")
        safe = f"Safe in {folder.path}: {', '.join(kept)}." if kept else "Nothing had been computed yet."
        sys.stderr.write(f"cfeval: stopped. {safe}\n")
        sys.exit(130)
    except Exception:
        log.exception("failed")
        _close(folder, "failed")
        raise


def _run(cfg: DictConfig, folder: object) -> None:
    from rich.console import Console

    from cfeval_cli import pipeline, progress
    from cfeval_cli.config import plan
    from cfeval_cli.store import RunFolder

    assert isinstance(folder, RunFolder)  # noqa: S101
    with progress.terminal() as stages:
        made = pipeline.run(plan(cfg), folder, stages)
    # piped output is for files and other programs: do not fold the tables to a default of 80 columns
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in made:
        console.print(table.rich())
    console.print(f"Results: {folder.path}", markup=False, highlight=False, soft_wrap=True)


def _close(folder: object, status: str) -> list[str]:
    """Keep what was computed; leave no folder behind if nothing was."""
    from cfeval_cli.store import RunFolder

    assert isinstance(folder, RunFolder)  # noqa: S101
    if folder.begun:
        folder.close(status)
        return folder.contents()
    folder.discard()
    return []


def _complain(error: Exception) -> int:
    from cfeval_cli.cli import complain

    return complain(error)
