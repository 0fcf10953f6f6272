"""Explanation of many instances by one explainer, in this process and in worker processes."""

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
    LedgerKey,
    Model,
    NotExplained,
    Rows,
    Section,
)
from cfeval_cli.core.fingerprint import hash_code, hash_work
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure, UserError, describe_error, refuse_system_exit
from cfeval_cli.pipeline.batched_evaluation import BatchedEvaluation
from cfeval_cli.pipeline.chunks import ChunkedComputation, UnitResult, compute_in_chunks
from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time
from cfeval_cli.pipeline.verification import draw_verified_instances

log = logging.getLogger("cfeval")

_MIN_CHUNK = 16  # instances
_MAX_BATCHED_CHUNK = 128  # instances per chunk if one call of the model evaluates the queries of several instances
# Larger chunks take an eighth of the remaining instances, so that several processes finish at about the same time.
_REMAINING_SHARE = 8
# The first chunk of a slow model: other processes start when its time is known.
_FIRST_BATCHED_CHUNK = 4
_FIT_KEY = b"fit"  # of the cost of fitting the explainer, among keys that are hashes of instances
_NO_RESULT = {"features": np.zeros((1, 0), dtype=np.int64), "scores": np.zeros((1, 0))}  # of one instance


@dataclass(frozen=True)
class ExplanationJob:
    """One explainer with the model and the instances that it explains."""

    name: str  # the explainer's config key
    explainer: Explainer
    access: Access  # that the explainer needs to this model
    dataset: Dataset
    model: Model
    explainer_hash: str | None  # of the explainer's settings and code; None: results are not cached
    code_hash: str  # of the explainer's code alone
    subject_hash: str | None  # of data and model
    seed: int
    rows: Rows
    timeout: float | None = None  # seconds for each instance

    @property
    def component(self) -> str:
        """Its name in messages and in the cache."""
        return f"explainer.{self.name}"

    @property
    def ledger_key(self) -> LedgerKey:
        """The key under which the ledger counts its model evaluations."""
        return LedgerKey("explainer", self.name)

    @property
    def random_component(self) -> str:
        """The key of its random streams: its own name, or that of the explainer whose samples it shares."""
        return f"explainer.{self.explainer.samples_of or self.name}"

    @property
    def section(self) -> Section:
        """The section of the cache with its explanations."""
        key = hash_work(ExplanationJob, self.subject_hash, self.explainer_hash, self.component, self.seed)
        return Section(key, f"{self.dataset.name}, {self.component}, seed {self.seed}")

    @property
    def is_batched(self) -> bool:
        """Whether the queries of several instances are evaluated together.

        This pays off unless the model is very fast. A time limit needs each instance to be explained by itself.
        """
        return self.explainer.supports_concurrency and self.timeout is None and not isinstance(self.model, BinaryModel)

    @cached_property
    def evaluation(self) -> BatchedEvaluation:
        """The batched evaluation of the model, one in each process."""
        return BatchedEvaluation()

    @cached_property
    def fitted(self) -> tuple[Callable[[Batch], Explanation], Ledger, Cost]:
        """The fitted explainer, the ledger of its model evaluations, and the cost of fitting; one in each process."""
        if self.explainer_hash is not None and hash_code(self.explainer.__class__) != self.code_hash:
            raise Failure(f"the source code of {self.component} was changed during the run. Start the run again.")
        ledger, started = Ledger(evaluate=self.evaluation.evaluate), time.perf_counter()
        client = ledger.open_client(self.model, self.access, self.ledger_key, padded=self.dataset.padded)
        function = self.explainer.fit(self.dataset, client)
        ledger.record(self.ledger_key, Cost(seconds=time.perf_counter() - started))
        return function, ledger, ledger.get_cost(self.ledger_key)

    def __reduce__(self) -> tuple[type[ExplanationJob], tuple[Any, ...]]:
        """Pickle the fields only: the fitted explainer is a function and cannot be pickled."""
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
    """Explain all instances.

    An instance that cannot be explained gets no explanation but a reason; with `strict`, it is a Failure.
    """
    section, rows = job.section, job.rows
    if section.key is None:
        log.info(
            "%s: explanations are not cached, because the explainer or the model does not declare what its results "
            "depend on",
            job.component,
        )
    # One instance is one unit, so that its explanation is found in the cache whichever others are explained.
    computation = ChunkedComputation(
        job.component, job, _explain_chunk, (rows.ids, rows.predicted_classes, rows.codes), section,
        get_chunk_ends=partial(_get_chunk_ends, is_batched=job.is_batched),
    )  # fmt: skip
    joined = compute_in_chunks(computation, executor, cache, advance, scratch or Scratch(), strict=strict)
    explanation = Explanation(joined.arrays["features"], joined.arrays["scores"])
    cost = _get_fit_cost(job, section, cache, is_cached=len(joined.cached_positions) == len(rows)) + joined.cost
    result = ExplainerResult(
        explanation,
        cost,
        len(joined.cached_positions),
        joined.failures,
        joined.cached_positions,
        joined.worker_positions,
    )
    if result.failures:
        n_failures = f"{len(result.failures):,} of {len(rows):,}"
        log.warning("%s: no explanation of %s instances: %s", job.component, n_failures, result.failure_summary)
    return result


