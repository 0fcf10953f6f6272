"""Local computes items in order; workers load what items share once, and have one thread each."""

import os
import time

import numpy as np
import pytest

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.executor.local import Local
from tests.executor.functions import (
    add,
    call_function,
    count_threads,
    describe_process,
    exit_process,
    fail,
    fail_at_second_item,
    get_process,
    is_same_array,
    kill_worker,
    raise_unpicklable_error,
    write_to_array,
)  # fmt: skip


def test_the_first_item_is_computed_here_and_the_others_by_workers_with_one_copy_of_the_shared_value(tmp_path):
    shared = {"table": np.arange(300_000), "folder": str(tmp_path)}
    results = list(Local(2, 0.0).map(describe_process, shared, list(range(12))))
    assert results[0][0] == os.getpid()
    workers = {process for process, *_ in results[1:]}
    assert len(workers) == 2 and os.getpid() not in workers
    assert len({(process, copy) for process, copy, _ in results[1:]}) == 2  # one copy in each worker
    assert {int(total) for *_, total in results} == {300_000 * 299_999 // 2}


def test_large_arrays_arrive_unchanged_and_each_worker_writes_to_its_own():
    large = np.arange(240_000.0).reshape(600, 400).copy(order="F")
    (_, main, _), *results = Local(2, 0.0).map(write_to_array, (large, np.arange(3), np.zeros((0, 4))), list(range(7)))
    assert main == os.getpid() == large[0, 0] and len(results) == 6
    assert {content for content, _, _ in results} == {(sum(range(400, 240_000)), (0, 1, 2), (0, 4), True)}
    assert all(previous in (main, worker) and worker != main for _, worker, previous in results)


def test_large_arrays_cost_no_second_to_clean_up():
    executor, large = Local(2, 0.0), np.arange(400_000.0)
    assert list(executor.map(add, {"base": 1, "large": large}, [1, 2, 3])) == [2, 3, 4]  # starts the workers
    start_time = time.perf_counter()
    for base in range(5):
        assert list(executor.map(add, {"base": base, "large": large}, [1, 2, 3])) == [base + 1, base + 2, base + 3]
    assert time.perf_counter() - start_time < 4


@pytest.mark.parametrize("size", [1_000, 400_000])
def test_an_array_that_is_shared_twice_is_sent_once(size):
    table = np.arange(float(size))
    assert all(Local(2, 0.0).map(is_same_array, (table, table), list(range(5))))


def test_work_that_cannot_be_sent_is_computed_here(caplog, monkeypatch):
    assert list(Local(2, 0.0).map(call_function, lambda x: 2 * x, [1, 2, 3])) == [2, 4, 6]
    monkeypatch.setattr(get_process, "__module__", "__main__")
    monkeypatch.setattr("__main__.get_process", get_process, raising=False)
    assert set(Local(2, 0.0).map(get_process, None, [1, 2, 3])) == {os.getpid()}
    assert caplog.text.count("cannot be sent") == 2


@pytest.mark.parametrize(
    ("executor", "items"), [(Local(2, 60.0), range(4)), (Local(1), range(4)), (Local(2, 0.0), [0])]
)
def test_little_work_starts_no_process(executor, items):
    assert set(executor.map(get_process, None, items)) == {os.getpid()}


def test_workers_have_one_thread_each():
    results = list(Local(2, 0.0).map(count_threads, 1, list(range(6))))[1:]
    assert all(variable == "1" and set(libraries) == {1} for variable, libraries, _ in results)
    assert [torch for *_, torch in results] == [1, None, None, None, None]


def test_errors_of_the_work_are_raised_by_the_executor():
    with pytest.raises(ValueError, match="no 0"):
        list(Local(2, 0.0).map(fail, None, [0, 1]))
    with pytest.raises(UserError, match="no 1"):
        list(Local(2, 0.0).map(fail_at_second_item, None, [0, 1, 2]))
    with pytest.raises(RuntimeError, match="UnpicklableError: this and that"):
        list(Local(2, 0.0).map(raise_unpicklable_error, None, [0, 1, 2]))
    with pytest.raises(Failure, match=r"functions.py, line \d+ ended the process by sys.exit\(0\)"):
        list(Local(2, 0.0).map(exit_process, None, [0, 1, 2]))


def test_a_worker_that_is_killed_is_a_failure_and_the_next_work_has_new_workers():
    with pytest.raises(Failure, match=r"worker process was killed.*executor.n_jobs=1"):
        list(Local(2, 0.0).map(kill_worker, os.getpid(), list(range(6))))
    assert list(Local(2, 0.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]


@pytest.mark.parametrize(
    "setting", [{"n_jobs": 0}, {"n_jobs": -2}, {"n_jobs": 1.5}, {"n_jobs": True}, {"min_seconds": -1}]
)
def test_invalid_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Local(**setting)
