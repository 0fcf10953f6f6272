"""The regret of each strategy in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from cfeval_cli.report.numbers import NumberFormat
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.wording import join_names
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS
from cfeval_cli.study.regret.regret import STRATEGIES
from cfeval_cli.study.words import write_range

_HIGHER_MARK, _LOWER_MARK = "↑", "↓"
_CORNER = Title("chosen by")


def write_verdict(summary: pd.DataFrame) -> str:
    """Write the regret of the metric-based ranking and of chance, and which strategies have significantly less."""
    rows = summary[summary["circular"] == "keep"]
    regrets = {str(name): group["regret"].dropna().tolist() for name, group in rows.groupby("strategy", sort=False)}
    chance = f"{write_range(regrets['chance'], '{:.3f}')} by chance"
    if regrets.get("rule"):
        text = f"mean regret {write_range(regrets['rule'], '{:.3f}')} by the metric-based ranking, {chance}"
    else:
        text = f"mean regret {chance}"
    if rows["data"].max() < MIN_FACTOR_LEVELS:
        return f"{text}; {MIN_FACTOR_LEVELS} data sets are needed to test for differences"
    better_rows = rows[[_mark_difference(line) == _LOWER_MARK for line in rows.to_dict("records")]]
    names = [STRATEGIES[name] for name in dict.fromkeys(better_rows["strategy"])]
    verb = "has" if len(names) == 1 else "have"
    return f"{text}; {f'{join_names(names)} {verb}' if names else 'no strategy has'} significantly less"


def _mark_difference(line: Mapping[Any, Any]) -> str:
    """Mark a regret that is significantly more or less than that of the metric-based ranking."""
    if line["data"] < MIN_FACTOR_LEVELS:
        return ""
    return _HIGHER_MARK if line["more_low"] > 0 else _LOWER_MARK if line["more_high"] < 0 else ""


def build_brief(summary: pd.DataFrame, scope: str) -> Table:
    """Build the table for the screen: mean regret by question and k, without intervals."""
    rows = summary[summary["circular"] == "keep"]
    header, columns = [_CORNER], []
    for (question, k), lines in rows.groupby(["question", "k"], sort=False):
        header.append(Title(f"{question} k\u00a0=\u00a0{k}"))
        columns.append(_build_column(lines, with_interval=False))
    names = [name for name in STRATEGIES if name in set(rows["strategy"])]
    body = [Row(Title(STRATEGIES[name]), [column.get(name, Cell()) for column in columns]) for name in names]
    marks = f" {_HIGHER_MARK} significantly more than by the metric-based ranking, {_LOWER_MARK} significantly less."
    has_tests = bool(rows["data"].max() >= MIN_FACTOR_LEVELS)
    notes = [
        "Mean regret: the true score of the best explainer less that of the chosen one, without controls."
        f"{marks * has_tests} --full shows intervals, and the regret without explainers that are circular with the "
        "ground truth."
    ]
    return Table(f"Regret by strategy: {scope}", header, [body], notes)


def build_tables(regrets: pd.DataFrame, summary: pd.DataFrame) -> list[Table]:
    """Build the table of all explainers, and one without circular explainers where there are any."""
    counts = regrets.groupby(["question", "k", "circular"])["explainers"].sum()
    has_circular = [(question, k) for question, k, circular in counts.index if circular == "drop"]
    has_circular = [task for task in has_circular if counts[(*task, "drop")] < counts[(*task, "keep")]]
    tasks = list(dict.fromkeys(summary[["question", "k"]].itertuples(index=False, name=None)))
    data_sets = list(dict.fromkeys(regrets["data"]))
    condition = "" if len(data_sets) >= MIN_FACTOR_LEVELS else f"; this needs at least {MIN_FACTOR_LEVELS} data sets"
    notes = [
        "Regret: the true score of the best explainer less that of the chosen one, 0 at best, without controls. "
        f"Means over {len(data_sets)} data sets ({', '.join(data_sets)}), their seeds and judges; in brackets 95 % "
        "t-intervals over data sets. Bold: the smallest of the column. ↑ and ↓: more or less than by the metric-based "
        "ranking (the 95 % t-interval of the difference over data sets excludes 0; not corrected for the number of "
        f"comparisons{condition})."
    ]
    built = [_build_table(summary, "keep", "Regret by strategy", tasks, notes)]
    if has_circular:
        title = "Regret by strategy, without explainers that are circular with the ground truth"
        built.append(_build_table(summary, "drop", title, [task for task in tasks if task in has_circular], []))
    return built


def _build_table(
    summary: pd.DataFrame, circular: str, title: str, tasks: Sequence[tuple[str, int]], notes: Sequence[str]
) -> Table:
    """Build a table with a row for each strategy and a column for each question and k."""
    lines = dict(iter(summary[summary["circular"] == circular].groupby(["question", "k"], sort=False)))
    columns = [_build_column(lines[task], with_interval=True) for task in tasks]
    rows = [Row(Title(words), [column.get(name, Cell()) for column in columns]) for name, words in STRATEGIES.items()]
    header = [_CORNER, *(Title(f"{question}, k = {k}") for question, k in tasks)]
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
