"""Work is done in order, whoever does it; workers get what they share once, and have one thread each."""

import os
import time

import numpy as np
import pytest

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.executor import local
from cfeval_cli.executor.local import Local
from tests.executor.functions import (
    add,
    called,
    die,
    fail,
    fail_second,
    is_shared,
    mark,
    meet,
    raise_odd,
    threads,
    where,
    write,
)  # fmt: skip


def test_the_first_is_done_here_the_rest_by_workers_that_share_one_copy(tmp_path):
    shared = {"table": np.arange(300_000), "folder": str(tmp_path)}
    done = list(Local(2, 0.0).map(meet, shared, list(range(12))))
    assert done[0][0] == os.getpid()
    workers = {pid for pid, *_ in done[1:]}
    assert len(workers) == 2 and os.getpid() not in workers
    assert len({(pid, copy) for pid, copy, *_ in done[1:]}) == 2  # one copy in each
    assert {kind for _, _, kind, _ in done[1:]} == {"ndarray"}
    assert {int(total) for *_, total in done} == {300_000 * 299_999 // 2}


def test_large_arrays_are_as_they_were_and_each_worker_writes_to_its_own():
    large = np.arange(240_000.0).reshape(600, 400).copy(order="F")
    (_, here, _), *done = Local(2, 0.0).map(write, (large, np.arange(3), np.zeros((0, 4))), list(range(7)))
    assert here == os.getpid() == large[0, 0] and len(done) == 6
    assert {held for held, _, _ in done} == {(sum(range(400, 240_000)), (0, 1, 2), (0, 4), True)}
    assert all(before in (here, worker) and worker != here for _, worker, before in done)


def test_large_arrays_cost_no_second_to_clean_up():
    executor, large = Local(2, 0.0), np.arange(400_000.0)
    assert list(executor.map(add, {"base": 1, "large": large}, [1, 2, 3])) == [2, 3, 4]  # starts the workers
    begun = time.perf_counter()
    for base in range(5):
        assert list(executor.map(add, {"base": base, "large": large}, [1, 2, 3])) == [base + 1, base + 2, base + 3]
    assert time.perf_counter() - begun < 4


def test_workers_are_no_more_than_some_items_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "MAX_PENDING", 3)
    done = Local(2, 0.0).map(mark, tmp_path, list(range(14)))
    for item, found in enumerate(done):
        assert found == item
        assert len(list(tmp_path.iterdir())) <= 1 + 3 * -(-item // 3)  # the first is done here


def test_what_is_shared_within_is_sent_once_and_stays_shared():
    table = np.arange(1000)
    assert all(Local(2, 0.0).map(is_shared, (table, table), list(range(5))))


def test_what_cannot_be_sent_is_done_here(caplog):
    assert list(Local(2, 0.0).map(called, lambda x: 2 * x, [1, 2, 3])) == [2, 4, 6]
    assert "cannot be sent" in caplog.text


def test_an_error_that_cannot_travel_is_told_all_the_same():
    with pytest.raises(RuntimeError, match="Odd: this and that"):
        list(Local(2, 0.0).map(raise_odd, None, [0, 1, 2]))


def test_little_work_starts_no_process():
    assert {pid for pid, *_ in Local(2, 60.0).map(where, {"table": np.zeros(1)}, list(range(4)))} == {os.getpid()}


def test_workers_have_one_thread_each():
    done = list(Local(2, 0.0).map(threads, 1, list(range(6))))[1:]
    assert all(told == "1" and set(libraries) == {1} for told, libraries, _ in done)
    assert [torch for *_, torch in done] == [1, None, None, None, None]


def test_errors_of_workers_are_those_of_the_work():
    with pytest.raises(ValueError, match="no 0"):
        list(Local(2, 0.0).map(fail, None, [0, 1]))
    with pytest.raises(UserError, match="no 1"):
        list(Local(2, 0.0).map(fail_second, None, [0, 1, 2]))


def test_a_worker_that_dies_is_told_with_the_way_out():
    with pytest.raises(Failure, match=r"worker process was killed.*executor.n_jobs=1"):
        list(Local(2, 0.0).map(die, os.getpid(), list(range(6))))
    # and the next work finds new ones
    assert list(Local(2, 0.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]


@pytest.mark.parametrize(
    "setting", [{"n_jobs": 0}, {"n_jobs": -2}, {"n_jobs": 1.5}, {"n_jobs": True}, {"min_seconds": -1}]
)
def test_bad_settings_are_named(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Local(**setting)
