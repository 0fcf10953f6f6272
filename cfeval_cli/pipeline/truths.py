"""How much each feature truly matters, under every definition that the model has."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from cfeval_cli.core import Dataset, Ints, Known, Ledger, Model, Rows, Truth, npy
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.core.scratch import Room, Scratch, slabs
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.elsewhere import ADVICE, sample, shared_out
from cfeval_cli.pipeline.memo import Memo
from cfeval_cli.pipeline.study import Study
from cfeval_cli.pipeline.trust import answers, tolerance_of
from cfeval_cli.seeding import stream

log = logging.getLogger("cfeval")

_CHUNK = 16  # instances at a time, where the model has to be asked: small enough that all cores end together
_TRIED = 500  # rows by which the time is estimated
_LONG = 60  # seconds that people are warned of


@dataclass(frozen=True)
class Job:
    """One definition, and what it is asked about."""

    truth: Truth
    dataset: Dataset
    model: Model


def find(study: Study, advance: Callable[[int], None]) -> dict[str, Known]:
    """All of them, by name; what is costly is shared out, and kept as soon as it is there."""
    found = {}
    for name, truth in study.plan.truths.items():
        job = Job(truth, study.dataset, study.model)
        found[name] = _asked(study, name, job) if truth.asks(study.subject) else _by_slabs(study, job)
        study.scratch.release()
        advance(1)
    return found


def _by_slabs(study: Study, job: Job) -> Known:
    """Of all instances, put aside slab by slab."""
    parts = (_known(job, study.rows.take(slab)) for slab in slabs(len(study.rows)))
    return joined(parts, study.scratch, len(study.rows))


def _known(job: Job, rows: Rows) -> Known:
    """Of some instances; what a truth asks of the model is on nobody's account."""
    gate = Ledger().gate(job.model, job.truth.access, f"truth.{job.truth.name}", padded=job.dataset.padded)
    return job.truth.found(job.dataset, gate, rows)


def referred(study: Study, truth: Truth) -> Ints:
    """The instances, as places, on which a truth that asks the model is computed: as many as the settings allow."""
    plan, size = study.plan, len(study.rows)
    most = min(
        size,
        size if plan.settings.reference is None else plan.settings.reference,
        plan.settings.budget // max(1, truth.cost(study.subject)),
    )
    return np.sort(stream(plan.settings.seed, "reference").permutation(size)[: max(1, most)])


def _asked(study: Study, name: str, job: Job) -> Known:
    """One of them on those instances, NaN on all others; the time that it may take is told before."""
    places = referred(study, job.truth)
    _tell(study, name, job, len(places))
    found = _chunked(study, name, job, study.rows.take(places))
    if len(places) == len(study.rows):
        return found
    importance = np.full(study.rows.codes.shape, np.nan)
    importance[places] = found.importance
    error = None
    if found.error is not None:
        error = np.full(len(study.rows), np.nan)
        error[places] = found.error
    return Known(study.scratch.keep({"importance": importance})["importance"], error, found.how)


def _tell(study: Study, name: str, job: Job, many: int) -> None:
    """How long it may take, by a few rows that the model is asked about: for people only, no result depends on it."""
    rows = many * job.truth.cost(study.subject)
    codes = study.dataset.train.codes[:_TRIED]
    begun = time.perf_counter()
    answers(job.model, study.dataset, codes)
    seconds = rows * (time.perf_counter() - begun) / max(1, len(codes))
    log.log(
        logging.WARNING if seconds > _LONG else logging.INFO,
        "truth.%s: up to %s model rows on %s instances, about %.0f s of one core at most; a smaller reference "
        "(now %s) or truth.budget (now %s) shortens it",
        name, f"{rows:,}", f"{many:,}", seconds, study.plan.settings.reference, study.plan.settings.budget,
    )  # fmt: skip


