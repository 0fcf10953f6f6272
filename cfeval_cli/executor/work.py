"""What executors share: work starts in this process, and workers continue it if that saves time."""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cfeval_cli.errors import excerpt_error, refuse_exit

log = logging.getLogger("cfeval")

Work = Callable[[Any, Any], Any]  # a function of a module, called with the shared value and one item
Payload = tuple[list[str], bytes, list[Any]]  # folders of modules, pickled function and shared value, large arrays

_MIN_ARRAY_BYTES = 1 << 20  # of an array that is stored outside the pickle, so that processes can share its memory


def map_locally_first(
    work: Work,
    shared: Any,
    items: Sequence[Any],
    min_seconds: float,
    send: Callable[[Payload, Sequence[Any]], Iterator[Any]],
) -> Iterator[Any]:
    """Yield work(shared, item) in order; `send` continues once an estimated `min_seconds` or more remain."""
    # Estimated from this call only: costs of earlier runs are of other machines, and workers need seconds to start.
    start_time = time.perf_counter()
    for n_done, item in enumerate(items):
        n_left = len(items) - n_done
        if n_done and n_left > 1 and (time.perf_counter() - start_time) / n_done * n_left >= min_seconds:
            try:
                payload = dump(work, shared)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                log.warning("work continues in one process because it cannot be sent to workers (%s)", error)
                yield from (work(shared, item) for item in items[n_done:])
            else:
                yield from send(payload, items[n_done:])
            return
        yield work(shared, item)


def dump(work: Work, shared: Any) -> Payload:
    """Pickle a function and its shared value, without large arrays."""
    arrays: list[Any] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes >= _MIN_ARRAY_BYTES:
            arrays.append(np.frombuffer(buffer.raw(), dtype=np.uint8))
            return False
        return True

    body = pickle.dumps((work, shared), protocol=5, buffer_callback=is_small)
    if b"__main__" in body:
        raise pickle.PicklingError("workers do not have the classes and functions of a script")
    return sys.path, body, arrays


def load(folders: list[str], body: bytes, arrays: Sequence[Any]) -> tuple[Work, Any]:
    """Return a function and its shared value in a worker, which may have started before a folder was added."""
    sys.path += [folder for folder in folders if folder not in sys.path]
    work, shared = pickle.loads(body, buffers=arrays)  # noqa: S301  from the process that started the work
    return work, shared


def call(work: Work, shared: Any, item: Any) -> Any:
    """Return work(shared, item) in a worker; raise only errors that can be sent back."""
    try:
        with refuse_exit():
            return work(shared, item)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  pickled on the line itself
        except Exception:
            raise RuntimeError(excerpt_error(error)) from None
        raise


def check_jobs(n_jobs: object) -> None:
    """Raise ValueError if `n_jobs` is neither a positive integer nor -1, which is one for each core."""
    if n_jobs != -1 and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs < 1):
        raise ValueError(f"n_jobs must be a whole number of at least 1, or -1 for all cores, not {n_jobs!r}")
