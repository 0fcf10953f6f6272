"""Computation for many instances: look up cached results, compute the missing ones in chunks, and cache these.

Explanations, counterfactuals and reference attributions are computed in this way. They differ in what is computed for
a unit, the instances whose results are cached under one key, and in how many instances a unit has.
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

from cfeval_cli.core import NO_FEATURE, Arrays, Bools, Cache, Cost, Executor, Ints, Section
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.scratch import Scratch, iterate_slabs
from cfeval_cli.errors import Failure, UserError, describe_error

log = logging.getLogger("cfeval")

_Job = TypeVar("_Job")

LOOKUP_INSTANCES = 1 << 14  # maximum number of instances with results in memory at a time
# Between two writes to the cache: writing each chunk of a fast explainer takes longer than computing it.
STORE_SECONDS = 0.25
_MAX_BYTES_IN_MEMORY = 1 << 24  # of results that have not been moved to the scratch files


@dataclass(frozen=True)
class UnitResult:
    """The result of a unit: arrays with an entry for each instance, and their cost."""

    arrays: Arrays  # (n, …) by name
    cost: Cost = field(default_factory=Cost)
    note: str = ""  # the method of computation
    failure: str = ""  # the reason why there is no result; not cached, because a second attempt may succeed

    def to_cache_entry(self) -> Arrays:
        """Return the arrays to be cached."""
        note = {"note": np.frombuffer(self.note.encode(), dtype=np.uint8)} if self.note else {}
        cost = [self.cost.n_evaluations, self.cost.calls, self.cost.seconds, self.cost.model_seconds]
        return {"cost": np.array(cost, dtype=np.float64), **note, **self.arrays}

    @staticmethod
    def from_cache_entry(entry: Arrays) -> UnitResult | None:
        """Return the result in a cache entry; None if the entry has another form."""
        arrays = dict(entry)
        try:
            rows, calls, seconds, inside = arrays.pop("cost").tolist()
            note = arrays.pop("note", np.zeros(0)).tobytes().decode()
            return UnitResult(arrays, Cost(int(rows), calls, seconds, inside), note)
        except (KeyError, TypeError, ValueError):
            return None

    def has_size(self, size: int) -> bool:
        """Return whether each array has this number of instances."""
        return all(array.shape[:1] == (size,) for array in self.arrays.values())


def _list_unit_ends(n_units: int) -> Sequence[int]:
    return range(1, n_units + 1)


@dataclass(frozen=True)
class ChunkedComputation(Generic[_Job]):
    """A computation for each of many instances.

    Consecutive instances form units of `unit_size`, each cached under one key. A chunk is a number of missing units
    that are computed by one call.
    """

    name: str  # of the component
    job: _Job  # shared by all chunks; each worker process receives it once
    # Returns the results of the units of some instances, given by position. A function of a module, to be pickled.
    compute: Callable[[_Job, Ints], list[UnitResult]]
    inputs: Sequence[NDArray[Any]]  # (N, …) each: what the results depend on, besides the section
    section: Section  # of the cache
    unit_size: int = 1
    get_chunk_ends: Callable[[int], Sequence[int]] = _list_unit_ends  # for a number of units

    def __len__(self) -> int:
        return len(self.inputs[0])

    @property
    def n_units(self) -> int:
        """The number of units, at least one: the results of no instances have shapes too."""
        return max(1, -(-len(self) // self.unit_size))

    def get_span(self, unit: int) -> slice:
        """Return the instances of a unit."""
        return slice(unit * self.unit_size, min(len(self), (unit + 1) * self.unit_size))

    def get_positions(self, units: Ints) -> Ints:
        """Return the instances of some units."""
        positions = (units[:, None] * self.unit_size + np.arange(self.unit_size)).ravel()
        return positions[positions < len(self)]

    def compute_keys(self, units: Iterable[int]) -> list[bytes]:
        """Return the cache key of each unit: a hash of its inputs."""
        layout = repr([(array.dtype.str, array.shape[1:]) for array in self.inputs])
        layout_digest, keys = blake2b(layout.encode(), digest_size=16), []
        for span in map(self.get_span, units):
            digest = layout_digest.copy()
            for array in self.inputs:
                digest.update(np.ascontiguousarray(array[span]).data)
            keys.append(digest.digest())
        return keys


class JoinedResults:
    """The results of many instances, joined from unit results that arrive in any order."""

    def __init__(self, name: str, size: int, scratch: Scratch) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}  # (N, …) by name
        self.cost = Cost()
        self.failures: dict[int, str] = {}  # by position of the instance
        self.cached_positions = np.zeros(0, dtype=np.int64)  # positions whose results were in the cache
        self.worker_positions = np.zeros(0, dtype=np.int64)  # positions whose results come from other processes
        self._name, self._size, self._scratch = name, size, scratch
        self._bytes_in_memory = 0
        self._notes: dict[str, int] = {}  # with the first instance of each

    @property
    def notes(self) -> list[str]:
        """The distinct methods of computation, in the order of the instances."""
        return sorted(self._notes, key=self._notes.__getitem__)

    def add(self, span: slice, result: UnitResult) -> None:
        """Write the result of a unit; arrays are widened if it has more columns."""
        self.cost += result.cost
        if result.note:
            self._notes[result.note] = min(span.start, self._notes.get(result.note, span.start))
        if result.failure:
            self.failures[span.start] = result.failure
        if self.arrays and result.arrays.keys() != self.arrays.keys():
            names = ", ".join(sorted(result.arrays.keys() ^ self.arrays.keys()))
            raise Failure(f"{self._name} gave {names} for some instances only.")
        for name, array in result.arrays.items():
            joined = self.arrays.get(name)
            if joined is None or array.shape[1:2] > joined.shape[1:2] or not np.can_cast(array.dtype, joined.dtype):
                joined = self.arrays[name] = self._extend_columns(joined, array)
            _write(joined, span, array)
            self._bytes_in_memory += array.nbytes
        if self._bytes_in_memory >= _MAX_BYTES_IN_MEMORY:
            self._scratch.release()
            self._bytes_in_memory = 0

    def _extend_columns(self, joined: NDArray[Any] | None, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array for all instances with the columns and the type that the joined and the new array need."""
        if joined is None:
            return self._scratch.make_zeros((self._size, *array.shape[1:]), array.dtype)
        shape = (self._size, *np.maximum(joined.shape[1:], array.shape[1:]).tolist())
        wide_array = self._scratch.make_zeros(shape, np.result_type(joined, array))
        for slab in iterate_slabs(self._size):
            _write(wide_array, slab, joined[slab])
            self._scratch.release()
        return wide_array