def _chunked(study: Study, name: str, job: Job, rows: Rows) -> Known:
    """Of some instances, chunk by chunk."""
    chunks = [rows.take(slice(start, start + _CHUNK)) for start in range(0, len(rows), _CHUNK)]
    identity = of_component(job.truth)
    section = of_work(Job, identity, study.identity)
    memo = Memo(study.cache, section, f"{study.dataset.name}, truth.{name}", packed, unpacked)
    keys = [_key(chunk) for chunk in chunks]
    kept = memo.known(keys)
    done = {i: kept[key] for i, key in enumerate(keys) if key in kept and _fits(kept[key], chunks[i])}
    cached, elsewhere = list(done), list[int]()
    missing = [i for i in range(len(chunks)) if i not in done]
    new = shared_out(study.plan.executor, _known, job, [chunks[i] for i in missing])
    with memo.keeping() as keep:
        for i, (known, is_elsewhere) in zip(missing, new, strict=True):
            elsewhere += [i] * is_elsewhere
            keep({keys[i]: known})
            done[i] = known
    whole = joined((done[i] for i in range(len(chunks))), study.scratch, len(rows))
    if identity is not None:  # else it may give other values each time
        places = [np.flatnonzero(np.isin(np.arange(len(rows)) // _CHUNK, some)) for some in (cached, elsewhere)]
        _check_sample(study, name, job, rows, whole, *places)
    return whole


def _check_sample(study: Study, name: str, job: Job, rows: Rows, whole: Known, cached: Ints, elsewhere: Ints) -> None:
    """Recompute a few of the values from the cache and from worker processes; Failure if one differs."""
    tolerance = tolerance_of(study.probabilities)
    for origin, places in sample(study.plan.settings.seed, f"truth.{name}", cached, elsewhere).items():
        before, now = whole.importance[places], _known(job, rows.take(places)).importance
        scale = np.abs(np.where(np.isfinite(now), now, 0.0)).max(axis=1, initial=1.0, keepdims=True)
        differs = ~np.isclose(before, now, rtol=0.0, atol=tolerance * scale, equal_nan=True)
        if differs.any():
            row, feature = (int(one[0]) for one in np.nonzero(differs))
            raise Failure(
                f"truth.{name}, instance {rows.ids[places[row]]}: the value {origin} gives "
                f"{study.dataset.features[feature].name} an importance of {before[row, feature]:.8g}, and computed "
                f"again it is {now[row, feature]:.8g}. {ADVICE[origin]}"
            )


def joined(parts: Iterable[Known], scratch: Scratch, size: int) -> Known:
    """The instances of all parts, one after the other, so many."""
    room, how, sampled = Room[str](scratch, size), dict[str, None](), False
    for part in parts:
        room.add("importance", part.importance)
        room.add("error", np.zeros(len(part.importance)) if part.error is None else part.error)
        how[part.how] = None
        sampled = sampled or part.error is not None
    arrays = room.arrays()
    return Known(arrays["importance"], arrays["error"] if sampled else None, "; ".join(how))


def _key(rows: Rows) -> bytes:
    digest = blake2b(digest_size=16)
    for array in (rows.codes, rows.labels, rows.ids):
        digest.update(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return digest.digest()


def packed(known: Known) -> bytes:
    """For the cache."""
    error = {} if known.error is None else {"error": known.error}
    how = np.frombuffer(known.how.encode(), dtype=np.uint8)
    return npy.dump({"importance": known.importance, "how": how, **error})


def unpacked(value: bytes) -> Known | None:
    """From the cache; None if it is nothing of ours."""
    try:
        arrays = npy.load(io.BytesIO(value))
        return Known(arrays["importance"], arrays.get("error"), arrays["how"].tobytes().decode())
    except (KeyError, TypeError, ValueError):
        return None


def _fits(known: Known, rows: Rows) -> bool:
    """Whether it is of as many instances and features."""
    errors = known.error is None or known.error.shape == (len(rows),)
    return known.importance.shape == rows.codes.shape and known.importance.dtype == np.float64 and errors
