"""Worker processes on this machine, by joblib."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from cfeval_cli.errors import Failure, number
from cfeval_cli.executor.work import MAX_PENDING, Payload, Work, call, check_jobs, count_jobs, load, map_here_first

_started: set[int] = set()  # processes that have started workers; a fork of one has none
_loaded: dict[str, tuple[Work, Any]] = {}  # in a worker: the last payload


@dataclass(frozen=True)
class Local:
    """Worker processes by joblib; results do not depend on their number."""

    n_jobs: int = -1  # processes; -1: one for each core, 1: no other process
    min_seconds: float = 2.0  # of work left, below which no workers are started: that takes about as long

    def __post_init__(self) -> None:
        check_jobs(self.n_jobs)
        number("min_seconds", self.min_seconds, 0)

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
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    _started.add(os.getpid())
    # joblib writes each large array once, for all workers to map into memory: a large pickle should be one too
    name, body, arrays = uuid4().hex, np.frombuffer(payload[0], dtype=np.uint8), payload[1]
    with parallel_config("loky", inner_max_num_threads=1, mmap_mode="c"):
        parallel = Parallel(n_jobs=min(n_jobs, len(items)), return_as="generator", batch_size=1)
    try:
        for start in range(0, len(items), MAX_PENDING):  # joblib does not limit how far workers are ahead
            yield from parallel(delayed(_call)(name, body, arrays, item) for item in items[start : start + MAX_PENDING])
    except TerminatedWorkerError as error:
        raise Failure(
            "a worker process died, killed or out of memory. With executor.n_jobs=1 there are none."
        ) from error


def _call(name: str, body: Any, arrays: Sequence[Any], item: Any) -> Any:
    if name not in _loaded:
        _loaded.clear()
        _loaded[name] = load(body, arrays)
    return call(*_loaded[name], item)
