"""This machine: the process itself, and worker processes where the work is worth starting them."""

from __future__ import annotations

import gc
import logging
import mmap
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cfeval_cli.errors import Failure, number, refuse_exit
from cfeval_cli.executor.work import check_jobs, here_first, jobs, portable

log = logging.getLogger("cfeval")

_PREFIX = "cfeval-"
_SENT = 0.5  # seconds of work left that are worth sending to workers that are there already
_AHEAD = 1024  # items that workers do before their results are taken: more would pile up if nobody is as fast as they
_LARGE = 1 << 16  # bytes of an array that workers have in common
_ALIGNED = 64  # bytes, at a multiple of which such an array begins
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

    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        path = Path(folder) / "shared"
        try:
            _store(shared, path)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            log.warning("going on in this process only, since something cannot be sent to others: %s", error)
            yield from (work(shared, item) for item in items)
            return
        try:
            with parallel_config("loky", inner_max_num_threads=1):
                parallel = Parallel(n_jobs=min(many, len(items)), return_as="generator", batch_size=1)
            _started.add(os.getpid())
            for start in range(0, len(items), _AHEAD):
                yield from parallel(delayed(_call)(work, str(path), item) for item in items[start : start + _AHEAD])
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
        with refuse_exit():
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


def _store(shared: Any, path: Path) -> None:
    """What the workers share, its large arrays in a file of their own, which is in memory once for all of them."""
    large: list[pickle.PickleBuffer] = []

    def here(buffer: pickle.PickleBuffer) -> bool:
        """Whether an array goes with the rest."""
        if buffer.raw().nbytes < _LARGE:
            return True
        large.append(buffer)
        return False

    # not joblib's dump, which would write an array once for each feature that shares it
    body = pickle.dumps(shared, protocol=5, buffer_callback=here)
    ends = []
    with path.with_suffix(".arrays").open("wb") as file:
        for buffer in large:
            file.write(buffer.raw())
            ends.append(file.tell())
            file.write(bytes(-ends[-1] % _ALIGNED))
    path.write_bytes(pickle.dumps((body, ends)))


@lru_cache(maxsize=1)
def _load(path: str) -> Any:
    """What the workers share, from a folder that only the user who started them can write to."""
    body, ends = pickle.loads(Path(path).read_bytes())  # noqa: S301
    if not ends:
        return pickle.loads(body)  # noqa: S301
    with Path(path).with_suffix(".arrays").open("rb") as file:
        # who writes to an array has that part of it for himself
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    starts = [0, *(-(-end // _ALIGNED) * _ALIGNED for end in ends[:-1])]
    return pickle.loads(body, buffers=[whole[a:b] for a, b in zip(starts, ends, strict=True)])  # noqa: S301
