"""A limit on the time that a user's code may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_REPEAT_SECONDS = 1.0  # between further interruptions, if the code catches the first interruption


class TimeLimitExceeded(BaseException):
    """The time limit was exceeded. Not an Exception, which the interrupted code may catch for reasons of its own."""


@contextmanager
def limit_time(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitExceeded in the block after some seconds, as soon as it runs Python code; repeat if it goes on.

    Without a limit, and outside the main thread, where Python handles no signals, nothing is interrupted.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise TimeLimitExceeded

    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # also if the signal arrives during the line above
            signal.signal(signal.SIGALRM, previous_handler)
