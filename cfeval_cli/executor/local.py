"""Worker processes on this machine, by joblib."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cfeval_cli.errors import Failure, check_float
from cfeval_cli.executor.work import Payload, Work, call, check_jobs, load, map_locally_first


@dataclass(frozen=True)
class Local:
    """Worker processes by joblib; results do not depend on their number."""

    n_jobs: int = -1  # processes; -1: one for each core, 1: only this process
    min_seconds: float = 1.0  # of remaining work from which other processes are used; to start them takes about as long

    def __post_init__(self) -> None:
        check_jobs(self.n_jobs)
        check_float("min_seconds", self.min_seconds, 0)

    def prepare(self, timeout: float | None) -> None:
        """Accept every run."""

    def map(self, work: Work, shared: Any, items: Sequence[Any]) -> Iterator[Any]:
        """Yield work(shared, item) for each item, in order."""
        from joblib import effective_n_jobs

        if effective_n_jobs(self.n_jobs) == 1:
            return (work(shared, item) for item in items)
        return map_locally_first(work, shared, items, self.min_seconds, self._send)

    def _send(self, payload: Payload, items: Sequence[Any]) -> Iterator[Any]:
        """Yield results of worker processes, which stay for the next call and have one thread each."""
        import joblib
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        with joblib.parallel_config("loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=self.n_jobs, return_as="generator", batch_size=1)
        # In a file, because joblib takes a second to clean up after each call with large arrays as arguments.
        with tempfile.TemporaryDirectory(prefix="cfeval-") as folder:
            path = f"{folder}/payload"
            joblib.dump(payload, path)
            try:
                yield from parallel(joblib.delayed(_call)(path, item) for item in items)
            except TerminatedWorkerError as error:
                raise Failure(
                    "a worker process was killed or ran out of memory. executor.n_jobs=1 works without worker "
                    "processes."
                ) from error


def _call(path: str, item: Any) -> Any:
    return call(*_load(path), item)


@lru_cache(maxsize=1)
def _load(path: str) -> tuple[Work, Any]:
    """Load the payload; all workers share the memory of its large arrays until one writes to them."""
    import joblib

    return load(*joblib.load(path, mmap_mode="c"))
