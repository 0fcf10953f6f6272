"""The scores of all explanations: slab by slab of the instances, so that memory does not grow with their number."""

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
    AnswerCache,
    Bools,
    Explainer,
    ExplainerResult,
    Explanation,
    Floats,
    Ints,
    Ledger,
    Metric,
    MetricInput,
    Rows,
    Score,
)  # fmt: skip
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.metric import with_counts
from cfeval_cli.core.scratch import ScratchArrays, slabs
from cfeval_cli.pipeline.circularity import mark_circular_rows
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.search import Edits, find_explained
from cfeval_cli.statistics.common_support import find_common_instances
from cfeval_cli.statistics.scores import ScoreKey, Scores, ScoreSeries


def compute_scores(
    context: RunContext,
    truth: Mapping[str, Floats],
    explanations: Mapping[str, ExplainerResult],
    chosen: Mapping[str, Ints],
    edits: Mapping[str, Edits],
) -> tuple[Scores, pd.DataFrame]:
    """Scores per instance, and the rows that their summary should have."""
    plan, size = context.plan, len(context.instances)
    everyone = np.arange(size)
    members = {name: _Member.of(features, everyone) for name, features in chosen.items()}
    room, results = ScratchArrays[tuple[ScoreKey, str]](context.scratch, size), dict[ScoreKey, _Result]()
    for slab in slabs(size):
        if slab.start:
            context.answer_cache.forget()  # nobody asks about the instances of another slab
        cases = {}
        for name, member in members.items():
            cases[name] = _case(context, name, member, slab, truth, explanations[name], edits[name])
        for metric, name, found in _scored(context, cases):
            key = ((metric.name, found.variant), name)
            result = results.setdefault(key, _Result(metric, plan.explainers[name]))
            result.add(found, members[name], slab)
            if isinstance(found, Score):
                room.add((key, "numerator"), found.numerator)
                room.add((key, "denominator"), found.denominator)
        context.scratch.release()
    summary = arranged([result.row(key) for key, result in results.items()])
    arrays = room.arrays()
    parts = {
        key: ScoreSeries(arrays[key, "numerator"], arrays[key, "denominator"], result.places(everyone, members[key[1]]))
        for key, result in results.items()
        if (key, "numerator") in arrays
    }
    scores = Scores(parts, context.instances.ids, context.scratch)
    summary["circular"] = mark_circular_rows(plan, context.dataset, summary)
    return scores.marked(find_common_instances(scores, summary)), summary


@dataclass(frozen=True)
class _Member:
    """One explainer among those that are scored."""

    features: Ints  # (N, k)
    places: Ints  # (n,) of the instances that it has anything for

    @staticmethod
    def of(features: Ints, everyone: Ints) -> _Member:
        some = find_explained(features)
        return _Member(features, everyone if len(some) == len(everyone) else some)  # all are not kept again

    def within(self, slab: slice) -> slice:
        """Which of its instances lie in a slab."""
        return slice(*np.searchsorted(self.places, (slab.start, slab.stop)).tolist())


def _case(
    context: RunContext,
    name: str,
    member: _Member,
    slab: slice,
    truth: Mapping[str, Floats],
    done: ExplainerResult,
    edits: Edits,
) -> MetricInput:
    """What the metrics are given of one explainer's explanations of the instances of a slab."""
    plan, told = context.plan, done.explanation.take(slab)
    mine = member.within(slab)
    rows = index_without_copy(member.places[mine] - slab.start, slab.stop - slab.start)
    case = create_metric_input(
        context,
        context.rows.take(slab).take(rows),
        member.features[slab][rows],
        (told.top(plan.settings.k) != NO_FEATURE).all(axis=1),
        {level: found.take(mine) for level, found in edits.items()},
        {definition: importance[slab][rows] for definition, importance in truth.items()},
        told.take(rows) if plan.explainers[name].gives == "scores" else None,
        context.answer_cache,
    )
    return replace(case, total=len(context.instances))


def _scored(context: RunContext, cases: Mapping[str, MetricInput]) -> Iterator[tuple[Metric, str, Score | AbsentScore]]:
    """What each metric says of each explainer."""
    for metric in context.plan.metrics.values():
        for name, case in cases.items():
            for found in evaluate_metric(context, case, metric, f"metric.{metric.name}"):
                yield metric, name, found


