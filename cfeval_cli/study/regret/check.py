"""Read stored runs and compare the strategies to choose an explainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cfeval_cli.core.files import make_folder, refuse_linked_path, write_atomically
from cfeval_cli.errors import UserError
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.results import validation as checked
from cfeval_cli.results.recommendation import RECOMMENDATION_FILE
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES
from cfeval_cli.study.regret import tables
from cfeval_cli.study.regret.regret import compute_regrets, summarise_regrets
from cfeval_cli.study.regret.sample import read_questions
from cfeval_cli.study.run_folders import find_run_folders, report_damage, write_texts
from cfeval_cli.study.words import write_count

_RECORD = ("data.name", "model.name", "settings.seed", "settings.k")


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
    parts, n_skipped, identities = list[pd.DataFrame](), 0, set[str]()
    for folder in find_run_folders(folders, with_judges=True):
        record, of_run = _read_regrets(folder)
        identity = record.model_dump_json(include={"data", "model", "settings", "explainer_settings"})
        if not of_run or identity in identities:
            n_skipped += 1
            continue
        identities.add(identity)
        parts += of_run
    if not parts:
        raise UserError(
            f"no folder has a complete run with at least {2 * MIN_INSTANCES} instances with reference attributions "
            "and two explainers that are not controls. See docs/judges.md."
        )
    regrets = pd.concat(parts, ignore_index=True)
    summary = summarise_regrets(regrets)
    table = tables.build_table(regrets, summary)
    make_folder(into)
    with write_atomically(into / "regret.parquet") as path:
        regrets.to_parquet(path, index=False)
    write_texts(into, {"regret.md": render_markdown(table)})
    scope = f"{write_count(len(identities), 'run')} on {write_count(regrets['data'].nunique(), 'data set')}"
    reason = f"incomplete, duplicates, or fewer than {2 * MIN_INSTANCES} instances with reference attributions"
    skipped = f"; {n_skipped} skipped ({reason})" if n_skipped else ""
    brief = tables.build_brief(summary, scope)
    return StrategyComparison(tables.write_verdict(summary), brief, [table], f"{scope}{skipped}")


def _read_regrets(folder: Path) -> tuple[RunRecord, list[pd.DataFrame]]:
    """Read the regrets of a run; none if it is not complete, or has too few instances with reference attributions."""
    record = checked.read_verified_record(folder)
    if record.status != "complete" or RECOMMENDATION_FILE not in record.files:
        return record, []
    with report_damage(f"{folder} is damaged, or of another version of cfeval; leave it out"):
        checked.check_entries(record, _RECORD)
        regrets = [compute_regrets(record, question) for question in read_questions(folder, record)]
    return record, [part for part in regrets if len(part)]
