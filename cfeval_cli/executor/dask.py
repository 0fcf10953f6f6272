"""A Dask cluster: one that is started on this machine, or one that exists."""

from __future__ import annotations

import atexit
import io
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cfeval_cli.core import Dataset
from cfeval_cli.errors import Failure, UserError, installed, number, package, refuse_exit
from cfeval_cli.executor.versions import needed, told
from cfeval_cli.executor.work import check_jobs, here_first, jobs, portable

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

log = logging.getLogger("cfeval")

_KINDS = ("tcp://", "tls://")
_LARGE = 2**16  # bytes of an array or a text that are worth a message of their own, which is sent once
_TASK = 0.25  # seconds of work that go into one task: to send one takes about a millisecond
_WAITING = 100  # tasks at least that are given out at a time, and four for each worker
_LONGEST = 10  # differences that one message has room for
_LOOK = 5.0  # seconds after which it is looked whether there are any workers
_SENT = 0.5  # seconds of work left that are worth sending to a cluster that is there already

_Shared = TypeVar("_Shared")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Dask:
    """Workers of a Dask cluster. What they share is sent once; the results do not depend on who they are."""

    scheduler: str | None = None  # its address; None: a cluster is started on this machine
    n_jobs: int = -1  # workers of a cluster that is started here; -1: one for each core
    min_seconds: float = 2.0  # of work left, below which nothing is sent
    wait: float = 60.0  # seconds at most until the scheduler and a worker answer

    def __post_init__(self) -> None:
        installed("distributed", "dask")
        check_jobs(self.n_jobs)
        number("min_seconds", self.min_seconds, 0)
        number("wait", self.wait, 0, open_low=True)
        if self.scheduler is not None and not str(self.scheduler).startswith(_KINDS):
            raise ValueError(f"scheduler must begin with {' or '.join(_KINDS)}, not {self.scheduler!r}")

    def prepare(self, timeout: float | None) -> None:
        """Refuse a limit of time, and a cluster that does not answer or has other versions than this process."""
        if timeout is not None:
            raise UserError(
                f"timeout_per_instance={timeout:g} cannot be kept to by workers of Dask, which work in threads. Use "
                "executor=local, or timeout_per_instance=null."
            )
        if self.scheduler is not None and not self._is_connected():
            self._connect()

    def map(
        self, work: Callable[[_Shared, _Item], _Result], shared: _Shared, items: Sequence[_Item]
    ) -> Iterator[_Result]:
        """work(shared, item) for each item, in order; `work` is a function of a module."""

        def spread(rest: Sequence[_Item], each: float) -> Iterator[_Result]:
            try:
                sent = _Sent.of(work, shared)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                log.warning("going on in this process only, since something cannot be sent to others: %s", error)
                return (work(shared, item) for item in rest)
            return self._cluster().spread(sent, rest, each)

        return here_first(work, shared, items, self._least, spread)

    def _least(self) -> float:
        return min(_SENT, self.min_seconds) if (os.getpid(), self) in _clusters else self.min_seconds

    def _is_connected(self) -> bool:
        known = _clusters.get((os.getpid(), self))
        return known is not None and known.client.status == "running"

    def _cluster(self) -> _Cluster:
        """The one that this process works with, which stays for the next call.

        A scheduler that was reached before and does not answer now is a failure, and is not waited for again.
        """
        known = _clusters.get((os.getpid(), self))
        if known is None:
            return self._connect()
        if known.client.status != "running":
            if self.scheduler is None:
                return self._connect()
            raise known.lost_scheduler()
        return known

    def _connect(self) -> _Cluster:
        cluster = _Cluster.existing(self) if self.scheduler is not None else _Cluster.started(self)
        _clusters[os.getpid(), self] = cluster
        return cluster


@dataclass(frozen=True)
class _Sent:
    """What workers share, as bytes: the whole, in which large parts are only named, and those parts."""

    name: str  # a hash of the whole
    whole: bytes
    parts: Mapping[str, bytes]  # by the hash of their content

    @classmethod
    def of(cls, work: Callable[..., Any], shared: Any) -> _Sent:
        """A function and its first argument; with it goes what a worker must have to do the same with it."""
        parts: dict[str, bytes] = {}
        modules: set[str] = set()
        pickled = _pickled((work, shared), parts, modules)
        if "__main__" in modules:
            raise pickle.PicklingError("a script's own classes and functions are not known to others")
        whole = pickle.dumps((told(needed(modules)), tuple(parts), pickled))
        return cls(_hash(whole), whole, parts)


