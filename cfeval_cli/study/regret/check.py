"""Runs of judges, read from their folders, and what each way to choose an explainer loses on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cfeval_cli.core.files import make_folder, refuse_linked_path, whole_file
from cfeval_cli.errors import UserError
from cfeval_cli.report.numbers import fixed
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS
from cfeval_cli.statistics.recommendation import PreferredMetrics
from cfeval_cli.study.regret.regret import STRATEGIES, Trial, regrets, summary, trials
from cfeval_cli.study.sweep.gather import find


@dataclass(frozen=True)
class Check:
    """What came out: in a sentence, in a table for a screen, and in all tables."""

    answer: str
    brief: Table
    tables: list[Table]
    said: str


def check(folders: Sequence[Path], into: Path) -> Check:
    """Read all runs, compare the strategies, and write regret.parquet and regret.md."""
    refuse_linked_path(into)
    everyone, arbitrary, left = list[Trial](), set[str](), 0
    seen = set[str]()
    for folder in find(folders, judges=True):
        record, found = _read(folder)
        about = record.model_dump_json(include={"data", "model", "settings", "explainer_settings"})
        if not found or about in seen:
            left += 1
            continue
        seen.add(about)
        everyone += found
        arbitrary |= record.arbitrary_removals
    if not everyone:
        raise UserError("none of these runs is complete and of a model whose truth is known.")
    lost = regrets(everyone, PreferredMetrics.shipped(), arbitrary)
    means = summary(lost)
    told = _tables(lost, means)
    make_folder(into)
    with whole_file(into / "regret.parquet") as path:
        lost.to_parquet(path, index=False)
    with whole_file(into / "regret.md") as path:
        path.write_text("\n".join(map(render_markdown, told)), encoding="utf-8")
    more = f"; {left} left out (not complete, of unknown truth, or there twice)" if left else ""
    runs, sets = _counted(len(seen), "run"), _counted(lost["data"].nunique(), "data set")
    about = f"{runs} of judges on {sets}"
    return Check(headline(means), _brief(means, about), told, f"{about}{more}")


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


_RECORD = (
    "data.name", "model.name", "settings.gold", "settings.agreement", "settings.seed", "settings.k", "removals",
)  # fmt: skip


def _read(folder: Path) -> tuple[RunRecord, list[Trial]]:
    """What a folder tells of a judge: nothing if it is not complete, or of a model of which nothing is known."""
    record = checked.read(folder)
    try:
        if record.status != "complete" or not record.truths:
            return record, []
        checked.tells(record, _RECORD)
        return record, trials(record, checked.table(folder / "metrics.csv"))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{folder} is damaged, or of another version of cfeval: {error}. Leave it out.") from error


def headline(means: pd.DataFrame) -> str:
    """What the rule loses, what chance does, and whether another way loses significantly less."""
    every = means[means["circular"] == "keep"]
    lost = {str(name): some["regret"].dropna() for name, some in every.groupby("strategy", sort=False)}
    told = f"One chosen by chance is {_range(lost['chance'])} below the best in true score"
    if "rule" in lost and len(lost["rule"]):
        chance = f"one chosen by chance {_range(lost['chance'])}"
        told = f"An explainer that the rule chooses is {_range(lost['rule'])} below the best in true score, {chance}"
    if every["data"].max() < MIN_FACTOR_LEVELS:
        return f"{told}; fewer than {MIN_FACTOR_LEVELS} data sets say nothing of others"
    better = every[[_mark(one) == _LESS for one in every.to_dict("records")]]
    names = [STRATEGIES[name] for name in dict.fromkeys(better["strategy"])]
    return (
        f"{told}; {f'{_listed(names)} loses significantly less' if names else 'no other way loses significantly less'}"
    )


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_MORE, _LESS = "↑", "↓"


def _mark(one: Mapping[Any, Any]) -> str:
    """Whether it loses significantly more or less than the rule: of too few data sets nothing is told."""
    if one["data"] < MIN_FACTOR_LEVELS:
        return ""
    return _MORE if one["more_low"] > 0 else _LESS if one["more_high"] < 0 else ""


def _brief(means: pd.DataFrame, about: str) -> Table:
    """The mean regret of each strategy, by question and k, without the intervals."""
    some = means[means["circular"] == "keep"]
    header, columns = [Title("chosen by")], []
    for (question, k), lines in some.groupby(["question", "k"], sort=False):
        header.append(Title(f"{question} k\u00a0=\u00a0{k}"))
        columns.append(_column(lines, with_interval=False))
    names = [name for name in STRATEGIES if name in set(some["strategy"])]
    rows = [Row(Title(STRATEGIES[name]), [column.get(name, Cell()) for column in columns]) for name in names]
    marks = (
        f" {_MORE} significantly more, {_LESS} significantly less than the rule's."
        if some["data"].max() >= MIN_FACTOR_LEVELS
        else ""
    )
    notes = [
        "Mean regret: the true score of the best explainer less that of the chosen one; controls are left "
        f"out.{marks} By --full: intervals, and the same without the explainers that are made for the truth."
    ]
    title = f"What each way to choose an explainer loses: {about}"
    return Table(title, header, [rows], notes)


def _column(lines: pd.DataFrame, *, with_interval: bool) -> dict[str, Cell]:
    """Return the mean regret of each strategy; the smallest is bold."""
    known = lines[lines["regret"].notna()]
    least = known["regret"].min()
    return {
        line["strategy"]: Cell(
            line["regret"], line["low"] if with_interval else None, line["high"] if with_interval else None,
            marks=_mark(line),
            bold=bool(line["regret"] <= least), form=fixed(3),
        )
        for line in known.to_dict("records")
    }  # fmt: skip


def tables(lost: pd.DataFrame) -> list[Table]:
    """For all explainers, and without those that are made for the truth, where there are any."""
    return _tables(lost, summary(lost))


def _tables(lost: pd.DataFrame, means: pd.DataFrame) -> list[Table]:
    many = lost.groupby(["question", "k", "circular"])["explainers"].sum()
    fewer = [(question, k) for question, k, circular in many.index if circular == "drop"]
    fewer = [key for key in fewer if many[(*key, "drop")] < many[(*key, "keep")]]
    every = list(dict.fromkeys(means[["question", "k"]].itertuples(index=False, name=None)))
    sets = list(dict.fromkeys(lost["data"]))
    notes = [
        "Regret: the true score of the best explainer less that of the chosen one, 0 at best; controls are left out. "
        f"Means over {len(sets)} data sets ({', '.join(sets)}), their seeds and judges; in brackets 95 % t-intervals "
        "over data sets. The smallest of a column is bold; ↑ and ↓: more or less than the rule's by a difference whose "
        f"t-interval over data sets excludes 0, not corrected for the number of comparisons{_few(len(sets))}."
    ]
    told = [_table(means, "keep", "What is lost by each way to choose an explainer", every, notes)]
    if fewer:
        title = "Without the explainers that are made for the truth"
        told.append(_table(means, "drop", title, [key for key in every if key in fewer], []))
    return told


def _few(sets: int) -> str:
    return "" if sets >= MIN_FACTOR_LEVELS else f", which takes at least {MIN_FACTOR_LEVELS} data sets"


def _table(means: pd.DataFrame, circular: str, title: str, columns: list[tuple[str, int]], notes: list[str]) -> Table:
    """A row for each strategy, a column for each question and k."""
    some = means[means["circular"] == circular]
    parts = dict(iter(some.groupby(["question", "k"], sort=False)))
    cells = [_column(parts[column], with_interval=True) for column in columns]
    rows = [Row(Title(words), [column.get(name, Cell()) for column in cells]) for name, words in STRATEGIES.items()]
    header = [Title("chosen by"), *(Title(f"{question}, k = {k}") for question, k in columns)]
    return Table(title, header, [rows], notes)
