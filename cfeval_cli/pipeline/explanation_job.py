"""The explanations of many instances by one explainer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Batch,
    BinaryModel,
    Cache,
    Codes,
    Cost,
    Dataset,
    Executor,
    Explainer,
    ExplainerResult,
    Explanation,
    Floats,
    Ints,
    Ledger,
    Model,
    NotExplained,
    Rows,
    Section,
)
from cfeval_cli.core.fingerprint import of_code, of_work
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure, UserError, describe_error, refuse_system_exit
from cfeval_cli.pipeline.batched_evaluation import BatchedEvaluation
from cfeval_cli.pipeline.chunks import (
    ADVICE,
    ChunkedComputation,
    UnitResult,
    compute_in_chunks,
    draw_verified_instances,
)
from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time

log = logging.getLogger("cfeval")

_CHUNK = 16  # instances that are explained at a time, at least
_MOST = 128  # of those that wait for a model together: then a call answers many
_PARTS = 8  # in which the rest is thought, so that the last ones of several processes end together
_FIRST = 4  # that are explained first, if a model is slow: other processes begin when their time is known
_FIT = b"fit"  # in the place of an instance: the cost of preparing an explainer
_NOTHING = {"features": np.zeros((1, 0), dtype=np.int64), "scores": np.zeros((1, 0))}  # of an instance without a result


@dataclass(frozen=True)
class ExplanationJob:
    """One explainer's work on some instances."""

    name: str  # the explainer's config key
    explainer: Explainer
    access: Access  # what it asks of this model
    dataset: Dataset
    model: Model
    identity: str | None  # a hash of the explainer's settings and code, if it has one
    code: str  # of its code alone
    subject_hash: str | None  # a hash of data and model
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
    def section(self) -> Section:
        """Where its explanations are stored."""
        key = of_work(ExplanationJob, self.subject_hash, self.identity, self.component, self.seed)
        return Section(key, f"{self.dataset.name}, {self.component}, seed {self.seed}")

    @property
    def side_by_side(self) -> bool:
        """Whether its instances wait for the model together, which pays unless an answer costs next to nothing."""
        # a limit of time is for each instance by itself
        return self.explainer.side_by_side and self.timeout is None and not isinstance(self.model, BinaryModel)

    @cached_property
    def evaluation(self) -> BatchedEvaluation:
        """Where its instances wait for the model, in each process."""
        return BatchedEvaluation()

    @cached_property
    def ready(self) -> tuple[Callable[[Batch], Explanation], Ledger, Cost]:
        """The function that explains, once in each process, the account of the rows that it asks for, and its cost."""
        if self.identity is not None and of_code(self.explainer.__class__) != self.code:
            raise Failure(f"the source of {self.component} was changed during the run. Start it again.")
        ledger, begun = Ledger(ask=self.evaluation.evaluate), time.perf_counter()
        client = ledger.open_client(self.model, self.access, self.component, padded=self.dataset.padded)
        function = self.explainer.fit(self.dataset, client)
        ledger.book(self.component, Cost(seconds=time.perf_counter() - begun))
        return function, ledger, ledger.cost(self.component)

    def __reduce__(self) -> tuple[type[ExplanationJob], tuple[Any, ...]]:
        """Without what is ready: functions do not travel."""
        return ExplanationJob, tuple(getattr(self, field.name) for field in fields(self))


def compute_explanations(
    job: ExplanationJob,
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    *,
    strict: bool = False,
    scratch: Scratch | None = None,
) -> ExplainerResult:
    """Explain all instances; one that cannot be explained is left out with the reason, or ends the run if `strict`."""
    section, rows = job.section, job.rows
    if section.key is None:
        log.info("%s is not stored for later runs: it, or the model, does not say what it depends on", job.component)
    # an explanation is stored by itself, so that it is found whichever other instances are explained
    ends = partial(_ends, side_by_side=job.side_by_side)
    work = ChunkedComputation(
        job.component, job, _explain, (rows.ids, rows.labels, rows.codes), section, get_chunk_ends=ends
    )
    done = compute_in_chunks(work, executor, cache, advance, scratch or Scratch(), strict=strict)
    explanation = Explanation(done.arrays["features"], done.arrays["scores"])
    cost = _fit_cost(job, section, cache, is_stored=len(done.cached) == len(rows)) + done.cost
    explained = ExplainerResult(explanation, cost, len(done.cached), done.faults, done.cached, done.from_workers)
    if explained.faults:
        n_faults = f"{len(explained.faults):,} of {len(rows):,}"
        log.warning("%s: no explanation of %s instances: %s", job.component, n_faults, explained.reasons)
    return explained


