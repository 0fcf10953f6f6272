"""`cfeval judge`: the regret of the answer to which explainer is best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, print_answer

_HELP = "The regret of the answer to which explainer is best."
_CHECK = """How much worse than the best is the explainer that a run names? A random half of the instances with
reference attributions decides, and the other half scores. The answer is compared with its cheaper alternative, the
cheapest explainer that is not significantly worse, the metric-based ranking, the first explainer of the table, and
chance. Reads stored runs only, with at least 60 instances with reference attributions. A sweep makes them:
cfeval run --multirun experiment=judges dataset=NAME,NAME model=NAME,NAME 'seed=range(3)'"""


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Parse the arguments and run the action."""
    parser = Parser("cfeval judge", description=_HELP)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="compare strategies to choose an explainer", description=_CHECK)
    check.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN", help="folder of a run, or one that has such folders below it"
    )
    check.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder for regret.parquet and regret.md (default: the current folder)",
    )
    values = parser.parse_args(arguments)
    _print_regret(values.folders, values.into, options)


def _print_regret(folders: list[Path], into: Path, options: Options) -> None:
    from cfeval_cli.study.regret.check import compare_strategies

    comparison = compare_strategies(folders, into)
    notes = [comparison.scope, f"Written: {into.resolve()}: regret.parquet, regret.md"]
    print_answer([f"Verdict: {comparison.verdict}."], comparison.brief, comparison.tables, notes, options)
