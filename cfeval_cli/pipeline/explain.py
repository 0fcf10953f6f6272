"""The explanations of many instances: those known from before, and the others chunk by chunk."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cached_property, partial
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import (
    ABSENT,
    NONE,
    Access,
    Batch,
    Binary,
    Cache,
    Codes,
    Cost,
    Dataset,
    Executor,
    Explained,
    Explainer,
    Explanation,
    Floats,
    Ints,
    Ledger,
    Model,
    NotExplained,
    Rows,
)
from cfeval_cli.core.fingerprint import of_code
from cfeval_cli.core.scratch import Scratch, slabs
from cfeval_cli.errors import Failure, UserError, describe_error, refuse_system_exit
from cfeval_cli.pipeline.elsewhere import ADVICE, sample, shared_out
from cfeval_cli.pipeline.limit import TooLong, within
from cfeval_cli.pipeline.memo import Memo
from cfeval_cli.pipeline.together import Together

log = logging.getLogger("cfeval")

_CHUNK = 16  # instances that are explained at a time, at least
_MOST = 128  # of those that wait for a model together: then a call answers many
_PARTS = 8  # in which the rest is thought, so that the last ones of several processes end together
_FIRST = 4  # that are explained first, if a model is slow: other processes begin when their time is known
_HELD = 1 << 14  # explanations that are in memory before they are put aside
_FIT = b"fit"  # in the place of an instance: the cost of preparing an explainer
_HEAD = struct.Struct("<qddd")  # what it cost
_NO_FEATURES, _NO_SCORES = np.zeros(0, dtype=np.int64), np.zeros(0)


@dataclass(frozen=True)
class Answer:
    """The explanation of one instance, and what it cost."""

    features: Ints = field(default_factory=lambda: _NO_FEATURES)  # (K,)
    scores: Floats = field(default_factory=lambda: _NO_SCORES)  # (K,)
    cost: Cost = field(default_factory=Cost)
    fault: str = ""  # why there is none


@dataclass(frozen=True)
class Job:
    """One explainer's work on some instances."""

    name: str  # the explainer's config key
    explainer: Explainer
    access: Access  # what it asks of this model
    dataset: Dataset
    model: Model
    identity: str | None  # a hash of the explainer's settings and code, if it has one
    code: str  # of its code alone
    subject: str | None  # a hash of data and model
    seed: int
    rows: Rows
    timeout: float | None = None  # seconds for each instance

    @property
    def component(self) -> str:
        """Under which name it asks the model."""
        return f"explainer.{self.name}"

    @property
    def drawer(self) -> str:
        """Under which name it draws random numbers: its own, or that of the explainer whose samples it takes."""
        return f"explainer.{self.explainer.samples_of or self.name}"

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

    @property
    def side_by_side(self) -> bool:
        """Whether its instances wait for the model together, which pays unless an answer costs next to nothing."""
        # a limit of time is for each instance by itself
        return self.explainer.side_by_side and self.timeout is None and not isinstance(self.model, Binary)

    @cached_property
    def together(self) -> Together:
        """Where its instances wait for the model, in each process."""
        return Together()

    @cached_property
    def ready(self) -> tuple[Callable[[Batch], Explanation], Ledger, Answer]:
        """The function that explains, once in each process, the account of the rows that it asks for, and its cost."""
        if self.identity is not None and of_code(self.explainer.__class__) != self.code:
            raise Failure(f"the source of {self.component} was changed during the run. Start it again.")
        ledger, begun = Ledger(ask=self.together.ask), time.perf_counter()
        gate = ledger.gate(self.model, self.access, self.component, padded=self.dataset.padded)
        function = self.explainer.fit(self.dataset, gate)
        ledger.book(self.component, Cost(seconds=time.perf_counter() - begun))
        return function, ledger, Answer(cost=ledger.cost(self.component))

    def __reduce__(self) -> tuple[type[Job], tuple[Any, ...]]:
        """Without what is ready: functions do not travel."""
        return Job, tuple(getattr(self, field.name) for field in fields(self))


