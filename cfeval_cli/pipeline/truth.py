"""The truth stage: reference attributions of the model, under each definition that applies to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, Ints, Ledger, LedgerKey, Model, Rows, Section, Truth, TruthEstimate
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.pipeline.chunks import ChunkedComputation, JoinedResults, UnitResult, compute_in_chunks
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.model_checks import get_tolerance
from cfeval_cli.pipeline.sampling import select_by_class
from cfeval_cli.pipeline.verification import draw_verified_instances
from cfeval_cli.seeding import make_stream

_CHUNK_SIZE = 16  # instances of a truth that evaluates the model: small, so that all processes end together
_CHUNK_SIZE_WITHOUT_EVALUATIONS = 1 << 14


@dataclass(frozen=True)
class TruthJob:
    """One definition of the truth with the model and the instances."""

    truth: Truth
    dataset: Dataset
    model: Model
    rows: Rows


def select_instances(context: RunContext, truth: Truth) -> Ints:
    """Return the positions of the instances on which a truth is computed.

    Those of a truth that evaluates the model are as many as `reference` and `truth.budget` allow, at least one. Each
    predicted class has at least `min_per_class` of them, where available.
    """
    settings, size = context.plan.settings, len(context.rows)
    if not truth.evaluates_model(context.spec):
        return np.arange(size)
    limit = min(
        size,
        size if settings.reference is None else settings.reference,
        settings.budget // max(1, truth.count_evaluations(context.spec)),
    )
    order = make_stream(settings.seed, "reference").permutation(size)
    if settings.min_per_class == 0:
        return np.sort(order[: max(1, limit)])
    return select_by_class(context.rows.predicted_classes, order, max(1, limit), settings.min_per_class)


def compute_truth(context: RunContext, name: str, positions: Ints, advance: Callable[[int], None]) -> TruthEstimate:
    """Return the importance of all features under one definition; NaN for instances that are not selected."""
    truth = context.plan.truths[name]
    evaluates_model, truth_hash = truth.evaluates_model(context.spec), hash_component(truth)
    rows = context.rows.take(index_without_copy(positions, len(context.rows)))
    # What needs no evaluations is faster to compute again than to store.
    key = hash_work(TruthJob, truth_hash, context.subject_hash) if evaluates_model else None
    section = Section(key, f"{context.dataset.name}, truth.{name}")
    job = TruthJob(truth, context.dataset, context.model, rows)
    inputs = (rows.ids, rows.predicted_classes, rows.codes)
    size = _CHUNK_SIZE if evaluates_model else _CHUNK_SIZE_WITHOUT_EVALUATIONS
    computation = ChunkedComputation(f"truth.{name}", job, _compute_chunk, inputs, section, size)
    joined = compute_in_chunks(computation, context.plan.executor, context.cache, advance, context.scratch)
    if truth_hash is not None:  # a component that declares nothing may be random
        _check_values(context, job, computation.name, joined)
    importance = joined.arrays["importance"]
    error = joined.arrays["error"] if joined.arrays["sampled"].any() else None
    if len(rows) < len(context.rows):
        filled = _fill_with_nan(importance, positions, len(context.rows))
        importance = context.scratch.store({"importance": filled})["importance"]
        error = None if error is None else _fill_with_nan(error, positions, len(context.rows))
    context.scratch.release()
    return TruthEstimate(importance, error, "; ".join(joined.notes))


def _fill_with_nan(values: Floats, positions: Ints, size: int) -> Floats:
    """Return values of some instances as values of all, with NaN for the others."""
    filled = np.full((size, *values.shape[1:]), np.nan)
    filled[positions] = values
    return filled


def _compute_chunk(job: TruthJob, positions: Ints) -> list[UnitResult]:
    """Compute the truth for a chunk of instances, which is one unit; its evaluations belong to no component's cost."""
    client = Ledger().open_client(
        job.model, job.truth.access, LedgerKey("truth", job.truth.name), padded=job.dataset.padded
    )
    estimate = job.truth.estimate(job.dataset, client, job.rows.take(positions))
    arrays = {
        "importance": estimate.importance,
        "error": np.zeros(len(positions)) if estimate.standard_error is None else estimate.standard_error,
        "sampled": np.full(len(positions), estimate.standard_error is not None),
    }
    return [UnitResult(arrays, note=estimate.method)]


def _check_values(context: RunContext, job: TruthJob, name: str, joined: JoinedResults) -> None:
    """Compute a few values from the cache and from worker processes again; Failure if one differs."""
    seed, origins = context.plan.settings.seed, (joined.cached_positions, joined.worker_positions)
    for verified in draw_verified_instances(seed, name, name, job.rows.ids, *origins):
        first = joined.arrays["importance"][verified.positions]
        second = _compute_chunk(job, verified.positions)[0].arrays["importance"]
        tolerance = get_tolerance(context.probabilities)
        verified.check_values(first, second, context.dataset.features, "importance", tolerance)
