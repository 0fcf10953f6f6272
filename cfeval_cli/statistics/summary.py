"""From scores per instance to one value for each explainer, its rank, and each metric's agreement with the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.statistics.ranking import kendall, ranks, settled, spearman

TRUTHS = ("recall", "hit")  # the metrics that are themselves the truth

_KEYS = ["metric", "variant", "explainer"]


def summarise(scores: pd.DataFrame, order: pd.DataFrame) -> pd.DataFrame:
    """One row for each metric, variant and explainer.

    `order` has the rows that there should be, in their order, with what the metric says of itself and, as a note,
    why a row can have no value.
    """
    sums = scores.groupby(_KEYS, observed=True, sort=False).agg(
        numerator=("numerator", "sum"), denominator=("denominator", "sum"), n=("numerator", "size")
    )
    table = order.merge(sums, how="left", left_on=_KEYS, right_index=True)
    table["n"] = table["n"].fillna(0).astype(int)
    some = table["n"] > 0
    table["value"] = (table["numerator"] / table["denominator"]).where(some & (table["denominator"] != 0))
    coverage = table[table["metric"] == "coverage"].set_index("explainer")["value"]
    table["coverage"] = table["explainer"].map(coverage)
    table["rank"] = np.nan
    for _, rows in table[table["better"] != "none"].groupby(["metric", "variant"], sort=False):
        table.loc[rows.index, "rank"] = ranks(rows["value"].to_numpy(float), rows["better"].iloc[0])
    table.loc[some & (table["denominator"] == 0), "note"] = "every distance is zero"
    table.loc[~some & (table["note"] == ""), "note"] = "no usable explanation"
    columns = [*_KEYS, "value", "rank", "n", "coverage", "better", "access", "low", "high", "note"]
    return table[columns].reset_index(drop=True)


def correlate(metrics: pd.DataFrame) -> pd.DataFrame:
    """τ and ρ of every metric against the ground truth under every definition of gold."""
    ranked = metrics[metrics["better"] != "none"]
    truths = ranked[ranked["metric"].isin(TRUTHS)]
    judged = ranked[~ranked["metric"].isin(TRUTHS)]
    rows = [
        {"metric": metric, "variant": variant, "better": group["better"].iloc[0], "gold": gold, "agreement": agreement}
        | _agreement(group, truth)
        for (metric, variant), group in judged.groupby(["metric", "variant"], sort=False)
        for (agreement, gold), truth in truths.groupby(["metric", "variant"], sort=False)
    ]
    columns = ["metric", "variant", "better", "gold", "agreement", "explainers", "tau", "rho", "note"]
    return pd.DataFrame(rows, columns=columns)


def _agreement(metric: pd.DataFrame, truth: pd.DataFrame) -> dict[str, Any]:
    """τ and ρ over the explainers that have both values."""
    both = metric.merge(truth, on="explainer", suffixes=("", "_true"))
    both = both[both["value"].notna() & both["value_true"].notna()]
    left_out = sorted(set(metric["explainer"]) - set(both["explainer"]))
    notes = [f"without {', '.join(left_out)}"] if left_out else []
    if len(both) < 2:
        notes = sorted({*metric["note"], *truth["note"]} - {""}) or ["a ranking needs two explainers"]
        return {"explainers": len(both), "tau": np.nan, "rho": np.nan, "note": "; ".join(notes)}
    sign = 1.0 if metric["better"].iloc[0] == "higher" else -1.0
    ours, theirs = sign * settled(both["value"].to_numpy(float)), settled(both["value_true"].to_numpy(float))
    rho = spearman(ours, theirs)
    if np.isnan(rho):
        notes.append("all tied, ρ undefined")
    return {"explainers": len(both), "tau": kendall(ours, theirs), "rho": rho, "note": "; ".join(notes)}
