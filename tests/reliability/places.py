"""Places in a run at which it can be killed: by how far it is, never by the clock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.conftest import start_cfeval

# runs in the command before anything else: counts, writes down where it is, and kills the process at the place
PRELUDE = """
import json, os, pathlib, signal, sys, tempfile
from contextlib import contextmanager
from cfeval_cli.pipeline import chunks
from cfeval_cli.pipeline.progress import Progress

place, report_path, counting = json.loads({place!r}), {report_path!r}, {counting!r}
seen = {{"stage": "", "stages": {{}}, "files": []}}
assert chunks.STORE_SECONDS > 0
chunks.STORE_SECONDS = 0  # each chunk is stored when it is there, not after so many seconds


def write():
    with open(report_path, "w") as stream:
        json.dump(seen, stream)


def kill_at(kind, name, number):
    if place and place["kind"] == kind and place["name"] == name and place["number"] == number:
        sys.setprofile(None)
        write()
        os.killpg(0, signal.SIGKILL) if place["group"] else os.kill(os.getpid(), signal.SIGKILL)


stage = Progress.track_stage


@contextmanager
def track_stage(self, name, total=None, *rest, component="", **options):
    title = ": ".join(filter(None, (name, component)))
    counts = seen["stages"].setdefault(title, {{"calls": 0, "chunks": 0, "items": 0}})
    seen["stage"] = title

    def call(frame, event, argument):
        if event == "call":
            counts["calls"] += 1
            kill_at("call", title, counts["calls"])

    with stage(self, name, total, *rest, component=component, **options) as advance:

        def count_items(items):
            advance(items)
            counts["items"] += items
            counts["chunks"] += items > 0
            kill_at("chunk", title, counts["chunks"])

        if counting or place and (place["kind"], place["name"]) == ("call", title):
            sys.setprofile(call)
        yield count_items
        sys.setprofile(None)
    seen["stage"] = ""


def begun(*arguments, **options):
    temporary_file = mkstemp(*arguments, **options)
    name = (options.get("prefix") or "").removeprefix(".").removesuffix("-")
    kill_at("begun", name, seen["files"].count(name) + 1)
    return temporary_file


def replace_file(self, target):
    if self.name.endswith(".part"):
        seen["files"].append(pathlib.Path(target).name)
        kill_at("written", seen["files"][-1], seen["files"].count(seen["files"][-1]))
    return replace(self, target)


mkstemp, replace = tempfile.mkstemp, pathlib.Path.replace
Progress.track_stage, tempfile.mkstemp, pathlib.Path.replace = track_stage, begun, replace_file
if not place:
    import atexit
    atexit.register(write)
"""


@dataclass(frozen=True)
class Place:
    """The n-th Python call or finished chunk of a stage, or the n-th time that a file is begun or written."""

    kind: str  # call, chunk, begun, written
    name: str
    number: int
    group: bool = False  # whether workers are killed too


def follow_command(words: list[str], cwd: Path, place: Place | None = None, *, counting: bool = False) -> dict:
    """Start the command and follow it to the place, or to its end; tells how far it got, with calls if `counting`."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+") as output:
        report_path = Path(folder) / "report"
        at = json.dumps(place and asdict(place))
        prelude = PRELUDE.format(place=at, report_path=str(report_path), counting=counting)
        process = start_cfeval(words, cwd, output, prelude=prelude)
        code = process.wait()
        output.seek(0)
        assert code == (0 if place is None else -signal.SIGKILL), output.read()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers that were left
        return json.loads(report_path.read_text())
