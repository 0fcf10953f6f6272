"""A Dask cluster: one that is started on this machine, or one that exists."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import requires
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from cfeval_cli.errors import Failure, UserError, check_float, check_installed, import_extra
from cfeval_cli.executor.work import Payload, Work, call, check_jobs, load, map_locally_first

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("cfeval")

_PROTOCOLS = ("tcp://", "tls://")
_POLL_SECONDS = 5.0  # at most, between checks that there are workers
_IGNORE_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # the run ends its workers itself
_worker_lock = threading.Lock()  # threads of a worker would share the generators of random numbers


@dataclass(frozen=True)
class Dask:
    """Workers of a Dask cluster; results do not depend on them."""

    scheduler: str | None = None  # its address; None: a cluster is started on this machine
    n_jobs: int = -1  # workers of a cluster that is started here; -1: one for each core
    min_seconds: float = 1.0  # of remaining work from which workers are used
    wait: float = 60.0  # seconds at most until the scheduler and a worker answer

    def __post_init__(self) -> None:
        check_installed("distributed", "dask")
        check_jobs(self.n_jobs)
        check_float("min_seconds", self.min_seconds, 0)
        check_float("wait", self.wait, 0, open_low=True)
        if self.scheduler is not None and not str(self.scheduler).startswith(_PROTOCOLS):
            raise ValueError(f"scheduler must begin with {' or '.join(_PROTOCOLS)}, not {self.scheduler!r}")

    def prepare(self, timeout: float | None) -> None:
        """Raise UserError for a time limit, and for a cluster that does not answer or has other versions."""
        if timeout is not None:
            raise UserError(
                f"timeout_per_instance={timeout:g} cannot be enforced in workers of Dask, which work in threads. Use "
                "executor=local, or timeout_per_instance=null."
            )
        if self.scheduler is not None:
            _connect(self)

    def map(self, work: Work, shared: Any, items: Sequence[Any]) -> Iterator[Any]:
        """Yield work(shared, item) for each item, in order."""
        return map_locally_first(work, shared, items, self.min_seconds, self._send)

    @property
    def label(self) -> str:
        """How messages name the cluster."""
        return "executor=dask" if self.scheduler is None else f"executor.scheduler={self.scheduler}"

    def _send(self, payload: Payload, items: Sequence[Any]) -> Iterator[Any]:
        import dask.config
        from distributed import CancelledError, KilledWorker
        from distributed.comm import CommClosedError

        client = _connect(self)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            # A task, because Dask repeats it if its worker is killed; scattered data would be lost.
            shared = client.submit(load, *payload, pure=False)
        futures = deque(client.map(_call, items, shared=shared, pure=False))
        try:
            while futures:
                yield self._wait(client, futures.popleft())
        except ImportError as error:
            raise UserError(
                f"a worker of Dask cannot import {error.name}: {error}. Put your own files where workers find them, "
                "such as in their PYTHONPATH."
            ) from error
        except KilledWorker as error:
            raise Failure(
                f"{self.label}: the same piece of work ended several workers, killed or out of memory. Give them more "
                "memory, or use executor=local with n_jobs=1."
            ) from error
        except (CancelledError, CommClosedError) as error:
            _connect.cache_clear()
            raise Failure(
                f"{self.label} does not answer any more. Start its scheduler again, or use executor=local."
            ) from error

    def _wait(self, client: Client, future: Future) -> Any:
        """Return the result of a task; Failure if there have been no workers for too long."""
        last_seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=min(_POLL_SECONDS, self.wait / 4))
            except TimeoutError:
                if future.done():  # an error of the work itself
                    raise
                last_seen = time.monotonic() if client.nthreads() else last_seen
                if time.monotonic() - last_seen > self.wait:
                    raise Failure(f"{self.label} has had no workers for {self.wait:g} s.") from None


def _call(item: Any, shared: tuple[Work, Any]) -> Any:
    with _worker_lock:
        return call(*shared, item)


@cache
def _connect(executor: Dask) -> Client:
    """Return the connection to a cluster, which stays for the next call."""
    package = import_extra("distributed", "executor=dask", "dask")
    for name in ("distributed", "distributed.client"):  # a run ends with one message of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if executor.scheduler is None:
        from joblib import effective_n_jobs

        host = "127.0.0.1"
        try:
            cluster = package.LocalCluster(
                n_workers=effective_n_jobs(executor.n_jobs), threads_per_worker=1, memory_limit=0, host=host,
                dashboard_address=f"{host}:0", worker_dashboard_address=f"{host}:0", security=True,
                silence_logs=logging.CRITICAL, preload=[_IGNORE_CTRL_C],
            )  # fmt: skip
            return package.Client(cluster)
        except (OSError, RuntimeError, ValueError) as error:
            raise Failure(f"executor=dask: no cluster could be started ({error}). Use executor=local.") from error
    try:
        client = package.Client(executor.scheduler, timeout=executor.wait)
        client.wait_for_workers(1, timeout=executor.wait)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{executor.label}: no scheduler with workers answers there ({error}). Start them: `dask scheduler` and "
            f"`dask worker {executor.scheduler} --nthreads 1`."
        ) from error
    # Compared here, because Dask's own check covers its own dependencies only, and other versions change results.
    versions = client.get_versions(packages=["cfeval", *list_requirements(requires("cfeval") or ())])
    if difference := describe_version_difference(versions):
        raise UserError(f"{executor.label}: {difference}. Install the same version.")
    log.info("%s: %s workers", executor.label, len(client.nthreads()))
    return client


def list_requirements(lines: Sequence[str]) -> list[str]:
    """Return the names of the packages that cfeval always requires, without those of its extras."""
    requirements = [Requirement(line) for line in lines]
    return [requirement.name for requirement in requirements if requirement.marker is None]


def describe_version_difference(versions: Mapping[str, Any]) -> str | None:
    """Return the first package whose version on the cluster is not that of this process; None if all are equal."""
    for host, node in {"the scheduler": versions["scheduler"], **versions["workers"]}.items():
        for name, version in versions["client"]["packages"].items():
            if (cluster_version := node["packages"].get(name)) != version:
                return f"{name} is {cluster_version or 'missing'} on {host}, and {version} here"
    return None
