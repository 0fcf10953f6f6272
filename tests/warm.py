"""The command in a process of its own that need not import first: a fork of a helper that has imported everything.

The helper runs no command itself, so each of its forks begins as all others do. All processes that share the tests
share one, which whoever needs it first starts, and which ends with the last of them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).parent / "cfeval"
HEAVY = (
    "hydra", "omegaconf", "numpy", "pandas", "scipy.stats", "scipy.optimize", "sklearn.linear_model", "torch",
    "joblib.externals.loky.process_executor", "matplotlib.figure", "matplotlib.backends.backend_agg", "pyarrow.parquet",
    "jinja2", "rich.progress", "rich.logging", "rich.table", "sqlite3", "lime.lime_tabular", "lime.lime_text",
    "anchor.anchor_tabular", "anchor.anchor_text", "pandas.io.formats.csvs", "pyarrow.pandas_compat", "omegaconf._impl",
)  # fmt: skip
# read when Python or a library starts: a fork of what has started does not see them
AT_START = ("PYTHON", "LC_", "LANG", "MPL", "OMP_", "OPENBLAS_", "MKL_", "LD_", "KMP_", "TORCH", "PYTORCH")


class Started:
    """A command that was started, with what subprocess.Popen has."""

    def __init__(self, args: list[str], pid: int, end: socket.socket) -> None:
        self.args, self.pid, self.returncode = args, pid, None
        self._end = end

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal, when it has ended."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            told = self._end.recv(100)
            assert told, "the helper that starts commands is gone"
            self.returncode = int(told)
            self._end.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To the process alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """As nothing can be caught."""
        self.send_signal(signal.SIGKILL)

    def killpg(self, number: int = signal.SIGKILL) -> None:
        """To all processes that it has started, too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def fits(env: dict[str, str]) -> bool:
    """Whether a fork sees this environment as a process of its own would."""
    return all(os.environ.get(key) == value for key, value in env.items() if key.startswith(AT_START))


def start(arguments: list[str], cwd: Path, env: dict[str, str], stdout: int, stderr: int, prelude: str = "") -> Started:
    """The command, with files by their numbers; `prelude` is Python that runs in it before anything else."""
    ours, theirs = socket.socketpair()
    call = {"argv": [str(SCRIPT), *arguments], "cwd": str(cwd), "env": env, "prelude": prelude}
    with theirs, _LOCK:
        text = json.dumps(call).encode()
        helper = _helper()
        socket.send_fds(helper, [len(text).to_bytes(8, "big")], [theirs.fileno(), stdout, stderr])
        helper.sendall(text)
    pid = ours.recv(8)
    assert pid, "the helper that starts commands is gone"
    return Started(call["argv"], int.from_bytes(pid, "big"), ours)


