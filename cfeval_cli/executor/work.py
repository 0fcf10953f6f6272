"""What executors have in common: work begins here, and what is left goes to others if that is worth it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Shared = TypeVar("_Shared")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def here_first(
    work: Callable[[_Shared, _Item], _Result],
    shared: _Shared,
    items: Sequence[_Item],
    least: Callable[[], float],
    spread: Callable[[Sequence[_Item], float], Iterator[_Result]],
) -> Iterator[_Result]:
    """Items one by one, in order, until `least` seconds of work or more are left: the rest is spread.

    `spread` is given the rest, and the seconds that one item took.
    """
    begun = time.perf_counter()
    for done, item in enumerate(items):
        left = len(items) - done
        each = (time.perf_counter() - begun) / done if done else 0.0
        # one item alone would be done in this process, and by rules that are meant for workers
        if done and left > 1 and each * left >= least():
            yield from spread(items[done:], each)
            return
        yield work(shared, item)


def check_jobs(n_jobs: object) -> None:
    """Refuse a number of processes that is none."""
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs < -1 or n_jobs == 0:
        raise ValueError(f"n_jobs must be a whole number of at least 1, or -1 for all cores, not {n_jobs!r}")


def jobs(n_jobs: int) -> int:
    """So many processes, of which -1 is one for each core."""
    if n_jobs != -1:
        return n_jobs
    from joblib import cpu_count

    return int(cpu_count())


def portable(error: Exception) -> Exception:
    """An error that can be sent to another process: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  its own
    except Exception:  # it would be lost on the way back
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
