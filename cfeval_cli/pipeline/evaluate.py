"""The one way to evaluate explanations: features, edits, scores. A run and its bounds go through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from cfeval_cli.core import (
    NO_FEATURE,
    AbsentScore,
    Access,
    AnswerCache,
    Bools,
    Counterfactuals,
    Explanation,
    Floats,
    Ints,
    Ledger,
    Metric,
    MetricInput,
    Rows,
    Score,
    Section,
)
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.pipeline import search
from cfeval_cli.pipeline.context import Study
from cfeval_cli.pipeline.model_checks import tolerance_of

Edits = Mapping[Access, Counterfactuals]  # by the level of access at which they were searched


def find_explained(features: Ints) -> Ints:
    """Return the instances for which any features (N, k) are selected."""
    return np.flatnonzero((features != NO_FEATURE).any(axis=1))


def as_slice(rows: Ints, size: int) -> Ints | slice:
    """Return some rows of so many in a form that does not copy all of them."""
    return rows if len(rows) < size else slice(None)


def search_edits(study: Study, features: Ints, component: str, advance: Callable[[int], None]) -> Edits:
    """Return counterfactuals of the explained instances, of which the selected features (N, k) may be edited."""
    places = as_slice(find_explained(features), len(features))
    return edits_of(study, study.rows.take(places), features[places], component, advance, keep=True)


def edits_of(
    study: Study, rows: Rows, features: Ints, component: str, advance: Callable[[int], None], *, keep: bool
) -> Edits:
    """Counterfactuals of some instances at each level of access that the search has; `keep` them for later runs."""
    plan, found = study.plan, {}
    for level, measure in study.measures.items():
        job = search.Job(plan.search, study.dataset, study.model, measure, level, plan.settings.seed, rows, features)
        parts = (study.identity, of_component(plan.search), of_component(plan.distance), level.name, job.seed)
        key = of_work(search.Job, *parts) if keep else None
        section = Section(key, f"{study.dataset.name}, {job.component}, seed {job.seed}")
        done = search.find(job, plan.executor, study.cache, advance, section=section, scratch=study.scratch)
        search.check_sample(job, done, tolerance_of(study.probabilities))
        found[level] = Counterfactuals(**done.arrays)
        study.ledger.book(component.format(level=level.name.lower()), done.cost)
    return found


def case_of(
    study: Study,
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
        dataset=study.dataset,
        model=Ledger().open_client(study.model, Access.NOTHING, "nobody"),
        features=features,
        k=features.shape[1],
        complete=complete,
        counterfactuals=edits,
        removals=study.removals,
        truth=truth,
        explanation=explanation,
        memory=memory or AnswerCache(),
    )


@restore_working_directory()
def scores_of(study: Study, case: MetricInput, metric: Metric, component: str) -> Iterator[Score | AbsentScore]:
    """What one metric says of a case, which it sees with no more access than it declares."""
    access = _access(study, metric)
    seen = replace(
        case,
        model=study.open_client(access, component),
        probability=case.probability if max(access, metric.access) >= Access.PROBABILITY else None,
    )
    with study.ledger.clock(component):
        found = list(metric.score(seen))
    return iter(found)


def _access(study: Study, metric: Metric) -> Access:
    """What a metric may ask: what it needs, and of what else it could use as much as model and user allow."""
    if metric.role != "judged":
        return Access.NOTHING
    wanted = [level for level in Access if metric.access < level <= (metric.most or metric.access)]
    able = [level for level in wanted if level <= study.plan.access and study.spec.missing_access_reason(level) is None]
    return max([metric.access, *able])
