"""The one way to compute something for many instances: look up what is stored, compute the rest in chunks, store it.

Every result travels as a part: arrays whose first axis are some instances, with what computing them cost. Explanations,
counterfactuals and truths differ only in how a part is computed and how many instances it has.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import NO_FEATURE, Arrays, Cache, Cost, Executor, Ints, Section
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.scratch import Scratch, slabs
from cfeval_cli.errors import Failure, UserError, describe_error
from cfeval_cli.seeding import make_stream

log = logging.getLogger("cfeval")

_Job = TypeVar("_Job")

LOOKUP_INSTANCES = 1 << 14  # whose parts are looked up, and thus in memory, at once
STORE_SECONDS = (
    0.25  # of work that may be lost: to store each chunk of a fast explainer takes longer than to compute it
)
_HELD_BYTES = 1 << 24  # of parts that are in memory before they are put aside
_SAMPLE = 3  # instances of each origin whose results are computed again
# how messages name where a result is from, and what they advise if a second computation gives another one
FROM_CACHE = "from the cache"
FROM_WORKERS = "from a worker process"
ADVICE = {
    FROM_CACHE: "The model or the component is not deterministic, or depends on something that its cache key does not "
    "include. Use redo=true or cache=off, or name the files that the model reads in model.depends.",
    FROM_WORKERS: "The model or the component gives another answer in worker processes: it must not depend on the "
    "process that it runs in. Use n_jobs=1.",
}


@dataclass(frozen=True)
class Part:
    """What was computed for the instances that are stored under one key."""

    arrays: Arrays  # (n, …) by name
    cost: Cost = field(default_factory=Cost)
    note: str = ""  # how it was computed
    fault: str = ""  # why there is no result; it is not stored, because a second attempt may succeed

    def save(self) -> Arrays:
        """Return the entry of a cache."""
        note = {"note": np.frombuffer(self.note.encode(), dtype=np.uint8)} if self.note else {}
        cost = [self.cost.rows, self.cost.calls, self.cost.seconds, self.cost.inside]
        return {"cost": np.array(cost, dtype=np.float64), **note, **self.arrays}

    @staticmethod
    def load(entry: Arrays) -> Part | None:
        """Return what an entry of a cache has; None if it is not a part."""
        arrays = dict(entry)
        try:
            rows, calls, seconds, inside = arrays.pop("cost").tolist()
            note = arrays.pop("note", np.zeros(0)).tobytes().decode()
            return Part(arrays, Cost(int(rows), calls, seconds, inside), note)
        except (KeyError, TypeError, ValueError):
            return None

    def is_of(self, size: int) -> bool:
        """Return whether the arrays have so many instances."""
        return all(array.shape[:1] == (size,) for array in self.arrays.values())


def _one_by_one(size: int) -> Sequence[int]:
    return range(1, size + 1)


@dataclass(frozen=True)
class Work(Generic[_Job]):
    """A computation for each of many instances.

    Instances are grouped into units of `step`, one after the other. A unit is looked up and stored under one key; a
    chunk is a number of missing units that are computed at a time.
    """

    name: str  # of the component
    job: _Job  # what all chunks share, and workers get once
    compute: Callable[[_Job, Ints], list[Part]]  # the parts of some instances, by their places; a function of a module
    inputs: Sequence[NDArray[Any]]  # (N, …) each: what the results depend on, beside the section
    section: Section  # where the results are stored
    step: int = 1
    ends: Callable[[int], Sequence[int]] = _one_by_one  # at which the chunks of so many units end

    def __len__(self) -> int:
        return len(self.inputs[0])

    @property
    def n_units(self) -> int:
        """How many units there are: one at least, so that the results of no instances have their shape too."""
        return max(1, -(-len(self) // self.step))

    def span(self, unit: int) -> slice:
        """Return the instances of one unit."""
        return slice(unit * self.step, min(len(self), (unit + 1) * self.step))

    def places(self, units: Ints) -> Ints:
        """Return the instances of some units."""
        places = (units[:, None] * self.step + np.arange(self.step)).ravel()
        return places[places < len(self)]

    def keys(self, units: Iterable[int]) -> list[bytes]:
        """Return the keys of some units: a hash of their inputs."""
        layout = repr([(array.dtype.str, array.shape[1:]) for array in self.inputs])
        start, keys = blake2b(layout.encode(), digest_size=16), []
        for span in map(self.span, units):
            digest = start.copy()
            for array in self.inputs:
                digest.update(np.ascontiguousarray(array[span]).data)
            keys.append(digest.digest())
        return keys


class Joined:
    """The results of many instances, joined from parts that come in any order."""

    def __init__(self, name: str, size: int, scratch: Scratch) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}  # (N, …) by name
        self.cost = Cost()
        self.faults: dict[int, str] = {}  # by the place of an instance without a result
        self.cached = self.elsewhere = np.zeros(0, dtype=np.int64)  # places: stored before, by other processes
        self._name, self._size, self._scratch, self._held = name, size, scratch, 0
        self._notes: dict[str, int] = {}  # with the first instance of each

    @property
    def notes(self) -> list[str]:
        """Return how the parts were computed: each note once, in the order of the instances."""
        return sorted(self._notes, key=self._notes.__getitem__)

    def add(self, span: slice, part: Part) -> None:
        """Put a part in its place; arrays widen where it has more columns."""
        self.cost += part.cost
        if part.note:
            self._notes[part.note] = min(span.start, self._notes.get(part.note, span.start))
        if part.fault:
            self.faults[span.start] = part.fault
        if self.arrays and part.arrays.keys() != self.arrays.keys():
            odd = ", ".join(sorted(part.arrays.keys() ^ self.arrays.keys()))
            raise Failure(f"{self._name} gave {odd} for some instances only.")
        for name, array in part.arrays.items():
            joined = self.arrays.get(name)
            if joined is None or array.shape[1:2] > joined.shape[1:2] or not np.can_cast(array.dtype, joined.dtype):
                joined = self.arrays[name] = self._grow(joined, array)
            _write(joined, span, array)
            self._held += array.nbytes
        if self._held >= _HELD_BYTES:
            self._scratch.release()
            self._held = 0

    def _grow(self, old: NDArray[Any] | None, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array for all instances, as wide as the part, of a type that has what is there and what comes."""
        if old is None:
            return self._scratch.blank((self._size, *array.shape[1:]), array.dtype)
        shape = (self._size, *np.maximum(old.shape[1:], array.shape[1:]).tolist())
        new = self._scratch.blank(shape, np.result_type(old, array))
        for slab in slabs(self._size):
            _write(new, slab, old[slab])
            self._scratch.release()
        return new


