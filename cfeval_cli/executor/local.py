"""Worker processes on this machine, by joblib."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from cfeval_cli.errors import Failure, check_float
from cfeval_cli.executor.work import MAX_PENDING, Payload, Work, call, check_jobs, count_jobs, load, map_here_first

_started: set[int] = set()  # processes that have started workers; a fork of one has none


@dataclass(frozen=True)
class Local:
    """Worker processes by joblib; results do not depend on their number."""

    n_jobs: int = -1  # processes; -1: one for each core, 1: no other process
    min_seconds: float = 2.0  # of work left, below which no workers are started: that takes about as long

    def __post_init__(self) -> None:
        check_jobs(self.n_jobs)
        check_float("min_seconds", self.min_seconds, 0)

    def prepare(self, timeout: float | None) -> None:
        """Accept every run."""

    def map(self, work: Work, shared: Any, items: Sequence[Any]) -> Iterator[Any]:
        """Yield work(shared, item) for each item, in order."""
        if (n_jobs := count_jobs(self.n_jobs)) == 1:
            return (work(shared, item) for item in items)
        is_started = os.getpid() in _started
        return map_here_first(work, shared, items, self.min_seconds, is_started, partial(_spread, n_jobs))


def _spread(n_jobs: int, payload: Payload, items: Sequence[Any]) -> Iterator[Any]:
    """Yield results from worker processes, which stay for the next call and have one thread each."""
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    _started.add(os.getpid())
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=min(n_jobs, len(items)), return_as="generator", batch_size=1)
    # not as arguments of each item: joblib's own memory mapping takes a second to clean up after each call
    with tempfile.TemporaryDirectory(prefix="cfeval-") as folder:
        path = f"{folder}/payload"
        joblib.dump(payload, path)
        try:
            for start in range(0, len(items), MAX_PENDING):  # joblib does not limit how far workers are ahead
                block = items[start : start + MAX_PENDING]
                yield from parallel(joblib.delayed(_call)(path, item) for item in block)
        except TerminatedWorkerError as error:
            raise Failure(
                "a worker process was killed or ran out of memory. executor.n_jobs=1 works without worker processes."
            ) from error


def _call(path: str, item: Any) -> Any:
    return call(*_load(path), item)


@lru_cache(maxsize=1)
def _load(path: str) -> tuple[Work, Any]:
    """Return what items share; its large arrays are in memory once for all workers, until one writes to them."""
    import joblib

    return load(*joblib.load(path, mmap_mode="c"))
