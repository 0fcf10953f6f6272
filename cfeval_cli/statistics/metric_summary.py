"""From scores per instance to one value for each explainer, with its rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.statistics.common_support import NO_COMMON_INSTANCE
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.scores import Scores, ScoreSeries

_KEYS = ["metric", "variant", "explainer"]
_TOGETHER = 1 << 20  # scores that are added up at once: 16 MB


def summarise_scores(scores: Scores, order: pd.DataFrame, own: Scores | None = None) -> pd.DataFrame:
    """One row for each metric, variant and explainer.

    `order` has the rows that there should be, in their order, with what the metric says of itself and, as a note,
    why a row can have no value. `own` has the scores on all instances that each explainer covers, if `scores` are
    those on the common ones only.
    """
    table = _values(scores, order)
    everywhere = table if own is None else _values(own, order)
    table["own_value"], table["own_n"] = everywhere["value"], everywhere["n"]
    names, value = table["explainer"].tolist(), table["value"].to_numpy()
    complete = table[table["quantity"] == Quantity.COMPLETE]
    covered = dict(zip(complete["explainer"], complete["value"], strict=True))
    table["coverage"] = np.array([covered.get(name, np.nan) for name in names], dtype=float)
    # the ladder's rungs are ranked among themselves
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, key in enumerate(zip(table["metric"], table["variant"], table["rung"].isna(), strict=True)):
        groups.setdefault(key, []).append(place)
    better, rank = table["better"].tolist(), np.full(len(table), np.nan)
    for places in groups.values():
        if better[places[0]] != "none":
            rank[places] = compute_ranks(value[places], better[places[0]])
    table["rank"] = rank
    sums = zip(table["note"], table["empty"], table["n"], table["denominator"], table["own_n"], strict=True)
    notes = [_note(*told) for told in sums]
    table["note"] = pd.Series(notes, dtype=table["note"].dtype)
    columns = [*_KEYS, "rung", "control", "value", "rank", "n", "own_value", "own_n", "coverage"]
    columns += ["better", "role", "access", "low", "high", "circular", "note", "method", "remark"]
    return table[columns]


def _note(note: str, empty: str, many: int, denominator: float, own: int) -> str:
    """Why there is no value, if there is none."""
    if many:
        return note if denominator else empty
    return note or (NO_COMMON_INSTANCE if own else "no usable explanation")


def _values(scores: Scores, order: pd.DataFrame) -> pd.DataFrame:
    """The rows of `order` with both sums, how many instances they are over, and their ratio."""
    kept = [(key, part) for key, part in scores.parts.items() if part.many]
    told: dict[tuple[str, ...], tuple[float, float, int]] = {}
    for some in _batches([part.many for _, part in kept]):
        numerators, denominators = _added([part for _, part in kept[some]])
        scores.scratch.release()
        for ((row, name), part), above, below in zip(kept[some], numerators, denominators, strict=True):
            told[(*row, name)] = above, below, part.many
    table = order.reset_index(drop=True)
    keys = zip(*(table[name] for name in _KEYS), strict=True)
    sums = [told.get(key, (np.nan, np.nan, 0)) for key in keys]
    for place, (name, kind) in enumerate((("numerator", float), ("denominator", float), ("n", int))):
        table[name] = np.array([line[place] for line in sums], dtype=kind)
    there = (table["n"] > 0) & (table["denominator"] != 0)
    table["value"] = (table["numerator"] / table["denominator"]).where(there)
    return table


def _batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Parts that are few rows together, one at least."""
    start, rows = 0, 0
    for end, size in enumerate(sizes):
        if rows and rows + size > _TOGETHER:
            yield slice(start, end)
            start, rows = end, 0
        rows += size
    yield slice(start, len(sizes))


def _added(parts: Sequence[ScoreSeries]) -> tuple[list[float], list[float]]:
    """The sums of what counts of each, by pandas, which carries along what a sum of floats loses."""
    if not parts:
        return [], []
    counted = [part.counted() for part in parts]
    of = np.repeat(np.arange(len(parts)), [len(one[0]) for one in counted])
    both = {place: np.concatenate([one[place] for one in counted]) for place in range(2)}
    sums = pd.DataFrame(both).groupby(of).sum()
    return sums[0].tolist(), sums[1].tolist()
