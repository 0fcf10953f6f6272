"""The counterfactuals of many instances by one search."""

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
    Model,
    Rows,
    Search,
    SearchTask,
    Section,
)
from cfeval_cli.core.counterfactual import editable
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.chunks import (
    ADVICE,
    ChunkedComputation,
    JoinedResults,
    UnitResult,
    compute_in_chunks,
    draw_verified_instances,
)


def stream_name(access: Access) -> str:
    """Return the name under which a search draws: without the explainer, so that equal features get equal edits."""
    return f"search.{access.name.lower()}"


@dataclass(frozen=True)
class SearchJob:
    """One search's work on some instances at one level of access."""

    search: Search
    dataset: Dataset
    model: Model
    measure: FittedDistance
    access: Access
    seed: int
    rows: Rows
    features: Ints  # (N, k) of each instance that may be edited

    @property
    def component(self) -> str:
        """Under which name it asks the model, and draws."""
        return stream_name(self.access)


def find_counterfactuals(
    job: SearchJob,
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    *,
    section: Section,
    scratch: Scratch | None = None,
) -> JoinedResults:
    """Search counterfactuals of all instances; the arrays are the fields of `Counterfactuals`."""
    step = job.search.chunk(job.dataset, job.features.shape[1])
    inputs = (job.rows.ids, job.rows.labels, job.rows.codes, job.features)
    work = ChunkedComputation(job.component, job, _find, inputs, section, step)
    return compute_in_chunks(work, executor, cache, advance, scratch or Scratch())


def check_counterfactuals(job: SearchJob, done: JoinedResults, tolerance: float) -> None:
    """Ask the model again about a few counterfactuals from the cache and from worker processes; Failure if it differs.

    These evaluations are not part of any component's cost.
    """
    every = Counterfactuals(**done.arrays)
    for origin, places in draw_verified_instances(job.seed, job.component, done.cached, done.from_workers).items():
        some, edits = job.rows.take(places), every.take(places)
        client = Ledger().open_client(job.model, job.access, job.component, padded=job.dataset.padded)
        if edits.codes is not None:
            labels, probability = client.predict_with_proba(edits.codes, some.labels)
        elif edits.vectors is not None:
            labels, probability = client.evaluate_moved(some.codes, edits.features, edits.vectors, some.labels)
        else:
            continue
        before, now = (np.array(job.dataset.classes)[one].tolist() for one in (edits.labels, labels))
        differs = labels != edits.labels
        if probability is not None and edits.probability is not None:
            differs = np.abs(probability - edits.probability) > tolerance
            before, now = ([f"{p:.8g}" for p in one] for one in (edits.probability, probability))
        if differs.any():
            row = int(differs.argmax())
            what = "class" if probability is None else f"P({job.dataset.classes[some.labels[row]]})"
            raise Failure(
                f"{job.component}, instance {some.ids[row]}: the counterfactual {origin} has {what} = {before[row]}, "
                f"and evaluated again {what} = {now[row]}. {ADVICE[origin]}"
            )


def _find(job: SearchJob, places: Ints) -> list[UnitResult]:
    """A chunk of instances, here or in another process."""
    begun, ledger, rows = time.perf_counter(), Ledger(), job.rows.take(places)
    task = SearchTask(
        rows.ids,
        rows.codes,
        rows.labels,
        seed=job.seed,
        component=job.component,
        features=editable(job.dataset, job.features[places]),
        dataset=job.dataset,
        model=ledger.open_client(job.model, job.access, job.component, padded=job.dataset.padded),
        measure=job.measure,
    )
    found = job.search.find(task)
    _check(job, rows.codes, found)
    columns = {field.name: getattr(found, field.name) for field in fields(found)}
    arrays = {name: array for name, array in columns.items() if array is not None}
    return [UnitResult(arrays, ledger.cost(job.component) + Cost(seconds=time.perf_counter() - begun))]


def _check(job: SearchJob, codes: Codes, found: Counterfactuals) -> None:
    """Believe no search, a user's own may be among them, that it keeps what may not change."""
    if found.codes is None or not job.dataset.constrained:
        return
    for j, feature in enumerate(job.dataset.features):
        if not feature.may(codes[:, j], found.codes[:, j]).all():
            raise Failure(f"{type(job.search).__name__} changed {feature.name} as the dataset does not allow.")
