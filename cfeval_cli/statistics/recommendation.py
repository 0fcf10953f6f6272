"""Which explainer to use on a model, by question: from the reference, the rule and the judges, in this order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import NO_FEATURE, Floats, Ints
from cfeval_cli.core.scratch import iterate_slabs
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES, Bootstrap
from cfeval_cli.statistics.explainer_comparison import ExplainerComparison, compare_explainers
from cfeval_cli.statistics.scores import Scores

QUESTIONS = ("contribution", "change")
_SHOWN = 3  # instances on which explainers disagree most


@dataclass(frozen=True)
class PreferredMetrics:
    """Which metrics are believed for which question, and on whose word."""

    source: str
    believed: Mapping[str, Sequence[str]]  # question: metrics, the first that a run has counts

    @staticmethod
    def shipped() -> PreferredMetrics:
        """The one that comes with cfeval."""
        told = json.loads(resources.files("cfeval_cli.statistics").joinpath("rule.json").read_text(encoding="utf-8"))
        return PreferredMetrics(told["source"], told["believed"])


@dataclass(frozen=True)
class RunEvidence:
    """What a run tells: scores by instance, their summary, and what its truths and removals depend on."""

    scores: Scores  # scores.parquet
    metrics: pd.DataFrame  # metrics.csv
    questions: Mapping[str, str]  # of the truths that depend on no arbitrary constant
    arbitrary_removals: Set[str]  # variants that depend on one
    agreement: str

    @property
    def contenders(self) -> list[str]:
        """The explainers that are no controls and no rungs of a ladder."""
        mine = self.metrics[self.metrics["quality_level"].isna() & ~self.metrics["control"].astype(bool)]
        return list(dict.fromkeys(mine["explainer"]))

    def truth(self, question: str) -> str | None:
        """The truth that answers a question: the first that depends on no arbitrary constant."""
        return next((name for name in self.questions if self.questions[name] == question), None)

    def reference(self, question: str, how: Bootstrap) -> ExplainerComparison | None:
        """Who is best by the truth."""
        truth = self.truth(question)
        if truth is None:
            return None
        return compare_explainers(self.scores, (self.agreement, truth), self.contenders, "higher", how)

    def by_rule(self, question: str, rule: PreferredMetrics, how: Bootstrap) -> ExplainerComparison | None:
        """Who is best by the first metric of the rule that the run has; removal by an arbitrary constant is none."""
        for metric in rule.believed.get(question, ()):
            mine = self.metrics[(self.metrics["metric"] == metric) & self.metrics["value"].notna()]
            for variant in dict.fromkeys(mine["variant"]):
                if variant in self.arbitrary_removals:
                    continue
                better = str(mine.loc[mine["variant"] == variant, "better"].iloc[0])
                found = compare_explainers(self.scores, (metric, variant), self.contenders, better, how)
                if found is not None:
                    return found
        return None


@dataclass(frozen=True)
class JudgeEvidence:
    """A model of known truth on the same data, explained by the same explainers."""

    name: str
    view: RunEvidence
    fidelity: Mapping[str, float] | None = None  # of one that learned the user's model


@dataclass(frozen=True)
class ExplainerProperties:
    """What is to be known of each explainer besides being right."""

    rows: Mapping[str, float]  # model rows an instance
    coverage: Mapping[str, float]  # share of the instances that it explains
    stability: Mapping[str, float]  # how often another seed names the same features
    disagree: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def recommend(
    view: RunEvidence,
    judges: Sequence[JudgeEvidence],
    rule: PreferredMetrics,
    costs: ExplainerProperties,
    how: Bootstrap,
) -> dict[str, Any]:
    """The answer to each question, with all that it rests on, as plain values."""
    answers = {question: _answer(question, view, judges, rule, costs, how) for question in QUESTIONS}
    return {
        "questions": answers,
        "rule": {"source": rule.source, "believed": {name: list(some) for name, some in rule.believed.items()}},
        "explainers": {
            name: {
                "model_rows": _plain(costs.rows.get(name)), "coverage": _plain(costs.coverage.get(name)),
                "stability": _plain(costs.stability.get(name)),
            }
            for name in view.contenders
        },
        "disagree": [dict(one) for one in costs.disagree],
    }  # fmt: skip


def _plain(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _answer(
    question: str,
    view: RunEvidence,
    judges: Sequence[JudgeEvidence],
    rule: PreferredMetrics,
    costs: ExplainerProperties,
    how: Bootstrap,
) -> dict[str, Any]:
    reference, by_rule = view.reference(question, how), view.by_rule(question, rule, how)
    checked = [one for one in (_checked(judge, question, rule, how) for judge in judges) if one is not None]
    against = [one["judge"] for one in checked if not one["holds"]]
    contradictions = []
    if reference is not None and by_rule is not None and _contradicts(reference, by_rule):
        contradictions.append("reference")
    if against and 2 * len(against) >= len(checked):
        contradictions.append("judges")
    believed = "reference" if reference is not None and reference.instances >= MIN_INSTANCES else ""
    if not believed and by_rule is not None and by_rule.instances >= MIN_INSTANCES:
        believed = "rule"
    found = {"reference": reference, "rule": by_rule}.get(believed)
    chosen = select_cheapest(found, costs.rows) if found is not None else None
    return {
        "explainer": chosen if found is not None and found.decides else None,
        "cheapest": chosen,
        "believed": believed or None,
        "truth": view.truth(question),
        "because": _because(view, reference, by_rule),
        "reference": None if reference is None else reference.told(),
        "rule": None if by_rule is None else by_rule.told(),
        "judges": checked,
        "contradictions": contradictions,
    }


def select_cheapest(found: ExplainerComparison, rows: Mapping[str, float]) -> str:
    """Of those that cannot be told from the best, the one that asks least of the model; of equal ones the better."""
    return min(found.tied, key=lambda name: (rows.get(name, np.inf), list(found.values).index(name)))


def _contradicts(truth: ExplainerComparison, metric: ExplainerComparison) -> bool:
    """Whether the truth surely puts somebody before everyone that a metric puts first."""
    duels = truth.against_best()
    return all(name in duels and duels[name].sure for name in metric.tied if name in truth.values) and any(
        name in truth.values for name in metric.tied
    )


def _checked(judge: JudgeEvidence, question: str, rule: PreferredMetrics, how: Bootstrap) -> dict[str, Any] | None:
    """Whether the rule holds on a judge: whom it picks there, and how much worse that one truly is than the best."""
    truth, metric = judge.view.reference(question, how), judge.view.by_rule(question, rule, how)
    if truth is None or metric is None or metric.best not in truth.values:
        return None
    duel = truth.against_best().get(metric.best)
    return {
        "judge": judge.name, "fidelity": judge.fidelity, "truth": truth.variant, "metric": metric.metric,
        "variant": metric.variant, "picked": metric.best, "best": truth.best, "instances": truth.instances,
        "regret": 0.0 if duel is None else duel.difference, "p": None if duel is None else _plain(duel.p),
        "holds": not _contradicts(truth, metric),
    }  # fmt: skip


def _because(view: RunEvidence, reference: ExplainerComparison | None, by_rule: ExplainerComparison | None) -> str:
    """Why the believed is believed, or why nothing is."""
    if len(view.contenders) < 2:
        return "there are not two explainers to choose between"
    if reference is not None and reference.instances >= MIN_INSTANCES:
        return "the truth of this very model comes before any metric"
    short = "" if reference is None else f"the reference has {reference.instances} instances, under {MIN_INSTANCES}; "
    if by_rule is not None and by_rule.instances >= MIN_INSTANCES:
        return f"{short or 'no truth of this model is known; '}the rule is what is left"
    if reference is None and by_rule is None:
        return "neither the truth nor a metric of the rule has a value for two explainers on the same instances"
    return f"fewer than {MIN_INSTANCES} instances are no sample"


def find_disagreements(named: Mapping[str, Ints], ids: Ints, width: int) -> list[dict[str, Any]]:
    """The instances on which explainers, which name features (N, k), disagree most.

    By the mean over pairs of explainers of 1 - features in common / features of either.
    """
    if len(named) < 2 or not len(ids):
        return []
    far = np.concatenate([_apart([of[slab] for of in named.values()], width) for slab in iterate_slabs(len(ids))])
    order = np.lexsort((ids, -np.round(far, 9)))[:_SHOWN]
    return [
        {
            "instance": int(ids[i]), "apart": float(far[i]),
            "named": {name: [int(j) for j in of[i] if j != NO_FEATURE] for name, of in named.items()},
        }
        for i in order.tolist()
        if far[i] > 0
    ]  # fmt: skip


def _apart(named: Sequence[Ints], width: int) -> Floats:
    """How far (n,) explainers are apart that name features (n, k), on average over pairs of them."""
    there = np.zeros((len(named[0]), len(named), width + 1), dtype=np.float32)
    for place, features in enumerate(named):
        np.put_along_axis(there[:, place], features, 1.0, axis=1)  # NONE = -1 falls into the spare last column
    there = there[:, :, :-1]
    sizes = there.sum(axis=2)
    both = there @ there.transpose(0, 2, 1)
    either = sizes[:, :, None] + sizes[:, None, :] - both
    apart: Floats = 1.0 - both / np.maximum(either, 1.0)
    some = (sizes[:, :, None] > 0) & (sizes[:, None, :] > 0)  # who names nothing disagrees with nobody
    first, second = np.triu_indices(len(named), 1)
    counts = some[:, first, second].sum(axis=1)
    return np.asarray(np.where(some, apart, 0.0)[:, first, second].sum(axis=1) / np.maximum(counts, 1))
