"""`cfeval gather`: what several runs say together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfeval_cli.cli.main import Parser

if TYPE_CHECKING:
    from cfeval_cli.study.sweep.gather import Gathered

_HELP = """Several runs in one table: means and deviations over seeds, and how stable each metric's ranking of the
explainers is under the settings that differ between the runs. A sweep (cfeval run --multirun) ends with this by itself;
use it to gather anew, or runs that were started one by one. Nothing is computed again."""


def main() -> None:
    """Gather the runs in the folders that are named."""
    parser = Parser("cfeval gather", description=_HELP)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER",
        help="of a run, or of a sweep, which stands for all runs below it; unfinished runs are named and left out",
    )  # fmt: skip
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER",
        help="where sweep.csv, seeds_metrics.csv, seeds_correlations.csv, stability.csv, tables.md, tables.tex, "
        "report.html and figures/ go; "
        "they replace earlier ones (default: the sweep's folder if one is named and nothing else, otherwise gathered/ "
        "below the current folder)",
    )  # fmt: skip
    arguments = parser.parse_args()
    show(together(arguments.folders, arguments.into))


def together(folders: list[Path], into: Path | None) -> Gathered:
    """Gather into the folder that is named, or that of the one sweep, or a new one."""
    from cfeval_cli.study.sweep.gather import gather

    alone = len(folders) == 1 and not (folders[0] / "run.json").exists()
    return gather(folders, into or (folders[0] if alone else Path("gathered")), page=True)


def show(gathered: Gathered) -> None:
    """Print as a run does, and what was left out."""
    from cfeval_cli.cli import screen

    runs = len(gathered.sweep.runs)
    told = [f"Gathered {runs} {'run' if runs == 1 else 'runs'}: {gathered.folder}"]
    told += [] if gathered.page is None else [f"Report: {gathered.page}"]
    told += [f"Not gathered: {gathered.sweep.left_out}"] if gathered.sweep.others else []
    screen.answer([f"Verdict: {gathered.answer.headline}."], gathered.brief, gathered.tables, told)
