"""Where a run's figures come from, and what a reader should know before believing them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.report.instance_counts import support_notes
from cfeval_cli.report.notes import HALF, absent_notes, group_by_reason
from cfeval_cli.report.titles import select_quantity
from cfeval_cli.results.read import Results
from cfeval_cli.results.record import RunRecord

_NAMED = 20  # explainers that are named one by one


def list_warnings(results: Results) -> list[str]:
    """Partial data, low coverage, searches and explainers that failed, what is not there."""
    record, metrics = results.record, results.findings.metrics
    settings, data = record.settings, record.data
    told = [f"{doubt[:1].upper()}{doubt[1:]}" for doubt in record.doubts]
    if not data.complete:
        told.append(f"Partial data: {data.rows_read:,} of {data.rows_whole:,} rows of {data.file}.")
    shares = select_quantity(metrics, Quantity.COMPLETE, record)
    coverage = shares[shares["value"] < 1]
    if len(coverage):
        low = (coverage["value"] < HALF).any()
        told.append(
            f"Not every instance has k = {settings.k} named features (incomplete: {settings.incomplete}). "
            f"Coverage: {_shares(coverage, record)}." + _OF_INCOMPLETE[settings.incomplete] * bool(low)
        )
    told += support_notes(metrics, record)
    rested = select_quantity(metrics, Quantity.CONVERGED, record)
    rested = rested[rested["value"] < 1]
    if len(rested):
        told.append(f"Not all searches converged. Converged: {_shares(rested, record)}.")
    faults = {name: entry.faults for name, entry in record.explained.items() if entry.faults}
    if faults:
        many = ", ".join(f"{record.explainers.get(name, name)} {number:,}" for name, number in faults.items())
        told.append(f"Instances that were not explained: {many}.")
    flipped = select_quantity(metrics, Quantity.FLIPPED, record)
    best = flipped.groupby("variant", sort=False)["value"].max()
    told += [f"No counterfactual flips a prediction ({level} access)." for level in best.index[best == 0]]
    if record.resampled == 0:
        told.append("No intervals, and no differences between metrics: resamples=0.")
    elif metrics["value_low"].isna().all():
        told.append(f"No intervals: {record.instances:,} instances are no sample to draw from again.")
    if record.metrics_absent:
        told.append(f"Not computed: {group_by_reason(record.metrics_absent)}.")
    told += absent_notes(record)
    if (record.git_commit or "").endswith("-dirty"):
        told.append("The source tree had changes that are in no commit.")
    return told


_OF_INCOMPLETE = {
    "skip": " Under one half the scores are those of a selection of instances.",
    "random": " The rest is filled up with random features: under one half the scores are mostly those of chance.",
    "keep": " The rest is scored with the features that there are.",
}


def _shares(lines: pd.DataFrame, record: RunRecord) -> str:
    pairs = list(zip(lines["explainer"], lines["value"], strict=True))
    shares = ", ".join(f"{record.explainers[name]} {value:.1%}" for name, value in pairs[:_NAMED])
    return shares + (f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else "")


def list_provenance(record: RunRecord) -> list[tuple[str, str]]:
    """Data, settings, versions and time, as pairs of name and text."""
    data, settings = record.data, record.settings.model_dump(exclude_unset=True)
    rows = f"{data.rows_used:,} used, of {data.rows_read:,} read"
    rows += "" if data.complete else f", of {data.rows_whole:,} that a complete copy has"
    theirs = record.reference.test_accuracy
    accuracies = ", ".join(f"{name} {value:.2%}" for name, value in record.accuracy.items())
    explainers = [f"{title} ({name})" for name, title in record.explainers.items()]
    packages = [f"{name} {number}" for name, number in record.packages.items()]
    versions = [f"cfeval {record.cfeval}", f"Python {record.python}", *packages]
    told = [("Data", f"{data.name}: {data.file}, from: {data.source}"), ("Rows", rows)]
    told.append(("SHA-256", data.sha256))
    if data.embedding:
        words = f"{data.embedding.words:,} of {data.vocabulary:,} words"
        told.append(("Embedding", f"{data.embedding.name}: {words}"))
    return [
        *told,
        ("Split", ", ".join(f"{name} {size:,}" for name, size in record.splits.items())),
        ("Accuracy", accuracies + (f"; the paper's: {theirs:.2%}" if theirs else "")),
        ("Largest class", ", ".join(f"{name} {value:.2%}" for name, value in record.majority.items())),
        ("AUC", ", ".join(f"{name} {value:.3f}" for name, value in record.auc.items()) or "not known"),
        ("Search", record.setup),
        ("Settings", ", ".join(f"{name}={_value(value)}" for name, value in settings.items())),
        ("Explainers", ", ".join(explainers[:_NAMED]) + " …" * (len(explainers) > _NAMED)),
        ("Started", record.started),
        ("Took", _describe_seconds(record)),
        ("Versions", ", ".join(versions)),
        ("Commit", record.git_commit or "an installed copy"),
        ("Inputs", record.inputs or "not known"),
    ]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value)


def _describe_seconds(record: RunRecord) -> str:
    slowest = sorted(record.stages, key=lambda entry: (entry.seconds, entry.title), reverse=True)[:4]
    parts = ", ".join(f"{entry.title} {entry.seconds:.1f} s" for entry in slowest)
    return f"{record.seconds:.1f} s" + (f"; longest: {parts}" if parts else "")
