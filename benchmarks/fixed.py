"""What a run costs besides its work: small and fully cached runs, as multiples of `import torch`.

Each is a process of its own, as users start it, with figures and page. They take turns. Ratios are those of the medians
of processor seconds, which depend less than seconds of the clock on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
CFEVAL = Path(sys.executable).with_name("cfeval")
HEADER = (
    "process", "processor seconds (min–max)", "× import torch", "seconds by the clock",
    "without explaining and reference, × import torch", "seconds by stage",
)  # fmt: skip
SMALL = ("n_explain=20", "explainer=[random,omission]")
N_STAGES = 4  # shown


def measure_seconds(command: list[str], folder: Path) -> tuple[float, float]:
    """Return the seconds of a process by the clock, and the processor seconds of it and its workers."""
    begin, usage_before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    seconds, usage_after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime


def describe_stages(run: Path, seconds: float) -> str:
    """Write the seconds of the longest stages of a run, and of what follows and precedes them."""
    record = json.loads((run / "run.json").read_text())
    total = record["seconds"]
    longest = sorted(record["stages"], key=lambda entry: -entry["seconds"])[:N_STAGES]
    parts = [f"{entry['stage']} {entry['component']} {entry['seconds']:.1f}".replace("  ", " ") for entry in longest]
    other = total - sum(entry["seconds"] for entry in longest)
    return ", ".join([*parts, f"other stages {other:.1f}", f"start, figures and page {seconds - total:.1f}"])


def measure_explaining(run: Path) -> float:
    """Return the seconds of a run that compute reference attributions and explanations."""
    stages = json.loads((run / "run.json").read_text())["stages"]
    names = {"truth", "explain"}
    repeated = ("explainer stability", "")
    return sum(e["seconds"] for e in stages if e["stage"] in names or (e["stage"], e["component"]) == repeated)


def write_line(cells: tuple[object, ...]) -> str:
    """Write a line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Measure all processes in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CFEVAL_DATA", "data")))
    parser.add_argument("--out", type=Path, default=FOLDER / "fixed.md")
    options = parser.parse_args()
    data = f"data_dir={options.data.absolute()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = f"cache.folder={folder / 'cache'}"
        overrides = {
            "20 people, two explainers, nothing cached": ("dataset=adults", *SMALL, "cache=off", data),
            "20 people, two explainers, all cached": ("dataset=adults", *SMALL, cache, data),
            "1,569 people, six explainers, nothing cached": ("dataset=adults", "cache=off", data),
            "1,569 people, six explainers, all cached": ("dataset=adults", cache, data),
            "pima, boosted trees, nothing cached": ("dataset=pima", "model=estimator", "cache=off", data),
        }
        commands = {"import torch": [sys.executable, "-c", "import torch"]}
        commands |= {title: [str(CFEVAL), "run", *words] for title, words in overrides.items()}
        seconds: dict[str, list[float]] = {title: [] for title in commands}
        clocks: dict[str, list[float]] = {title: [] for title in commands}
        rests: dict[str, list[float]] = {title: [] for title in commands}
        stages = dict.fromkeys(commands, "")
        for turn in range(options.rounds + 1):
            for number, (title, command) in enumerate(commands.items()):
                run = folder / f"{turn}-{number}"
                clock, processor_seconds = measure_seconds(
                    [*command, *([f"hydra.run.dir={run}"] if title in overrides else [])], folder
                )
                if turn:  # the first round fills the cache
                    seconds[title].append(processor_seconds)
                    clocks[title].append(clock)
                    rests[title].append(clock - (measure_explaining(run) if title in overrides else 0.0))
                    stages[title] = describe_stages(run, clock) if title in overrides else ""
    torch, torch_clock = (statistics.median(values["import torch"]) for values in (seconds, clocks))
    rows = []
    for title, processor_seconds in seconds.items():
        median = statistics.median(processor_seconds)
        rows.append(
            (
                title,
                f"{median:.1f} ({min(processor_seconds):.1f}–{max(processor_seconds):.1f})",
                f"{median / torch:.1f}",
                f"{statistics.median(clocks[title]):.1f}",
                f"{statistics.median(rests[title]) / torch_clock:.1f}",
                stages[title],
            )
        )
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "matplotlib", "pandas", "hydra-core"))
    lines = [
        "# Fixed costs",
        "",
        f"Made by `python benchmarks/fixed.py --rounds {options.rounds}`. Medians of {options.rounds} rounds in which "
        "all processes take turns, with figures and page. Stages are seconds of the clock in the "
        "last round. "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}. Load average "
        f"{os.getloadavg()[2]:.1f}: on a busy machine only the ratios of processor seconds are comparable.",
        "",
        *map(write_line, (HEADER, ("---",) * len(HEADER), *rows)),
    ]
    options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
