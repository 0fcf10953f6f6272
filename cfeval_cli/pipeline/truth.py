"""The truth stage: reference attributions of the model, under each definition that applies to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, Ints, Ledger, LedgerKey, Model, Rows, Section, Truth, TruthEstimate
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.chunks import (
    ADVICE,
    ChunkedComputation,
    JoinedResults,
    UnitResult,
    compute_in_chunks,
    draw_verified_instances,
)
from cfeval_cli.pipeline.context import RunContext, index_without_copy
from cfeval_cli.pipeline.model_checks import evaluate_model, get_tolerance
from cfeval_cli.seeding import make_stream

log = logging.getLogger("cfeval")

_CHUNK_SIZE = 16  # instances of a truth that evaluates the model: small, so that all processes end together
_CHUNK_SIZE_WITHOUT_EVALUATIONS = 1 << 14
_TIMED_ROWS = 500  # model rows that are evaluated to estimate the time
_MIN_WARNED_SECONDS = 60


@dataclass(frozen=True)
class TruthJob:
    """One definition of the truth with the model and the instances."""

    truth: Truth
    dataset: Dataset
    model: Model
    rows: Rows


def compute_truths(context: RunContext, advance: Callable[[int], None]) -> dict[str, TruthEstimate]:
    """Return the importance of all features under each definition, by name."""
    estimates = {}
    for name, truth in context.plan.truths.items():
        estimates[name] = _compute_truth(context, name, truth)
        context.scratch.release()
        advance(1)
    return estimates


def select_instances(context: RunContext, truth: Truth) -> Ints:
    """Return the positions of the instances on which a truth that evaluates the model is computed.

    There are as many as `reference` and `truth.budget` allow, at least one.
    """
    settings, size = context.plan.settings, len(context.rows)
    limit = min(
        size,
        size if settings.reference is None else settings.reference,
        settings.budget // max(1, truth.count_evaluations(context.spec)),
    )
    return np.sort(make_stream(settings.seed, "reference").permutation(size)[: max(1, limit)])


def _compute_truth(context: RunContext, name: str, truth: Truth) -> TruthEstimate:
    """Return the importance under one definition; NaN for instances that are not among the selected ones."""
    evaluates_model, rows, truth_hash = truth.evaluates_model(context.spec), context.rows, hash_component(truth)
    positions = select_instances(context, truth) if evaluates_model else np.arange(len(rows))
    if evaluates_model:
        _log_time_estimate(context, name, truth, len(positions))
        rows = rows.take(index_without_copy(positions, len(rows)))
    # What needs no evaluations is faster to compute again than to store.
    key = hash_work(TruthJob, truth_hash, context.subject_hash) if evaluates_model else None
    section = Section(key, f"{context.dataset.name}, truth.{name}")
    job = TruthJob(truth, context.dataset, context.model, rows)
    inputs = (rows.ids, rows.labels, rows.codes)
    size = _CHUNK_SIZE if evaluates_model else _CHUNK_SIZE_WITHOUT_EVALUATIONS
    computation = ChunkedComputation(f"truth.{name}", job, _compute_chunk, inputs, section, size)
    joined = compute_in_chunks(computation, context.plan.executor, context.cache, lambda _: None, context.scratch)
    if truth_hash is not None:  # a component that declares nothing may be random
        _check_values(context, job, computation.name, joined)
    importance = joined.arrays["importance"]
    error = joined.arrays["error"] if joined.arrays["sampled"].any() else None
    if len(rows) < len(context.rows):
        spread = _spread(importance, positions, len(context.rows))
        importance = context.scratch.keep({"importance": spread})["importance"]
        error = None if error is None else _spread(error, positions, len(context.rows))
    return TruthEstimate(importance, error, "; ".join(joined.notes))


def _spread(values: Floats, positions: Ints, size: int) -> Floats:
    """Return values of some instances as values of all, with NaN for the others."""
    spread = np.full((size, *values.shape[1:]), np.nan)
    spread[positions] = values
    return spread


def _log_time_estimate(context: RunContext, name: str, truth: Truth, n_instances: int) -> None:
    """Log how long a truth may take, measured on a few rows; a warning if it is more than a minute."""
    settings = context.plan.settings
    n_rows = n_instances * truth.count_evaluations(context.spec)
    codes = context.dataset.train.codes[:_TIMED_ROWS]
    started = time.perf_counter()
    evaluate_model(context.model, context.dataset, codes)
    seconds = n_rows * (time.perf_counter() - started) / max(1, len(codes))
    log.log(
        logging.WARNING if seconds > _MIN_WARNED_SECONDS else logging.INFO,
        "truth.%s: up to %s model evaluations on %s instances, at most about %.0f s on one core. To shorten it, lower "
        "reference (now %s) or truth.budget (now %s).",
        name, f"{n_rows:,}", f"{n_instances:,}", seconds, settings.reference, settings.budget,
    )  # fmt: skip


def _compute_chunk(job: TruthJob, positions: Ints) -> list[UnitResult]:
    """Compute the truth for a chunk of instances, which is one unit; its evaluations belong to no component's cost."""
    client = Ledger().open_client(
        job.model, job.truth.access, LedgerKey("truth", job.truth.name), padded=job.dataset.padded
    )
    estimate = job.truth.estimate(job.dataset, client, job.rows.take(positions))
    arrays = {
        "importance": estimate.importance,
        "error": np.zeros(len(positions)) if estimate.error is None else estimate.error,
        "sampled": np.full(len(positions), estimate.error is not None),
    }
    return [UnitResult(arrays, note=estimate.method)]


def _check_values(context: RunContext, job: TruthJob, name: str, joined: JoinedResults) -> None:
    """Compute a few values from the cache and from worker processes again; Failure if one differs."""
    tolerance = get_tolerance(context.probabilities)
    verified = draw_verified_instances(context.plan.settings.seed, name, joined.cached_rows, joined.worker_rows)
    for origin, positions in verified.items():
        first = joined.arrays["importance"][positions]
        second = _compute_chunk(job, positions)[0].arrays["importance"]
        scale = np.abs(np.where(np.isfinite(second), second, 0.0)).max(axis=1, initial=1.0, keepdims=True)
        differs = ~np.isclose(first, second, rtol=0.0, atol=tolerance * scale, equal_nan=True)
        if differs.any():
            row, feature = (int(indices[0]) for indices in np.nonzero(differs))
            raise Failure(
                f"{name}, instance {job.rows.ids[positions[row]]}: the value {origin} gives "
                f"{context.dataset.features[feature].name} an importance of {first[row, feature]:.8g}, and computed "
                f"again it is {second[row, feature]:.8g}. {ADVICE[origin]}"
            )
