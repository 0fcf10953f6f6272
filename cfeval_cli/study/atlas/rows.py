"""The rows that one run of a judge adds to the atlas: one for each truth and metric, from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.run_folders import read_columns, read_scores, report_damage

KEY = ["data", "judge", "truth", "seed", "k", "metric", "variant"]
TAUS = ["tau", "tau_without_controls", "tau_without_circular", "tau_without_weak"]
_WORDS = ["question", "block", "title", "ranked", "run", "cfeval"]
_COUNTS = ["instances", *(name.replace("tau", "explainers") for name in TAUS)]
_SHARES = ["diagnosticity", "agreement", "model_rows"]
_FLAGS = ["circular", "arbitrary", "exact"]
TYPES: dict[str, str] = {
    **dict.fromkeys(KEY, "str"), "seed": "int64", "k": "int64", **dict.fromkeys(_WORDS, "str"),
    **dict.fromkeys(_COUNTS, "int64"), **dict.fromkeys(TAUS, "float64"), **dict.fromkeys(_SHARES, "float64"),
    **dict.fromkeys(_FLAGS, "bool"),
}  # fmt: skip
COLUMNS = list(TYPES)

_MAX_TAU_ERROR = 1e-9
_RECORD = ("settings", "data", "model", "metrics", "truths", "removals", "search", "instances", "levels", "files")
_METRICS = ("metric", "variant", "explainer", "quality_level", "control", "value", "better", "role", "circular")
_SUBSETS = {"tau": ALL_EXPLAINERS, "tau_without_controls": WITHOUT_CONTROLS}  # of run folders
_CORRELATIONS = ("metric", "variant", "family", "truth", "agreement", "subset", "tau", "circular")
_COSTS = ("part", "name", "access", "model_rows")
_INSTANCES = ("metric", "variant", "truth", "agreement", "subset", "tau", "d")


def read_rows(folder: Path) -> pd.DataFrame:
    """Return the rows of a run folder; UserError if it has none."""
    record = checked.read_verified_record(folder)
    with report_damage(f"{folder} cannot be added to the atlas"):
        checked.check_complete(record, _RECORD)
        if not record.truths:
            raise ValueError("its model has no ground truth")
        metrics, correlations = read_scores(folder, record, _METRICS, _CORRELATIONS)
        instance_agreement = read_columns(folder, record, "instance_agreement", _INSTANCES)
        costs = read_columns(folder, record, "costs", _COSTS)
        rows = _compute_rows(record, metrics, correlations, instance_agreement, costs)
        if rows.empty:
            raise ValueError("none of its metrics ranks two explainers that the ground truth ranks")
        return rows.astype(TYPES)[COLUMNS]


def _compute_rows(
    record: RunRecord,
    metrics: pd.DataFrame,
    correlations: pd.DataFrame,
    instance_agreement: pd.DataFrame,
    costs: pd.DataFrame,
) -> pd.DataFrame:
    settings, lines = record.settings, []
    metrics = metrics[metrics["quality_level"].isna()]
    correlations = correlations[correlations["family"] == "explainers"]
    stored = {
        name: _index_lines(select_subset(correlations, subset), settings.agreement)
        for name, subset in _SUBSETS.items()
    }  # fmt: skip
    by_instance = _index_lines(select_subset(instance_agreement, WITHOUT_CONTROLS), settings.agreement)
    wide = metrics.pivot(index=["metric", "variant"], columns="explainer", values=["value", "circular"])
    names = list(wide["value"].columns)
    places = {pair: place for place, pair in enumerate(wide.index)}
    values, is_circular = wide["value"].to_numpy(float), wide["circular"].eq(True).to_numpy(bool)
    order = compute_pair_signs(values)
    is_control = metrics.drop_duplicates("explainer").set_index("explainer")["control"].reindex(names).to_numpy(bool)
    judged = metrics[metrics["role"] == "judged"].drop_duplicates(["metric", "variant"])
    pairs = list(judged[["metric", "variant", "better"]].itertuples(index=False, name=None))
    for truth, entry in record.truths.items():
        true = places.get((settings.agreement, truth))
        if true is None:
            continue
        for metric, variant, better in pairs:
            key, place = (metric, variant, truth), places[metric, variant]
            has_values = np.asarray(~np.isnan(values[place]) & ~np.isnan(values[true]))
            concordance = order[place] * order[true] * (1.0 if better == "higher" else -1.0)
            taus = _compute_taus(
                concordance, values[true], has_values, is_control, is_circular[place] | is_circular[true]
            )
            if np.isnan(taus["tau_without_controls"]):
                continue
            _check_taus(taus, {name: float(index[key]["tau"]) for name, index in stored.items()}, key)
            lines.append({
                "data": record.data.name, "judge": record.model.name, "truth": truth,
                "question": entry.question, "seed": settings.seed, "k": settings.k,
                "metric": metric, "variant": variant, "block": record.metrics[metric].block,
                "title": make_metric_title(metric, variant, record).plain,
                "ranked": " ".join(np.array(names)[has_values & ~is_control].tolist()),
                "instances": record.instances, **taus,
                # among pairs that the truth orders, the share that the metric orders alike; ties count half
                "diagnosticity": (1 + by_instance.get(key, {}).get("d", np.nan)) / 2,
                "agreement": by_instance.get(key, {}).get("tau", np.nan),
                "model_rows": _count_model_evaluations(costs, metric, variant) / max(
                    1, record.instances * int(has_values.sum())
                ),
                "circular": bool(stored["tau"][key]["circular"]),
                "arbitrary": variant in record.arbitrary_removals,
                "exact": entry.exact,
                "run": (record.inputs or "")[:16], "cfeval": record.cfeval,
            })  # fmt: skip
    return pd.DataFrame(lines, columns=COLUMNS)


def _index_lines(table: pd.DataFrame, agreement: str) -> dict[tuple[Any, ...], dict[Any, Any]]:
    """Return the rows with one agreement by metric, variant and truth."""
    lines = table[table["agreement"] == agreement].to_dict("records")
    return {(line["metric"], line["variant"], line["truth"]): line for line in lines}


def compute_pair_signs(values: Floats) -> Floats:
    """Return 1, -1 or 0 (R, P) if the first, the second or neither explainer of a pair has the larger value.

    NaN if one of them has no value.
    """
    first, second = np.triu_indices(values.shape[1], 1)
    ranks = compute_ranks(values, "lower")
    return np.asarray(np.sign(ranks[:, first] - ranks[:, second]))


def _compute_taus(
    concordance: Floats, true: Floats, has_values: Bools, is_control: Bools, is_circular: Bools
) -> dict[str, float | int]:
    """Return τ and the number of explainers: all, without controls, without circular ones, and the better half."""
    contenders = has_values & ~is_control
    strong = contenders & (true >= np.median(true[contenders])) if contenders.any() else contenders
    first, second = np.triu_indices(len(has_values), 1)
    taus: dict[str, float | int] = {}
    for name, subset in zip(TAUS, (has_values, contenders, contenders & ~is_circular, strong), strict=True):
        size = int(subset.sum())
        pairs = concordance[subset[first] & subset[second]]
        taus |= {name: float(pairs.mean()) if size > 1 else float("nan"), name.replace("tau", "explainers"): size}
    return taus


def _check_taus(computed: Mapping[str, float | int], stored: Mapping[str, float], key: tuple[Any, ...]) -> None:
    """Raise ValueError if the correlations of a folder do not follow from its values."""
    for name, tau in stored.items():
        if not abs(tau - computed[name]) <= _MAX_TAU_ERROR:
            raise ValueError(f"{name} of {', '.join(key)} in correlations.csv does not follow from metrics.csv")


def _count_model_evaluations(costs: pd.DataFrame, metric: str, variant: str) -> float:
    """Return the model evaluations of a metric and of the search that its variant needs."""
    is_metric = (costs["part"] == "metric") & (costs["name"] == metric)
    is_search = (costs["part"] == "search") & (costs["access"] == variant)
    return float(costs.loc[is_metric | is_search, "model_rows"].sum())
