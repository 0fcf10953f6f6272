"""Progress that is true, also when part of the work was known from before."""

import logging
import re
import threading
import time

import pytest

from cfeval_cli.pipeline import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only by calls of the fixture."""
    time_now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: time_now[0])

    def tick(seconds):
        time_now[0] += seconds

    return tick


@pytest.mark.parametrize(("estimate", "step", "seconds"), [(0, 10, 11.0), (800, 5, 20.0), (0, 1, 12.5)])
def test_speed_and_remaining_time_are_measured_from_completed_items(clock, caplog, estimate, step, seconds):
    caplog.set_level(logging.INFO, "cfeval")
    with progress.Progress().track_stage("explain: x", 1000) as advance:
        advance(estimate)
        for _ in range(3):
            clock(seconds)
            advance(step)
    lines = re.findall(r"explain: x: ([\d,]+) of 1,000, ([\d.e+-]+)/s, about (\d+) s left", caplog.text)
    assert [int(outcome) for outcome, _, _ in lines] == [estimate + step * i for i in (1, 2, 3)]
    for outcome, speed, remaining in lines:
        assert float(speed) == pytest.approx(step / seconds, rel=0.01)
        assert int(remaining) == pytest.approx((1000 - int(outcome)) / (step / seconds), abs=1)


def test_a_long_stage_is_announced_before_it_starts_with_the_settings_that_shorten_it(clock, caplog):
    shorten = "explainer.x.n_samples or n_explain"
    with progress.Progress().track_stage("explain: x", 1000, progress.TimeEstimate(shorten, 0.5)) as advance:
        advance(200)  # known from before
        assert caplog.messages == [f"explain: x: about 400 s in one process. To shorten it, lower {shorten}."]
        clock(5)
        advance(1)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("seconds", "is_announced"), [(0.01, False), (2.0, True)])
def test_stage_without_an_estimate_is_timed_by_its_first_items(clock, caplog, seconds, is_announced):
    with progress.Progress().track_stage("search: x", 100, progress.TimeEstimate("k")) as advance:
        advance(0)
        clock(10 * seconds)
        advance(10)
    assert ("search: x: about 180 s left. To shorten it, lower k." in caplog.messages) == is_announced


def test_the_time_left_never_grows_while_a_chunk_is_waited_for(clock, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "cfeval")
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.001)
    with progress.Progress().track_stage("explain: x", 100) as advance:
        advance(0)
        clock(60)
        advance(50)  # as many again take another 60 s
        for elapsed in range(70, 141, 10):
            clock(10)
            deadline = time.monotonic() + 60
            while caplog.text.count("\n") < elapsed // 10 - 4 and time.monotonic() < deadline:
                time.sleep(0.001)
    lines = [message.partition("50 of 100, ")[2] for message in caplog.messages if "50 of 100" in message]
    remaining = [f"0.833/s, about {seconds} s left" for seconds in (60, 50, 40, 30, 20, 10)]
    assert lines == [*remaining, "0.833/s, 120 s elapsed", "0.833/s, 130 s elapsed", "0.833/s, 140 s elapsed"]


@pytest.mark.parametrize("total", [None, 10])
def test_lines_are_written_during_a_long_call(caplog, monkeypatch, total):
    caplog.set_level(logging.INFO, "cfeval")
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    with progress.Progress().track_stage("score", total):
        deadline = time.monotonic() + 60
        while "s elapsed" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    assert re.search(r"score: (0 of 10, )?0 s elapsed", caplog.text)


def test_no_thread_is_left_when_a_stage_fails():
    with pytest.raises(ValueError), progress.Progress().track_stage("score"):
        raise ValueError
    deadline = time.monotonic() + 60
    while (names := [first.name for first in threading.enumerate()]) and "cfeval-progress" in names:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cached_items_do_not_count_for_the_speed(clock, caplog):
    caplog.set_level(logging.INFO, "cfeval")
    tracker = progress.Progress()
    with tracker.track_stage("explain", 1000, component="x") as advance:
        clock(30)
        advance(1000)
    assert "/s" not in caplog.text and tracker.seconds == {("explain", "x"): 30.0}
