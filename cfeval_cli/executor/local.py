"""This machine: the process itself, and worker processes where the work is worth starting them."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cfeval_cli.errors import Failure, number
from cfeval_cli.executor.work import check_jobs, here_first, jobs, portable

log = logging.getLogger("cfeval")

_PREFIX = "cfeval-"
_SENT = 0.5  # seconds of work left that are worth sending to workers that are there already
_started: set[int] = set()  # processes that have workers; a fork of one has none

_Shared = TypeVar("_Shared")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Local:
    """Workers by joblib. What they share is sent once; the results do not depend on their number."""

    n_jobs: int = -1  # processes; -1: one for each core, 1: no other process
    min_seconds: float = 2.0  # of work left, below which no workers are started: that takes about as long

    def __post_init__(self) -> None:
        check_jobs(self.n_jobs)
        number("min_seconds", self.min_seconds, 0)

    def prepare(self, timeout: float | None) -> None:
        """Nothing: whatever a run asks for can be had in this machine's processes."""

    def map(
        self, work: Callable[[_Shared, _Item], _Result], shared: _Shared, items: Sequence[_Item]
    ) -> Iterator[_Result]:
        """work(shared, item) for each item, in order; `work` is a function of a module."""
        many = jobs(self.n_jobs)
        if many == 1:
            return (work(shared, item) for item in items)
        return here_first(work, shared, items, self._least, lambda rest, _: _spread(work, shared, rest, many))

    def _least(self) -> float:
        return min(_SENT, self.min_seconds) if os.getpid() in _started else self.min_seconds


def _spread(
    work: Callable[[_Shared, _Item], _Result], shared: _Shared, items: Sequence[_Item], many: int
) -> Iterator[_Result]:
    """By worker processes, which stay for the next call; one thread in each, so that cores are not fought over."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        # not joblib's dump, which would write an array once for each feature that shares it
        sent = pickle.dumps(shared, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        log.warning("going on in this process only, since something cannot be sent to others: %s", error)
        yield from (work(shared, item) for item in items)
        return
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        path = Path(folder) / "shared"
        path.write_bytes(sent)
        try:
            with parallel_config("loky", inner_max_num_threads=1):
                parallel = Parallel(n_jobs=min(many, len(items)), return_as="generator", batch_size=1)
            _started.add(os.getpid())
            yield from parallel(delayed(_call)(work, str(path), item) for item in items)
        except TerminatedWorkerError as error:
            raise Failure(
                "a worker process died, killed or out of memory. With executor.n_jobs=1 there are none."
            ) from error


def _sweep() -> None:
    """Remove what runs of this user that were killed had meant for their workers."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            if not process.isdecimal() or left.stat().st_uid != os.getuid():
                continue
            os.kill(int(process), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # gone already, or somebody else's


def _call(work: Callable[[Any, Any], _Result], path: str, item: Any) -> _Result:
    try:
        result = work(_load(path), item)
    except Exception as error:
        told = portable(error)
        if told is error:
            raise
        raise told from None
    _settle(path)
    return result


@lru_cache(maxsize=1)
def _settle(path: str) -> None:
    """After the first item: loky collects garbage every second, which need not look at all that stays."""
    gc.freeze()


@lru_cache(maxsize=1)
def _load(path: str) -> Any:
    """What the workers share, from a folder that only the user who started them can write to."""
    return pickle.loads(Path(path).read_bytes())  # noqa: S301
