"""`cfeval report`: remake the report of stored runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cfeval_cli.cli.gather import gather_folders, print_gathered
from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, print_answer
from cfeval_cli.results.locations import PAGE_FILE, has_record

_HELP = """Remake report.html and the figures from stored runs. Nothing is computed again. The report of one run is
written to its folder. Several runs, or a sweep, get one report of their aggregated results."""


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Remake the report of the named folders."""
    parser = Parser("cfeval report", description=_HELP)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN",
        help="folder of a run, or of a sweep for all runs below it",
    )  # fmt: skip
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER",
        help="where the report of several runs goes, with the tables of cfeval gather (default: the sweep's folder if "
        "one is named and nothing else, otherwise gathered/ below the current folder)",
    )  # fmt: skip
    parser.add_argument(
        "--figures", type=_parse_formats, metavar="FORMATS",
        help="formats of the figures of one run: a list of png, svg and pdf (default: those of the run)",
    )  # fmt: skip
    values = parser.parse_args(arguments)
    first = values.folders[0]
    if len(values.folders) == 1 and has_record(first):
        if values.into is not None:
            parser.error("the report of one run is written to its own folder. Use --into with several runs")
        _remake_report(first, values.figures, options)
    else:
        if values.figures is not None:
            parser.error("--figures applies to the report of one run only")
        print_gathered(gather_folders(values.folders, values.into), options)


def _parse_formats(text: str) -> list[str]:
    """Return the formats of a list such as "pdf,png"."""
    from cfeval_cli.settings.run_settings import FIGURE_FORMATS

    formats = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [word for word in formats if word not in FIGURE_FORMATS]:
        raise argparse.ArgumentTypeError(f"there is no format {unknown[0]!r}. There is: {', '.join(FIGURE_FORMATS)}.")
    return formats


def _remake_report(path: Path, formats: Sequence[str] | None, options: Options) -> None:
    """Remake the report and figures of one run, by default in the formats of the run, and print the answer."""
    from cfeval_cli.report.page import build
    from cfeval_cli.results.folder import replace_files
    from cfeval_cli.results.read import read_results

    results = read_results(path)
    report = build.Report(results)
    files = report.make_files(results.record.settings.figures if formats is None else formats)
    replace_files(path, results.record, files)
    print_answer(report.headlines, report.brief, report.tables, [f"Report: {path / PAGE_FILE}"], options)
