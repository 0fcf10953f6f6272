"""How much each feature truly matters, under every definition that the model has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Dataset, Floats, Ints, Ledger, Model, Rows, Section, Truth, TruthEstimate
from cfeval_cli.core.fingerprint import of_component, of_work
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

_CHUNK = 16  # instances at a time, where the model has to be asked: small enough that all cores end together
_SLAB = 1 << 14  # instances at a time, where the truth is read off the model
_TRIED = 500  # rows by which the time is estimated
_LONG = 60  # seconds that people are warned of


@dataclass(frozen=True)
class TruthJob:
    """One definition, and what it is asked about."""

    truth: Truth
    dataset: Dataset
    model: Model
    rows: Rows


def compute_truths(context: RunContext, advance: Callable[[int], None]) -> dict[str, TruthEstimate]:
    """All of them, by name."""
    found = {}
    for name, truth in context.plan.truths.items():
        found[name] = _compute_truth(context, name, truth)
        context.scratch.release()
        advance(1)
    return found


def select_instances(context: RunContext, truth: Truth) -> Ints:
    """The instances, as places, on which a truth that asks the model is computed: as many as the settings allow."""
    plan, size = context.plan, len(context.rows)
    most = min(
        size,
        size if plan.settings.reference is None else plan.settings.reference,
        plan.settings.budget // max(1, truth.cost(context.spec)),
    )
    return np.sort(make_stream(plan.settings.seed, "reference").permutation(size)[: max(1, most)])


def _compute_truth(context: RunContext, name: str, truth: Truth) -> TruthEstimate:
    """One of them: where it asks the model on some instances and NaN on all others, else on all."""
    asks, rows, identity = truth.asks(context.spec), context.rows, of_component(truth)
    places = select_instances(context, truth) if asks else np.arange(len(rows))
    if asks:
        _tell(context, name, truth, len(places))
        rows = rows.take(index_without_copy(places, len(rows)))
    # what is read off the model takes less time to compute again than to store
    key = of_work(TruthJob, identity, context.subject_hash) if asks else None
    section = Section(key, f"{context.dataset.name}, truth.{name}")
    job = TruthJob(truth, context.dataset, context.model, rows)
    inputs = (rows.ids, rows.labels, rows.codes)
    work = ChunkedComputation(f"truth.{name}", job, _compute_chunk, inputs, section, _CHUNK if asks else _SLAB)
    done = compute_in_chunks(work, context.plan.executor, context.cache, lambda _: None, context.scratch)
    if identity is not None:  # else it may give other values each time
        _check_sample(context, job, work.name, done)
    importance = done.arrays["importance"]
    error = done.arrays["error"] if done.arrays["sampled"].any() else None
    if len(rows) < len(context.rows):
        importance = context.scratch.keep({"importance": _spread(importance, places, len(context.rows))})["importance"]
        error = None if error is None else _spread(error, places, len(context.rows))
    return TruthEstimate(importance, error, "; ".join(done.notes))


def _spread(values: Floats, places: Ints, size: int) -> Floats:
    """Return the values of some instances among so many, NaN for all others."""
    spread = np.full((size, *values.shape[1:]), np.nan)
    spread[places] = values
    return spread


def _tell(context: RunContext, name: str, truth: Truth, many: int) -> None:
    """How long it may take, by a few rows that the model is asked about: for people only, no result depends on it."""
    rows = many * truth.cost(context.spec)
    codes = context.dataset.train.codes[:_TRIED]
    begun = time.perf_counter()
    evaluate_model(context.model, context.dataset, codes)
    seconds = rows * (time.perf_counter() - begun) / max(1, len(codes))
    log.log(
        logging.WARNING if seconds > _LONG else logging.INFO,
        "truth.%s: up to %s model rows on %s instances, about %.0f s of one core at most; a smaller reference "
        "(now %s) or truth.budget (now %s) shortens it",
        name, f"{rows:,}", f"{many:,}", seconds, context.plan.settings.reference, context.plan.settings.budget,
    )  # fmt: skip


def _compute_chunk(job: TruthJob, places: Ints) -> list[UnitResult]:
    """Of some instances, here or in another process; what a truth asks of the model is on nobody's account."""
    client = Ledger().open_client(job.model, job.truth.access, f"truth.{job.truth.name}", padded=job.dataset.padded)
    known = job.truth.found(job.dataset, client, job.rows.take(places))
    arrays = {
        "importance": known.importance,
        "error": np.zeros(len(places)) if known.error is None else known.error,
        "sampled": np.full(len(places), known.error is not None),
    }
    return [UnitResult(arrays, note=known.method)]


def _check_sample(context: RunContext, job: TruthJob, name: str, done: JoinedResults) -> None:
    """Recompute a few of the values from the cache and from worker processes; Failure if one differs."""
    tolerance = get_tolerance(context.probabilities)
    for origin, places in draw_verified_instances(
        context.plan.settings.seed, name, done.cached, done.from_workers
    ).items():
        before, now = done.arrays["importance"][places], _compute_chunk(job, places)[0].arrays["importance"]
        scale = np.abs(np.where(np.isfinite(now), now, 0.0)).max(axis=1, initial=1.0, keepdims=True)
        differs = ~np.isclose(before, now, rtol=0.0, atol=tolerance * scale, equal_nan=True)
        if differs.any():
            row, feature = (int(one[0]) for one in np.nonzero(differs))
            raise Failure(
                f"{name}, instance {job.rows.ids[places[row]]}: the value {origin} gives "
                f"{context.dataset.features[feature].name} an importance of {before[row, feature]:.8g}, and computed "
                f"again it is {now[row, feature]:.8g}. {ADVICE[origin]}"
            )
