"""`cfeval gather`: aggregate several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, print_answer
from cfeval_cli.results.locations import has_record

if TYPE_CHECKING:
    from cfeval_cli.study.sweep.gather import SweepResults

_HELP = """Aggregate several runs: means and standard deviations over seeds, and the stability of each metric's ranking
of the explainers under the settings that differ between the runs. A sweep (cfeval run --multirun) ends with this step.
Use the command to repeat it, or for runs that were started one by one. Nothing is computed again."""


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Aggregate the runs in the named folders."""
    parser = Parser("cfeval gather", description=_HELP)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER",
        help="folder of a run, or of a sweep for all runs below it; unfinished runs are listed and left out",
    )  # fmt: skip
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER",
        help="folder for sweep.csv, seeds_metrics.csv, seeds_correlations.csv, stability.csv, tables.md, tables.tex, "
        "report.html and figures/, "
        "which replace earlier ones (default: the sweep's folder if one is named and nothing else, otherwise gathered/ "
        "below the current folder)",
    )  # fmt: skip
    values = parser.parse_args(arguments)
    print_gathered(gather_folders(values.folders, values.into), options)


def gather_folders(folders: list[Path], into: Path | None) -> SweepResults:
    """Gather into the given folder, else into that of a single sweep, else into ./gathered."""
    from cfeval_cli.study.sweep.gather import gather

    is_one_sweep = len(folders) == 1 and not has_record(folders[0])
    return gather(folders, into or (folders[0] if is_one_sweep else Path("gathered")), page=True)


def print_gathered(results: SweepResults, options: Options) -> None:
    """Print the conclusion, the tables and the runs that were excluded."""
    from cfeval_cli.study.words import write_count

    sweep, lines = results.sweep, [f"Gathered {write_count(len(results.sweep.runs), 'run')}: {results.folder}"]
    lines += [] if results.page is None else [f"Report: {results.page}"]
    lines += [f"Not gathered: {sweep.describe_excluded()}"] if sweep.excluded else []
    print_answer([f"Verdict: {results.conclusion.headline}."], results.brief, results.tables, lines, options)
