"""Write the parts of two run folders that the README shows.

`python -m tests.end_to_end.readme_excerpts PIMA ADULTS` writes docs/readme from the run folders of these data sets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

PLACE = Path(__file__).parents[2] / "docs" / "readme"
# of run.json
RECORD = ("explainers", "metrics", "truths", "removals", "instances", "search", "resampled")
FILES = ("figures", "report")
METRICS = ["metric", "variant", "explainer", "quality_level", "control", "value", "n", "role", "circular"]


def extract_pima(folder: Path) -> dict[str, str]:
    """Return the recommendation, and the entries of the record that its text needs."""
    record = json.loads((folder / "run.json").read_text())
    recommendation = json.loads((folder / "recommendation.json").read_text())
    features = [feature["name"] for feature in json.loads((folder / "dataset.json").read_text())["features"]]
    return {
        "pima.json": to_json({"record": select_entries(record), "features": features, "recommendation": recommendation})
    }


def extract_adults(folder: Path) -> dict[str, str]:
    """Return the τ with the leading truths, equal metrics, ranked explainers and entries of the record."""
    record = json.loads((folder / "run.json").read_text())
    settings = record["settings"]

    def leading(name: str) -> pd.DataFrame:
        lines = pd.read_csv(folder / name)
        return lines[lines["truth"].isin(settings["truth"]) & (lines["agreement"] == settings["agreement"])]

    differences = leading("differences.csv")
    is_without_controls = differences["subset"] == "without_controls"
    metrics = pd.read_csv(folder / "metrics.csv")[METRICS]
    return {
        "adults.json": to_json({"record": select_entries(record)}),
        "adults_correlations.csv": leading("correlations.csv").to_csv(index=False),
        "adults_differences.csv": differences[differences["same"] & is_without_controls].to_csv(index=False),
        "adults_instance_agreement.csv": leading("instance_agreement.csv").to_csv(index=False),
        "adults_metrics.csv": metrics.to_csv(index=False),
    }


def select_entries(record: dict[str, Any]) -> dict[str, Any]:
    """Return entries of the record, without the settings of output files and the origin of the data."""
    settings = {key: value for key, value in record["settings"].items() if key not in FILES}
    return {**{name: record[name] for name in RECORD}, "settings": settings, "data": {"name": record["data"]["name"]}}


def to_json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, body in {**extract_pima(Path(sys.argv[1])), **extract_adults(Path(sys.argv[2]))}.items():
        (PLACE / name).write_text(body)
