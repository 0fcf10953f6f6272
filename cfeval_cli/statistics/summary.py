"""From scores per instance to one value for each explainer, its rank, and each metric's agreement with the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.statistics.permutation import p_values
from cfeval_cli.statistics.ranking import kendall, ranks, settled, spearman

TRUTHS = ("recall", "hit")  # the metrics that are themselves the truth

_KEYS = ["metric", "variant", "explainer"]

_Columns = tuple[dict[str, float], set[str]]  # values by explainer, and why there are none


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
    truth_rows = {key: _columns(group) for key, group in truths.groupby(["metric", "variant"], sort=False)}
    rows = []
    for (metric, variant), group in judged.groupby(["metric", "variant"], sort=False):
        better, columns = group["better"].iloc[0], _columns(group)
        for (agreement, gold), truth in truth_rows.items():
            told = {"metric": metric, "variant": variant, "better": better, "gold": gold, "agreement": agreement}
            rows.append(told | _agreement(columns, truth, better))
    names = ["metric", "variant", "better", "gold", "agreement", "explainers", "tau", "rho", "p_tau", "p_rho", "note"]
    return pd.DataFrame(rows, columns=names)


def _columns(group: pd.DataFrame) -> _Columns:
    return dict(zip(group["explainer"], group["value"].astype(float), strict=True)), {*group["note"]} - {""}


def _agreement(metric: _Columns, truth: _Columns, better: str) -> dict[str, Any]:
    """τ and ρ over the explainers that have both values."""
    (ours, why), (theirs, why_truth) = metric, truth
    both = [name for name in ours if name in theirs and not np.isnan(ours[name]) and not np.isnan(theirs[name])]
    left_out = sorted(set(ours) - set(both))
    notes = [f"without {', '.join(left_out)}"] if left_out else []
    if len(both) < 2:
        notes = sorted(why | why_truth) or ["a ranking needs two explainers"]
        return {"explainers": len(both), "note": "; ".join(notes)}
    sign = 1.0 if better == "higher" else -1.0
    u = sign * settled(np.array([ours[name] for name in both]))
    v = settled(np.array([theirs[name] for name in both]))
    rho = spearman(u, v)
    if np.isnan(rho):
        notes.append("all tied, ρ undefined")
    p_tau, p_rho = p_values(u, v)
    told = {"tau": kendall(u, v), "rho": rho, "p_tau": p_tau, "p_rho": p_rho}
    return {"explainers": len(both), **told, "note": "; ".join(notes)}