def _hash(value: bytes) -> str:
    return blake2b(value, digest_size=16).hexdigest()


def _pickled(value: Any, parts: dict[str, bytes], modules: set[str], apart: Any = None) -> bytes:
    """Without its large parts, each of which goes to `parts`; the modules that it comes from go to `modules`.

    `apart` is a part itself, which is not to be taken out of itself.
    """
    file = io.BytesIO()
    _Pickler(file, parts, modules, apart).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, parts: dict[str, bytes], modules: set[str], apart: Any) -> None:
        super().__init__(file, protocol=5)
        self._parts, self._modules, self._apart = parts, modules, apart
        self._known: dict[int, tuple[str, Any]] = {}  # the same object is read through once

    def persistent_id(self, value: Any) -> str | None:
        """The name of a part that travels by itself, so that it need not travel again with the next work."""
        if isinstance(value, type) or callable(value):
            self._modules.add(str(getattr(value, "__module__", None) or "builtins").partition(".")[0])
        if value is self._apart or not _is_large(value):
            return None
        if id(value) not in self._known:
            part = _pickled(value, self._parts, self._modules, value)
            name = _hash(part)
            self._parts[name] = part
            self._known[id(value)] = name, value  # kept, or another object could have its place
        return self._known[id(value)][0]


def _is_large(value: Any) -> bool:
    """Data as a whole, and of all else what is large in itself: models are mostly arrays, bytes or texts."""
    if type(value) is np.ndarray:
        return value.nbytes >= _LARGE and not value.dtype.hasobject
    return type(value) is Dataset or (type(value) in (bytes, bytearray, str) and len(value) >= _LARGE)


