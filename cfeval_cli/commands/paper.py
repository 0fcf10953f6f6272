"""`cfeval paper`: the paper's own figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_HELP = "The figures that the paper printed."
_AUDIT = """Computes again all that follows from the figures that the paper printed (ranks, quotients, correlations,
sums, shares, what the text says of them) and lists each disagreement: where it is, what is printed, what comes out, and
what it means. Needs no data and no run."""


def main() -> None:
    """Pick the action."""
    parser = argparse.ArgumentParser("cfeval paper", description=_HELP)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    audit = actions.add_parser("audit", help="check the paper's figures against each other", description=_AUDIT)
    audit.add_argument("--csv", type=Path, metavar="FILE", help="also write the findings there, one row each")
    audit.add_argument("--md", type=Path, metavar="FILE", help="also write the tables there, as Markdown")
    arguments = parser.parse_args()
    _audit(arguments.csv, arguments.md)


def _audit(csv: Path | None, md: Path | None) -> None:
    from rich.console import Console

    from cfeval_cli.files import whole_file
    from cfeval_cli.paper.audit import audit

    done = audit()
    for path, text in ((csv, done.frame().to_csv(index=False)), (md, done.markdown())):
        if path is not None:
            with whole_file(path) as file:
                file.write_text(text, encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in done.tables():
        console.print(table.rich(console.width))
        console.print()
    console.print(done.summary, markup=False, highlight=False, soft_wrap=True)