def _get_fit_cost(job: ExplanationJob, section: Section, cache: Cache, *, is_cached: bool) -> Cost:
    """Return the cost of fitting the explainer; if all explanations were cached, the cost at that time."""
    entry = cache.get(section, [_FIT_KEY]).get(_FIT_KEY) if is_cached else None
    if entry is not None and (result := UnitResult.from_cache_entry(entry)) is not None:
        return result.cost
    cost = job.fitted[2]
    cache.put(section, {_FIT_KEY: UnitResult({}, cost).to_cache_entry()})
    return cost


def check_explanations(job: ExplanationJob, result: ExplainerResult, tolerance: float) -> None:
    """Compute a few explanations from the cache and from worker processes again; Failure if one differs.

    An explainer that does not declare what its results depend on may be random, and is not checked.
    """
    if job.explainer_hash is None:
        return
    origins = (result.cached_positions, result.worker_positions)
    for verified in draw_verified_instances(job.seed, job.name, job.component, job.rows.ids, *origins):
        repeated = _explain_chunk(job, verified.positions)
        first, second = np.full((2, len(repeated), job.dataset.n_features), np.nan)
        for i, (position, unit) in enumerate(zip(verified.positions.tolist(), repeated, strict=True)):
            if unit.failure:
                details = (job.component, verified.ids[i], unit.failure)
                log.warning("%s, instance %s: could not be compared with a second computation: %s", *details)
            elif position not in result.failures:
                features, scores = (getattr(result.explanation, name)[position] for name in ("features", "scores"))
                is_selected = features != NO_FEATURE
                first[i, features[is_selected]] = scores[is_selected]
                second[i, unit.arrays["features"][0]] = unit.arrays["scores"][0]
        verified.check_values(first, second, job.dataset.features, "score", tolerance)


