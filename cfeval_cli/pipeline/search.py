"""The counterfactuals of many instances, chunk by chunk."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, fields
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.cache.off import Off
from cfeval_cli.core import (
    Access,
    Cache,
    Codes,
    Cost,
    Counterfactuals,
    Dataset,
    Executor,
    Ints,
    Ledger,
    Measure,
    Model,
    Rows,
    Search,
    Task,
    npy,
)
from cfeval_cli.core.counterfactual import editable
from cfeval_cli.core.scratch import Scratch, slabs
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.elsewhere import ADVICE, sample, shared_out
from cfeval_cli.pipeline.memo import Memo

_TOGETHER = 1 << 16  # instances that are looked up at once


@dataclass(frozen=True)
class Job:
    """One search's work at one level of access: what is the same for all instances."""

    search: Search
    dataset: Dataset
    model: Model
    measure: Measure
    access: Access
    seed: int

    @property
    def component(self) -> str:
        """Under which name it draws: without the explainer's, so that the same explanation gets the same edit."""
        return f"search.{self.access.name.lower()}"


@dataclass(frozen=True)
class Chunk:
    """Instances, and the features (n, k) of each that may be edited."""

    rows: Rows
    features: Ints

    @property
    def key(self) -> bytes:
        """A hash of all of them together, by which what was found for them is found again."""
        digest = blake2b(digest_size=16)
        for array in (self.rows.codes, self.rows.labels, self.features, self.rows.ids):
            digest.update(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class Found:
    """Counterfactuals, and what finding them cost."""

    counterfactuals: Counterfactuals
    cost: Cost
    cached: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows of those known from before
    elsewhere: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows that other processes searched


def find(
    job: Job,
    rows: Rows,
    features: Ints,
    executor: Executor,
    advance: Callable[[int], None],
    cache: Cache | None = None,
    section: str | None = None,
    scratch: Scratch | None = None,
) -> Found:
    """Counterfactuals of all instances; each chunk is kept in a section of the cache as soon as it is there.

    Those of many instances are put aside as they come in.
    """
    size = job.search.chunk(job.dataset, features.shape[1])
    starts = range(0, max(1, len(rows)), size)  # at least one chunk, so that even nothing found has the right shape
    parts = [slice(start, start + size) for start in starts]
    chunks = [Chunk(rows.take(part), features[part]) for part in parts]
    memo = Memo(cache or Off(), section, f"{job.dataset.name}, {job.component}, seed {job.seed}", packed, unpacked)
    keys = [b"" if section is None else chunk.key for chunk in chunks]
    gathered, costs = _Gathered(job, len(rows), scratch or Scratch()), dict[int, Cost]()
    for some in slabs(len(chunks), max(1, _TOGETHER // size)):
        known = memo.known(keys[some])
        for i in range(some.start, some.stop):
            before = known.get(keys[i])
            if before is not None and _fits(before, chunks[i]):
                gathered.add(parts[i], before.counterfactuals)
                costs[i] = before.cost
    advance(sum(len(chunks[i].rows) for i in costs))
    cached, elsewhere = list(costs), list[int]()
    missing = [i for i in range(len(chunks)) if i not in costs]
    done = shared_out(executor, _find, job, [chunks[i] for i in missing])
    with memo.keeping() as keep:
        for i, (found, is_elsewhere) in zip(missing, done, strict=True):
            elsewhere += [i] * is_elsewhere
            keep({keys[i]: found})
            gathered.add(parts[i], found.counterfactuals)
            costs[i] = found.cost
            advance(len(chunks[i].rows))
    cost, every = sum((costs[i] for i in range(len(chunks))), Cost()), np.arange(len(rows))
    places = [np.concatenate([every[:0], *(every[parts[i]] for i in some)]) for some in (cached, elsewhere)]
    return Found(gathered.whole, cost, *places)


def check_sample(job: Job, rows: Rows, found: Found, tolerance: float) -> None:
    """Ask the model again about a few counterfactuals from the cache and from worker processes; Failure if it differs.

    These evaluations are not part of any component's cost.
    """
    for origin, places in sample(job.seed, job.component, found.cached, found.elsewhere).items():
        some, edits = rows.take(places), found.counterfactuals.take(places)
        gate = Ledger().gate(job.model, job.access, job.component, padded=job.dataset.padded)
        if edits.codes is not None:
            labels, probability = gate.predict(edits.codes, some.labels)
        elif edits.vectors is not None:
            labels, probability = gate.moved(some.codes, edits.features, edits.vectors, some.labels)
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


class _Gathered:
    """Counterfactuals as they come in, a chunk at a time, in any order."""

    def __init__(self, job: Job, size: int, scratch: Scratch) -> None:
        self._job, self._size, self._scratch = job, size, scratch
        self._arrays: dict[str, NDArray[Any]] = {}

    @property
    def whole(self) -> Counterfactuals:
        arrays: dict[str, Any] = dict(self._arrays)
        return Counterfactuals(**arrays)

    def add(self, part: slice, found: Counterfactuals) -> None:
        told = {field.name: getattr(found, field.name) for field in fields(found)}
        given = {name: array for name, array in told.items() if array is not None}
        if self._arrays and given.keys() != self._arrays.keys():
            odd = ", ".join(sorted(given.keys() ^ self._arrays.keys()))
            raise Failure(f"{type(self._job.search).__name__} gave {odd} for some instances only.")
        for name, array in given.items():
            kept = self._arrays.get(name)
            if kept is None or not np.can_cast(array.dtype, kept.dtype):
                kept = self._arrays[name] = self._roomier(kept, array)
            kept[part] = array
        self._scratch.release()

    def _roomier(self, old: NDArray[Any] | None, array: NDArray[Any]) -> NDArray[Any]:
        """An array for all instances, of a type that has what is there and what comes."""
        kind = array.dtype if old is None else np.result_type(old, array)
        new = self._scratch.blank((self._size, *array.shape[1:]), kind)
        if old is not None:
            new[:] = old
        return new


def _find(job: Job, chunk: Chunk) -> Found:
    """A chunk of instances, here or in another process."""
    begun, ledger, rows = time.perf_counter(), Ledger(), chunk.rows
    task = Task(
        rows.ids,
        rows.codes,
        rows.labels,
        seed=job.seed,
        component=job.component,
        features=editable(job.dataset, chunk.features),
        dataset=job.dataset,
        model=ledger.gate(job.model, job.access, job.component, padded=job.dataset.padded),
        measure=job.measure,
    )
    found = job.search.find(task)
    _check(job, rows.codes, found)
    return Found(found, ledger.cost(job.component) + Cost(seconds=time.perf_counter() - begun))


def _check(job: Job, codes: Codes, found: Counterfactuals) -> None:
    """Believe no search, a user's own may be among them, that it keeps what may not change."""
    if found.codes is None or not job.dataset.constrained:
        return
    for j, feature in enumerate(job.dataset.features):
        if not feature.may(codes[:, j], found.codes[:, j]).all():
            raise Failure(f"{type(job.search).__name__} changed {feature.name} as the dataset does not allow.")


def packed(found: Found) -> bytes:
    """For the cache."""
    edits = found.counterfactuals
    arrays: dict[str, Any] = {field.name: getattr(edits, field.name) for field in fields(edits)}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return npy.dump({"cost": np.array(astuple(found.cost)), **arrays})


def unpacked(value: bytes) -> Found | None:
    """From the cache; None if it is nothing of ours."""
    try:
        arrays = npy.load(io.BytesIO(value))
        rows, *rest = arrays.pop("cost").tolist()
        return Found(Counterfactuals(**arrays), Cost(int(rows), *rest))
    except (KeyError, TypeError, ValueError):
        return None


def _fits(found: Found, chunk: Chunk) -> bool:
    """Whether it is of as many instances."""
    edits = found.counterfactuals
    arrays = (getattr(edits, field.name) for field in fields(edits))
    return all(len(array) == len(chunk.rows) for array in arrays if array is not None)
