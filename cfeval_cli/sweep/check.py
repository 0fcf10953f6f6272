"""Runs of judges, read from their folders, and what each way to choose an explainer loses on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cfeval_cli.errors import UserError
from cfeval_cli.folder import checked
from cfeval_cli.report.tables import Cell, Table
from cfeval_cli.statistics.recommendation import Rule
from cfeval_cli.storage.files import whole_file
from cfeval_cli.sweep.regret import STRATEGIES, Trial, regrets, summary, trials

_CIRCULAR = {"keep": "all explainers", "drop": "without those that are made for the truth"}


@dataclass(frozen=True)
class Check:
    """What came out."""

    table: Table
    said: str


def check(folders: Sequence[Path], into: Path) -> Check:
    """Read all runs, compare the strategies, and write regret.parquet and regret.md."""
    everyone, arbitrary, left = list[Trial](), set[str](), 0
    seen = set[str]()
    for folder in _runs(folders):
        record = checked.read_record(folder)
        told = trials(record, checked.table(folder / "metrics.csv")) if _whole(record) else []
        about = json.dumps([record.get(name) for name in ("data", "model", "settings", "explainer_settings")])
        if not told or about in seen:
            left += 1
            continue
        seen.add(about)
        everyone += told
        arbitrary |= {name for name, facts in record["removals"].items() if facts.get("arbitrary")}
    if not everyone:
        raise UserError("none of these runs is complete and of a model whose truth is known.")
    lost = regrets(everyone, Rule.shipped(), arbitrary)
    means = summary(lost)
    table = _table(means, lost)
    into.mkdir(parents=True, exist_ok=True)
    with whole_file(into / "regret.parquet") as path:
        lost.to_parquet(path, index=False)
    with whole_file(into / "regret.md") as path:
        path.write_text(table.markdown(), encoding="utf-8")
    more = f"; {left} left out (not complete, of unknown truth, or there twice)" if left else ""
    runs, sets = _counted(len(seen), "run"), _counted(lost["data"].nunique(), "data set")
    return Check(table, f"{runs} of judges on {sets}{more}")


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


def _runs(folders: Sequence[Path]) -> list[Path]:
    found = []
    for folder in folders:
        here = [folder] if (folder / "run.json").exists() else sorted(one.parent for one in folder.rglob("run.json"))
        if not here:
            raise UserError(f"{folder} has no run.json, and no folder below it has one: it holds no run of cfeval.")
        found += here
    return found


def _whole(record: dict[str, object]) -> bool:
    return record["status"] == "complete" and bool(record.get("truths")) and "model" in record


def _table(means: pd.DataFrame, lost: pd.DataFrame) -> Table:
    """A row for each strategy, a column for each question, k and set of explainers."""
    columns = list(dict.fromkeys(means[["question", "k", "circular"]].itertuples(index=False, name=None)))
    known = means.set_index(["question", "k", "circular", "strategy"]).sort_index()
    rows = []
    for name, title in STRATEGIES.items():
        cells = [Cell(title)]
        for column in columns:
            if (*column, name) not in known.index:
                cells.append(Cell("–"))
                continue
            one = known.loc[(*column, name)]
            best = bool(one["regret"] <= known.loc[column, "regret"].min())
            cells.append(Cell(f"{one['regret']:.3f} [{one['low']:.3f}, {one['high']:.3f}]", bold=best))
        rows.append(cells)
    header = [
        Cell("chosen by"),
        *(Cell(f"{question}, k = {k}, {_CIRCULAR[circular]}") for question, k, circular in columns),
    ]
    sets = list(dict.fromkeys(lost["data"]))
    notes = [
        "Regret: the true score of the best explainer less that of the chosen one, 0 at best; controls are left out. "
        f"Means over {len(sets)} data sets ({', '.join(sets)}), their seeds and judges; in brackets 95 % intervals "
        "over data sets and, within them, seeds. The smallest of a column is bold."
    ]
    return Table("What is lost by each way to choose an explainer", header, [rows], notes)
