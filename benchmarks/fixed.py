"""What a run costs before and after the work itself: small and fully known runs beside the import of PyTorch.

Each is a process of its own, as users start it, with figures and page; they take turns, and a ratio is that of medians.
Once more the smallest is asked every few milliseconds what it is doing, which shows where its time goes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

COLUMNS = (
    "what", "seconds (min–max)", "× import torch", "seconds of the processor", "× import torch", "where the seconds go",
)  # fmt: skip
CFEVAL = Path(sys.executable).with_name("cfeval")
# what a moment belongs to: the first of these whose function, at the end of such a file, is on the stack
PARTS = (
    ("importing PyTorch", "torch/__init__.py", "<module>"),
    ("importing matplotlib", "matplotlib/figure.py", "<module>"),
    ("importing other packages", "importlib._bootstrap>", "_find_and_load"),
    ("figures: panels, ticks and lines", "report/page/build.py", "draw"),
    ("figures: places for all of it", "_constrained_layout.py", "do_constrained_layout"),
    ("figures: drawing", "report/plots.py", "drawn"),
    ("page", "report/page/build.py", "page"),
    ("tables as text", "commands/run.py", "add_tables"),
    ("composing the config", "hydra.py", "compose_config"),
    ("reading the data", "dataset/tabular.py", "load"),
    ("hashes of data and code", "cfeval_cli/identity.py", None),
    ("training", "run/pipeline.py", "train"),
    ("the model in other parameters", "run/invariance.py", None),
    ("tables as numbers", "statistics/findings.py", "conclude"),
)


def timed(words, cwd):
    """Seconds by the clock and of the processor, of a process and all that it starts."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def title(entry):
    """Return the stage of an entry of run.json, with its component."""
    return f"{entry['stage']}: {entry['component']}" if entry["component"] else entry["stage"]


def stages(folder, seconds):
    """What the stages of a run took, the dearest first, and what was left for imports, figures and page."""
    record = json.loads((folder / "run.json").read_text())
    total = record["seconds"]
    slowest = sorted(record["stages"], key=lambda entry: -entry["seconds"])[:4]
    parts = [f"{title(entry)} {entry['seconds']:.1f}" for entry in slowest if entry["seconds"] >= 0.1]
    rest = total - sum(entry["seconds"] for entry in record["stages"])
    return ", ".join([*parts, f"other work {rest:.1f}", f"start, figures and page {seconds - total:.1f}"])


def profiled(words, cwd):
    """The share of each part in the processor's time of a run, the dearest first."""
    asked = [sys.executable, __file__, "--profile", *words]
    told = subprocess.run(asked, cwd=cwd, check=True, capture_output=True, text=True).stderr
    seen = json.loads(told.splitlines()[-1])
    total = sum(seen.values())
    return {part: count / total for part, count in sorted(seen.items(), key=lambda item: -item[1])}


def profile(words):
    """Run the command in this process, and write to stderr how often each part was at work when asked."""
    seen = Counter()

    def look(_signal, frame):
        stack = set()
        while frame is not None:
            stack.add((frame.f_code.co_filename, frame.f_code.co_name))
            frame = frame.f_back
        seen[next((name for name, *where in PARTS if on(stack, *where)), "other work")] += 1

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 0.004, 0.004)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(seen), file=sys.stderr)


def on(stack, file, function):
    return any(path.endswith(file) and function in (None, name) for path, name in stack)


def main():
    if sys.argv[1:2] == ["--profile"]:
        sys.argv = sys.argv[2:]
        return profile(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CFEVAL_DATA", "data")))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("fixed.md"))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        data = [f"data_dir={options.data.absolute()}", f"cache.folder={place}/cache"]
        small = ["n_explain=20", "explainer=[random,omission]"]
        runs = {
            "20 people, two explainers, nothing known": [*small, "cache=off", data[0]],
            "20 people, two explainers, all known": [*small, *data],
            "all 1,569 people, six explainers, all known": data,
        }
        ways = {"python -c 'import torch'": [sys.executable, "-c", "import torch"]}
        ways |= {name: [str(CFEVAL), "run", "dataset=adults", *words] for name, words in runs.items()}
        spent = {name: [] for name in ways}
        where = {}
        for turn in range(-1, options.rounds):  # the first makes known what is to be known, and does not count
            for number, (name, words) in enumerate(ways.items()):
                folder = Path(place) / f"{turn}-{number}"
                own = [f"hydra.run.dir={folder}"] if name in runs else []
                took = timed([*words, *own], place)
                if turn >= 0:
                    spent[name].append(took)
                    where[name] = stages(folder, took[0]) if own else ""
        smallest = next(iter(runs))
        shares = profiled([*ways[smallest], f"hydra.run.dir={place}/profiled"], place)
    medians = {name: [statistics.median(of) for of in zip(*took, strict=True)] for name, took in spent.items()}
    first = next(iter(medians.values()))
    rows = []
    for name, took in spent.items():
        clock, cpu = medians[name]
        span = f"{clock:.1f} ({min(took)[0]:.1f}–{max(took)[0]:.1f})"
        rows.append((name, span, f"{clock / first[0]:.1f}", f"{cpu:.1f}", f"{cpu / first[1]:.1f}", where[name]))
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "matplotlib", "pandas", "hydra-core"))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    heading = (
        f"# Fixed costs\n\n{machine}, {packages}. Made by\n`python benchmarks/fixed.py --rounds {options.rounds}`. "
        f"Medians of {options.rounds} rounds in which all take turns, each a process of its own, with figures in\n"
        f"three formats and the page. The stages are those of the last round. Processes that were at work "
        f"when it began: {load:.1f}."
    )
    table = "\n".join(line(row) for row in (COLUMNS, ["---"] * len(COLUMNS), *rows))
    print(table)
    shown = [(part, f"{100 * share:.0f} %") for part, share in shares.items()]
    parts = "\n".join(line(row) for row in (("part", "of the processor's time"), ("---", "---"), *shown))
    why = f"Where the processor's time of a run goes ({smallest}), asked every 4 ms:"
    options.out.write_text(f"{heading}\n\n{table}\n\n{why}\n\n{parts}\n")


def line(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