@dataclass
class _Cluster:
    """A scheduler and its workers, as one process sees them."""

    client: Client
    name: str
    wait: float
    own: LocalCluster | None = None
    sent: dict[str, Future] = field(default_factory=dict)  # parts that the workers have

    @classmethod
    def started(cls, settings: Dask) -> _Cluster:
        """One of worker processes on this machine, with keys that nobody else has: who can reach it can run code."""
        distributed = _distributed()
        many = jobs(settings.n_jobs)
        try:
            own = distributed.LocalCluster(
                n_workers=many, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0", memory_limit=0,
                silence_logs=logging.CRITICAL, security=True, preload=[__name__],
            )  # fmt: skip
            client = distributed.Client(own, set_as_default=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise Failure(
                f"executor=dask: the cluster on this machine could not be started ({_first_line(error)}). A worker "
                "process may have been killed at its start. Use executor=local."
            ) from error
        log.info("executor=dask: a cluster of %s on this machine", _workers(many))
        return cls(client, "the cluster on this machine", settings.wait, own)

    @classmethod
    def existing(cls, settings: Dask) -> _Cluster:
        """One that exists, if it answers and works with the same versions as this process."""
        distributed = _distributed()
        address = f"executor.scheduler={settings.scheduler}"
        try:
            client = distributed.Client(settings.scheduler, timeout=settings.wait, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise UserError(
                f"{address}: no scheduler of Dask answers there ({_first_line(error)}). `dask scheduler` starts one."
            ) from error
        try:
            client.wait_for_workers(1, timeout=settings.wait)
            _compare(client, address)
        except TimeoutError as error:
            client.close()
            raise UserError(
                f"{address}: it has no workers. `dask worker {settings.scheduler} --nthreads 1` starts one."
            ) from error
        except UserError:
            client.close()
            raise
        threads = client.nthreads()
        log.info("%s: %s", address, _workers(len(threads)))
        if most := max(threads.values(), default=1) - 1:
            log.warning(
                "%s: workers have up to %s threads, of which cfeval uses one: start more of them, with --nthreads 1",
                address, most + 1,
            )  # fmt: skip
        return cls(client, address, settings.wait)

    def spread(self, sent: _Sent, items: Sequence[Any], each: float) -> Iterator[Any]:
        """The results of the items, in order; `each` is about how many seconds one takes."""
        try:
            many = max(1, len(self.client.nthreads()))
            # as many items as make the message worth it, but enough tasks that all end together
            size = max(1, min(int(_TASK / max(each, 1e-6)), len(items) // (8 * many)))
            tasks = [items[start : start + size] for start in range(0, len(items), size)]
            shared = self._share(sent)
            # fetched when they are done, not in order: what waits at a worker is lost with it
            ended: SimpleQueue[Future] = SimpleQueue()
            places: dict[Future, int] = {}
            results: dict[int, tuple[str, bytes]] = {}
            given = 0
            for place in range(len(tasks)):
                while place not in results:
                    while given < min(len(tasks), place + max(_WAITING, 4 * many)):
                        future = self.client.submit(_call, *shared, pickle.dumps(list(tasks[given]), 5), pure=False)
                        places[future] = given
                        future.add_done_callback(ended.put)
                        given += 1
                    future = self._next(ended)
                    results[places.pop(future)] = _fetched(future, self.wait)
                yield from _opened(*results.pop(place))
        except _Work as error:
            raise error.args[0] from None
        except Failure:
            raise
        except TimeoutError as error:
            raise self._deserted() from error
        except Exception as error:
            raise self._gone(error) from error

    def _next(self, ended: SimpleQueue[Future]) -> Future:
        """The next task that ends; a cluster without workers is waited for only so long."""
        last = time.monotonic()
        while True:
            try:
                return ended.get(timeout=_LOOK)
            except Empty:
                # a task that was sent while the connection was lost is never answered
                if self.client.status != "running":
                    raise self.lost_scheduler() from None
                if self.client.nthreads():
                    last = time.monotonic()
                elif time.monotonic() - last > self.wait:
                    raise self._deserted() from None

    def _share(self, sent: _Sent) -> tuple[str, Future, list[Future]]:
        """The futures of what workers share; what they have is not sent again, what is not needed now is let go."""
        import dask.config

        parts = {**sent.parts, sent.name: sent.whole}
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**40}):
            # as a task, not scattered: if all who have it are killed, the scheduler has it still
            self.sent = {
                name: self.sent.get(name) or self.client.submit(bytes, part, key=f"cfeval-{name}")
                for name, part in parts.items()
            }
        return sent.name, self.sent[sent.name], [self.sent[name] for name in sent.parts]

    def _deserted(self) -> Failure:
        return Failure(f"{self.name} has had no workers for {self.wait:g} s.")

    def _gone(self, error: Exception) -> Failure:
        """What Dask's own errors mean to the user."""
        if isinstance(error, _distributed().KilledWorker):
            return Failure(
                f"{self.name}: the same piece of work ended several workers, killed or out of memory. Give them more "
                "memory, or use executor=local with n_jobs=1."
            )
        log.info("%s: %s", self.name, _first_line(error))
        return self.lost_scheduler()

    def lost_scheduler(self) -> Failure:
        """Close the connection and return the message of a run that cannot go on."""
        self.close()
        return Failure(
            f"{self.name} does not answer any more: its scheduler is gone. Start it again, or resume with "
            "executor=local."
        )

    def close(self) -> None:
        """Let go of it, and end it if it was started here."""
        self.sent.clear()
        with suppress(Exception):
            self.client.close(timeout=2)
        if self.own is not None:
            with suppress(Exception):
                self.own.close(timeout=2)


class _Work(Exception):
    """Around an error of the work itself, which is not one of Dask."""


def _fetched(future: Future, wait: float) -> tuple[str, bytes]:
    """What a task returned, which its worker need not keep any longer: with the worker it would be done again."""
    kind, value = future.result(timeout=wait)  # which may be lost just now, and nobody be there to do it again
    future.release()
    return kind, value


def _opened(kind: str, value: bytes) -> list[Any]:
    """The results of a task, or its error; of several errors the first in order, whichever came first."""
    found = pickle.loads(value)  # noqa: S301  of a worker that the user has started
    if kind == "error":
        raise _Work(found)
    return list(found)


_clusters: dict[tuple[int, Dask], _Cluster] = {}  # by process: a fork of one has none


@atexit.register
def _close() -> None:
    for process, settings in list(_clusters):
        cluster = _clusters.pop((process, settings))
        if process == os.getpid():
            cluster.close()


def _distributed() -> Any:
    """The package, which says nothing by itself: what ends a run is told in one message."""
    found = package("distributed", "executor=dask", "dask")
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return found


def _workers(many: int) -> str:
    return f"{many} worker{'' if many == 1 else 's'}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _compare(client: Client, address: str) -> None:
    """Refuse a cluster whose scheduler or workers have not what this process has."""
    wanted = told(needed(()))
    try:
        there = {"the scheduler": client.run_on_scheduler(_differences, wanted), **client.run(_differences, wanted)}
    except Exception as error:  # whatever happens where there is no cfeval
        raise UserError(
            f"{address}: cfeval is not installed there, or cannot be imported ({_first_line(error)}). Scheduler and "
            "workers need the same packages as this process."
        ) from error
    wrong = [f"{who}: {difference}" for who, differences in there.items() for difference in differences]
    if wrong:
        more = f"; and {len(wrong) - _LONGEST} more" if len(wrong) > _LONGEST else ""
        raise UserError(f"{address} has not what this process has. {'; '.join(wrong[:_LONGEST])}{more}.")


# What follows is done by a worker.


def dask_setup(_: object) -> None:
    """What Dask calls in a worker that was started here: Ctrl-C is for the run, which then ends its workers."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _differences(wanted: Mapping[str, str]) -> list[str]:
    """What this process has otherwise, each in words."""
    have = told(tuple(wanted))
    return [
        f"{name} is {have[name]} there and {version} here" for name, version in wanted.items() if have[name] != version
    ]


_alone = threading.Lock()  # generators and accounts are those of a process, whatever threads a worker has
_limited = threading.local()


class _Loaded:
    """What this worker was sent last: the whole, and its large parts, some of which the next may have too."""

    def __init__(self) -> None:
        self.name = ""
        self.value: Any = None
        self.parts: dict[str, Any] = {}

    def load(self, name: str, whole: bytes, parts: Sequence[bytes]) -> Any:
        """What is shared, read once."""
        if name == self.name:
            return self.value
        self.name, self.value = "", None  # not both in memory
        wanted, names, pickled = pickle.loads(whole)  # noqa: S301  from a process that the user has started
        if wrong := _differences(wanted):
            raise UserError(f"a worker of Dask has not what this process has. {'; '.join(wrong[:_LONGEST])}.")
        given = dict(zip(names, parts, strict=True))
        known, self.parts = self.parts, {}

        def part(one: str) -> Any:
            if one not in self.parts:
                self.parts[one] = known[one] if one in known else _unpickled(given[one], part)
            return self.parts[one]

        self.value = _unpickled(pickled, part)
        self.name = name
        return self.value


_loaded = _Loaded()


def _unpickled(pickled: bytes, part: Callable[[str], Any]) -> Any:
    """With the parts in their places."""
    reader = _Unpickler(io.BytesIO(pickled))
    reader.part = part
    return reader.load()


class _Unpickler(pickle.Unpickler):
    part: Callable[[str], Any]

    def persistent_load(self, name: str) -> Any:
        """The part of this name."""
        return self.part(name)


def _one_thread() -> None:
    """As in cfeval itself: with more, sums would depend on the machine."""
    if getattr(_limited, "by", None) == _loaded.name:
        return
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # for what is not loaded yet
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    _limited.by = _loaded.name


def _call(name: str, whole: bytes, parts: Sequence[bytes], items: bytes) -> tuple[str, bytes]:
    """The results of some items, or the first error: of the work, not of Dask."""
    with _alone:
        try:
            with refuse_exit():
                work, shared = _loaded.load(name, whole, parts)
                _one_thread()
                return "results", pickle.dumps([work(shared, item) for item in pickle.loads(items)], 5)  # noqa: S301
        except ImportError as error:
            lacks = f"a worker of Dask cannot import {error.name}: {error}. What is your own must lie where"
            return "error", pickle.dumps(UserError(f"{lacks} workers find it, such as in their PYTHONPATH."))
        except Exception as error:
            return "error", pickle.dumps(portable(error), 5)