def _write(joined: NDArray[Any], span: slice, array: NDArray[Any]) -> None:
    """Write an array, and in the columns that it lacks NaN, or NO_FEATURE if the numbers are integers."""
    if array.shape[1:2] == joined.shape[1:2]:
        joined[span] = array
    else:
        joined[span, : array.shape[1]] = array
        joined[span, array.shape[1] :] = np.nan if joined.dtype.kind == "f" else NO_FEATURE


def compute_in_chunks(
    computation: ChunkedComputation[Any],
    executor: Executor,
    cache: Cache,
    advance: Callable[[int], None],
    scratch: Scratch,
    *,
    strict: bool = False,
) -> JoinedResults:
    """Return the results of all instances: those in the cache, and the others, computed chunk by chunk.

    Chunks are cached soon after they are computed, so that a run that was killed can be resumed. Results are equal for
    any executor and any content of the cache. With `strict`, the first instance without a result is a Failure.
    """
    joined = JoinedResults(computation.name, len(computation), scratch)
    is_cached = _look_up(computation, cache, joined)
    missing = np.flatnonzero(~is_cached)
    joined.cached_positions = computation.get_positions(np.flatnonzero(is_cached))
    if 0 < len(joined.cached_positions) < len(computation):
        n_cached = len(joined.cached_positions)
        log.info("%s: %s of %s are cached", computation.name, f"{n_cached:,}", f"{len(computation):,}")
    advance(len(joined.cached_positions))
    chunks = np.split(missing, computation.get_chunk_ends(len(missing))[:-1]) if len(missing) else []
    from_workers, entries_to_save, last_write = [joined.worker_positions], dict[bytes, Arrays](), time.perf_counter()
    try:
        for units, (results, is_from_worker) in zip(chunks, _compute(computation, executor, chunks), strict=True):
            positions = computation.get_positions(units)
            from_workers += [positions] * is_from_worker
            if computation.section.key is not None:
                keys = computation.compute_keys(units.tolist())
                computed = zip(keys, results, strict=True)
                entries_to_save |= {key: result.to_cache_entry() for key, result in computed if not result.failure}
            for unit, result in zip(units.tolist(), results, strict=True):
                span = computation.get_span(unit)
                if result.failure and strict:
                    instance = computation.inputs[0][span][0]
                    raise Failure(
                        f"{computation.name}, instance {instance}: {result.failure}. With strict=false the run goes on "
                        "without it."
                    )
                joined.add(span, result)
            if time.perf_counter() - last_write >= STORE_SECONDS:
                cache.put(computation.section, entries_to_save)
                entries_to_save, last_write = {}, time.perf_counter()
            advance(len(positions))
    finally:  # also after an error or an interruption
        cache.put(computation.section, entries_to_save)
    joined.worker_positions = np.concatenate(from_workers)
    return joined


def _look_up(computation: ChunkedComputation[Any], cache: Cache, joined: JoinedResults) -> Bools:
    """Join the cached results, and return for each unit whether it has one."""
    is_cached = np.zeros(computation.n_units, dtype=bool)
    if computation.section.key is None:
        return is_cached
    for slab in iterate_slabs(computation.n_units, max(1, LOOKUP_INSTANCES // computation.unit_size)):
        units = range(slab.start, slab.stop)
        keys = computation.compute_keys(units)
        entries = cache.get(computation.section, keys)
        for unit, key in zip(units, keys, strict=True):
            span = computation.get_span(unit)
            result = UnitResult.from_cache_entry(entries[key]) if key in entries else None
            if result is not None and result.has_size(span.stop - span.start):
                joined.add(span, result)
                is_cached[unit] = True
    return is_cached


def _compute(
    computation: ChunkedComputation[Any], executor: Executor, chunks: Sequence[Ints]
) -> Iterator[tuple[list[UnitResult], bool]]:
    """Yield the results of each chunk, in order, and whether another process computed them."""
    this_process = _identify_process()
    shared = (computation.compute, computation.job)
    try:
        for results, process in executor.map(_compute_chunk, shared, list(map(computation.get_positions, chunks))):
            yield results, process != this_process
    except (UserError, Failure):
        raise
    except Exception as error:
        reason = f"{describe_error(error)}. HYDRA_FULL_ERROR=1 shows the traceback."
        raise Failure(f"{computation.name} failed, {reason}") from error


@restore_working_directory()
def _compute_chunk(
    shared: tuple[Callable[[Any, Ints], list[UnitResult]], Any], positions: Ints
) -> tuple[list[UnitResult], tuple[str, int]]:
    """Return the results of a chunk, and the process that computed them."""
    compute, job = shared
    return compute(job, positions), _identify_process()


def _identify_process() -> tuple[str, int]:
    return platform.node(), os.getpid()
