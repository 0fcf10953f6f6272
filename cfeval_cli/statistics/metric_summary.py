"""One value for each metric and explainer, from the scores per instance, with its rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.statistics.common_support import NO_COMMON_INSTANCE
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.scores import Scores, ScoreSeries

_KEYS = ["metric", "variant", "explainer"]
_SCORES_PER_BATCH = 1 << 20  # added up at once: 16 MB


def summarise_scores(
    scores: Scores, summary: pd.DataFrame, own_scores: Scores | None = None, *, max_scores: int = _SCORES_PER_BATCH
) -> pd.DataFrame:
    """Return one row for each metric, variant and explainer.

    `summary` has these rows in their order, with facts about the metric and, as a note, why a row can have no value.
    `own_scores` has the scores on all instances that each explainer covers, if `scores` has only those on common
    instances.
    """
    table = _add_values(scores, summary, max_scores)
    own_table = table if own_scores is None else _add_values(own_scores, summary, max_scores)
    table["own_value"], table["own_n"] = own_table["value"], own_table["n"]
    complete = table[table["quantity"] == Quantity.COMPLETE]
    coverage = dict(zip(complete["explainer"], complete["value"], strict=True))
    table["coverage"] = np.array([coverage.get(name, np.nan) for name in table["explainer"].tolist()], dtype=float)
    table["rank"] = _rank_explainers(table)
    facts = zip(table["note"], table["empty"], table["n"], table["denominator"], table["own_n"], strict=True)
    notes = [_explain_missing_value(*fact) for fact in facts]
    table["note"] = pd.Series(notes, dtype=table["note"].dtype)
    columns = [*_KEYS, "quality_level", "control", "value", "rank", "n", "own_value", "own_n", "coverage"]
    columns += ["better", "role", "access", "low", "high", "circular", "note", "method", "remark"]
    return table[columns]


def _rank_explainers(table: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the rank of each row among the explainers of its metric; graded controls are ranked among themselves."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for position, key in enumerate(zip(table["metric"], table["variant"], table["quality_level"].isna(), strict=True)):
        groups.setdefault(key, []).append(position)
    better, values, ranks = table["better"].tolist(), table["value"].to_numpy(), np.full(len(table), np.nan)
    for positions in groups.values():
        if better[positions[0]] != "none":
            ranks[positions] = compute_ranks(values[positions], better[positions[0]])
    return ranks


def _explain_missing_value(note: str, empty: str, n: int, denominator: float, own_n: int) -> str:
    """Return why a row has no value; empty if it has one."""
    if n:
        return note if denominator else empty
    return note or (NO_COMMON_INSTANCE if own_n else "no usable explanation")


def _add_values(scores: Scores, summary: pd.DataFrame, max_scores: int) -> pd.DataFrame:
    """Return the rows of the summary with both sums, the number of instances, and the ratio of the sums."""
    nonempty_series = [(key, series) for key, series in scores.series.items() if series.n_included]
    totals: dict[tuple[str, ...], tuple[float, float, int]] = {}
    for batch in _split_batches([series.n_included for _, series in nonempty_series], max_scores):
        numerators, denominators = _add_up([series for _, series in nonempty_series[batch]])
        scores.scratch.release()
        for ((metric, explainer), series), numerator, denominator in zip(
            nonempty_series[batch], numerators, denominators, strict=True
        ):
            totals[(*metric, explainer)] = numerator, denominator, series.n_included
    table = summary.reset_index(drop=True)
    keys = zip(*(table[name] for name in _KEYS), strict=True)
    sums = [totals.get(key, (np.nan, np.nan, 0)) for key in keys]
    for i, (name, kind) in enumerate((("numerator", float), ("denominator", float), ("n", int))):
        table[name] = np.array([row[i] for row in sums], dtype=kind)
    has_value = (table["n"] > 0) & (table["denominator"] != 0)
    table["value"] = (table["numerator"] / table["denominator"]).where(has_value)
    return table


def _split_batches(sizes: Sequence[int], max_scores: int) -> Iterator[slice]:
    """Split series into batches of a bounded number of scores, at least one series each."""
    start, n_scores = 0, 0
    for end, size in enumerate(sizes):
        if n_scores and n_scores + size > max_scores:
            yield slice(start, end)
            start, n_scores = end, 0
        n_scores += size
    yield slice(start, len(sizes))


def _add_up(batch: Sequence[ScoreSeries]) -> tuple[list[float], list[float]]:
    """Return the sums of numerators and of denominators of each series."""
    if not batch:
        return [], []
    series_arrays = [series.select_included() for series in batch]
    group = np.repeat(np.arange(len(batch)), [len(arrays[0]) for arrays in series_arrays])
    columns = {i: np.concatenate([arrays[i] for arrays in series_arrays]) for i in range(2)}
    sums = pd.DataFrame(columns).groupby(group).sum()  # compensated: pandas carries along what a sum of floats loses
    return sums[0].tolist(), sums[1].tolist()
