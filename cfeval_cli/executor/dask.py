"""A Dask cluster: one that is started on this machine, or one that exists."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import requires
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from cfeval_cli.errors import Failure, UserError, check_float, check_installed, import_extra
from cfeval_cli.executor.work import MAX_PENDING, Payload, Work, call, check_jobs, count_jobs, load, map_here_first

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("cfeval")

_PROTOCOLS = ("tcp://", "tls://")
_POLL_SECONDS = 5.0  # after which it is checked whether there are any workers
_IGNORE_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # the run ends its workers itself
_in_worker = threading.Lock()  # generators of random numbers belong to a process, whatever threads a worker has


@dataclass(frozen=True)
class Dask:
    """Workers of a Dask cluster; results do not depend on them."""

    scheduler: str | None = None  # its address; None: a cluster is started on this machine
    n_jobs: int = -1  # workers of a cluster that is started here; -1: one for each core
    min_seconds: float = 2.0  # of work left, below which nothing is sent
    wait: float = 60.0  # seconds at most until the scheduler and a worker answer

    def __post_init__(self) -> None:
        check_installed("distributed", "dask")
        check_jobs(self.n_jobs)
        check_float("min_seconds", self.min_seconds, 0)
        check_float("wait", self.wait, 0, open_low=True)
        if self.scheduler is not None and not str(self.scheduler).startswith(_PROTOCOLS):
            raise ValueError(f"scheduler must begin with {' or '.join(_PROTOCOLS)}, not {self.scheduler!r}")

    def prepare(self, timeout: float | None) -> None:
        """Refuse a limit of time, and a cluster that does not answer or has other versions than this process."""
        if timeout is not None:
            raise UserError(
                f"timeout_per_instance={timeout:g} cannot be enforced in workers of Dask, which work in threads. Use "
                "executor=local, or timeout_per_instance=null."
            )
        if self.scheduler is not None:
            _connect(self)

    def map(self, work: Work, shared: Any, items: Sequence[Any]) -> Iterator[Any]:
        """Yield work(shared, item) for each item, in order."""
        is_started = _connect.cache_info().currsize > 0
        return map_here_first(work, shared, items, self.min_seconds, is_started, self._spread)

    @property
    def label(self) -> str:
        """How messages name the cluster."""
        return "executor=dask" if self.scheduler is None else f"executor.scheduler={self.scheduler}"

    def _spread(self, payload: Payload, items: Sequence[Any]) -> Iterator[Any]:
        import dask.config

        client = _connect(self)
        pending: deque[Future] = deque()
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            # a task, because a worker that replaces a killed one can repeat it; scattered data would be lost
            shared = client.submit(load, *payload, pure=False)
        for item in items:
            if len(pending) == MAX_PENDING:
                yield self._collect(client, pending.popleft())
            pending.append(client.submit(_call, shared, item, pure=False))
        while pending:
            yield self._collect(client, pending.popleft())

    def _collect(self, client: Client, future: Future) -> Any:
        """Return a result; Failure if the cluster is lost."""
        import distributed

        try:
            self._wait(client, future)
            return future.result()
        except ImportError as error:
            raise UserError(
                f"a worker of Dask cannot import {error.name}: {error}. Put your own files where workers find them, "
                "such as in their PYTHONPATH."
            ) from error
        except distributed.KilledWorker as error:
            raise Failure(
                f"{self.label}: the same piece of work ended several workers, killed or out of memory. Give them more "
                "memory, or use executor=local with n_jobs=1."
            ) from error
        except (distributed.CancelledError, distributed.comm.CommClosedError) as error:
            _connect.cache_clear()
            raise Failure(
                f"{self.label} does not answer any more. Start its scheduler again, or use executor=local."
            ) from error

    def _wait(self, client: Client, future: Future) -> None:
        """Wait until a task ends; Failure if there are no workers, CancelledError if there is no scheduler."""
        import distributed

        last_seen = time.monotonic()
        while not future.done():
            if client.status != "running":
                raise distributed.CancelledError
            try:
                with client.as_current():  # not another client of this process
                    distributed.wait(future, timeout=_POLL_SECONDS)
            except TimeoutError:
                last_seen = time.monotonic() if client.nthreads() else last_seen
                if time.monotonic() - last_seen > self.wait:
                    raise Failure(f"{self.label} has had no workers for {self.wait:g} s.") from None


def _call(payload: tuple[Work, Any], item: Any) -> Any:
    with _in_worker:
        return call(*payload, item)


@cache
def _connect(executor: Dask) -> Client:
    """Return the connection to a cluster, which stays for the next call."""
    distributed = import_extra("distributed", "executor=dask", "dask")
    for name in ("distributed", "distributed.client"):  # what ends a run is one message
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if executor.scheduler is None:
        try:
            n_jobs, host = count_jobs(executor.n_jobs), "127.0.0.1"
            cluster = distributed.LocalCluster(
                n_workers=n_jobs, threads_per_worker=1, memory_limit=0, host=host, dashboard_address=f"{host}:0",
                worker_dashboard_address=f"{host}:0", security=True, silence_logs=logging.CRITICAL,
                preload=[_IGNORE_CTRL_C],
            )  # fmt: skip
            return distributed.Client(cluster)
        except (OSError, RuntimeError, ValueError) as error:
            raise Failure(f"executor=dask: no cluster could be started ({error}). Use executor=local.") from error
    try:
        client = distributed.Client(executor.scheduler, timeout=executor.wait)
        client.wait_for_workers(1, timeout=executor.wait)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{executor.label}: no scheduler with workers answers there ({error}). Start them: `dask scheduler` and "
            f"`dask worker {executor.scheduler} --nthreads 1`."
        ) from error
    _compare_versions(client, executor.label)
    log.info("%s: %s workers", executor.label, len(client.nthreads()))
    return client


def _compare_versions(client: Client, label: str) -> None:
    """Raise UserError unless scheduler and workers have this process's versions of cfeval and its requirements."""
    requirements = [Requirement(line) for line in requires("cfeval") or ()]
    versions = client.get_versions(packages=["cfeval", *(one.name for one in requirements if one.marker is None)])
    for place, there in {"the scheduler": versions["scheduler"], **versions["workers"]}.items():
        for name, version in versions["client"]["packages"].items():
            if there["packages"].get(name) != version:
                other = there["packages"].get(name) or "missing"
                raise UserError(f"{label}: {name} is {other} on {place}, and {version} here. Install the same version.")
