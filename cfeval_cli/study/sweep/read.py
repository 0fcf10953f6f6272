"""Read the run folders of a sweep: the record, the metrics, the correlations and the resamples of τ.

No component is instantiated from what a folder contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord
from cfeval_cli.results.schema import get_table_file
from cfeval_cli.statistics.correlation import TAU_RESAMPLES_COLUMNS
from cfeval_cli.study.run_folders import read_columns, read_scores, report_damage
from cfeval_cli.study.sweep.runs import SweepRun

_RECORD = (
    "status", "settings", "explainers", "metrics", "removals", "search", "setup", "data", "accuracy", "instances",
)  # fmt: skip
_SETTINGS = ("seed", "k", "truth", "agreement", "incomplete")
_METRICS = [
    "metric",
    "variant",
    "explainer",
    "quality_level",
    "control",
    "value",
    "value_se",
    "n",
    "better",
    "not_identifiable",
]
_CORRELATIONS = [
    "metric", "variant", "family", "truth", "agreement", "subset", "explainers", "tau", "tau_se", "rho", "rho_se",
    "not_identifiable",
]  # fmt: skip


def read_run(path: Path, name: str) -> SweepRun:
    """Read a run folder under the name that the sweep shows."""
    record = checked.read_verified_record(path)
    with report_damage(f"{path} cannot be gathered"):
        if record.overrides is None:
            raise ValueError("run.json has no overrides")
        overrides = parse_overrides(record.overrides)
        if record.status != "complete":
            return SweepRun(name, record, overrides)
        checked.check_entries(record, (*_RECORD, *(f"settings.{key}" for key in _SETTINGS)))
        metrics, correlations = map(_convert_types, read_scores(path, record, _METRICS, _CORRELATIONS))
        return SweepRun(name, record, overrides, metrics, correlations, _read_resamples(path, record))


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Return the value by key of key=value, +key=value and ++key=value; `removed` for ~key."""
    parts = (override.partition("=") for override in overrides)
    return {key.lstrip("+~"): "removed" if key.startswith("~") else value for key, _, value in parts}


def _convert_types(table: pd.DataFrame) -> pd.DataFrame:
    # pandas groups Python strings in half the time, among so few rows
    return table.astype({column: object if column in checked.TEXT_COLUMNS else float for column in table})


def _read_resamples(path: Path, record: RunRecord) -> pd.DataFrame:
    """Read τ in resamples of the run's instances; empty if the run has none."""
    file = get_table_file("tau_resamples")
    if file not in record.files:
        return pd.DataFrame(columns=TAU_RESAMPLES_COLUMNS)
    table = read_columns(path, record, "tau_resamples", TAU_RESAMPLES_COLUMNS)
    table = table.astype({**dict.fromkeys(TAU_RESAMPLES_COLUMNS, "str"), "draw": "int64", "tau": "float64"})
    keys = [name for name in TAU_RESAMPLES_COLUMNS if name != "tau"]
    if table.duplicated(keys).any() or (table["draw"] < 0).any():
        raise ValueError(f"{file} has two rows of the same draw, or a negative draw")
    return table
