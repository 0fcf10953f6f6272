"""Titles of metrics, explainers and ground truths, from a run's record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.report.table import DASH, LOW_COVERAGE_MARK, NOT_IDENTIFIABLE_MARK, STAR, Title
from cfeval_cli.results.record import MetricEntry, RunRecord

LOW_COVERAGE = 0.9  # explainers that cover fewer instances are marked
Pair = tuple[str, str]  # metric and variant


def make_metric_title(metric: str, variant: str, record: RunRecord, *, star: bool = False) -> Title:
    """Return the title of a metric, with its variant and search in brackets."""
    facts = record.metrics[metric]
    is_removal = facts.block != "counterfactual" and variant in record.removals
    name = record.removals[variant].title if is_removal else variant
    placeholders = {"{variant}": name, "{search}": record.search, "{metric}": metric}
    details = [_fill(detail, placeholders) for detail in facts.details]
    return Title(facts.title, [detail for detail in details if detail], facts.better, STAR * star, latex=facts.latex)


def _fill(template: str, values: Mapping[str, str]) -> str:
    for field, value in values.items():
        template = template.replace(field, value)
    return template


def mark_not_identifiable(title: Title, moves: bool) -> Title:
    """Mark what depends on the parametrisation of the model."""
    return replace(title, suffix=NOT_IDENTIFIABLE_MARK) if moves else title


def join_titles(title: Title, other: Title) -> Title:
    """Return one title for two rows that differ in the last detail: Validity (label / probability) ↑."""
    if not title.details or not other.details:
        return title
    return replace(title, details=[*title.details[:-1], f"{title.details[-1]} / {other.details[-1]}"])


def select_quantity(metrics: pd.DataFrame, quantity: Quantity, record: RunRecord) -> pd.DataFrame:
    """Return the rows of the metric that measures a quantity; of several metrics, those of the first."""
    names = [name for name, entry in record.metrics.items() if entry.quantity == quantity]
    return metrics[metrics["metric"].isin(names[:1])]


def find_low_coverage(metrics: pd.DataFrame, record: RunRecord) -> dict[str, float]:
    """Return the explainers that return k features for too few of the instances, with the share of these."""
    lines = select_quantity(metrics, Quantity.COMPLETE, record)
    lines = lines[lines["value"] < LOW_COVERAGE]
    return dict(zip(lines["explainer"], lines["value"], strict=True))


def make_explainer_titles(record: RunRecord, low_coverage: Iterable[str] = ()) -> dict[str, Title]:
    """Return the titles of all explainers; those of low coverage are marked."""
    low = set(low_coverage)
    return {
        name: Title(title, marks=LOW_COVERAGE_MARK * (name in low), is_explainer=True)
        for name, title in record.explainers.items()
    }


def list_contenders(metrics: pd.DataFrame, record: RunRecord, *, controls: bool = False) -> list[str]:
    """Return the names of the explainers that are neither controls nor graded; or of the controls."""
    lines = metrics[
        metrics["quality_level"].isna() & (metrics["control"].astype(bool) == controls) & metrics["value"].notna()
    ]
    judged = set(lines.loc[lines["role"] == "judged", "explainer"])
    return [title for name, title in record.explainers.items() if name in judged]


def is_truth(metric: str, record: RunRecord) -> bool:
    """Return whether a metric is a comparison with the ground truth."""
    return metric in record.metrics and record.metrics[metric].role == "truth"


def list_truth_metrics(record: RunRecord) -> list[str]:
    """Return the metrics that are the ground truth itself."""
    return [name for name in record.metrics if is_truth(name, record)]


def list_leading_truths(record: RunRecord) -> list[Pair]:
    """Return the ground truths, as metric and variant, that a run leads with."""
    settings = record.settings
    return [(settings.agreement, truth) for truth in settings.truth]


def name_truths(truths: Iterable[str], record: RunRecord) -> dict[str, str]:
    """Return definitions of the ground truth and their headings, the leading ones first, named by their question."""
    lead = record.settings.truth
    questions = [record.truths[truth].question if truth in record.truths else "paper" for truth in lead]
    names = {
        truth: question if question != "paper" and questions.count(question) == 1 else truth
        for truth, question in zip(lead, questions, strict=True)
    }
    wanted = dict.fromkeys(truths)
    return {truth: name for truth, name in names.items() if truth in wanted} | {g: g for g in wanted if g not in names}


def describe_truths(record: RunRecord) -> str:
    """Write the agreement and the ground truths that a run leads with."""
    settings = record.settings
    names = name_truths(settings.truth, record)
    words = [f"truth: {truth}" if name == truth else f"{name} (truth: {truth})" for truth, name in names.items()]
    return ", ".join([settings.agreement, *words])


def get_block(variant: str, facts: MetricEntry) -> str:
    """Return the group of rows of a metric: counterfactual metrics are grouped by what the search could see."""
    return variant if facts.block == "counterfactual" else facts.block


def write_reason(reason: str) -> str:
    """Write the meaning of a dash."""
    return f"{DASH}: {reason}."


def mark_low_coverage(metrics: pd.DataFrame, record: RunRecord) -> RunRecord:
    """Return the record with † behind the name of each explainer of low coverage, for sentences that compare them."""
    titles = make_explainer_titles(record, find_low_coverage(metrics, record))
    return record.model_copy(update={"explainers": {name: title.text for name, title in titles.items()}})