def explain(
    job: Job,
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    *,
    strict: bool = False,
    scratch: Scratch | None = None,
) -> Explained:
    """Look up what is known, compute the rest, and keep each chunk as soon as it is there.

    An instance that cannot be explained is left out with the reason; if `strict`, the first ends it all. What is told
    of many instances is put aside as it comes in.
    """
    instances, size = job.rows, len(job.rows)
    gathered = _Gathered(size, scratch or Scratch())
    memo = Memo(cache, job.section, job.label, packed, unpacked)
    if memo.section is None:
        log.info("%s is not kept for later runs: it, or the model, does not say what it depends on", job.component)
    fit, unknown = Answer(), list[Ints]()
    for slab in slabs(size):
        keys = _keys(instances.take(slab))
        known = memo.known([_FIT, *keys])
        fit = known.pop(_FIT, fit)
        for row, key in enumerate(keys, slab.start):
            if key in known:
                gathered.add(row, known[key])
        unknown.append(np.array([row for row, key in enumerate(keys, slab.start) if key not in known], dtype=np.int64))
    missing = np.concatenate(unknown)
    if 0 < len(missing) < size:
        log.info("%s: %s of %s known from before", job.component, f"{size - len(missing):,}", f"{size:,}")
    advance(size - len(missing))
    chunks = np.split(missing, _ends(len(missing), job.side_by_side)[:-1]) if len(missing) else []
    elsewhere = [missing[:0]]
    with memo.keeping() as keep:
        for rows, ((fit, new), is_elsewhere) in zip(chunks, shared_out(executor, _explain, job, chunks), strict=True):
            if is_elsewhere:
                elsewhere.append(rows)
            for row, told in zip(rows.tolist(), new, strict=True):
                if told.fault and strict:
                    which = f"{job.component}, instance {instances.ids[row]}"
                    raise Failure(f"{which}: {told.fault}. With strict=false the run goes on without it.")
                gathered.add(row, told)
            # not what went wrong: it may go well another time
            good = {key: told for key, told in zip(_keys(instances.take(rows)), new, strict=True) if not told.fault}
            keep({_FIT: fit} | good)
            advance(len(rows))
    explanation = Explanation(gathered.features, gathered.scores)
    cached = np.setdiff1d(np.arange(size), missing)
    cost, others = fit.cost + gathered.cost, np.concatenate(elsewhere)
    done = Explained(explanation, cost, len(cached), gathered.faults, cached, others)
    if done.faults:
        left = f"{len(done.faults):,} of {size:,}"
        log.warning("%s: no explanation of %s instances: %s", job.component, left, done.reasons)
    return done


def check_sample(job: Job, done: Explained, tolerance: float) -> None:
    """Recompute a few of the explanations from the cache and from worker processes; Failure if one differs.

    An explainer that does not declare what its results depend on may give others each time.
    """
    drawn = sample(job.seed, job.name, done.cached, done.elsewhere) if job.identity is not None else {}
    for origin, rows in drawn.items():
        for row, again in zip(rows.tolist(), _explain(job, rows)[1], strict=True):
            if again.fault:
                where = (job.component, job.rows.ids[row], again.fault)
                log.warning("%s, instance %s: could not be compared with a second computation: %s", *where)
            elif row not in done.faults:
                _compare(job, done, row, again, tolerance, origin)


def _compare(job: Job, done: Explained, row: int, again: Answer, tolerance: float, origin: str) -> None:
    named = done.explanation.features[row]
    before = dict(zip(named.tolist(), done.explanation.scores[row].tolist(), strict=True))
    now = dict(zip(again.features.tolist(), again.scores.tolist(), strict=True))
    scale = float(np.abs(again.scores[np.isfinite(again.scores)]).max(initial=1.0))
    for feature in sorted((before.keys() | now.keys()) - {NONE}):
        old, new = before.get(feature, np.nan), now.get(feature, np.nan)
        if not np.isclose(old, new, rtol=0.0, atol=tolerance * scale):
            raise Failure(
                f"{job.component}, instance {job.rows.ids[row]}: the explanation {origin} gives "
                f"{job.dataset.features[feature].name} a score of {old:.8g}, and computed again it is {new:.8g}. "
                f"{ADVICE[origin]}"
            )


