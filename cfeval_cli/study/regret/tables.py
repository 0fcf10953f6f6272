"""The regret of each strategy in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from cfeval_cli.report.numbers import NumberFormat
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.wording import join_names
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS
from cfeval_cli.study.regret.regret import N_SPLITS, STRATEGIES
from cfeval_cli.study.words import write_range

_HIGHER_MARK, _LOWER_MARK = "↑", "↓"
_CORNER = Title("chosen by")


def write_verdict(summary: pd.DataFrame) -> str:
    """Write the regret of the answer and of chance, and which strategies have significantly less."""
    regrets = {str(name): group["regret"].dropna().tolist() for name, group in summary.groupby("strategy", sort=False)}
    best, chance = (write_range(regrets[name], "{:.3f}") for name in ("best", "chance"))
    text = f"mean regret {best} by the answer, {chance} by chance"
    if summary["data"].max() < MIN_FACTOR_LEVELS:
        return f"{text}; {MIN_FACTOR_LEVELS} data sets are needed to test for differences"
    better_rows = summary[[_mark_difference(line) == _LOWER_MARK for line in summary.to_dict("records")]]
    names = [STRATEGIES[name] for name in dict.fromkeys(better_rows["strategy"])]
    verb = "has" if len(names) == 1 else "have"
    return f"{text}; {f'{join_names(names)} {verb}' if names else 'no strategy has'} significantly less"


def _mark_difference(line: Mapping[Any, Any]) -> str:
    """Mark a regret that is significantly more or less than that of naming the best."""
    if line["data"] < MIN_FACTOR_LEVELS:
        return ""
    return _HIGHER_MARK if line["more_low"] > 0 else _LOWER_MARK if line["more_high"] < 0 else ""


def build_brief(summary: pd.DataFrame, scope: str) -> Table:
    """Build the table for the screen: mean regret by question and k, without intervals."""
    marks = f" {_HIGHER_MARK} significantly more than by the answer, {_LOWER_MARK} significantly less."
    has_tests = bool(summary["data"].max() >= MIN_FACTOR_LEVELS)
    notes = [
        "Mean regret: the recall of the best explainer less that of the chosen one, on the half of the instances that "
        f"did not decide.{marks * has_tests} --full shows intervals."
    ]
    return _build_table(summary, f"Regret by strategy: {scope}", notes, with_interval=False)


def build_table(regrets: pd.DataFrame, summary: pd.DataFrame) -> Table:
    """Build the table with intervals and the share of conclusive answers."""
    data_sets = list(dict.fromkeys(regrets["data"]))
    condition = "" if len(data_sets) >= MIN_FACTOR_LEVELS else f"; this needs at least {MIN_FACTOR_LEVELS} data sets"
    notes = [
        "Regret: the recall of the best explainer less that of the chosen one, 0 at best, without controls. A random "
        f"half of the instances decides, the other half scores; means over {N_SPLITS} halves, the models and seeds, "
        f"and {len(data_sets)} data sets ({', '.join(data_sets)}); in brackets 95 % t-intervals over data sets. Bold: "
        "the smallest of the column. ↑ and ↓: more or less than by the answer (the 95 % t-interval of the difference "
        f"over data sets excludes 0; not corrected for the number of comparisons{condition}). Last row: the share of "
        "halves with a conclusive answer."
    ]
    return _build_table(summary, "Regret by strategy", notes, with_interval=True)


def _build_table(summary: pd.DataFrame, title: str, notes: Sequence[str], *, with_interval: bool) -> Table:
    """Build a table with a row for each strategy and a column for each question and k."""
    tasks = list(summary.groupby(["question", "k"], sort=False))
    columns = [_build_column(lines, with_interval=with_interval) for _, lines in tasks]
    header = [_CORNER, *(Title(f"{question}, k\u00a0=\u00a0{k}") for (question, k), _ in tasks)]
    names = [name for name in STRATEGIES if any(name in column for column in columns)]
    rows = [Row(Title(STRATEGIES[name]), [column.get(name, Cell()) for column in columns]) for name in names]
    if with_interval:
        shares = [Cell(lines["conclusive"].iloc[0], form=NumberFormat(decimals=2)) for _, lines in tasks]
        rows.append(Row(Title("conclusive"), shares))
    return Table(title, header, [rows], notes)


def _build_column(lines: pd.DataFrame, *, with_interval: bool) -> dict[str, Cell]:
    """Return the mean regret of each strategy, the smallest in bold."""
    lines = lines[lines["regret"].notna()]
    lowest = lines["regret"].min()
    return {
        line["strategy"]: Cell(
            line["regret"], line["low"] if with_interval else None, line["high"] if with_interval else None,
            marks=_mark_difference(line), bold=bool(line["regret"] <= lowest), form=NumberFormat(decimals=3),
        )
        for line in lines.to_dict("records")
    }  # fmt: skip
