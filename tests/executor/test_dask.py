"""A cluster gives what one process gives; what it cannot do is refused, and what breaks is told once."""

import csv
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.executor import dask, versions
from cfeval_cli.executor.dask import Dask
from cfeval_cli.executor.local import Local
from tests.conftest import CFEVAL, cfeval, environment
from tests.executor.functions import (
    Odd,
    add,
    alone,
    called,
    die,
    die_once,
    fail_second,
    import_nowhere,
    leave,
    meet,
    places,
    raise_odd,
    stay,
    threads,
)  # fmt: skip
from tests.problems import make_dataset

# no more than these tests look at
QUICK = ("cache=off", "figures=[]", "report=false", "resamples=100", "noise=0", "bounds=0", "reparametrisations=0")


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
    ) as made:
        yield made
        dask._close()


@pytest.fixture
def workers(cluster):
    return Dask(cluster.scheduler_address, min_seconds=0.0)


def small(**settings):
    """A scheduler and a worker in threads of this process, which are there at once."""
    from distributed import LocalCluster

    usual = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 60}
    return LocalCluster(processes=False, protocol="tcp", host="127.0.0.1", **{**usual, **settings})


@pytest.mark.parametrize("size", [0, 1, 2, 23, 400])
def test_results_come_in_order_and_are_those_of_one_process(workers, size):
    items = list(range(size))
    assert list(workers.map(add, {"base": 100}, items)) == list(Local(1).map(add, {"base": 100}, items))


