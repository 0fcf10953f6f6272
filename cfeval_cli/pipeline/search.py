"""The search stage: counterfactuals of the explained instances, at each level of access that the search uses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Counterfactuals, Ints, LedgerKey, Rows, Section
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.model_checks import get_tolerance
from cfeval_cli.pipeline.search_job import SearchJob, check_counterfactuals, find_counterfactuals

log = logging.getLogger("cfeval")

Edits: TypeAlias = Mapping[Access, Counterfactuals]  # by the level of access of the search


def find_instances_with_features(features: Ints) -> Ints:
    """Return the positions of the instances with at least one selected feature (N, k)."""
    return np.flatnonzero((features != NO_FEATURE).any(axis=1))


def search_explained_instances(context: RunContext, features: Ints, name: str, advance: Callable[[int], None]) -> Edits:
    """Return counterfactuals of the explained instances, which edit only their selected features (N, k)."""
    explained = index_without_copy(find_instances_with_features(features), len(features))
    rows = context.rows.take(explained)
    return search_counterfactuals(context, rows, features[explained], name, advance, use_cache=True)


def describe_beam_searches(context: RunContext, edits: Mapping[str, Edits]) -> str | None:
    """Write for how many instances of each explainer a beam search replaced all combinations; None if for none."""
    counts = {name: max(part.count_beam_searches() for part in levels.values()) for name, levels in edits.items()}
    titles = {name: context.plan.explainers[name].title or name for name in counts}
    shares = [f"{titles[name]} {count:,} of {len(context.rows):,}" for name, count in counts.items() if count]
    if not shares:
        return None
    warning = (
        f"beam search: {', '.join(shares)} instances have more combinations of values than search.max_candidates. "
        "Their counterfactuals may not be the best."
    )
    log.warning("%s", warning)
    return warning


def search_counterfactuals(
    context: RunContext,
    rows: Rows,
    features: Ints,
    name: str,
    advance: Callable[[int], None],
    *,
    use_cache: bool,
) -> Edits:
    """Return counterfactuals of some instances at each level of access of the search.

    The ledger counts the cost as that of the search for an explainer, which `name` states.
    """
    plan, edits = context.plan, {}
    hashes = [context.subject_hash, hash_component(plan.search), hash_component(plan.distance)] if use_cache else None
    for level, distance in context.distances.items():
        job = SearchJob(
            plan.search, context.dataset, context.model, distance, level, plan.settings.seed, rows, features
        )
        key = hash_work(SearchJob, *hashes, level.name, job.seed) if hashes else None
        section = Section(key, f"{context.dataset.name}, {job.component}, seed {job.seed}")
        joined = find_counterfactuals(
            job, plan.executor, context.cache, advance, section=section, scratch=context.scratch
        )
        check_counterfactuals(job, joined, get_tolerance(context.probabilities))
        edits[level] = Counterfactuals(**joined.arrays)
        context.ledger.record(LedgerKey("search", name, level), joined.cost)
    return edits