def _get_chunk_ends(n_instances: int, is_batched: bool) -> list[int]:
    """Return where the chunks of so many instances end; batched chunks are small at first, then large, then small."""
    ends = [min(n_instances, _FIRST_BATCHED_CHUNK if is_batched else _MIN_CHUNK)]
    while ends[-1] < n_instances:
        size = min(_MAX_BATCHED_CHUNK, (n_instances - ends[-1]) // _REMAINING_SHARE) if is_batched else _MIN_CHUNK
        ends.append(min(n_instances, ends[-1] + max(_MIN_CHUNK, size)))
    return ends


def _explain_chunk(job: ExplanationJob, positions: Ints) -> list[UnitResult]:
    """Explain a chunk of instances; one that fails leaves the others their explanations."""
    if job.is_batched:
        return _explain_groups(job, [position[None] for position in positions])
    if job.timeout is None:
        results = _explain_groups(job, [positions])
        if len(positions) == 1 or not all(result.failure for result in results):
            return results
    # One by one, so that only the instances that cannot be explained have no explanation.
    return [result for position in positions for result in _explain_groups(job, [position[None]])]


def _explain_groups(job: ExplanationJob, groups: Sequence[Ints]) -> list[UnitResult]:
    """Explain groups of instances, each by one call of the explainer; the cost is divided equally among all."""
    _, ledger, _ = job.fitted
    batches = [_create_batch(job, group) for group in groups]
    before = ledger.get_cost(job.ledger_key)
    # After a restart the evaluations count once, as they do with another number of processes.
    reset_evaluations = partial(ledger.n_evaluations.__setitem__, job.ledger_key, before.n_evaluations)
    with ledger.measure_time(job.ledger_key):
        outputs = job.evaluation.run([partial(_explain_batch, job, batch) for batch in batches], reset_evaluations)
    results = [
        _create_result(output, i, codes)
        for batch, output in zip(batches, outputs, strict=True)
        for i, codes in enumerate(batch.codes)
    ]
    costs = (ledger.get_cost(job.ledger_key) - before).split(len(results))
    return [replace(result, cost=cost) for result, cost in zip(results, costs, strict=True)]


def _create_batch(job: ExplanationJob, positions: Ints) -> Batch:
    rows = job.rows.take(positions)
    return Batch(rows.ids, rows.codes, rows.predicted_classes, seed=job.seed, component=job.random_component)


def _explain_batch(job: ExplanationJob, batch: Batch) -> Explanation | str:
    """Return the explanation of a batch, or the reason why there is none."""
    try:
        with limit_time(job.timeout), refuse_system_exit():
            output = job.fitted[0](batch)
        return validate_output(output, len(batch))
    except (UserError, Failure):
        raise
    except NotExplained as error:
        return _replace_unprintable(str(error))
    except TimeLimitExceeded:
        return f"no answer within {job.timeout:g} s"
    except Exception as error:
        return _replace_unprintable(describe_error(error))


def _create_result(output: Explanation | str, row: int, codes: Codes) -> UnitResult:
    """Return the explanation of one instance of a batch, or the reason why there is none."""
    if isinstance(output, str):
        return UnitResult(_NO_RESULT, failure=output)
    is_selected = output.features[row] != NO_FEATURE
    features, scores = output.features[row][is_selected], output.scores[row][is_selected]
    problem = describe_invalid_explanation(features, scores, codes)
    if problem:
        return UnitResult(_NO_RESULT, failure=problem)
    return UnitResult({"features": features[None], "scores": scores[None]})


def validate_output(output: Any, n_instances: int) -> Explanation:
    """Return an explainer's output as an Explanation of int64 and float64; raise an error if it has another form."""
    if not isinstance(output, Explanation):
        raise TypeError(f"returned {type(output).__name__}, not an Explanation")
    features, scores = np.asarray(output.features), np.asarray(output.scores)
    if features.ndim != 2 or features.shape != scores.shape or len(features) != n_instances:
        shapes = ["×".join(map(str, array.shape)) for array in (features, scores)]
        raise ValueError(f"returned {shapes[0]} features and {shapes[1]} scores for {n_instances} instances")
    if not np.issubdtype(features.dtype, np.integer):
        raise TypeError(f"returned features of type {features.dtype}, not integers")
    return Explanation(features.astype(np.int64, copy=False), scores.astype(np.float64, copy=False))


def describe_invalid_explanation(features: Ints, scores: Floats, codes: Codes) -> str:
    """Return why the explanation of one instance is invalid; empty if it is valid."""
    if ((features < 0) | (features >= len(codes))).any():
        return f"selected features that do not exist: {features.tolist()[:10]}"
    if len(set(features.tolist())) != len(features):
        return f"selected a feature more than once: {features.tolist()[:10]}"
    if (codes[features] == ABSENT).any():
        return "selected a position after the end of the text"
    if np.isnan(scores).any():
        return "gave NaN as a score"
    return ""


def _replace_unprintable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
