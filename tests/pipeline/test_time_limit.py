"""Code that does not come back is interrupted; what is quick is not."""

import signal
import threading

import pytest

from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time


def test_endless_code_is_interrupted_and_the_signal_handler_restored():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeLimitExceeded), limit_time(0.05):
        while True:
            pass
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_code_that_catches_the_exception_is_interrupted_again():
    with pytest.raises(TimeLimitExceeded), limit_time(0.05):
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass


def test_without_a_limit_and_in_other_threads_nothing_is_interrupted():
    with limit_time(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    received = []

    def work():
        with limit_time(60):
            received.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert received == [(0.0, 0.0)]
