"""A cluster returns the results of one process; unsupported work is refused, and each failure is one message."""

import csv
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.executor import dask
from cfeval_cli.executor.dask import Dask
from cfeval_cli.executor.local import Local
from tests.conftest import CFEVAL, make_environment, run_cfeval
from tests.executor.functions import (
    add,
    call_function,
    count_threads,
    describe_process,
    exit_process,
    fail_at_second_item,
    import_missing_module,
    kill_worker,
    kill_worker_once,
    meets_other_item,
    raise_unpicklable_error,
    time_out,
    wait_for_file,
)  # fmt: skip

# no more than these tests look at
QUICK = (
    "cache=off",
    "figures=[]",
    "report=false",
    "resamples=100",
    "explainer_stability=0",
    "bounds=0",
    "reparametrisations=0",
)


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes and their scheduler, as another program would have started them."""
    from dask import config
    from distributed import LocalCluster

    # which would look a hundred times a second where each worker is; workers are forked from one that has imported
    config.set({"distributed.worker.profile.enabled": False, "distributed.worker.multiprocessing-method": "forkserver"})
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=60,
    ) as local_cluster:
        yield local_cluster
        dask._connect.cache_clear()


@pytest.fixture
def workers(cluster):
    return Dask(cluster.scheduler_address, min_seconds=0.0)


def small(**settings):
    """A scheduler and a worker in threads of this process, which are there at once."""
    from distributed import LocalCluster

    defaults = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 60}
    return LocalCluster(processes=False, protocol="tcp", host="127.0.0.1", **{**defaults, **settings})


@pytest.mark.parametrize("size", [0, 1, 2, 23, 400])
def test_results_are_in_order_and_equal_those_of_one_process(workers, size):
    items = list(range(size))
    assert list(workers.map(add, {"base": 100}, items)) == list(Local(1).map(add, {"base": 100}, items))


def test_the_first_item_is_computed_here_and_the_others_by_workers_with_one_copy_of_the_shared_value(workers, tmp_path):
    shared = {"table": np.arange(300_000), "folder": str(tmp_path)}
    results = list(workers.map(describe_process, shared, list(range(12))))
    assert results[0][0] == os.getpid()
    processes = {process for process, *_ in results[1:]}
    assert len(processes) == 2 and os.getpid() not in processes
    assert len({(process, copy) for process, copy, _ in results[1:]}) == 2  # one copy in each worker
    assert {int(total) for *_, total in results} == {300_000 * 299_999 // 2}


def test_little_work_starts_no_cluster_and_no_connection():
    assert list(Dask(n_jobs=2, min_seconds=60.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]
    assert list(Dask("tcp://127.0.0.1:1", min_seconds=60.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]


@contextmanager
def scheduler_and_worker(folder):
    """A scheduler and a worker as processes of their own: the scheduler's process and its address."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    command += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    processes = [subprocess.Popen(command, **quiet)]
    try:
        while not file.exists() or not file.read_text():
            assert processes[0].poll() is None
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
        processes.append(subprocess.Popen([*command, "--host", "127.0.0.1"], **quiet))
        yield processes[0], address
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_scheduler_that_ends_is_a_failure_with_one_message(tmp_path, capfd):
    with scheduler_and_worker(tmp_path) as (scheduler, address):
        executor = Dask(address, min_seconds=0.0)
        assert list(executor.map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]
        # every item but the first, which is done in this process, is at the worker and ends only when the file is there
        results = executor.map(wait_for_file, str(tmp_path / "go"), list(range(12)))
        assert next(results) == 0
        start = time.monotonic()
        killer = threading.Timer(1.0, scheduler.kill)
        killer.start()
        with pytest.raises(Failure, match=rf"executor.scheduler={address} does not answer any more"):
            next(results)
        assert time.monotonic() - start < 30
        (tmp_path / "go").touch()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_run_without_its_scheduler_is_resumed_on_this_machine(toy, tmp_path):
    overrides = ("explainer=[random,omission,lr]", "n_explain=40", "hydra.run.dir=run")
    with scheduler_and_worker(tmp_path) as (scheduler, address):
        command = [CFEVAL, "run", *toy.arguments, *overrides, *QUICK, "executor=dask", f"executor.scheduler={address}"]
        run = subprocess.Popen([*command, "executor.min_seconds=0"], cwd=tmp_path, env=make_environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        lines = []
        for line in run.stderr:
            lines.append(line)
            if "train: done" in line:
                scheduler.kill()
        assert run.wait() == 1
    assert "does not answer any more" in lines[-1] and "To continue: cfeval run --resume" in lines[-1]
    run_cfeval("run", "--resume", "run", *toy.arguments, "executor=local", cwd=tmp_path)
    run_cfeval("run", *toy.arguments, *overrides[:2], *QUICK, "hydra.run.dir=whole", cwd=tmp_path)
    tables = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("run", "whole")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_a_cluster_whose_processes_are_killed_at_their_start_is_a_failure_of_the_cluster(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fail)
    with pytest.raises(Failure, match=r"executor=dask: no cluster could be started .*Nanny.*executor=local"):
        list(Dask(n_jobs=2, min_seconds=0.0).map(add, {"base": 1}, [1, 2, 3]))


def test_a_scheduler_that_does_not_answer_or_has_no_workers_is_refused_with_the_commands_that_start_them():
    commands = r".*`dask scheduler` and `dask worker tcp://127.0.0.1:\d+ --nthreads 1`"
    with pytest.raises(UserError, match=r"executor.scheduler=tcp://127.0.0.1:1: no scheduler" + commands):
        Dask("tcp://127.0.0.1:1", wait=0.2).prepare(None)
    with small(n_workers=0) as local_cluster, pytest.raises(UserError, match="no scheduler with workers" + commands):
        Dask(local_cluster.scheduler_address, wait=0.2).prepare(None)


def test_a_cluster_with_other_versions_is_described_by_the_first_difference():
    def make_versions(**cluster):
        node = {"packages": cluster}
        return {"scheduler": node, "workers": {"tcp://a": node}, "client": {"packages": {"numpy": "2.0"}}}

    assert dask.describe_version_difference(make_versions(numpy="2.0", torch="3")) is None
    difference = dask.describe_version_difference(make_versions(numpy="1.0"))
    assert difference == "numpy is 1.0 on the scheduler, and 2.0 here"
    assert "numpy is missing" in dask.describe_version_difference(make_versions())
    assert dask.list_requirements(["numpy>=1", "no-such-package; extra == 'dev'"]) == ["numpy"]


def test_a_cluster_that_loses_its_workers_is_a_failure_after_some_seconds():
    with small() as local_cluster:
        executor = Dask(local_cluster.scheduler_address, min_seconds=0.0, wait=0.3)
        executor.prepare(None)
        local_cluster.scale(0)
        with pytest.raises(Failure, match=r"has had no workers for 0\.3 s"):
            list(executor.map(add, {"base": 1}, [1, 2, 3]))


def test_time_limits_are_refused():
    Dask().prepare(None)
    with pytest.raises(UserError, match=r"timeout_per_instance=2.5 cannot be enforced .*executor=local"):
        Dask().prepare(2.5)


def test_workers_have_one_thread_each_and_errors_of_the_work_are_raised(workers):
    for variable, libraries, _ in list(workers.map(count_threads, None, list(range(6))))[1:]:
        assert variable == "1" and set(libraries) == {1}
    with pytest.raises(UserError, match="no 1"):
        list(workers.map(fail_at_second_item, None, [0, 1, 2]))
    with pytest.raises(RuntimeError, match="UnpicklableError: this and that"):
        list(workers.map(raise_unpicklable_error, None, [0, 1, 2]))
    with pytest.raises(TimeoutError, match="item 1 took too long"):
        list(workers.map(time_out, None, [0, 1, 2]))
    with pytest.raises(UserError, match=r"cannot import no_such_module.*PYTHONPATH"):
        list(workers.map(import_missing_module, None, [0, 1, 2]))
    with pytest.raises(Failure, match=r"functions.py, line \d+ ended the process by sys.exit\(0\)"):
        list(workers.map(exit_process, None, [0, 1, 2]))


def test_workers_with_several_threads_do_one_item_at_a_time(tmp_path):
    with small(threads_per_worker=3) as local_cluster:
        executor = Dask(local_cluster.scheduler_address, min_seconds=0.0)
        assert not any(list(executor.map(meets_other_item, str(tmp_path), list(range(40))))[1:])


def test_work_that_cannot_be_sent_is_computed_here(workers, caplog):
    assert list(workers.map(call_function, lambda x: 2 * x, [1, 2, 3])) == [2, 4, 6]
    assert "cannot be sent" in caplog.text


@pytest.mark.parametrize(
    "setting",
    [{"n_jobs": 0}, {"min_seconds": -1}, {"wait": 0}, {"scheduler": "127.0.0.1:8786"}, {"scheduler": "inproc://x"}],
)
def test_invalid_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Dask(**setting)


def test_a_run_writes_the_same_bytes_as_on_this_machine(toy, make_run, cluster):
    overrides = ("explainer=[random,omission,decision_boundary,lr]", "explainer_stability=10")  # which import little
    local = make_run(toy, *overrides)
    remote = make_run(toy, *overrides, "executor=dask", f"executor.scheduler={cluster.scheduler_address}",
                 "executor.min_seconds=0")  # fmt: skip
    files = sorted(path.name for path in local.iterdir() if path.suffix in (".parquet", ".csv", ".npz"))
    files = [name for name in files if name != "costs.csv"]
    assert "scores.parquet" in files and "explanations.parquet" in files
    assert [name for name in files if (local / name).read_bytes() != (remote / name).read_bytes()] == []
    assert costs(local) == costs(remote)  # but for seconds


def test_explanations_of_a_model_of_matrix_products_are_equal_to_the_documented_tolerance(toy, make_run, cluster):
    """Sums in a matrix product may depend on how many rows there are, and on where they are in memory."""
    overrides = ("model=mlp", "model.max_epochs=3", "explainer=[omission,lime]", "explainer.lime.n_samples=100")
    local = make_run(toy, *overrides)
    remote = make_run(toy, *overrides, "executor=dask", f"executor.scheduler={cluster.scheduler_address}",
                 "executor.min_seconds=0")  # fmt: skip
    first, second = (pd.read_parquet(folder / "explanations.parquet") for folder in (local, remote))
    assert len(first) == len(second) and first[["instance", "explainer"]].equals(second[["instance", "explainer"]])
    for first_row, second_row in zip(first.itertuples(), second.itertuples(), strict=True):
        scores = [dict(zip(row.features, row.scores, strict=True)) for row in (first_row, second_row)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-9, abs=1e-12)


def costs(folder):
    """What a run tells of its costs, but seconds."""
    with (folder / "costs.csv").open() as file:
        return [
            {key: value for key, value in row.items() if not key.endswith("seconds")} for row in csv.DictReader(file)
        ]


# the last ones: each worker that is killed is started anew


def test_work_that_ends_every_worker_is_a_failure_and_the_next_work_has_new_workers(workers, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # a fresh worker takes seconds
    with pytest.raises(Failure, match=r"executor.scheduler=tcp://.*ended several workers.*executor=local"):
        list(workers.map(kill_worker, os.getpid(), list(range(3))))
    assert list(workers.map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]  # and the next work finds new ones


def test_work_of_a_worker_that_is_killed_is_repeated(workers, tmp_path):
    assert list(workers.map(kill_worker_once, str(tmp_path), list(range(12)))) == list(range(12))
    assert len(list(tmp_path.glob("5-*"))) == 2
