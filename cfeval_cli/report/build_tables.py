"""All tables of a run, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from cfeval_cli.report.build_bounds import build_bounds
from cfeval_cli.report.build_correlations import build_correlations, build_instance_agreement, build_ranges
from cfeval_cli.report.build_differences import (
    build_differences,
    build_differences_without_controls,
    build_metric_agreement,
)
from cfeval_cli.report.build_scores import build_graded, build_mean_ranks, build_own_scores, build_scores
from cfeval_cli.report.build_stability import build_stability
from cfeval_cli.report.instance_counts import write_support_notes
from cfeval_cli.report.notes import describe_controls, write_coverage_notes
from cfeval_cli.report.table import LOW_COVERAGE_MARK, Table
from cfeval_cli.report.titles import find_low_coverage, list_contenders, list_truth_metrics
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import select_subset


def build_tables(statistics: RunStatistics, record: RunRecord) -> list[Table]:
    """Build scores, correlations, their uncertainty, bounds and stability."""
    metrics = statistics.metrics
    is_graded, low = metrics["quality_level"].notna(), find_low_coverage(metrics, record)
    ungraded = metrics[~is_graded]
    has_scores, has_truths = not is_graded.all(), bool(record.truths)
    tables = [build_scores("Scores and ranks of the explainers", ungraded, record, low)] if has_scores else []
    if is_graded.any():
        tables.append(build_graded(metrics[is_graded], record, low, is_supplementary=has_scores))
    if has_truths:
        correlations = build_correlations(statistics.correlations, record)
        tables.append(
            correlations.add_notes(*_write_control_notes(statistics, record), *write_support_notes(metrics, record))
        )
    elif len(record.explainers) > 1:
        tables.append(build_mean_ranks(metrics, record, low).add_notes(*write_support_notes(metrics, record)))
    if len(statistics.metric_agreement):
        tables.append(build_metric_agreement(statistics.metric_agreement, record, is_supplementary=has_truths))
    tables += build_differences(statistics.differences, record)
    tables += build_differences_without_controls(statistics, record)
    if len(statistics.instance_agreement):
        tables += build_instance_agreement(statistics, record)
    if statistics.invariance is not None and len(statistics.invariance):
        tables.append(build_ranges(select_subset(statistics.invariance), record))
    bounds, bounds_truth = statistics.bounds, statistics.bounds_truth
    if bounds is not None and bounds_truth is not None and not bounds["metric"].isin(list_truth_metrics(record)).all():
        tables.append(build_bounds(bounds, bounds_truth, ungraded if has_scores else metrics, record, low))
    if (metrics["own_n"] != metrics["n"]).any():
        tables.append(build_own_scores(ungraded, record, low))
    if statistics.explainer_stability is not None and statistics.explainer_stability_metrics is not None:
        tables += build_stability(statistics.explainer_stability, statistics.explainer_stability_metrics, record, low)
    return [_explain_marks(table, low, record) for table in tables]


def select_metrics(statistics: RunStatistics, record: RunRecord) -> RunStatistics:
    """Select the metrics of the LaTeX tables; ranks and tests stay those among all metrics."""
    names = record.settings.tables.metrics
    if names is None:
        return statistics
    facts = (name for name, metric in record.metrics.items() if metric.role == "fact")
    selected = {*names, *list_truth_metrics(record), *facts}
    frames = {field.name: getattr(statistics, field.name) for field in fields(statistics)}
    for name, frame in frames.items():
        for column in ("metric", "than_metric", "other_metric"):
            if frame is not None and column in frame:
                frame = frame[frame[column].isin(selected)]
        frames[name] = frame
    return replace(statistics, **frames)


def _explain_marks(table: Table, low_coverage: Mapping[str, float], record: RunRecord) -> Table:
    """Add the meaning of † to each table that has it, because a table may stand alone in a paper."""
    titles = [*table.header, *(row.title for row in table.rows)]
    marked = {title.name for title in titles if LOW_COVERAGE_MARK in title.marks}
    low = {name: share for name, share in low_coverage.items() if record.explainers.get(name) in marked}
    return table.add_notes(*write_coverage_notes(low, record))


def _write_control_notes(statistics: RunStatistics, record: RunRecord) -> list[str]:
    """Write which explainers are controls, and which are left without them."""
    controls = list_contenders(statistics.metrics, record, controls=True)
    if not controls or statistics.correlations["tau"].isna().all():
        return []
    contenders = list_contenders(statistics.metrics, record)
    return [
        f"no controls: without {', '.join(controls)}, {describe_controls(controls, record)}; remaining: "
        f"{', '.join(contenders) or 'none'}."
    ]
