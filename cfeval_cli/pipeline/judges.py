"""Judges beside a run, each in a folder of its own below it, and the recommendation that rests on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.core import Ints, Linear, Plan, Subject
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.study import Study
from cfeval_cli.results import validation as checked
from cfeval_cli.results.store import RunFolder
from cfeval_cli.statistics.findings import Findings
from cfeval_cli.statistics.recommendation import Costs, Judge, Rule, View, disagreements, recommend
from cfeval_cli.statistics.resampled import Bootstrap
from cfeval_cli.statistics.scores import Scores

Runs = Callable[[Plan, RunFolder, Progress], bool]  # what computes a run


# what a judge's run leaves out
_LITTLE = {"bounds": 0, "noise": 0, "reparametrisations": 0, "figures": (), "report": False}


def beside(plan: Plan, folder: RunFolder, progress: Progress, run: Runs) -> list[Judge]:
    """Every judge of the plan: run with the same explainers on the same instances, or read if it was run before."""
    found = []
    for name, judge in plan.judges.items():
        mine = folder.below(name)
        theirs = replace(
            plan,
            model=judge.trainable(plan.model),
            explainers={key: one for key, one in plan.explainers.items() if one.portable},
            distance=plan.distance if plan.search.moves else plan.distance.of_judges(),
            judges={}, settings=plan.settings.model_copy(update=_LITTLE),
        )  # fmt: skip
        if not theirs.explainers:
            raise UserError("judge=[…]: no explainer of this run can explain another model.")
        try:
            with mine.opened():
                if run(theirs, mine, progress.part(f"judge {name}")):
                    mine.finish()
        except (UserError, Failure) as error:
            raise type(error)(f"judge.{name}: {error}") from error
        found.append(read(name, mine))
    return found


def read(name: str, folder: RunFolder) -> Judge:
    """What the folder of a judge tells."""
    record = checked.read_record(folder.path)
    settings = record["settings"]
    view = View(
        Scores.of(pd.read_parquet(folder.path / "scores.parquet")),
        checked.table(folder.path / "metrics.csv"),
        record["truths"], settings["gold"], record["removals"], settings["agreement"],
    )  # fmt: skip
    return Judge(name, view, record.get("fidelity"))


def wanted(subject: Subject) -> bool:
    """Whether the model is one that people ask about, not the paper's white box."""
    return not subject.can(Linear)


def recommended(
    study: Study,
    truths: Mapping[str, Mapping[str, Any]],
    scores: Scores,
    findings: Findings,
    chosen: Mapping[str, Ints],
    judges: list[Judge],
    how: Bootstrap,
) -> dict[str, Any]:
    """What recommendation.json tells."""
    plan, ids = study.plan, study.instances.ids
    removals = {way.variant: {"arbitrary": way.arbitrary} for way in plan.removals.values()}
    view = View(scores, findings.metrics, truths, plan.golds, removals, plan.settings.agreement)
    covered = findings.metrics[findings.metrics["metric"] == "coverage"]
    noise = findings.noise
    costs = Costs(
        rows={name: study.ledger.rows[f"explainer.{name}"] / max(1, len(ids)) for name in plan.explainers},
        coverage=dict(zip(covered["explainer"], covered["value"], strict=True)),
        stability={} if noise is None else dict(zip(noise["explainer"], noise["same_features"], strict=True)),
        disagree=disagreements({name: chosen[name] for name in view.contenders}, ids, study.dataset.width),
    )
    return recommend(view, judges, Rule.shipped(), costs, how)
