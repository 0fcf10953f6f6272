"""A limit to the time that somebody else's code may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooLong(BaseException):
    """Not an Exception, which the code may catch on its own account."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Interrupt what takes longer, as soon as it is back in Python; again and again, if it will not hear."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # even if it struck just now
            signal.signal(signal.SIGALRM, before)
