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
    Explainer,
    ExplainerResult,
    Floats,
    Ints,
    Metric,
    MetricInput,
    Score,
)
from cfeval_cli.core.metric import with_counts
from cfeval_cli.core.scratch import ScratchArrays, slabs
from cfeval_cli.pipeline import circularity
from cfeval_cli.pipeline.context import Study
from cfeval_cli.pipeline.evaluate import Edits, as_slice, case_of, find_explained, scores_of
from cfeval_cli.statistics.common_support import find_common_instances
from cfeval_cli.statistics.scores import ScoreKey, Scores, ScoreSeries


def score(
    study: Study,
    truth: Mapping[str, Floats],
    explanations: Mapping[str, ExplainerResult],
    chosen: Mapping[str, Ints],
    edits: Mapping[str, Edits],
) -> tuple[Scores, pd.DataFrame]:
    """Scores per instance, and the rows that their summary should have."""
    plan, size = study.plan, len(study.instances)
    everyone = np.arange(size)
    members = {name: _Member.of(features, everyone) for name, features in chosen.items()}
    room, results = ScratchArrays[tuple[ScoreKey, str]](study.scratch, size), dict[ScoreKey, _Result]()
    for slab in slabs(size):
        if slab.start:
            study.memory.forget()  # nobody asks about the instances of another slab
        cases = {}
        for name, member in members.items():
            cases[name] = _case(study, name, member, slab, truth, explanations[name], edits[name])
        for metric, name, found in _scored(study, cases):
            key = ((metric.name, found.variant), name)
            result = results.setdefault(key, _Result(metric, plan.explainers[name]))
            result.add(found, members[name], slab)
            if isinstance(found, Score):
                room.add((key, "numerator"), found.numerator)
                room.add((key, "denominator"), found.denominator)
        study.scratch.release()
    summary = arranged([result.row(key) for key, result in results.items()])
    arrays = room.arrays()
    parts = {
        key: ScoreSeries(arrays[key, "numerator"], arrays[key, "denominator"], result.places(everyone, members[key[1]]))
        for key, result in results.items()
        if (key, "numerator") in arrays
    }
    scores = Scores(parts, study.instances.ids, study.scratch)
    summary["circular"] = circularity.cells(plan, study.dataset, summary)
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
    study: Study,
    name: str,
    member: _Member,
    slab: slice,
    truth: Mapping[str, Floats],
    done: ExplainerResult,
    edits: Edits,
) -> MetricInput:
    """What the metrics are given of one explainer's explanations of the instances of a slab."""
    plan, told = study.plan, done.explanation.take(slab)
    mine = member.within(slab)
    rows = as_slice(member.places[mine] - slab.start, slab.stop - slab.start)
    case = case_of(
        study,
        study.rows.take(slab).take(rows),
        member.features[slab][rows],
        (told.top(plan.settings.k) != NO_FEATURE).all(axis=1),
        {level: found.take(mine) for level, found in edits.items()},
        {definition: importance[slab][rows] for definition, importance in truth.items()},
        told.take(rows) if plan.explainers[name].gives == "scores" else None,
        study.memory,
    )
    return replace(case, total=len(study.instances))


def _scored(study: Study, cases: Mapping[str, MetricInput]) -> Iterator[tuple[Metric, str, Score | AbsentScore]]:
    """What each metric says of each explainer."""
    for metric in study.plan.metrics.values():
        for name, case in cases.items():
            for found in scores_of(study, case, metric, f"metric.{metric.name}"):
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