def run(
    arguments: list[str], cwd: Path, env: dict[str, str], timeout: float, prelude: str = ""
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text; all that it has started ends with it if it takes too long."""
    with _unnamed() as stdout, _unnamed() as stderr:
        process = start(arguments, cwd, env, stdout.fileno(), stderr.fileno(), prelude)
        try:
            code = process.wait(timeout)
        finally:
            if process.returncode is None:
                process.killpg()
        texts = [stream.seek(0) or stream.read() for stream in (stdout, stderr)]
    return subprocess.CompletedProcess(process.args, code, *texts)


def _unnamed() -> Any:
    """A file in memory, which is not seen in any folder that a test looks at."""
    return os.fdopen(os.memfd_create("output"), "w+")


_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def _helper() -> socket.socket:
    """The one that there is; or it is started, unless another process is just doing so."""
    while True:
        with contextlib.suppress(OSError):  # there is none, or it is about to end
            found = socket.socket(socket.AF_UNIX)
            found.connect(_address())
            if found.recv(1):
                return found
        found.close()
        started, helper = _start_helper()
        if started.recv(1):
            atexit.register(_leave, started, helper)
            return started
        started.close()
        helper.wait()


def _address() -> str:
    """In no file system; the same for all workers of pytest-xdist."""
    return f"\0cfeval-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"


def _start_helper() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """In no folder that a test looks at, with the threads that the command allows itself."""
    ours, theirs = socket.socketpair()
    one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    one["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # no fork would have that thread
    with theirs:
        helper = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), _address()[1:]],
            cwd="/", env={**os.environ, **one}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    return ours, helper


def _leave(helper: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """It goes when all have left, who end together."""
    helper.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _import_all() -> None:
    """Everything that a command might, with the search path of a console script."""
    import importlib
    import pkgutil

    sys.path[0] = str(SCRIPT.parent)
    for name in HEAVY:
        importlib.import_module(name)
    import cfeval_cli

    for module in pkgutil.walk_packages(cfeval_cli.__path__, "cfeval_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from cfeval_cli.core import fingerprint as identity

    for name, module in list(sys.modules.items()):  # what is parsed once, and again if a file is another
        if name.startswith("cfeval_cli") and getattr(module, "__file__", None):
            path = Path(module.__file__)
            identity._modules(path, name, identity._stamp(path), ())
            identity._digest(path, identity._stamp(path))
    for name in identity._ALWAYS:
        identity.version_of(name)
    _parse_configs()


def read_once() -> None:
    """Let OmegaConf parse and put together the same text once: two thirds of the time in which Hydra reads configs.

    And let Hydra list what is chosen only for those files that name a choice of others: hardly any does, and to do so
    for each is a sixth of the rest.
    """
    import pickle

    from hydra._internal import defaults_list
    from omegaconf import OmegaConf

    load, known = OmegaConf.load, {}
    listed = defaults_list._create_interpolation_map

    def if_asked(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        return listed(overrides, defaults, self_added) if any(one.is_interpolation() for one in defaults) else None

    def remembered(file: Any) -> Any:
        if not hasattr(file, "seek"):
            return load(file)
        text = file.read()
        if text not in known:
            file.seek(0)  # so that a message names the file
            known[text] = pickle.dumps(load(file))
        return pickle.loads(known[text])

    OmegaConf.load = remembered
    defaults_list._create_interpolation_map = if_asked


def _parse_configs() -> None:
    """Let Hydra look for its plugins now, and parse the configs."""
    import cfeval_cli.conf
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from omegaconf import OmegaConf

    Plugins.instance()
    # the parser of overrides is five times as quick when it has seen some
    OverridesParser.create().parse_overrides(["a=[b,c]", "a.b.c=1", "+a=x/y", "a=0.5", "a='b c'", "a=null", "a={b: c}"])
    read_once()
    for path in Path(cfeval_cli.conf.__path__[0]).rglob("*.yaml"):
        with path.open(encoding="utf-8") as file:
            OmegaConf.load(file)


def _listening(address: str) -> socket.socket:
    """Where others who share the tests are heard; this process ends if another is there already."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(f"\0{address}")
    except OSError:
        os._exit(0)
    door.listen()
    return door


def _enter(door: socket.socket) -> socket.socket | None:
    """One more who may ask for commands: the same user."""
    one, _ = door.accept()
    user = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if user == os.getuid():
        with contextlib.suppress(OSError):
            one.send(b"1")
            return one
    one.close()
    return None


def _serve(first: socket.socket, address: str) -> dict[str, Any]:
    """Fork for each request; returns in the forks only, with what to do."""
    import gc

    door = _listening(address)
    first.send(b"1")
    gc.disable()  # until all is imported
    _import_all()
    gc.collect()
    gc.freeze()  # so that no fork writes to what all share
    gc.enable()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would have one thread of several"
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, tuple[socket.socket, socket.socket]] = {}  # where its end is told, and who has asked for it
    asking = {first}
    while asking:
        ready, _, _ = select.select([door, awake, *asking], [], [])
        if awake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(awake, 4096)
            _reap(running)
        if door in ready and (one := _enter(door)) is not None:
            asking.add(one)
        for requests in asking.intersection(ready):
            size, files, _, _ = socket.recv_fds(requests, 8, 3)
            if not size:  # who asked is gone
                for pid in [pid for pid, (_, asked) in running.items() if asked is requests]:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                asking.remove(requests)
                requests.close()
                continue
            call = json.loads(_whole(requests, int.from_bytes(size, "big")))
            pid = os.fork()
            if pid == 0:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)  # which who works in the background ignores
                for number, file in ((1, files[1]), (2, files[2])):
                    os.dup2(file, number)
                for one in (door, *asking, *(end for end, _ in running.values())):
                    one.close()
                for file in (*files, awake, wake):
                    os.close(file)
                return call
            end = socket.socket(fileno=files[0])
            running[pid] = end, requests
            os.close(files[1])
            os.close(files[2])
            end.send(pid.to_bytes(8, "big"))
    os._exit(0)


def _reap(running: dict[int, tuple[socket.socket, socket.socket]]) -> None:
    """Tell the exit codes of those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with running.pop(ended[0])[0] as end, contextlib.suppress(OSError):
                end.send(str(os.waitstatus_to_exitcode(ended[1])).encode())


def _whole(stream: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.recv(size - len(parts))
        if not part:
            os._exit(1)
        parts += part
    return bytes(parts)


def _begin(call: dict[str, Any]) -> Any:
    """Make this fork what a new process is: its folder, environment and words; returns its main module."""
    import multiprocessing.process
    import tempfile
    import types

    import numpy as np

    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["env"])
    sys.argv = call["argv"]
    tempfile.tempdir = None  # of TMPDIR
    time.tzset()
    np.random.seed()  # noqa: NPY002  not the same numbers in each fork: nobody may use them
    multiprocessing.process.ORIGINAL_DIR = call["cwd"]
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    main = types.ModuleType("__main__")
    main.__file__, main.__spec__, main.__builtins__ = str(SCRIPT), None, __builtins__
    sys.modules["__main__"] = main  # workers import it
    return main


def _perform(main: Any) -> int:
    """Run the script and what is to be done at its end; returns the exit code."""
    code: Any = 0
    try:
        exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), main.__dict__)
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    return code


if __name__ == "__main__":
    call = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    main = _begin(call)
    exec(compile(call["prelude"], "prelude", "exec"), {"__name__": "prelude"})
    os._exit(_perform(main))  # to take down what was imported takes as long as a small run
