"""Read the run folders of a sweep: run.json, metrics.csv, correlations.csv and the resamples of τ, and nothing else.

No component is instantiated from what a folder contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.correlation import TAU_RESAMPLES_COLUMNS
from cfeval_cli.study.run_folders import read_table, report_damage
from cfeval_cli.study.sweep.runs import SweepRun

_RESAMPLES = "tau_resamples.parquet"
_RECORD = (
    "status", "settings", "explainers", "metrics", "removals", "search", "setup", "data", "accuracy", "instances",
)  # fmt: skip
_SETTINGS = ("seed", "k", "truth", "agreement", "incomplete")
_METRICS = ["metric", "variant", "explainer", "rung", "control", "value", "value_se", "n", "better", "moves"]
_CORRELATIONS = [
    "metric", "variant", "family", "truth", "agreement", "subset", "explainers", "tau", "tau_se", "rho", "rho_se",
    "moves",
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
        metrics = _read_table(path, record, "metrics.csv", _METRICS)
        correlations = _read_table(path, record, "correlations.csv", _CORRELATIONS)
        checked.check_tables(record, metrics, correlations)
        return SweepRun(name, record, overrides, metrics, correlations, _read_resamples(path, record))


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Return the value by key of key=value, +key=value and ++key=value; `removed` for ~key."""
    parts = (override.partition("=") for override in overrides)
    return {key.lstrip("+~"): "removed" if key.startswith("~") else value for key, _, value in parts}


def _read_table(path: Path, record: RunRecord, name: str, columns: list[str]) -> pd.DataFrame:
    table = read_table(path, record, name, columns)
    # pandas groups Python strings in half the time, among so few rows
    types = {column: object if column in checked.TEXT_COLUMNS else float for column in columns}
    return pd.DataFrame(table[columns]).astype(types)


def _read_resamples(path: Path, record: RunRecord) -> pd.DataFrame:
    """Read τ in resamples of the run's instances; empty if the run has none."""
    if _RESAMPLES not in record.files:
        return pd.DataFrame(columns=TAU_RESAMPLES_COLUMNS)
    table = pd.read_parquet(path / _RESAMPLES, columns=TAU_RESAMPLES_COLUMNS)
    table = table.astype({**dict.fromkeys(TAU_RESAMPLES_COLUMNS, "str"), "draw": "int64", "tau": "float64"})
    keys = [name for name in TAU_RESAMPLES_COLUMNS if name != "tau"]
    if table.duplicated(keys).any() or (table["draw"] < 0).any():
        raise ValueError(f"{_RESAMPLES} has two rows of the same draw, or a negative draw")
    return table
