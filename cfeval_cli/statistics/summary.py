"""From scores per instance to one value for each explainer, with its rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from cfeval_cli.statistics.ranking import ranks
from cfeval_cli.statistics.scores import Part, Scores
from cfeval_cli.statistics.support import NOWHERE

_KEYS = ["metric", "variant", "explainer"]
_TOGETHER = 1 << 20  # scores that are added up at once: 16 MB


def summarise(scores: Scores, order: pd.DataFrame, own: Scores | None = None) -> pd.DataFrame:
    """One row for each metric, variant and explainer.

    `order` has the rows that there should be, in their order, with what the metric says of itself and, as a note,
    why a row can have no value. `own` has the scores on all instances that each explainer covers, if `scores` are
    those on the common ones only.
    """
    table = _values(scores, order)
    everywhere = table if own is None else _values(own, order)
    table["own_value"], table["own_n"] = everywhere["value"], everywhere["n"]
    some = table["n"] > 0
    coverage = table[table["metric"] == "coverage"].set_index("explainer")["value"]
    table["coverage"] = table["explainer"].map(coverage)
    table["rank"] = np.nan
    # the ladder's rungs are ranked among themselves
    ranked = table[table["better"] != "none"]
    for _, rows in ranked.groupby(["metric", "variant", ranked["rung"].isna()], sort=False):
        table.loc[rows.index, "rank"] = ranks(rows["value"].to_numpy(float), rows["better"].iloc[0])
    nothing = some & (table["denominator"] == 0)
    table.loc[nothing, "note"] = table.loc[nothing, "empty"]
    table.loc[~some & (table["note"] == "") & (table["own_n"] > 0), "note"] = NOWHERE
    table.loc[~some & (table["note"] == ""), "note"] = "no usable explanation"
    columns = [*_KEYS, "rung", "control", "value", "rank", "n", "own_value", "own_n", "coverage"]
    columns += ["better", "role", "access", "low", "high", "circular", "note", "remark"]
    return table[columns].reset_index(drop=True)


def _values(scores: Scores, order: pd.DataFrame) -> pd.DataFrame:
    """The rows of `order` with both sums, how many instances they are over, and their ratio."""
    kept = [(key, part) for key, part in scores.parts.items() if part.many]
    told = []
    for some in _batches([part.many for _, part in kept]):
        numerators, denominators = _added([part for _, part in kept[some]])
        scores.scratch.release()
        for ((row, name), part), *both in zip(kept[some], numerators, denominators, strict=True):
            told.append((*row, name, *both, part.many))
    sums = pd.DataFrame(told, columns=[*_KEYS, "numerator", "denominator", "n"])
    sums = sums.astype({"numerator": float, "denominator": float})
    table = order.merge(sums, how="left", on=_KEYS)
    table["n"] = table["n"].fillna(0).astype(int)
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


def _added(parts: Sequence[Part]) -> tuple[list[float], list[float]]:
    """The sums of what counts of each, by pandas, which carries along what a sum of floats loses."""
    if not parts:
        return [], []
    counted = [part.counted() for part in parts]
    of = np.repeat(np.arange(len(parts)), [len(one[0]) for one in counted])
    both = {place: np.concatenate([one[place] for one in counted]) for place in range(2)}
    sums = pd.DataFrame(both).groupby(of).sum()
    return sums[0].tolist(), sums[1].tolist()
