"""Progress that is true, also when part of the work was known from before."""

import logging
import re

import pytest

from cfeval_cli.run import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])

    def tick(seconds):
        now[0] += seconds

    return tick


@pytest.mark.parametrize(("known", "step", "seconds"), [(0, 10, 11.0), (800, 5, 20.0), (0, 1, 12.5)])
def test_speed_and_time_left_are_those_of_what_is_really_done(clock, caplog, known, step, seconds):
    caplog.set_level(logging.INFO, "cfeval")
    with progress.Progress().stage("explain: x", 1000) as advance:
        advance(known)
        for _ in range(3):
            clock(seconds)
            advance(step)
    lines = re.findall(r"explain: x: ([\d,]+) of 1,000, ([\d.e+-]+)/s, about (\d+) s left", caplog.text)
    assert [int(done) for done, _, _ in lines] == [known + step * i for i in (1, 2, 3)]
    for done, speed, left in lines:
        assert float(speed) == pytest.approx(step / seconds, rel=0.01)
        assert int(left) == pytest.approx((1000 - int(done)) / (step / seconds), abs=1)


def test_all_that_is_known_from_before_says_nothing_of_speed(clock, caplog):
    caplog.set_level(logging.INFO, "cfeval")
    made = progress.Progress()
    with made.stage("explain: x", 1000) as advance:
        clock(30)
        advance(1000)
    assert "/s" not in caplog.text and made.seconds == {"explain: x": 30.0}
