"""What one run of a judge adds to the atlas: a row for each truth and metric, from its checked folder alone."""

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
from cfeval_cli.study.run_folders import read_table, report_damage

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

_NEAR = 1e-9
_RECORD = ("settings", "data", "model", "metrics", "truths", "removals", "search", "instances", "levels", "files")
_METRICS = ("metric", "variant", "explainer", "rung", "control", "value", "better", "role", "circular")
_SUBSETS = {"tau": ALL_EXPLAINERS, "tau_without_controls": WITHOUT_CONTROLS}  # of run folders
_CORRELATIONS = ("metric", "variant", "family", "truth", "agreement", "subset", "tau", "circular")
_INSTANCES = ("metric", "variant", "truth", "agreement", "subset", "tau", "d")


def read_rows(folder: Path) -> pd.DataFrame:
    """Return the rows of a run folder; UserError if it has none."""
    record = checked.read_verified_record(folder)
    with report_damage(f"{folder} is not taken into the atlas"):
        checked.check_complete(record, _RECORD)
        if not record.truths:
            raise ValueError("its model has no ground truth")
        tables = {
            name: read_table(folder, record, f"{name}.csv", columns)
            for name, columns in (
                ("metrics", _METRICS), ("correlations", _CORRELATIONS), ("instance_agreement", _INSTANCES),
            )
        }  # fmt: skip
        checked.check_tables(record, tables["metrics"], tables["correlations"])
        rows = _compute_rows(record, **tables)
        if rows.empty:
            raise ValueError("none of its metrics ranks two explainers that the ground truth ranks")
        return rows.astype(TYPES)[COLUMNS]


def _compute_rows(
    record: RunRecord,
    metrics: pd.DataFrame,
    correlations: pd.DataFrame,
    instance_agreement: pd.DataFrame,
) -> pd.DataFrame:
    settings, lines = record.settings, []
    metrics = metrics[metrics["rung"].isna()]
    correlations = correlations[correlations["family"] == "explainers"]
    stored = {
        name: _by_key(select_subset(correlations, subset), settings.agreement) for name, subset in _SUBSETS.items()
    }
    single = _by_key(select_subset(instance_agreement, WITHOUT_CONTROLS), settings.agreement)
    wide = metrics.pivot(index=["metric", "variant"], columns="explainer", values=["value", "circular"])
    names = list(wide["value"].columns)
    places = {pair: place for place, pair in enumerate(wide.index)}
    values, made = wide["value"].to_numpy(float), wide["circular"].eq(True).to_numpy(bool)
    order = signs(values)
    controls = metrics.drop_duplicates("explainer").set_index("explainer")["control"].reindex(names).to_numpy(bool)
    judged = metrics[metrics["role"] == "judged"].drop_duplicates(["metric", "variant"])
    pairs = list(judged[["metric", "variant", "better"]].itertuples(index=False, name=None))
    for truth, facts in record.truths.items():
        true = places.get((settings.agreement, truth))
        if true is None:
            continue
        for metric, variant, better in pairs:
            key, ours = (metric, variant, truth), places[metric, variant]
            there = np.asarray(~np.isnan(values[ours]) & ~np.isnan(values[true]))
            concordant = order[ours] * order[true] * (1.0 if better == "higher" else -1.0)
            found = _taus(concordant, values[true], there, controls, made[ours] | made[true])
            if np.isnan(found["tau_without_controls"]):
                continue
            _check_taus(found, {name: float(lines_of[key]["tau"]) for name, lines_of in stored.items()}, key)
            lines.append({
                "data": record.data.name, "judge": record.model.name, "truth": truth,
                "question": facts.question, "seed": settings.seed, "k": settings.k,
                "metric": metric, "variant": variant, "block": record.metrics[metric].block,
                "title": make_metric_title(metric, variant, record).plain,
                "ranked": " ".join(np.array(names)[there & ~controls].tolist()),
                "instances": record.instances, **found,
                # of the pairs that the truth tells apart, those that the metric orders as it does, ties by half
                "diagnosticity": (1 + single.get(key, {}).get("d", np.nan)) / 2,
                "agreement": single.get(key, {}).get("tau", np.nan),
                "model_rows": _cost(record, metric, variant, int(there.sum())),
                "circular": bool(stored["tau"][key]["circular"]),
                "arbitrary": variant in record.arbitrary_removals,
                "exact": facts.exact,
                "run": (record.inputs or "")[:16], "cfeval": record.cfeval,
            })  # fmt: skip
    return pd.DataFrame(lines, columns=COLUMNS)


def _by_key(table: pd.DataFrame, agreed: str) -> dict[tuple[Any, ...], dict[Any, Any]]:
    lines = table[table["agreement"] == agreed].to_dict("records")
    return {(line["metric"], line["variant"], line["truth"]): line for line in lines}


def signs(values: Floats) -> Floats:
    """Which explainer of each pair has the larger value (R, P): 1, -1, or 0 for a tie; NaN where one has none."""
    first, second = np.triu_indices(values.shape[1], 1)
    places = compute_ranks(values, "lower")
    return np.asarray(np.sign(places[:, first] - places[:, second]))


def _taus(concordant: Floats, true: Floats, there: Bools, controls: Bools, made: Bools) -> dict[str, float | int]:
    """τ over all explainers, without controls, without those that are made for either side, and of the better half."""
    rest = there & ~controls
    strong = rest & (true >= np.median(true[rest])) if rest.any() else rest
    first, second = np.triu_indices(len(there), 1)
    found: dict[str, float | int] = {}
    for name, some in zip(TAUS, (there, rest, rest & ~made, strong), strict=True):
        size = int(some.sum())
        pairs = concordant[some[first] & some[second]]
        found |= {name: float(pairs.mean()) if size > 1 else float("nan"), name.replace("tau", "explainers"): size}
    return found


def _check_taus(computed: Mapping[str, float | int], stored: Mapping[str, float], key: tuple[Any, ...]) -> None:
    """Refuse a folder whose own figures do not follow from its values."""
    for name, tau in stored.items():
        if not abs(tau - computed[name]) <= _NEAR:
            raise ValueError(f"correlations.csv has another {name} of {', '.join(key)} than metrics.csv gives")


def _cost(record: RunRecord, metric: str, variant: str, explainers: int) -> float:
    """Model rows for one explanation: the metric's own, and those of the search whose counterfactuals it looks at."""
    costs = record.model_rows
    own = float(costs.get(f"metric.{metric}", 0))
    if variant in record.levels:
        own += sum(
            float(many) for name, many in costs.items() if name.startswith("search.") and name.endswith(f".{variant}")
        )
    return own / max(1, record.instances * explainers)
