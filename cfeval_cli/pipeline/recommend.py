"""The checks of a recommendation: the ranking by a metric, and runs of judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cfeval_cli.core import JudgeSettings
from cfeval_cli.errors import UserError
from cfeval_cli.pipeline.run import RunOutcome
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.metric_ranking import PreferredMetrics
from cfeval_cli.statistics.recommendation import Check, Recommendation

# what the run of a judge leaves out
_OMITTED = {"bounds": 0, "explainer_stability": 0, "reparametrisations": 0, "figures": (), "report": False}


def plan_judge(plan: Plan, judge: JudgeSettings) -> Plan:
    """Return the plan of a judge: the same explainers on the same instances, another model."""
    explainers = {name: explainer for name, explainer in plan.explainers.items() if explainer.portable}
    if not explainers:
        raise UserError("judge=[…]: no explainer of this run can explain another model.")
    return replace(
        plan,
        model=judge.make_trainable(plan.model),
        explainers=explainers,
        distance=plan.distance if plan.search.moves_embeddings else plan.distance.make_judge_distance(),
        judges={},
        settings=plan.settings.model_copy(update=_OMITTED),
    )


@dataclass(frozen=True)
class JudgeResult:
    """The recommendation for a judge, and how often it makes the predictions of the user's model."""

    recommendation: Recommendation
    fidelity: float | None = None


def check_recommendation(outcome: RunOutcome, judges: Mapping[str, JudgeResult]) -> Recommendation:
    """Return the recommendation of a run with its checks: the ranking by a metric, and the answers of judges."""
    recommendation, preferred = outcome.recommendation, PreferredMetrics.load()
    contenders = [name for name, facts in recommendation.explainers.items() if not facts.is_control]
    arbitrary = {removal.variant for removal in outcome.context.plan.removals.values() if removal.arbitrary}
    answers = {}
    for question, answer in recommendation.answers.items():
        ranked = preferred.rank_first(question, outcome.statistics.metrics, contenders, arbitrary)
        checks = [] if ranked is None else [ranked]
        for name, judge in judges.items():
            if members := judge.recommendation.answers[question].confidence_set:
                checks.append(Check("judge", name, first=members, fidelity=judge.fidelity))
        answers[question] = answer.add_checks(checks)
    return replace(recommendation, answers=answers)
