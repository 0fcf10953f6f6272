"""The score stage: metrics of all explanations, computed in slabs of instances to bound the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from cfeval_cli.core import (
    NO_FEATURE,
    AbsentScore,
    Access,
    Bools,
    EvaluationCache,
    Explainer,
    ExplainerResult,
    Explanation,
    Floats,
    Ints,
    Ledger,
    LedgerKey,
    Metric,
    MetricInput,
    Rows,
    Score,
)  # fmt: skip
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.metric import fill_in_counts
from cfeval_cli.core.scratch import ScratchArrays, iterate_slabs
from cfeval_cli.pipeline.circularity import mark_circular_rows
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.search import Edits, find_instances_with_features
from cfeval_cli.statistics.common_support import find_common_instances
from cfeval_cli.statistics.scores import ScoreKey, Scores, ScoreSeries


def compute_scores(
    context: RunContext,
    truth: Mapping[str, Floats],
    explanations: Mapping[str, ExplainerResult],
    selected: Mapping[str, Ints],
    edits: Mapping[str, Edits],
) -> tuple[Scores, pd.DataFrame]:
    """Return the scores of each instance, and a summary table with a row for each metric, variant and explainer."""
    plan, size = context.plan, len(context.instances)
    all_positions = np.arange(size)
    selections = {name: _Selection.from_features(features, all_positions) for name, features in selected.items()}
    arrays, builders = ScratchArrays[tuple[ScoreKey, str]](context.scratch, size), dict[ScoreKey, _ScoreBuilder]()
    for slab in iterate_slabs(size):
        if slab.start:
            context.evaluation_cache.clear()  # no metric needs results for the instances of an earlier slab
        inputs = {
            name: _create_slab_input(context, name, selection, slab, truth, explanations[name], edits[name])
            for name, selection in selections.items()
        }
        for metric, name, score in _evaluate_metrics(context, inputs):
            key = ((metric.name, score.variant), name)
            builder = builders.setdefault(key, _ScoreBuilder(metric, plan.explainers[name]))
            builder.add(score, selections[name], slab)
            if isinstance(score, Score):
                arrays.add((key, "numerator"), score.numerator)
                arrays.add((key, "denominator"), score.denominator)
        context.scratch.release()
    summary = sort_by_metric([builder.create_row(key) for key, builder in builders.items()])
    values = arrays.get_arrays()
    series = {
        key: ScoreSeries(
            values[key, "numerator"], values[key, "denominator"],
            builder.get_positions(all_positions, selections[key[1]]),
        )
        for key, builder in builders.items()
        if (key, "numerator") in values
    }  # fmt: skip
    scores = Scores(series, context.instances.ids, context.scratch)
    summary["circular"] = mark_circular_rows(plan, context.spec, summary)
    return scores.with_common(find_common_instances(scores, summary)), summary


@dataclass(frozen=True)
class _Selection:
    """The features that one explainer selected."""

    features: Ints  # (N, k)
    positions: Ints  # (n,) of the instances with at least one feature

    @staticmethod
    def from_features(features: Ints, all_positions: Ints) -> _Selection:
        explained = find_instances_with_features(features)
        # The shared array saves memory if all instances are explained.
        return _Selection(features, all_positions if len(explained) == len(all_positions) else explained)

    def get_span(self, slab: slice) -> slice:
        """Return which of the positions lie in a slab."""
        return slice(*np.searchsorted(self.positions, (slab.start, slab.stop)).tolist())


def _create_slab_input(
    context: RunContext,
    name: str,
    selection: _Selection,
    slab: slice,
    truth: Mapping[str, Floats],
    result: ExplainerResult,
    edits: Edits,
) -> MetricInput:
    """Return the input of the metrics for the instances of a slab that an explainer explained."""
    plan, explanation = context.plan, result.explanation.take(slab)
    span = selection.get_span(slab)
    positions = index_without_copy(selection.positions[span] - slab.start, slab.stop - slab.start)
    inputs = create_metric_input(
        context,
        context.rows.take(slab).take(positions),
        selection.features[slab][positions],
        (explanation.top_k(plan.settings.k) != NO_FEATURE).all(axis=1),
        {level: counterfactuals.take(span) for level, counterfactuals in edits.items()},
        {definition: importance[slab][positions] for definition, importance in truth.items()},
        explanation.take(positions) if plan.explainers[name].output == "scores" else None,
        context.evaluation_cache,
    )
    return replace(inputs, total=len(context.instances))


def _evaluate_metrics(
    context: RunContext, inputs: Mapping[str, MetricInput]
) -> Iterator[tuple[Metric, str, Score | AbsentScore]]:
    """Yield the scores of each metric for each explainer."""
    for metric in context.plan.metrics.values():
        for name, metric_input in inputs.items():
            for score in evaluate_metric(context, metric_input, metric):
                yield metric, name, score


@dataclass
class _ScoreBuilder:
    """The scores of one metric, variant and explainer, collected from slabs."""

    metric: Metric
    explainer: Explainer
    reason: str = ""  # why there are no scores
    method: str = ""
    remark: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    # Which instances of each slab have scores: all, those that are explained, or a list of positions.
    support: list[tuple[str, Ints]] = field(default_factory=list)

    def add(self, score: Score | AbsentScore, selection: _Selection, slab: slice) -> None:
        """Add the scores of a slab."""
        if isinstance(score, AbsentScore):
            self.reason = score.reason
            return
        self.method = max(self.method, score.method, key=len)
        self.remark = max(self.remark, score.remark, key=len)
        self.counts.update(score.counts)
        no_positions = selection.positions[:0]
        if score.over_all_instances:
            self.support.append(("all", no_positions))
        elif score.positions is None:
            self.support.append(("explained", no_positions))
        else:
            self.support.append(("listed", selection.positions[selection.get_span(slab)][score.positions]))

    def get_positions(self, all_positions: Ints, selection: _Selection) -> Ints:
        """Return the positions of the instances with scores."""
        kinds = {kind for kind, _ in self.support}
        if kinds == {"all"}:
            return all_positions
        if kinds == {"explained"}:
            return selection.positions
        parts = []
        for slab, (kind, listed) in zip(iterate_slabs(len(all_positions)), self.support, strict=True):
            explained = selection.positions[selection.get_span(slab)]
            parts.append({"all": all_positions[slab], "explained": explained, "listed": listed}[kind])
        return np.concatenate(parts)

    def create_row(self, key: ScoreKey) -> dict[str, object]:
        """Return the row of the summary, with the declarations of metric and explainer."""
        metric, explainer = self.metric, self.explainer
        low, high = metric.range
        return {
            "metric": metric.name, "variant": key[0][1], "explainer": key[1], "quality_level": explainer.quality_level,
            "control": explainer.is_control, "better": metric.better, "role": metric.role,
            "quantity": metric.quantity, "access": metric.access.name.lower(), "low": low, "high": high,
            "empty": metric.zero_denominator_note,
            "note": self.reason, "method": fill_in_counts(self.method, self.counts),
            "remark": fill_in_counts(self.remark, self.counts),
        }  # fmt: skip


def sort_by_metric(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Return a table with the rows of each metric and variant next to each other, otherwise in the given order."""
    table = pd.DataFrame(rows)
    keys = list(zip(table["metric"], table["variant"], strict=True))
    order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return table.iloc[np.argsort([order[key] for key in keys], kind="stable")].reset_index(drop=True)


