"""What README shows of two runs: the part of their folders that its words and its picture are made from.

`python -m tests.end_to_end.shown PIMA ADULTS` writes docs/readme from the folders of the two runs that README names.
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


def pima(folder: Path) -> dict[str, str]:
    """The recommendation, and what its words need of the record."""
    record = json.loads((folder / "run.json").read_text())
    told = json.loads((folder / "recommendation.json").read_text())
    features = [one["name"] for one in json.loads((folder / "dataset.json").read_text())["features"]]
    return {"pima.json": text({"record": some(record), "features": features, "recommendation": told})}


def adults(folder: Path) -> dict[str, str]:
    """The τ with the truths that lead, which metrics are the same, who was ranked, and some of the record."""
    record = json.loads((folder / "run.json").read_text())
    settings = record["settings"]

    def leading(name: str) -> pd.DataFrame:
        lines = pd.read_csv(folder / name)
        return lines[lines["truth"].isin(settings["truth"]) & (lines["agreement"] == settings["agreement"])]

    differences = leading("differences.csv")
    rest = differences["subset"] == "without_controls"
    metrics = pd.read_csv(folder / "metrics.csv")[METRICS]
    return {
        "adults.json": text({"record": some(record)}),
        "adults_correlations.csv": leading("correlations.csv").to_csv(index=False),
        "adults_differences.csv": differences[differences["same"] & rest].to_csv(index=False),
        "adults_metrics.csv": metrics.to_csv(index=False),
    }


def some(record: dict[str, Any]) -> dict[str, Any]:
    """Without what decides only which files there are, and where the data came from."""
    settings = {key: value for key, value in record["settings"].items() if key not in FILES}
    return {**{name: record[name] for name in RECORD}, "settings": settings, "data": {"name": record["data"]["name"]}}


def text(what: object) -> str:
    return json.dumps(what, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, body in {**pima(Path(sys.argv[1])), **adults(Path(sys.argv[2]))}.items():
        (PLACE / name).write_text(body)
