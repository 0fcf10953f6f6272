"""What executors share: work starts in this process, and workers continue it where that saves time."""

from __future__ import annotations

import io
import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cfeval_cli.errors import excerpt_error, refuse_exit

log = logging.getLogger("cfeval")

Work = Callable[[Any, Any], Any]  # a function of a module, called with what all items share and with one item
# pickled: where modules are found, then a function with what items share; and the large arrays in it
Payload = tuple[bytes, list[Any]]

MAX_PENDING = 1024  # items whose results may wait to be collected

_MIN_SECONDS_STARTED = 0.5  # of work left that are worth sending to workers that run already
_MIN_ARRAY_BYTES = 1 << 20  # of an array that travels apart from the pickle


def map_here_first(
    work: Work,
    shared: Any,
    items: Sequence[Any],
    min_seconds: float,
    is_started: bool,
    spread: Callable[[Payload, Sequence[Any]], Iterator[Any]],
) -> Iterator[Any]:
    """Yield work(shared, item) in order; `spread` continues once `min_seconds` of work or more are left."""
    min_seconds = min(min_seconds, _MIN_SECONDS_STARTED) if is_started else min_seconds
    begun = time.perf_counter()
    for done, item in enumerate(items):
        left = len(items) - done
        # a single item is not worth sending
        if done and left > 1 and (time.perf_counter() - begun) / done * left >= min_seconds:
            try:
                payload = dump(work, shared)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                log.warning("work continues in one process: it cannot be sent to workers (%s)", error)
                yield from (work(shared, item) for item in items[done:])
            else:
                yield from spread(payload, items[done:])
            return
        yield work(shared, item)


def dump(work: Work, shared: Any) -> Payload:
    """Pickle a function and what its items share, with large arrays apart."""
    arrays: list[Any] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        """Return whether an array stays within the pickle."""
        raw = buffer.raw()
        if raw.nbytes >= _MIN_ARRAY_BYTES:
            arrays.append(np.frombuffer(raw, dtype=np.uint8))
        return raw.nbytes < _MIN_ARRAY_BYTES

    body = pickle.dumps((work, shared), protocol=5, buffer_callback=keep)
    if b"__main__" in body:
        raise pickle.PicklingError("workers do not have the classes and functions of a script")
    return pickle.dumps(sys.path) + body, arrays


def load(body: bytes, arrays: Sequence[Any]) -> tuple[Work, Any]:
    """Return a function and what its items share, with the arrays as they are."""
    stream = io.BytesIO(body)
    # a worker may be older than the first component of the user in the run
    folders = pickle.load(stream)  # noqa: S301  from the process that started the work
    sys.path += [folder for folder in folders if folder and folder not in sys.path]
    work, shared = pickle.load(stream, buffers=arrays)  # noqa: S301
    return work, shared


def call(work: Work, shared: Any, item: Any) -> Any:
    """Return work(shared, item) in a worker; raise only errors that can be sent back."""
    try:
        with refuse_exit():
            return work(shared, item)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  its own
        except Exception:
            raise RuntimeError(excerpt_error(error)) from None
        raise


def check_jobs(n_jobs: object) -> None:
    """Raise ValueError if `n_jobs` is neither a positive integer nor -1."""
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs < -1 or n_jobs == 0:
        raise ValueError(f"n_jobs must be a whole number of at least 1, or -1 for all cores, not {n_jobs!r}")


def count_jobs(n_jobs: int) -> int:
    """Return the number of processes; -1 is one for each core."""
    from joblib import cpu_count

    return int(cpu_count()) if n_jobs == -1 else n_jobs