def create_metric_input(
    context: RunContext,
    rows: Rows,
    features: Ints,
    complete: Bools,
    edits: Edits,
    truth: Mapping[str, Floats],
    explanation: Explanation | None = None,
    evaluation_cache: EvaluationCache | None = None,
) -> MetricInput:
    """Return the input of the metrics for some instances that an explainer explained.

    `truth` is that of these instances, and `explanation` has all features in order, unless the explainer returns
    sets. Inputs for the same instances share an `evaluation_cache`.
    """
    return MetricInput(
        rows.ids,
        rows.codes,
        rows.predicted_classes,
        rows.probability,
        dataset=context.dataset,
        # Without access: `evaluate_metric` replaces it by a client with the access of each metric.
        model=Ledger().open_client(context.model, Access.NOTHING, LedgerKey("metric")),
        features=features,
        k=features.shape[1],
        complete=complete,
        counterfactuals=edits,
        removals=context.removals,
        truth=truth,
        explanation=explanation,
        memory=evaluation_cache or EvaluationCache(),
    )


@restore_working_directory()
def evaluate_metric(context: RunContext, inputs: MetricInput, metric: Metric) -> Iterator[Score | AbsentScore]:
    """Return the scores of one metric, computed with the access that it declares."""
    access, key = _get_metric_access(context, metric), LedgerKey("metric", metric.name)
    permitted = replace(
        inputs,
        model=context.open_client(access, key),
        probability=inputs.probability if max(access, metric.access) >= Access.PROBABILITY else None,
    )
    with context.ledger.measure_time(key):
        scores = list(metric.score(permitted))
    return iter(scores)


def _get_metric_access(context: RunContext, metric: Metric) -> Access:
    """Return the access that a metric needs, or as much of what it can use as the model and the settings allow."""
    if metric.role != "judged":
        return Access.NOTHING
    usable = [level for level in Access if metric.access < level <= (metric.max_access or metric.access)]
    permitted = [level for level in usable if level <= context.plan.access]
    available = [level for level in permitted if context.spec.missing_access_reason(level) is None]
    return max([metric.access, *available])