def _write(joined: NDArray[Any], span: slice, array: NDArray[Any]) -> None:
    """Write an array, and beyond its columns no features, or no numbers."""
    if array.shape[1:2] == joined.shape[1:2]:
        joined[span] = array
    else:
        joined[span, : array.shape[1]] = array
        joined[span, array.shape[1] :] = np.nan if joined.dtype.kind == "f" else NO_FEATURE


def map_chunks(
    work: Work[Any],
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    scratch: Scratch,
    *,
    strict: bool = False,
) -> Joined:
    """Return the results of all instances: those in the cache, and the others, computed chunk by chunk.

    Chunks are stored soon after they are computed, so that a run that is killed goes on from there. Results are equal
    for any executor and whatever was stored. If `strict`, the first instance without a result ends the run.
    """
    joined = Joined(work.name, len(work), scratch)
    missing = _look_up(work, cache, joined)
    joined.cached = work.places(np.setdiff1d(np.arange(work.n_units), missing))
    if 0 < len(joined.cached) < len(work):
        log.info("%s: %s of %s are stored already", work.name, f"{len(joined.cached):,}", f"{len(work):,}")
    advance(len(joined.cached))
    chunks = np.split(missing, work.ends(len(missing))[:-1]) if len(missing) else []
    elsewhere, waiting, last = [joined.elsewhere], dict[bytes, Arrays](), time.perf_counter()
    try:
        for units, (parts, is_elsewhere) in zip(chunks, _compute(work, executor, chunks), strict=True):
            elsewhere += [work.places(units)] * is_elsewhere
            for unit, key, part in zip(units.tolist(), work.keys(units.tolist()), parts, strict=True):
                if not part.fault:
                    waiting[key] = part.save()
                elif strict:
                    which = f"{work.name}, instance {work.inputs[0][work.span(unit)][0]}"
                    raise Failure(f"{which}: {part.fault}. With strict=false the run goes on without it.")
                joined.add(work.span(unit), part)
            if time.perf_counter() - last >= STORE_SECONDS:
                cache.put(work.section, waiting)
                waiting, last = {}, time.perf_counter()
            advance(len(work.places(units)))
    finally:  # also if the work breaks off
        cache.put(work.section, waiting)
    joined.elsewhere = np.concatenate(elsewhere)
    return joined


def draw_sample(seed: int, name: str, cached: Ints, elsewhere: Ints) -> dict[str, Ints]:
    """Draw a few of the places whose results are from the cache, and a few of those from worker processes."""
    draw = make_stream(seed, f"check.{name}")
    drawn = {FROM_CACHE: draw.permutation(cached), FROM_WORKERS: draw.permutation(elsewhere)}
    return {origin: np.sort(places[:_SAMPLE]) for origin, places in drawn.items() if len(places)}


def _look_up(work: Work[Any], cache: Cache, joined: Joined) -> Ints:
    """Join the stored parts, and return the units that have none."""
    missing = []
    for slab in slabs(work.n_units, max(1, LOOKUP_INSTANCES // work.step)):
        units = range(slab.start, slab.stop)
        keys = work.keys(units)
        entries = cache.get(work.section, keys)
        for unit, key in zip(units, keys, strict=True):
            part, span = Part.load(entries[key]) if key in entries else None, work.span(unit)
            if part is not None and part.is_of(span.stop - span.start):
                joined.add(span, part)
            else:
                missing.append(unit)
    return np.array(missing, dtype=np.int64)


def _compute(work: Work[Any], executor: Executor, chunks: Sequence[Ints]) -> Iterator[tuple[list[Part], bool]]:
    """Yield the parts of each chunk, in order, and whether another process computed them."""
    here = _process()
    try:
        for parts, process in executor.map(_compute_chunk, (work.compute, work.job), list(map(work.places, chunks))):
            yield parts, process != here
    except (UserError, Failure):
        raise
    except Exception as error:
        reason = f"{describe_error(error)}. HYDRA_FULL_ERROR=1 shows the traceback."
        raise Failure(f"{work.name} failed, {reason}") from error


@restore_working_directory()
def _compute_chunk(
    shared: tuple[Callable[[Any, Ints], list[Part]], Any], places: Ints
) -> tuple[list[Part], tuple[str, int]]:
    """Return the parts of a chunk, and the process that computed them."""
    compute, job = shared
    return compute(job, places), _process()


def _process() -> tuple[str, int]:
    return platform.node(), os.getpid()
