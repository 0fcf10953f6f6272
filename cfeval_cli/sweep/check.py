"""Runs of judges, read from their folders, and what each way to choose an explainer loses on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cfeval_cli.errors import UserError
from cfeval_cli.folder import checked
from cfeval_cli.report.tables import Cell, Table
from cfeval_cli.statistics.recommendation import Rule
from cfeval_cli.storage.files import whole_file
from cfeval_cli.sweep.gather import find
from cfeval_cli.sweep.regret import STRATEGIES, Trial, regrets, summary, trials


@dataclass(frozen=True)
class Check:
    """What came out."""

    tables: list[Table]
    said: str


def check(folders: Sequence[Path], into: Path) -> Check:
    """Read all runs, compare the strategies, and write regret.parquet and regret.md."""
    everyone, arbitrary, left = list[Trial](), set[str](), 0
    seen = set[str]()
    for folder in find(folders, judges=True):
        record, found = _read(folder)
        about = json.dumps([record.get(name) for name in ("data", "model", "settings", "explainer_settings")])
        if not found or about in seen:
            left += 1
            continue
        seen.add(about)
        everyone += found
        arbitrary |= {name for name, facts in record["removals"].items() if facts.get("arbitrary")}
    if not everyone:
        raise UserError("none of these runs is complete and of a model whose truth is known.")
    lost = regrets(everyone, Rule.shipped(), arbitrary)
    told = tables(lost)
    into.mkdir(parents=True, exist_ok=True)
    with whole_file(into / "regret.parquet") as path:
        lost.to_parquet(path, index=False)
    with whole_file(into / "regret.md") as path:
        path.write_text("\n".join(table.markdown() for table in told), encoding="utf-8")
    more = f"; {left} left out (not complete, of unknown truth, or there twice)" if left else ""
    runs, sets = _counted(len(seen), "run"), _counted(lost["data"].nunique(), "data set")
    return Check(told, f"{runs} of judges on {sets}{more}")


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


_RECORD = (
    "data.name", "model.name", "settings.gold", "settings.agreement", "settings.seed", "settings.k", "removals",
)  # fmt: skip


def _read(folder: Path) -> tuple[dict[str, Any], list[Trial]]:
    """What a folder tells of a judge: nothing if it is not complete, or of a model of which nothing is known."""
    record = checked.read(folder)
    try:
        if record["status"] != "complete" or not record.get("truths"):
            return record, []
        checked.tells(record, _RECORD)
        return record, trials(record, checked.table(folder / "metrics.csv"))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{folder} is damaged, or of another version of cfeval: {error}. Leave it out.") from error


def tables(lost: pd.DataFrame) -> list[Table]:
    """For all explainers, and without those that are made for the truth, where there are any."""
    means = summary(lost)
    many = lost.groupby(["question", "k", "circular"])["explainers"].sum()
    fewer = [(question, k) for question, k, circular in many.index if circular == "drop"]
    fewer = [key for key in fewer if many[(*key, "drop")] < many[(*key, "keep")]]
    every = list(dict.fromkeys(means[["question", "k"]].itertuples(index=False, name=None)))
    sets = list(dict.fromkeys(lost["data"]))
    notes = [
        "Regret: the true score of the best explainer less that of the chosen one, 0 at best; controls are left out. "
        f"Means over {len(sets)} data sets ({', '.join(sets)}), their seeds and judges; in brackets 95 % intervals "
        "over data sets and, within them, seeds. The smallest of a column is bold; ↑ and ↓: surely more or less than "
        "the rule's, by such an interval of the difference."
    ]
    told = [_table(means, "keep", "What is lost by each way to choose an explainer", every, notes)]
    if fewer:
        title = "Without the explainers that are made for the truth"
        told.append(_table(means, "drop", title, [key for key in every if key in fewer], []))
    return told


def _table(means: pd.DataFrame, circular: str, title: str, columns: list[tuple[str, int]], notes: list[str]) -> Table:
    """A row for each strategy, a column for each question and k."""
    some = means[means["circular"] == circular]
    known: dict[tuple[object, ...], dict[Any, Any]] = {
        (one["question"], one["k"], one["strategy"]): one for one in some.to_dict("records")
    }
    least = some.groupby(["question", "k"])["regret"].min()
    rows = []
    for name, words in STRATEGIES.items():
        cells = [Cell(words)]
        for column in columns:
            one = known.get((*column, name))
            if one is None:
                cells.append(Cell("–"))
                continue
            mark = " ↑" if one["more_low"] > 0 else " ↓" if one["more_high"] < 0 else ""
            value = f"{one['regret']:.3f} [{one['low']:.3f}, {one['high']:.3f}]{mark}"
            cells.append(Cell(value, bold=one["regret"] <= float(least[column])))
        rows.append(cells)
    header = [Cell("chosen by"), *(Cell(f"{question}, k = {k}") for question, k in columns)]
    return Table(title, header, [rows], notes)
