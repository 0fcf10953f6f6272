"""The recommendation, and the runs of judges that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.core import HasLinearLogit, JudgeSettings, LedgerKey
from cfeval_cli.errors import UserError
from cfeval_cli.pipeline.run import RunOutcome
from cfeval_cli.results import validation as checked
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.recommendation import (
    ExplainerProperties,
    JudgeEvidence,
    PreferredMetrics,
    RunEvidence,
    find_disagreements,
    recommend,
)
from cfeval_cli.statistics.scores import Scores

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


def read_judge(name: str, folder: RunFolder) -> JudgeEvidence:
    """Return what the folder of a judge says."""
    record = checked.read_record(folder.path)
    settings = record.settings
    view = RunEvidence(
        Scores.from_frame(pd.read_parquet(folder.path / "scores.parquet")),
        checked.read_table(folder.path / "metrics.csv"),
        record.questions, record.arbitrary_removals, settings.agreement,
    )  # fmt: skip
    return JudgeEvidence(name, view, None if record.fidelity is None else record.fidelity.model_dump())


def is_recommended(outcome: RunOutcome) -> bool:
    """Whether users ask about the model: it is not the paper's white box."""
    return not outcome.context.spec.supports(HasLinearLogit)


def recommend_explainer(
    outcome: RunOutcome, questions: Mapping[str, str], judges: list[JudgeEvidence]
) -> dict[str, Any]:
    """Return the content of recommendation.json."""
    context, scores, findings, chosen = outcome.context, outcome.scores, outcome.findings, outcome.selected
    plan, ids = context.plan, context.instances.ids
    arbitrary = {way.variant for way in plan.removals.values() if way.arbitrary}
    view = RunEvidence(scores, findings.metrics, questions, arbitrary, plan.settings.agreement)
    covered = findings.metrics.drop_duplicates("explainer")
    repeated = findings.explainer_stability
    costs = ExplainerProperties(
        rows={
            name: context.ledger.n_evaluations[LedgerKey("explainer", name)] / max(1, len(ids))
            for name in plan.explainers
        },
        coverage=dict(zip(covered["explainer"], covered["coverage"], strict=True)),
        stability={} if repeated is None else dict(zip(repeated["explainer"], repeated["same_features"], strict=True)),
        disagree=find_disagreements({name: chosen[name] for name in view.contenders}, ids, context.dataset.n_features),
    )
    return recommend(view, judges, PreferredMetrics.shipped(), costs, outcome.bootstrap)
