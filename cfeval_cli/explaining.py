"""The explanations of many instances: those known from before, and the others chunk by chunk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b, sha256
from typing import Any

import numpy as np

from cfeval_cli.errors import Failure
from cfeval_cli.identity import of_code
from cfeval_cli.model.gate import Ledger
from cfeval_cli.types import (
    ABSENT,
    NONE,
    Batch,
    Cache,
    Codes,
    Dataset,
    Executor,
    Explainer,
    Explanation,
    Ints,
    Split,
    Told,
)

log = logging.getLogger("cfeval")

_CHUNK = 16  # instances that are explained at a time
_FIT = b"fit"  # in the place of an instance: the cost of preparing an explainer
_NOBODY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Job:
    """One explainer's work on some instances."""

    name: str  # the explainer's config key
    explainer: Explainer
    dataset: Dataset
    model: Any
    identity: str | None  # a hash of the explainer's settings and code, if it has one
    code: str  # of its code alone
    subject: str | None  # a hash of data and model
    seed: int
    instances: Split
    labels: Ints  # (n,) predicted

    @property
    def component(self) -> str:
        """Under which name it draws random numbers and asks the model."""
        return f"explainer.{self.name}"

    @property
    def section(self) -> str | None:
        """Where its explanations are kept: a hash of all that they depend on, or None if that is not known."""
        if self.subject is None or self.identity is None:
            return None
        code = of_code(Job)  # how it is asked
        return sha256(f"{self.subject} {self.identity} {code} {self.component} {self.seed}".encode()).hexdigest()

    @property
    def label(self) -> str:
        """What people are told of that place."""
        return f"{self.dataset.name}, {self.component}, seed {self.seed}"

    @cached_property
    def ready(self) -> tuple[Callable[[Batch], Explanation], Ledger, Told]:
        """The function that explains, once in each process, the account of the rows that it asks for, and its cost."""
        if self.identity is not None and of_code(self.explainer.__class__) != self.code:
            raise Failure(f"the source of {self.component} was changed during the run. Start it again.")
        ledger, begun = Ledger(), time.perf_counter()
        gate = ledger.gate(self.model, self.explainer.access, self.component)
        function = self.explainer.fit(self.dataset, gate)
        seconds = time.perf_counter() - begun
        return function, ledger, Told(_NOBODY, _NOBODY.astype(float), ledger.rows[self.component], seconds)

    def __reduce__(self) -> tuple[type[Job], tuple[Any, ...]]:
        """Without what is ready: functions do not travel."""
        return Job, tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Explained:
    """Explanations, and what computing them cost, whenever that was."""

    explanation: Explanation
    rows: int  # asked of the model
    seconds: float  # of one core
    known: int  # instances whose explanation was known from before


def explain(job: Job, executor: Executor, cache: Cache, advance: Callable[[int], None]) -> Explained:
    """Look up what is known, compute the rest, and keep each chunk as soon as it is there."""
    instances, section = job.instances, job.section
    keys = [_key(*one) for one in zip(instances.ids.tolist(), job.labels.tolist(), instances.codes, strict=True)]
    gathered = _Gathered(len(keys))
    known: dict[bytes, Told] = {}
    if section is None:
        log.info("%s is not kept in the cache: its settings or the model have no plain values", job.component)
    else:
        known = cache.known(section, job.label, [_FIT, *keys])
    fit = known.pop(_FIT, Told(_NOBODY, _NOBODY.astype(float), 0, 0.0))
    missing = np.array([row for row, key in enumerate(keys) if key not in known], dtype=np.int64)
    for row, key in enumerate(keys):
        if key in known:
            gathered.add(row, known.pop(key))
    advance(len(keys) - len(missing))
    chunks = [missing[start : start + _CHUNK] for start in range(0, len(missing), _CHUNK)]
    for rows, (fit, new) in zip(chunks, executor.map(_explain, job, chunks), strict=True):
        if section is not None:
            cache.keep(section, job.label, {_FIT: fit} | dict(zip((keys[row] for row in rows), new, strict=True)))
        for row, told in zip(rows.tolist(), new, strict=True):
            gathered.add(row, told)
        advance(len(rows))
    explanation = Explanation(gathered.features, gathered.scores)
    cost = (fit.rows + gathered.rows, fit.seconds + gathered.seconds)
    return Explained(explanation, *cost, known=len(keys) - len(missing))


class _Gathered:
    """Explanations as they come in, in arrays that widen when one names more features."""

    def __init__(self, size: int) -> None:
        self.features = np.zeros((size, 0), dtype=np.int64)
        self.scores = np.zeros((size, 0))
        self.rows, self.seconds = 0, 0.0

    def add(self, row: int, told: Told) -> None:
        width = len(told.features)
        more = width - self.features.shape[1]
        if more > 0:
            self.features = np.pad(self.features, ((0, 0), (0, more)), constant_values=NONE)
            self.scores = np.pad(self.scores, ((0, 0), (0, more)), constant_values=np.nan)
        self.features[row, :width], self.scores[row, :width] = told.features, told.scores
        self.rows, self.seconds = self.rows + told.rows, self.seconds + told.seconds


def _key(instance: int, label: int, codes: Codes) -> bytes:
    return blake2b(f"{instance} {label} ".encode() + codes.tobytes(), digest_size=16).digest()


def _explain(job: Job, rows_of: Ints) -> tuple[Told, list[Told]]:
    """A chunk of instances, here or in another process; rows and time are shared out among them."""
    function, ledger, fit = job.ready
    some = job.instances.take(rows_of)
    batch = Batch(some.codes, job.labels[rows_of], some.ids, job.seed, job.component)
    before, begun = ledger.rows[job.component], time.perf_counter()
    explanation = checked(job.name, function(batch), batch.codes)
    seconds = (time.perf_counter() - begun) / len(batch)
    rows, more = divmod(ledger.rows[job.component] - before, len(batch))
    named = explanation.features != NONE
    return fit, [
        Told(features[there], scores[there], rows + (i < more), seconds)
        for i, (features, scores, there) in enumerate(zip(explanation.features, explanation.scores, named, strict=True))
    ]


def checked(name: str, told: Explanation, codes: Codes) -> Explanation:
    """Refuse an explanation that names a feature twice, or one that is not there."""
    if not isinstance(told, Explanation):
        raise Failure(f"explainer.{name} returned {type(told).__name__}, not an Explanation")
    if told.features.shape != told.scores.shape or len(told) != len(codes):
        raise Failure(f"explainer.{name} returned {told.features.shape} features for {len(codes)} instances")
    for features, row in zip(told.features, codes, strict=True):
        named = features[features != NONE]
        if len(set(named.tolist())) != len(named) or (named < 0).any() or (named >= len(row)).any():
            raise Failure(f"explainer.{name} named features {named.tolist()}, which repeat or do not exist")
        if (row[named] == ABSENT).any():
            raise Failure(f"explainer.{name} named padding as a feature")
    return told
