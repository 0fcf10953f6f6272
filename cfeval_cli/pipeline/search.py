"""Counterfactuals of the explained instances, at each level of access that the search uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Counterfactuals, Ints, Rows, Section
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.model_checks import get_tolerance
from cfeval_cli.pipeline.search_job import SearchJob, check_counterfactuals, find_counterfactuals

Edits = Mapping[Access, Counterfactuals]  # by the level of access at which they were searched


def find_explained(features: Ints) -> Ints:
    """Return the instances for which any features (N, k) are selected."""
    return np.flatnonzero((features != NO_FEATURE).any(axis=1))


def search_explained_instances(
    context: RunContext, features: Ints, component: str, advance: Callable[[int], None]
) -> Edits:
    """Return counterfactuals of the explained instances, of which the selected features (N, k) may be edited."""
    places = index_without_copy(find_explained(features), len(features))
    return search_counterfactuals(context, context.rows.take(places), features[places], component, advance, keep=True)


def search_counterfactuals(
    context: RunContext, rows: Rows, features: Ints, component: str, advance: Callable[[int], None], *, keep: bool
) -> Edits:
    """Counterfactuals of some instances at each level of access that the search has; `keep` them for later runs."""
    plan, found = context.plan, {}
    for level, measure in context.distances.items():
        job = SearchJob(plan.search, context.dataset, context.model, measure, level, plan.settings.seed, rows, features)
        parts = (context.subject_hash, of_component(plan.search), of_component(plan.distance), level.name, job.seed)
        key = of_work(SearchJob, *parts) if keep else None
        section = Section(key, f"{context.dataset.name}, {job.component}, seed {job.seed}")
        done = find_counterfactuals(
            job, plan.executor, context.cache, advance, section=section, scratch=context.scratch
        )
        check_counterfactuals(job, done, get_tolerance(context.probabilities))
        found[level] = Counterfactuals(**done.arrays)
        context.ledger.book(component.format(level=level.name.lower()), done.cost)
    return found
