"""Robustness: what a second explainer seed, other explanations and other parameters of the model would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from cfeval_cli.core import ExplainerResult, Floats, Ints, Ledger
from cfeval_cli.pipeline import bounds, reparametrisation
from cfeval_cli.pipeline.context import Study
from cfeval_cli.pipeline.evaluate import Edits, search_edits
from cfeval_cli.pipeline.explanations import explain_instances, make_job, select_top_k
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.score import score
from cfeval_cli.pipeline.time_estimates import estimate_repetition
from cfeval_cli.results.store import RunFolder
from cfeval_cli.seeding import draw_seed, make_stream
from cfeval_cli.statistics import noise
from cfeval_cli.statistics.invariance import ReparametrisedValues
from cfeval_cli.statistics.scores import Scores

MAX_REPEATED = 100  # instances that are explained a second time, unless a run says how many


@dataclass(frozen=True)
class Robustness:
    """What the robustness checks of a run computed; None: not asked for, or not possible."""

    again: noise.Again | None
    extremes: bounds.Bounds | None
    reparametrised: ReparametrisedValues | None


@dataclass(frozen=True)
class Evaluated:
    """The explanations of a run with all that was computed from them."""

    truth: Mapping[str, Floats]
    explanations: Mapping[str, ExplainerResult]
    chosen: Mapping[str, Ints]
    edits: Mapping[str, Edits]
    scores: Scores


def assess_robustness(study: Study, evaluated: Evaluated, folder: RunFolder, progress: Progress) -> Robustness:
    """Explain a sample again, find the best and worst scores, and reparametrise the model."""
    again = _repeat(study, evaluated.truth, folder, progress)
    study.memory.forget()
    extremes = None
    if study.plan.settings.bounds:
        with progress.stage("bounds") as advance:
            extremes = bounds.compute_bounds(study, evaluated.truth, advance)
    with progress.stage("invariance") as advance:
        reparametrised = reparametrisation.compute_reparametrised_scores(
            study, evaluated.explanations, evaluated.chosen, evaluated.edits, evaluated.scores, advance
        )
    return Robustness(again, extremes, reparametrised)


def _repeat(study: Study, truth: Mapping[str, Floats], folder: RunFolder, progress: Progress) -> noise.Again | None:
    """Explain a sample of the instances with another explainer seed, and store the result."""
    part, rows = sample_instances(study)
    if not len(rows) or not part.plan.explainers:
        return None
    expected = estimate_repetition(study)
    with progress.stage("noise", len(rows) * len(part.plan.explainers), expected) as advance:
        second = repeat_explanations(part, {name: importance[rows] for name, importance in truth.items()}, advance)
    study.scratch.release()
    folder.save_again(part.instances, second.explanations, second.chosen, second.edits)
    study.ledger.add("noise", part.ledger)
    return noise.Again(rows, second.explanations, second.scores)


def sample_instances(study: Study) -> tuple[Study, Ints]:
    """Return a study of the instances that are explained a second time, with a ledger of its own, and their rows."""
    plan, size = study.plan, len(study.instances)
    # Unless a run says how many: at most a quarter, which bounds the cost of explaining again.
    most = min(MAX_REPEATED, size // 4) if plan.settings.noise == "auto" else plan.settings.noise
    rows = np.sort(make_stream(plan.settings.seed, "noise").choice(size, min(most, size), replace=False))
    # what the rungs of a ladder draw is known beforehand
    asked = {name: explainer for name, explainer in plan.explainers.items() if isnan(explainer.rung)}
    some = study.instances.take(rows)
    plan = replace(plan, explainers=asked)
    return replace(study, plan=plan, instances=some, rows=study.rows.take(rows), ledger=Ledger()), rows


def repeat_explanations(study: Study, truth: Mapping[str, Floats], advance: Callable[[int], None]) -> Evaluated:
    """Explain with a seed that no run has by chance; the search draws what it drew before."""
    seed = draw_seed(make_stream(study.plan.settings.seed, "noise.seed"))
    explanations: dict[str, ExplainerResult] = {}
    chosen, edits = {}, {}
    for name in study.plan.explainers:
        done = explanations[name] = explain_instances(study, name, explanations, advance, make_job(study, name, seed))
        study.ledger.book(f"explainer.{name}", done.cost)
        features = chosen[name] = select_top_k(study, name, done)
        edits[name] = search_edits(study, features, "search", lambda _: None)
    scores, _ = score(study, truth, explanations, chosen, edits)
    return Evaluated(truth, explanations, chosen, edits, scores)
