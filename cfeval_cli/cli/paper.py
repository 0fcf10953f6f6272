"""`cfeval paper`: audit the paper's figures, and compare them with runs of cfeval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, print_answer

_HELP = "Audit the figures that the paper printed, and compare them with runs of cfeval."
_AUDIT = """Recomputes the figures of the paper that follow from other figures (ranks, quotients, correlations, sums,
counts) and compares the text with the tables. Lists each contradiction: its place, the printed and the recomputed
figure, and its meaning. Needs no data and no run."""

_COMPARE = """Compares every cell of the paper's tables with runs of cfeval, and judges each of the paper's claims under
each truth, over the seeds of the runs. Reads stored runs only; `make paper` makes them. Writes paper.md,
paper.tex and paper.html, paper.csv (every cell) and claims.csv (every verdict with its figures)."""


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Parse the arguments and run the action."""
    parser = Parser("cfeval paper", description=_HELP)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    audit = actions.add_parser("audit", help="check the paper's figures against each other", description=_AUDIT)
    audit.add_argument("--csv", type=Path, metavar="FILE", help="also write the findings to a CSV file")
    audit.add_argument("--md", type=Path, metavar="FILE", help="also write the tables to a Markdown file")
    compare = actions.add_parser(
        "compare", help="compare the paper's tables and claims with runs", description=_COMPARE
    )
    compare.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN",
        help="folder of a run (cfeval run experiment=table1_adults, …), or one that has such folders below it",
    )  # fmt: skip
    compare.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder for the results (default: the current folder)",
    )
    compare.add_argument(
        "--tables", nargs="+", default=["1", "2", "3"], choices=["1", "2", "3"], metavar="N", help="only these of 1 2 3"
    )
    values = parser.parse_args(arguments)
    if values.action == "audit":
        _audit(values.csv, values.md, options)
    else:
        _compare(values.folders, values.into, values.tables, options)


def _compare(folders: list[Path], into: Path, tables: list[str], options: Options) -> None:
    from cfeval_cli.study.paper.compare import compare

    comparison = compare(folders, into, tables)
    written = f"Written: {into.resolve()}: paper.md, paper.tex, paper.html, paper.csv, claims.csv"
    print_answer([f"Verdict: {comparison.answer}."], comparison.brief, comparison.tables, [written], options)


def _audit(csv: Path | None, md: Path | None, options: Options) -> None:
    from cfeval_cli.core.files import write_atomically
    from cfeval_cli.study.paper.audit import audit_paper

    findings = audit_paper()
    for path, text in ((csv, findings.build_frame().to_csv(index=False)), (md, findings.write_markdown())):
        if path is not None:
            with write_atomically(path) as file:
                file.write_text(text, encoding="utf-8")
    lines = findings.write_lines() if options.full else []
    print_answer([f"Verdict: {findings.summary}.", *lines], findings.build_brief(), [], [], options)