def test_the_first_is_done_here_the_rest_by_workers_that_share_one_copy(workers, tmp_path):
    shared = {"table": np.arange(300_000), "folder": str(tmp_path)}
    done = list(workers.map(meet, shared, list(range(12))))
    assert done[0][0] == os.getpid()
    at_work = {pid for pid, *_ in done[1:]}
    assert len(at_work) == 2 and os.getpid() not in at_work
    assert len({(pid, copy) for pid, copy, *_ in done[1:]}) == 2  # one copy in each
    assert {int(total) for *_, total in done} == {300_000 * 299_999 // 2}


def test_little_work_starts_no_cluster_and_a_scheduler_is_not_asked():
    assert list(Dask(n_jobs=2, min_seconds=60.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]
    assert list(Dask("tcp://127.0.0.1:1", min_seconds=60.0).map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]


def test_data_and_models_travel_once_whatever_the_next_work_is(workers, monkeypatch):
    data = replace(make_dataset([4, 3, 2]), name="travels")
    table = np.arange(100_000, dtype=np.float64)
    sent = []
    from distributed import Client

    submit = Client.submit

    def counted(self, function, *arguments, **options):
        sent.append(str(options.get("key", "")))
        return submit(self, function, *arguments, **options)

    monkeypatch.setattr(Client, "submit", counted)
    told = []
    for name in ("lime", "anchor"):
        shared = {"explainer": name, "data": data, "model": (table,), "again": table}
        told += list(workers.map(places, shared, list(range(8))))[1:]
    at = {pid: {(one, two) for who, one, two, _ in told if who == pid} for pid, *_ in told}
    assert all(len(same) == 1 for same in at.values()) and all(within for *_, within in told)
    parts = [key for key in sent if key]
    # data, table, and what is around them: the last is another one for another explainer
    assert len(parts) == len(set(parts)) == 4


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
def test_a_scheduler_that_goes_away_ends_in_one_message(tmp_path, capfd):
    with scheduler_and_worker(tmp_path) as (scheduler, address):
        executor = Dask(address, min_seconds=0.0)
        assert list(executor.map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]
        # every item but the first, which is done in this process, is at the worker and ends only when the file is there
        results = executor.map(stay, str(tmp_path / "go"), list(range(12)))
        assert next(results) == 0
        begun = time.monotonic()
        killer = threading.Timer(1.0, scheduler.kill)
        killer.start()
        with pytest.raises(Failure, match=rf"executor.scheduler={address} does not answer any more"):
            next(results)
        with pytest.raises(Failure, match=rf"executor.scheduler={address} does not answer any more"):
            list(executor.map(add, {"base": 1}, [1, 2, 3]))  # the next work does not wait for it either
        assert time.monotonic() - begun < 30
        (tmp_path / "go").touch()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_run_without_its_scheduler_is_resumed_on_this_machine(toy, tmp_path):
    few = ("explainer=[random,omission,lr]", "n_explain=40", "hydra.run.dir=run")
    with scheduler_and_worker(tmp_path) as (scheduler, address):
        command = [CFEVAL, "run", *toy.arguments, *few, *QUICK, "executor=dask", f"executor.scheduler={address}"]
        run = subprocess.Popen([*command, "executor.min_seconds=0"], cwd=tmp_path, env=environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        lines = []
        for line in run.stderr:
            lines.append(line)
            if "train: done" in line:
                scheduler.kill()
        assert run.wait() == 1
    assert "its scheduler is gone" in lines[-1] and "To go on: cfeval run --resume" in lines[-1]
    cfeval("run", "--resume", "run", *toy.arguments, "executor=local", cwd=tmp_path)
    cfeval("run", *toy.arguments, *few[:2], *QUICK, "hydra.run.dir=whole", cwd=tmp_path)
    tables = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("run", "whole")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


class Deserted:
    """A client, and a task, whose workers are gone."""

    status = "running"

    def nthreads(self):
        return {}

    def result(self, timeout):
        raise TimeoutError

    def submit(self, *arguments, **options):
        return self

    def add_done_callback(self, function):
        function(self)


def test_workers_that_never_come_back_are_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(dask, "_LOOK", 0.001)
    cluster = dask._Cluster(Deserted(), "the cluster", wait=0.0)
    with pytest.raises(Failure, match="the cluster has had no workers for 0 s"):
        cluster._next(dask.SimpleQueue())
    with pytest.raises(Failure, match="the cluster has had no workers for 0 s"):
        list(cluster.spread(dask._Sent.of(add, {}), [1, 2], 0.1))


class Disconnected(Deserted):
    """A client that has lost its scheduler, as Dask's own client while it tries to connect again."""

    status = "connecting"

    def close(self, timeout):
        pass


def test_a_lost_scheduler_is_a_failure_and_is_not_connected_to_again(monkeypatch):
    monkeypatch.setattr(dask, "_LOOK", 0.001)
    executor = Dask("tcp://127.0.0.1:1", min_seconds=0.0)
    cluster = dask._Cluster(Disconnected(), "the cluster", wait=60.0)
    monkeypatch.setitem(dask._clusters, (os.getpid(), executor), cluster)
    with pytest.raises(Failure, match=r"the cluster does not answer any more.*executor=local"):
        list(executor.map(add, {"base": 1}, [1, 2, 3]))
    with pytest.raises(Failure, match=r"the cluster does not answer any more"):
        cluster._next(dask.SimpleQueue())


def test_a_cluster_whose_processes_are_killed_at_their_start_is_a_failure_of_the_cluster(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fail)
    with pytest.raises(Failure, match=r"executor=dask: the cluster .* not be started .*Nanny.*executor=local"):
        list(Dask(n_jobs=2, min_seconds=0.0).map(add, {"base": 1}, [1, 2, 3]))


def test_no_scheduler_no_worker_no_cfeval_there(monkeypatch):
    with pytest.raises(UserError, match=r"executor.scheduler=tcp://127.0.0.1:1: no scheduler .*`dask scheduler`"):
        Dask("tcp://127.0.0.1:1", wait=0.2).prepare(None)
    told = r"has no workers. `dask worker tcp://127.0.0.1:\d+ --nthreads 1`"
    with small(n_workers=0) as made, pytest.raises(UserError, match=told):
        Dask(made.scheduler_address, wait=0.2).prepare(None)


def test_versions_are_compared_before_any_work_is_sent(cluster, monkeypatch):
    real = versions.told

    def other(names):
        return {**real(names), **({"numpy": "0.0.1"} if "numpy" in names else {})}

    monkeypatch.setattr(dask, "told", other)
    executor = Dask(cluster.scheduler_address, min_seconds=0.0, wait=59.0)
    with pytest.raises(UserError, match=rf"this process has. tcp://.*: numpy is {np.__version__} there and 0.0.1 here"):
        executor.prepare(None)


def test_a_worker_that_comes_later_compares_too(workers, monkeypatch):
    workers.prepare(None)
    real = versions.told
    monkeypatch.setattr(dask, "told", lambda names: {**real(names), "numpy": "0.0.1"})
    with pytest.raises(UserError, match=r"a worker of Dask has not what this process has. numpy is \d.* and 0.0.1 her"):
        list(workers.map(add, {"base": 1}, [1, 2, 3, 4]))


def test_limits_of_time_are_refused():
    Dask().prepare(None)
    with pytest.raises(UserError, match=r"timeout_per_instance=2.5 cannot be kept .*executor=local"):
        Dask().prepare(2.5)


def test_workers_have_one_thread_each_and_errors_are_those_of_the_work(workers):
    for variable, libraries, _ in list(workers.map(threads, None, list(range(6))))[1:]:
        assert variable == "1" and set(libraries) == {1}
    with pytest.raises(UserError, match="no 1"):
        list(workers.map(fail_second, None, [0, 1, 2]))
    with pytest.raises(RuntimeError, match="Odd: this and that"):
        list(workers.map(raise_odd, None, [0, 1, 2]))
    with pytest.raises(UserError, match=r"cannot import nowhere_at_all.*PYTHONPATH"):
        list(workers.map(import_nowhere, None, [0, 1, 2]))
    with pytest.raises(Failure, match=r"functions.py, line \d+ ended the process by sys.exit\(0\)"):
        list(workers.map(leave, None, [0, 1, 2]))
    assert Odd("a", "b")


def test_workers_with_several_threads_work_one_at_a_time(tmp_path, caplog):
    with small(threads_per_worker=3) as made:
        executor = Dask(made.scheduler_address, min_seconds=0.0)
        executor.prepare(None)
        assert "up to 3 threads, of which cfeval uses one" in caplog.text
        assert not any(list(executor.map(alone, str(tmp_path), list(range(40))))[1:])


def test_what_cannot_be_sent_is_done_here(workers, caplog):
    assert list(workers.map(called, lambda x: 2 * x, [1, 2, 3])) == [2, 4, 6]
    assert "cannot be sent" in caplog.text


def test_what_a_script_defines_itself_is_not_sent(monkeypatch):
    monkeypatch.setattr(called, "__module__", "__main__")
    monkeypatch.setattr("__main__.called", called, raising=False)
    with pytest.raises(pickle.PicklingError, match="script's own"):
        dask._Sent.of(called, None)


@pytest.mark.parametrize(
    "setting",
    [{"n_jobs": 0}, {"min_seconds": -1}, {"wait": 0}, {"scheduler": "127.0.0.1:8786"}, {"scheduler": "inproc://x"}],
)
def test_bad_settings_are_named(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Dask(**setting)


def test_a_run_gives_the_same_bytes(toy, made, cluster):
    few = ("explainer=[random,omission,decision_boundary,lr]", "noise=10")  # which import little
    here = made(toy, *few)
    there = made(toy, *few, "executor=dask", f"executor.scheduler={cluster.scheduler_address}",
                 "executor.min_seconds=0")  # fmt: skip
    files = sorted(path.name for path in here.iterdir() if path.suffix in (".parquet", ".csv", ".npz"))
    files = [name for name in files if name != "costs.csv"]
    assert "scores.parquet" in files and "explanations.parquet" in files
    assert [name for name in files if (here / name).read_bytes() != (there / name).read_bytes()] == []
    assert costs(here) == costs(there)  # but for seconds


def test_explanations_of_a_model_of_matrix_products_are_equal_to_the_documented_tolerance(toy, made, cluster):
    """Sums in a matrix product may depend on how many rows there are, and on where they are in memory."""
    few = ("model=mlp", "model.max_epochs=3", "explainer=[omission,lime]", "explainer.lime.n_samples=100")
    here = made(toy, *few)
    there = made(toy, *few, "executor=dask", f"executor.scheduler={cluster.scheduler_address}",
                 "executor.min_seconds=0")  # fmt: skip
    one, two = (pd.read_parquet(folder / "explanations.parquet") for folder in (here, there))
    assert len(one) == len(two) and one[["instance", "explainer"]].equals(two[["instance", "explainer"]])
    for left, right in zip(one.itertuples(), two.itertuples(), strict=True):
        scores = [dict(zip(row.features, row.scores, strict=True)) for row in (left, right)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-9, abs=1e-12)


def costs(folder):
    """What a run tells of its costs, but seconds."""
    with (folder / "costs.csv").open() as file:
        return [
            {key: value for key, value in row.items() if not key.endswith("seconds")} for row in csv.DictReader(file)
        ]


# the last ones: each worker that is killed is started anew


def test_work_that_ends_every_worker_is_told_with_the_way_out(workers, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # a fresh worker takes seconds
    with pytest.raises(Failure, match=r"executor.scheduler=tcp://.*ended several workers.*executor=local"):
        list(workers.map(die, os.getpid(), list(range(3))))
    assert list(workers.map(add, {"base": 1}, [1, 2, 3])) == [2, 3, 4]  # and the next work finds new ones


def test_a_worker_that_is_killed_costs_what_it_was_at_and_nothing_else(workers, cluster, tmp_path, monkeypatch):
    fetched = dask._fetched

    def marked(future, wait):
        kind, value = fetched(future, wait)
        while future.key in cluster.scheduler.tasks:  # which has heard of it when it is not there any more
            time.sleep(0.001)
        for item in pickle.loads(value):
            (tmp_path / f"got.{item}").touch()
        return kind, value

    monkeypatch.setattr(dask, "_fetched", marked)
    assert list(workers.map(die_once, str(tmp_path), list(range(12)))) == list(range(12))
    times = {item: len(list(tmp_path.glob(f"{item}-*"))) for item in range(12)}
    assert times == {item: 1 + (item == 5) for item in range(12)}
