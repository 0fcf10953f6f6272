"""Gather runs into the tables and the report of a sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cfeval_cli.core.files import format_csv, refuse_linked_path
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.results.locations import LATEX_FILE, MARKDOWN_FILE, PAGE_FILE, has_record
from cfeval_cli.results.record import RunRecord, SettingsEntry
from cfeval_cli.study.run_folders import find_run_folders, write_texts
from cfeval_cli.study.sweep.brief import build_brief
from cfeval_cli.study.sweep.conclusion import write_conclusion
from cfeval_cli.study.sweep.frames import SweepFrames, compute_frames, sort_key
from cfeval_cli.study.sweep.read import parse_overrides, read_run
from cfeval_cli.study.sweep.runs import Sweep, SweepRun
from cfeval_cli.study.sweep.seed_conclusion import Conclusion
from cfeval_cli.study.sweep.tables import build_tables


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep, and where they were written."""

    folder: Path
    sweep: Sweep
    frames: SweepFrames
    tables: list[Table]
    page: Path | None = None  # the report, if it was requested

    @cached_property
    def conclusion(self) -> Conclusion:
        """The conclusion in words."""
        return write_conclusion(self.sweep, self.frames.seeds_correlations)

    @cached_property
    def brief(self) -> Table:
        """The table for the screen."""
        return build_brief(self.sweep, self.frames)


def gather(
    folders: Sequence[Path], into: Path, failed: Mapping[Path, Sequence[str]] | None = None, *, page: bool = False
) -> SweepResults:
    """Read the runs in some folders and write the tables of the sweep, and its report on request.

    `failed` has the overrides of jobs that failed before they created a folder.
    """
    refuse_linked_path(into)
    if has_record(into):
        raise UserError(f"{into} is the folder of a run, whose tables would be overwritten. Name another with --into.")
    into = into.resolve()
    runs = [read_run(path, _name_folder(path, into)) for path in find_run_folders(folders)]
    for path, overrides in (failed or {}).items():
        assigned = parse_overrides(overrides)
        settings = SettingsEntry(seed=int(assigned["seed"])) if assigned.get("seed", "").isdigit() else SettingsEntry()
        runs.append(SweepRun(_name_folder(path, into), RunRecord(status="failed", settings=settings), assigned))
    sweep = Sweep.from_runs(sorted(runs, key=lambda run: sort_key(run.name)))
    if not sweep.runs:
        raise UserError(f"no run is complete. Not gathered: {sweep.describe_excluded()}.")
    frames = compute_frames(sweep)
    tables = build_tables(sweep, frames)
    texts = {f"{name}.csv": format_csv(frame) for name, frame in frames.get_files().items()}
    texts |= {MARKDOWN_FILE: "\n".join(map(render_markdown, tables))}
    texts |= {LATEX_FILE: "\n".join(map(render_latex, tables))}
    write_texts(into, texts)
    results = SweepResults(into, sweep, frames, tables, into / PAGE_FILE if page else None)
    if page:
        from cfeval_cli.study.sweep.page import write_page  # imports Matplotlib, which takes a second

        write_page(sweep, frames, results.conclusion, tables, into)
    return results


def _name_folder(path: Path, into: Path) -> str:
    return escape_controls(Path(os.path.relpath(path.resolve(), into)).as_posix())