def _ends(size: int, side_by_side: bool) -> list[int]:
    """Where the chunks of so many instances end: of a model that is slow first few, then many, then fewer."""
    ends = [min(size, _FIRST if side_by_side else _CHUNK)]
    while ends[-1] < size:
        more = min(_MOST, (size - ends[-1]) // _PARTS) if side_by_side else _CHUNK
        ends.append(min(size, ends[-1] + max(_CHUNK, more)))
    return ends


class _Gathered:
    """Explanations as they come in, in arrays that widen when one names more features."""

    def __init__(self, size: int, scratch: Scratch) -> None:
        self._scratch, self._added = scratch, 0
        self.features = np.zeros((size, 0), dtype=np.int64)
        self.scores = np.zeros((size, 0))
        self.cost = Cost()
        self.faults: dict[int, str] = {}

    def add(self, row: int, told: Answer) -> None:
        if told.fault:
            self.faults[row] = told.fault
        width = len(told.features)
        if width > self.features.shape[1]:
            self.features = self._wider(self.features, width, NONE)
            self.scores = self._wider(self.scores, width, np.nan)
        self.features[row, :width], self.scores[row, :width] = told.features, told.scores
        self.cost += told.cost
        self._added += 1
        if self._added % _HELD == 0:
            self._scratch.release()

    def _wider(self, old: NDArray[Any], width: int, nothing: float) -> NDArray[Any]:
        """The same with room for so many features."""
        new = self._scratch.blank((len(old), width), old.dtype)
        for slab in slabs(len(old)):
            new[slab, : old.shape[1]], new[slab, old.shape[1] :] = old[slab], nothing
            self._scratch.release()
        return new


def _keys(rows: Rows) -> list[bytes]:
    """By which explanations of instances are found again."""
    every = zip(rows.ids.tolist(), rows.labels.tolist(), rows.codes, strict=True)
    return [
        blake2b(f"{instance} {label} ".encode() + codes.tobytes(), digest_size=16).digest()
        for instance, label, codes in every
    ]


def packed(told: Answer) -> bytes:
    """For the cache."""
    head = _HEAD.pack(*astuple(told.cost))
    return head + told.features.astype("<i4").tobytes() + told.scores.astype("<f8").tobytes()


def unpacked(value: bytes) -> Answer | None:
    """From the cache; None if it is nothing of ours."""
    size, rest = divmod(len(value) - _HEAD.size, 12)
    if size < 0 or rest:
        return None
    cost = Cost(*_HEAD.unpack_from(value))
    features = np.frombuffer(value, "<i4", size, _HEAD.size).astype(np.int64)
    scores = np.frombuffer(value, "<f8", size, _HEAD.size + 4 * size).copy()
    return Answer(features, scores, cost)


def _explain(job: Job, rows_of: Ints) -> tuple[Answer, list[Answer]]:
    """A chunk of instances, here or in another process; one that goes wrong does not take the others down."""
    fit = job.ready[2]
    if job.side_by_side:
        return fit, _asked(job, [row[None] for row in rows_of])
    if job.timeout is None:
        told = _asked(job, [rows_of])
        if len(rows_of) == 1 or not all(one.fault for one in told):
            return fit, told
    return fit, [one for row in rows_of for one in _asked(job, [row[None]])]  # who is to blame is seen one by one


def _asked(job: Job, parts: Sequence[Ints]) -> list[Answer]:
    """Some instances, those of a part at once; what it costs is shared out among all of them."""
    ledger = job.ready[1]
    batches = [_batch(job, part) for part in parts]
    before = ledger.cost(job.component)
    # what is begun anew counts once, as it would with another number of processes
    again = partial(ledger.rows.__setitem__, job.component, before.rows)
    with ledger.clock(job.component):
        explanations = job.together.run([partial(_tried, job, batch) for batch in batches], again)
    told = [
        _checked(answer, i, codes)
        for batch, answer in zip(batches, explanations, strict=True)
        for i, codes in enumerate(batch.codes)
    ]
    costs = (ledger.cost(job.component) - before).shared(len(told))
    return [replace(one, cost=cost) for one, cost in zip(told, costs, strict=True)]


def _batch(job: Job, part: Ints) -> Batch:
    some = job.rows.take(part)
    return Batch(some.ids, some.codes, some.labels, seed=job.seed, component=job.drawer)


def _tried(job: Job, batch: Batch) -> Explanation | str:
    """The explanation of a batch, or why there is none."""
    try:
        with within(job.timeout), refuse_system_exit():
            answer = job.ready[0](batch)
        return shaped(answer, len(batch))
    except (UserError, Failure):
        raise
    except NotExplained as error:
        return _printable(str(error))
    except TooLong:
        return f"no answer within {job.timeout:g} s"
    except Exception as error:
        return _printable(describe_error(error))


def _checked(answer: Explanation | str, row: int, codes: Codes) -> Answer:
    """The explanation of one instance of a batch, if it is one."""
    if isinstance(answer, str):
        return Answer(fault=answer)
    there = answer.features[row] != NONE
    features, scores = answer.features[row][there], answer.scores[row][there]
    wrong = wrong_with(features, scores, codes)
    return Answer(fault=wrong) if wrong else Answer(features, scores)


def shaped(answer: Any, size: int) -> Explanation:
    """An explainer's answer, if it has the form of one for so many instances."""
    if not isinstance(answer, Explanation):
        raise TypeError(f"returned {type(answer).__name__}, not an Explanation")
    features, scores = np.asarray(answer.features), np.asarray(answer.scores)
    if features.ndim != 2 or features.shape != scores.shape or len(features) != size:
        shapes = ["×".join(map(str, array.shape)) for array in (features, scores)]
        raise ValueError(f"returned {shapes[0]} features and {shapes[1]} scores for {size} instances")
    if not np.issubdtype(features.dtype, np.integer):
        raise TypeError(f"returned features of type {features.dtype}, not whole numbers")
    return Explanation(features.astype(np.int64, copy=False), scores.astype(np.float64, copy=False))


def wrong_with(named: Ints, scores: Floats, codes: Codes) -> str:
    """What is wrong with the explanation of one instance; empty if nothing is."""
    if ((named < 0) | (named >= len(codes))).any():
        return f"named features that do not exist: {named.tolist()[:10]}"
    if len(set(named.tolist())) != len(named):
        return f"named a feature more than once: {named.tolist()[:10]}"
    if (codes[named] == ABSENT).any():
        return "named a position behind the end of the text"
    if np.isnan(scores).any():
        return "gave NaN as a score"
    return ""


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