def _fit_cost(job: ExplanationJob, section: Section, cache: Cache, *, is_stored: bool) -> Cost:
    """Return what preparing the explainer cost; if all explanations were stored, what it cost at that time."""
    entry = cache.get(section, [_FIT]).get(_FIT) if is_stored else None
    if entry is not None and (part := UnitResult.from_cache_entry(entry)) is not None:
        return part.cost
    cost = job.ready[2]
    cache.put(section, {_FIT: UnitResult({}, cost).to_cache_entry()})
    return cost


def check_explanations(job: ExplanationJob, done: ExplainerResult, tolerance: float) -> None:
    """Recompute a few of the explanations from the cache and from worker processes; Failure if one differs.

    An explainer that does not declare what its results depend on may give others each time.
    """
    drawn = (
        draw_verified_instances(job.seed, job.name, done.cached, done.from_workers) if job.identity is not None else {}
    )
    for origin, rows in drawn.items():
        for row, again in zip(rows.tolist(), _explain(job, rows), strict=True):
            if again.fault:
                where = (job.component, job.rows.ids[row], again.fault)
                log.warning("%s, instance %s: could not be compared with a second computation: %s", *where)
            elif row not in done.faults:
                _compare(job, done, row, again, tolerance, origin)


def _compare(
    job: ExplanationJob, done: ExplainerResult, row: int, again: UnitResult, tolerance: float, origin: str
) -> None:
    named = done.explanation.features[row]
    before = dict(zip(named.tolist(), done.explanation.scores[row].tolist(), strict=True))
    features, scores = again.arrays["features"][0], again.arrays["scores"][0]
    now = dict(zip(features.tolist(), scores.tolist(), strict=True))
    scale = float(np.abs(scores[np.isfinite(scores)]).max(initial=1.0))
    for feature in sorted((before.keys() | now.keys()) - {NO_FEATURE}):
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


def _explain(job: ExplanationJob, places: Ints) -> list[UnitResult]:
    """A chunk of instances, here or in another process; one that goes wrong does not take the others down."""
    if job.side_by_side:
        return _asked(job, [place[None] for place in places])
    if job.timeout is None:
        parts = _asked(job, [places])
        if len(places) == 1 or not all(part.fault for part in parts):
            return parts
    return [part for place in places for part in _asked(job, [place[None]])]  # who is to blame is seen one by one


def _asked(job: ExplanationJob, groups: Sequence[Ints]) -> list[UnitResult]:
    """Some instances, those of a group at once; what it costs is shared out among all of them."""
    _, ledger, _ = job.ready
    batches = [_batch(job, group) for group in groups]
    before = ledger.cost(job.component)
    # what is begun anew counts once, as it would with another number of processes
    again = partial(ledger.rows.__setitem__, job.component, before.rows)
    with ledger.clock(job.component):
        explanations = job.evaluation.run([partial(_tried, job, batch) for batch in batches], again)
    parts = [
        _checked(answer, i, codes)
        for batch, answer in zip(batches, explanations, strict=True)
        for i, codes in enumerate(batch.codes)
    ]
    costs = (ledger.cost(job.component) - before).shared(len(parts))
    return [replace(part, cost=cost) for part, cost in zip(parts, costs, strict=True)]


def _batch(job: ExplanationJob, part: Ints) -> Batch:
    some = job.rows.take(part)
    return Batch(some.ids, some.codes, some.labels, seed=job.seed, component=job.drawer)


def _tried(job: ExplanationJob, batch: Batch) -> Explanation | str:
    """The explanation of a batch, or why there is none."""
    try:
        with limit_time(job.timeout), refuse_system_exit():
            answer = job.ready[0](batch)
        return shaped(answer, len(batch))
    except (UserError, Failure):
        raise
    except NotExplained as error:
        return _printable(str(error))
    except TimeLimitExceeded:
        return f"no answer within {job.timeout:g} s"
    except Exception as error:
        return _printable(describe_error(error))


def _checked(answer: Explanation | str, row: int, codes: Codes) -> UnitResult:
    """The explanation of one instance of a batch, if it is one."""
    if isinstance(answer, str):
        return UnitResult(_NOTHING, fault=answer)
    there = answer.features[row] != NO_FEATURE
    features, scores = answer.features[row][there], answer.scores[row][there]
    wrong = wrong_with(features, scores, codes)
    return (
        UnitResult(_NOTHING, fault=wrong) if wrong else UnitResult({"features": features[None], "scores": scores[None]})
    )


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
