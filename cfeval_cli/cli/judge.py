"""`cfeval judge`: what is lost by choosing an explainer by a metric."""

from __future__ import annotations

from pathlib import Path

from cfeval_cli.cli.main import Parser

_HELP = "What is lost by choosing an explainer by a metric, on models whose truth is known."
_CHECK = """Each judge in turn plays the user's model with its truth hidden. How much truth is lost by the explainer
that is chosen by the rule, by metrics that were right on other judges, by one metric always, by the mean rank, or by
chance?
Reads stored runs of judges only. They are made by a sweep such as: cfeval run --multirun experiment=judges
dataset=adults,german,compas,heloc,pima model=logistic,additive,tree 'seed=range(10)' k=1,3"""


def main() -> None:
    """Pick the action."""
    parser = Parser("cfeval judge", description=_HELP)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="what each way to choose an explainer loses", description=_CHECK)
    check.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN", help="folder of a run, or one that has such folders below it"
    )
    check.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where regret.parquet and regret.md go (default: here)",
    )
    arguments = parser.parse_args()
    _check(arguments.folders, arguments.into)


def _check(folders: list[Path], into: Path) -> None:
    from cfeval_cli.cli import screen
    from cfeval_cli.study.regret.check import check

    done = check(folders, into)
    told = [done.said, f"Written: {into.resolve()}: regret.parquet, regret.md"]
    screen.answer([f"Verdict: {done.answer}."], done.brief, done.tables, told)