@dataclass
class _Result:
    """What a metric says of an explainer, as it is put together from slabs."""

    metric: Metric
    explainer: Explainer
    reason: str = ""  # why there is nothing
    method: str = ""
    remark: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    of: list[tuple[str, Ints]] = field(default_factory=list)  # whose scores, and where these are none of all

    def add(self, found: Score | AbsentScore, member: _Member, slab: slice) -> None:
        """One more slab."""
        if isinstance(found, AbsentScore):
            self.reason = found.reason
            return
        self.method = max(self.method, found.method, key=len)
        self.remark = max(self.remark, found.remark, key=len)
        self.counts.update(found.counts)
        nobody = member.places[:0]
        if found.everyone:
            self.of.append(("everyone", nobody))
        elif found.some is None:
            self.of.append(("member", nobody))
        else:
            self.of.append(("some", member.places[member.within(slab)][found.some]))

    def places(self, everyone: Ints, member: _Member) -> Ints:
        """Of the instances that are scored, among all."""
        kinds = {kind for kind, _ in self.of}
        if kinds == {"everyone"}:
            return everyone
        if kinds == {"member"}:
            return member.places
        parts = []
        for slab, (kind, some) in zip(slabs(len(everyone)), self.of, strict=True):
            whole = {"everyone": everyone[slab], "member": member.places[member.within(slab)], "some": some}
            parts.append(whole[kind])
        return np.concatenate(parts)

    def row(self, key: ScoreKey) -> dict[str, object]:
        """A row of the summary, with what explainer and metric say of themselves."""
        metric, explainer = self.metric, self.explainer
        low, high = metric.range
        return {
            "metric": metric.name, "variant": key[0][1], "explainer": key[1], "rung": explainer.rung,
            "control": explainer.control, "better": metric.better, "role": metric.role,
            "quantity": metric.quantity, "access": metric.access.name.lower(), "low": low, "high": high,
            "empty": metric.empty,
            "note": self.reason, "method": with_counts(self.method, self.counts),
            "remark": with_counts(self.remark, self.counts),
        }  # fmt: skip


def arranged(order: list[dict[str, object]]) -> pd.DataFrame:
    """Rows of a metric by variant, then by explainer."""
    table = pd.DataFrame(order)
    place = {key: i for i, key in enumerate(dict.fromkeys(zip(table["metric"], table["variant"], strict=True)))}
    keys = [place[key] for key in zip(table["metric"], table["variant"], strict=True)]
    return table.iloc[np.argsort(keys, kind="stable")].reset_index(drop=True)


def create_metric_input(
    context: RunContext,
    rows: Rows,
    features: Ints,
    complete: Bools,
    edits: Edits,
    truth: Mapping[str, Floats],
    explanation: Explanation | None = None,
    memory: AnswerCache | None = None,
) -> MetricInput:
    """What the metrics are given of one explainer; `truth` is that of these instances.

    `explanation` is all that it named, in order, if it has an order. Cases of the same instances share a `memory`.
    """
    return MetricInput(
        rows.ids,
        rows.codes,
        rows.labels,
        rows.probability,
        dataset=context.dataset,
        model=Ledger().open_client(context.model, Access.NOTHING, "nobody"),
        features=features,
        k=features.shape[1],
        complete=complete,
        counterfactuals=edits,
        removals=context.removals,
        truth=truth,
        explanation=explanation,
        memory=memory or AnswerCache(),
    )


@restore_working_directory()
def evaluate_metric(
    context: RunContext, case: MetricInput, metric: Metric, component: str
) -> Iterator[Score | AbsentScore]:
    """What one metric says of a case, which it sees with no more access than it declares."""
    access = _access(context, metric)
    seen = replace(
        case,
        model=context.open_client(access, component),
        probability=case.probability if max(access, metric.access) >= Access.PROBABILITY else None,
    )
    with context.ledger.clock(component):
        found = list(metric.score(seen))
    return iter(found)


def _access(context: RunContext, metric: Metric) -> Access:
    """What a metric may ask: what it needs, and of what else it could use as much as model and user allow."""
    if metric.role != "judged":
        return Access.NOTHING
    wanted = [level for level in Access if metric.access < level <= (metric.most or metric.access)]
    able = [
        level for level in wanted if level <= context.plan.access and context.spec.missing_access_reason(level) is None
    ]
    return max([metric.access, *able])
