"""The provenance of a run, and warnings about what limits its results."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.report.instance_counts import write_support_notes
from cfeval_cli.report.notes import HALF_COVERAGE, group_by_reason, write_absent_notes
from cfeval_cli.report.titles import select_quantity
from cfeval_cli.results.read import StoredRun
from cfeval_cli.results.record import RunRecord

_MAX_NAMED_EXPLAINERS = 20
_INCOMPLETE_NOTES = {
    "skip": " Below 50 % the scores describe a selection of the instances.",
    "random": " Missing features are replaced by random ones: below 50 % the scores are mostly chance.",
    "keep": " Incomplete explanations are scored with the features that they have.",
}


def list_warnings(results: StoredRun) -> list[str]:
    """Return what limits the results: partial data, low coverage, failures, and values that were not computed."""
    record, metrics = results.record, results.statistics.metrics
    settings, data = record.settings, record.data
    warnings = [f"{warning[:1].upper()}{warning[1:]}" for warning in record.warnings]
    if not data.complete:
        warnings.append(f"Partial data: {data.rows_read:,} of {data.rows_whole:,} rows of {data.file}.")
    shares = select_quantity(metrics, Quantity.COMPLETE, record)
    coverage = shares[shares["value"] < 1]
    if len(coverage):
        is_low = (coverage["value"] < HALF_COVERAGE).any()
        warnings.append(
            f"Not every explanation has k = {settings.k} features (incomplete={settings.incomplete}). Coverage: "
            f"{_format_shares(coverage, record)}." + _INCOMPLETE_NOTES[settings.incomplete] * bool(is_low)
        )
    warnings += write_support_notes(metrics, record)
    converged = select_quantity(metrics, Quantity.CONVERGED, record)
    converged = converged[converged["value"] < 1]
    if len(converged):
        warnings.append(f"Not all searches converged. Converged: {_format_shares(converged, record)}.")
    faults = {name: entry.faults for name, entry in record.explained.items() if entry.faults}
    if faults:
        counts = ", ".join(f"{record.explainers.get(name, name)} {count:,}" for name, count in faults.items())
        warnings.append(f"Instances without explanation: {counts}.")
    flipped = select_quantity(metrics, Quantity.FLIPPED, record)
    highest = flipped.groupby("variant", sort=False)["value"].max()
    warnings += [f"No counterfactual flips a prediction ({level} access)." for level in highest.index[highest == 0]]
    if record.resampled == 0:
        warnings.append("No intervals, and no tests of differences between metrics: resamples=0.")
    elif metrics["value_low"].isna().all():
        warnings.append(f"No intervals: {record.instances:,} instances are too few to resample.")
    if record.metrics_absent:
        warnings.append(f"Not computed: {group_by_reason(record.metrics_absent)}.")
    warnings += write_absent_notes(record)
    if (record.git_commit or "").endswith("-dirty"):
        warnings.append("The source tree had uncommitted changes.")
    return warnings


def _format_shares(lines: pd.DataFrame, record: RunRecord) -> str:
    pairs = list(zip(lines["explainer"], lines["value"], strict=True))
    n_more = len(pairs) - _MAX_NAMED_EXPLAINERS
    shares = ", ".join(f"{record.explainers[name]} {value:.1%}" for name, value in pairs[:_MAX_NAMED_EXPLAINERS])
    return shares + (f" and {n_more} more" if n_more > 0 else "")


def list_provenance(record: RunRecord) -> list[tuple[str, str]]:
    """Return data, settings, versions and time as pairs of name and text."""
    data, settings = record.data, record.settings.model_dump(exclude_unset=True)
    rows = f"{data.rows_used:,} used, of {data.rows_read:,} read"
    rows += "" if data.complete else f", of {data.rows_whole:,} in a complete copy"
    paper_accuracy = record.reference.test_accuracy
    accuracies = ", ".join(f"{name} {value:.2%}" for name, value in record.accuracy.items())
    explainers = [f"{title} ({name})" for name, title in record.explainers.items()]
    packages = [f"{name} {version}" for name, version in record.packages.items()]
    versions = [f"cfeval {record.cfeval}", f"Python {record.python}", *packages]
    entries = [
        ("Data", f"{data.name}: {data.file}, from: {data.source}"), ("Rows", rows), ("SHA-256", ", ".join(data.sha256)),
    ]  # fmt: skip
    if data.embedding:
        words = f"{data.embedding.words:,} of {data.vocabulary:,} words"
        entries.append(("Embedding", f"{data.embedding.name}: {words}"))
    explainer_names = ", ".join(explainers[:_MAX_NAMED_EXPLAINERS]) + " …" * (len(explainers) > _MAX_NAMED_EXPLAINERS)
    return [
        *entries,
        ("Split", ", ".join(f"{name} {size:,}" for name, size in record.splits.items())),
        ("Accuracy", accuracies + (f"; paper: {paper_accuracy:.2%}" if paper_accuracy else "")),
        ("Largest class", ", ".join(f"{name} {value:.2%}" for name, value in record.majority.items())),
        ("AUC", ", ".join(f"{name} {value:.3f}" for name, value in record.auc.items()) or "not computed"),
        ("Search", record.setup),
        ("Settings", ", ".join(f"{name}={_format_value(value)}" for name, value in settings.items())),
        ("Explainers", explainer_names),
        ("Started", record.started),
        ("Duration", f"{record.seconds:.1f} s"),
        ("Versions", ", ".join(versions)),
        ("Commit", record.git_commit or "an installed copy"),
        ("Inputs", record.inputs or "not determined"),
    ]


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value)
