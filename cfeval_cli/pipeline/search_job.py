"""Search for counterfactuals of many instances, in this process and in worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from cfeval_cli.core import (
    Access,
    Cache,
    Codes,
    Cost,
    Counterfactuals,
    Dataset,
    Executor,
    FittedDistance,
    Ints,
    Ledger,
    LedgerKey,
    Model,
    Rows,
    Search,
    SearchTask,
    Section,
)
from cfeval_cli.core.counterfactual import select_changeable
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.chunks import ChunkedComputation, JoinedResults, UnitResult, compute_in_chunks
from cfeval_cli.pipeline.context import index_without_copy
from cfeval_cli.pipeline.verification import draw_verified_instances


def get_stream_name(access: Access) -> str:
    """Return the key of a search's random streams: without the explainer, so that equal features get equal edits."""
    return f"search.{access.name.lower()}"


@dataclass(frozen=True)
class SearchJob:
    """A search at one level of access, with the model and the instances."""

    search: Search
    dataset: Dataset
    model: Model
    distance: FittedDistance
    access: Access
    seed: int
    rows: Rows
    features: Ints  # (N, k) that may be edited, for each instance

    @property
    def component(self) -> str:
        """The key of its random streams, and its name in messages."""
        return get_stream_name(self.access)

    @property
    def ledger_key(self) -> LedgerKey:
        """The key of its cost in the ledger of one chunk."""
        return LedgerKey("search", access=self.access)


def find_counterfactuals(
    job: SearchJob,
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    *,
    section: Section,
    scratch: Scratch | None = None,
) -> JoinedResults:
    """Find counterfactuals of all instances; the arrays of the result are the fields of `Counterfactuals`."""
    unit_size = job.search.choose_chunk_size(job.dataset, job.features.shape[1])
    inputs = (job.rows.ids, job.rows.predicted_classes, job.rows.codes, job.features)
    computation = ChunkedComputation(job.component, job, _search_chunk, inputs, section, unit_size)
    return compute_in_chunks(computation, executor, cache, advance, scratch or Scratch())


def check_counterfactuals(job: SearchJob, joined: JoinedResults, tolerance: float) -> None:
    """Evaluate a few counterfactuals from the cache and from worker processes again; Failure if one differs.

    These evaluations are not part of any component's cost.
    """
    counterfactuals = Counterfactuals(**joined.arrays)
    origins = (joined.cached_positions, joined.worker_positions)
    for verified in draw_verified_instances(job.seed, job.component, job.component, job.rows.ids, *origins):
        rows, edits = job.rows.take(verified.positions), counterfactuals.take(verified.positions)
        client = Ledger().open_client(job.model, job.access, job.ledger_key, padded=job.dataset.padded)
        if edits.codes is not None:
            labels, probability = client.predict_with_proba(edits.codes, rows.predicted_classes)
        elif edits.vectors is not None:
            labels, probability = client.evaluate_embeddings(
                rows.codes, edits.features, edits.vectors, rows.predicted_classes
            )
        else:
            continue
        classes = np.array(job.dataset.classes)
        first, second = classes[edits.labels].tolist(), classes[labels].tolist()
        differs = labels != edits.labels
        if probability is not None and edits.probability is not None:
            differs = np.abs(probability - edits.probability) > tolerance
            first, second = ([f"{p:.8g}" for p in values] for values in (edits.probability, probability))
        if differs.any():
            row = int(differs.argmax())
            quantity = "class" if probability is None else f"P({job.dataset.classes[rows.predicted_classes[row]]})"
            verified.report_difference(row, f"the {quantity} of the counterfactual", first[row], second[row])


def _search_chunk(job: SearchJob, positions: Ints) -> list[UnitResult]:
    """Find counterfactuals of a chunk of instances, which is one unit."""
    started, ledger = time.perf_counter(), Ledger()
    chunk = index_without_copy(positions, len(job.rows))
    rows = job.rows.take(chunk)
    task = SearchTask(
        rows.ids,
        rows.codes,
        rows.predicted_classes,
        seed=job.seed,
        component=job.component,
        features=select_changeable(job.dataset, job.features[chunk]),
        dataset=job.dataset,
        model=ledger.open_client(job.model, job.access, job.ledger_key, padded=job.dataset.padded),
        distance=job.distance,
    )
    counterfactuals = job.search.find(task)
    _check_constraints(job, rows.codes, counterfactuals)
    columns = {field.name: getattr(counterfactuals, field.name) for field in fields(counterfactuals)}
    arrays = {name: array for name, array in columns.items() if array is not None}
    return [UnitResult(arrays, ledger.get_cost(job.ledger_key) + Cost(seconds=time.perf_counter() - started))]


def _check_constraints(job: SearchJob, codes: Codes, counterfactuals: Counterfactuals) -> None:
    """Raise a Failure if a search, which may be a user's own, made a change that the dataset does not allow."""
    if counterfactuals.codes is None or not job.dataset.has_constraints:
        return
    for j, feature in enumerate(job.dataset.features):
        if not feature.allows(codes[:, j], counterfactuals.codes[:, j]).all():
            raise Failure(
                f"{type(job.search).__name__} changed {feature.name} in a way that the dataset does not allow."
            )
