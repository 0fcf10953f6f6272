"""Records of complete runs, as reports read them."""

from typing import Any

from pydantic import BaseModel

from cfeval_cli.results.record import MetricEntry, RunRecord


def make_metric(title: str, **entries: Any) -> MetricEntry:
    """Return the entry of a metric in run.json, by default of a counterfactual metric with higher values better."""
    defaults = {"better": "higher", "role": "judged", "block": "counterfactual", "details": ["{variant}"]}
    return MetricEntry.model_validate({"title": title, **defaults, **entries})


def make_record(**entries: Any) -> RunRecord:
    """Return the record of a complete run; what is not given has its default."""
    return RunRecord.model_validate({"status": "complete", **entries})


def change_record(record: RunRecord, **changes: Any) -> RunRecord:
    """Return a record with other entries; of settings and data only those that are given are replaced."""
    content = record.to_dict()
    for name, value in changes.items():
        is_entry = isinstance(getattr(record, name), BaseModel)
        content[name] = content.get(name, {}) | value if is_entry else value
    return RunRecord.model_validate(content)
