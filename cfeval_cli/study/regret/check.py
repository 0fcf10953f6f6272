"""Read the runs of judges and compare the strategies to choose an explainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cfeval_cli.core.files import make_folder, refuse_linked_path, write_atomically
from cfeval_cli.errors import UserError
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.metric_ranking import PreferredMetrics
from cfeval_cli.study.regret import tables
from cfeval_cli.study.regret.regret import ExplainerChoice, compute_regrets, list_choices, summarise_regrets
from cfeval_cli.study.run_folders import find_run_folders, read_columns, report_damage, write_texts
from cfeval_cli.study.words import write_count

_RECORD = (
    "data.name", "model.name", "settings.truth", "settings.agreement", "settings.seed", "settings.k", "removals",
)  # fmt: skip
_METRICS = ("metric", "variant", "explainer", "quality_level", "control", "value", "better", "role", "circular")


@dataclass(frozen=True)
class StrategyComparison:
    """The regret of each strategy: as a sentence, as a table for the screen, and as all tables."""

    verdict: str
    brief: Table
    tables: list[Table]
    scope: str  # how many runs were read


def compare_strategies(folders: Sequence[Path], into: Path) -> StrategyComparison:
    """Read all runs, compare the strategies, and write regret.parquet and regret.md."""
    refuse_linked_path(into)
    choices, arbitrary, n_skipped = list[ExplainerChoice](), set[str](), 0
    identities = set[str]()
    for folder in find_run_folders(folders, with_judges=True):
        record, of_run = _read_choices(folder)
        identity = record.model_dump_json(include={"data", "model", "settings", "explainer_settings"})
        if not of_run or identity in identities:
            n_skipped += 1
            continue
        identities.add(identity)
        choices += of_run
        arbitrary |= record.arbitrary_removals
    if not choices:
        raise UserError("no folder has a complete run of a model with known ground truth. See docs/judges.md.")
    regrets = compute_regrets(choices, PreferredMetrics.load(), arbitrary)
    summary = summarise_regrets(regrets)
    built = tables.build_tables(regrets, summary)
    make_folder(into)
    with write_atomically(into / "regret.parquet") as path:
        regrets.to_parquet(path, index=False)
    write_texts(into, {"regret.md": "\n".join(map(render_markdown, built))})
    scope = f"{write_count(len(identities), 'run')} of judges on {write_count(regrets['data'].nunique(), 'data set')}"
    skipped = f"; {n_skipped} skipped (incomplete, without ground truth, or duplicates)" if n_skipped else ""
    brief = tables.build_brief(summary, scope)
    return StrategyComparison(tables.write_verdict(summary), brief, built, f"{scope}{skipped}")


def _read_choices(folder: Path) -> tuple[RunRecord, list[ExplainerChoice]]:
    """Read the choices of a run; none if it is not complete, or its model has no ground truth."""
    record = checked.read_verified_record(folder)
    if record.status != "complete" or not record.truths:
        return record, []
    with report_damage(f"{folder} is damaged, or of another version of cfeval; leave it out"):
        checked.check_entries(record, _RECORD)
        return record, list_choices(record, read_columns(folder, record, "metrics", _METRICS))
