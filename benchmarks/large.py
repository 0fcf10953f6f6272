"""Whole runs on many instances of the Adults kind: seconds, peak memory and the size of what they leave behind."""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parent
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
SETTINGS = ("explainer=[random,omission,lr]", "search=discrete", "bounds=0", "n_jobs=2", "cache=off", "figures=[]")
HEAD = """\
| instances | seconds | of the processor | peak memory, MB | folder, MB | report.html, MB | at work | most seconds |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"""

SPLIT = """\
split:
  test: {_target_: cfeval_cli.dataset.sources.DataFile, name: large.csv, max_bytes: 1000000000}
"""


def write_config():
    """Return the config of Adults with another test split."""
    text = (FOLDER.parent / "conf" / "dataset" / "adults.yaml").read_text()
    for before_text, after_text in (
        ("name: adults\n", "name: adults_large\n"),
        ("balance: true\n", "balance: false\n"),
        ("split: [0.8, 0.1, 0.1]\n", SPLIT),
    ):
        assert text.count(before_text) == 1
        text = text.replace(before_text, after_text)
    return text


def write_rows(people, source, path):
    """Write a number of rows, each column drawn independently from the real data."""
    rng = random.Random(0)
    with source.open(encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if len(row) == 15]
    columns = list(zip(*rows, strict=True))
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, people, 10_000):
            n_rows = min(10_000, people - start)
            drawn_rows = zip(*(rng.choices(column, k=n_rows) for column in columns), strict=True)
            file.writelines(", ".join(row) + "\n" for row in drawn_rows)


def measure_run(people, place):
    """Run in a process of its own, and return its figures."""
    (place / "conf" / "dataset").mkdir(parents=True)
    (place / "data").mkdir()
    (place / "conf" / "dataset" / "adults_large.yaml").write_text(write_config())
    source = Path(os.environ.get("CFEVAL_DATA", "data")) / "adult.data"
    (place / "data" / "adult.data").symlink_to(source.resolve())
    write_rows(people, source, place / "data" / "large.csv")
    command = [str(Path(sys.executable).parent / "cfeval"), "run", "--quiet", "--config-dir", str(place / "conf")]
    command += ["dataset=adults_large", f"data_dir={place / 'data'}", f"hydra.run.dir={place / 'run'}"]
    busy, start = os.getloadavg()[0], time.perf_counter()
    process = subprocess.Popen([*command, *SETTINGS], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # with its workers, which it has waited for
    if status:
        raise SystemExit(f"the run of {people:,} ended with {os.waitstatus_to_exitcode(status)}")
    seconds = time.perf_counter() - start
    record = json.loads((place / "run" / "run.json").read_text())
    files = [path for path in (place / "run").rglob("*") if path.is_file()]
    page = place / "run" / "report.html"
    return {
        "people": record["instances"],
        "busy": busy,
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss / 1024,  # of the largest process, to its end
        "folder": sum(path.stat().st_size for path in files) / 1e6,
        "page": page.stat().st_size / 1e6 if page.exists() else float("nan"),
        "stages": record["stages"],
    }


def write_line(row):
    slowest = sorted(row["stages"], key=lambda entry: -entry["seconds"])[:4]
    stages = ", ".join(
        f"{entry['stage']} {entry['component']}".strip() + f" {entry['seconds']:.0f}" for entry in slowest
    )
    figures = (
        f"{row['seconds']:,.0f} | {row['cpu']:,.0f} | {row['memory']:,.0f} | {row['folder']:,.1f} | {row['page']:.2f}"
    )
    return f"| {row['people']:,} | {figures} | {row['busy']:.1f} | {stages} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=FOLDER / "large.md")
    options = parser.parse_args()
    lines = []
    for people in options.sizes:
        with tempfile.TemporaryDirectory(prefix="large-") as place:
            lines.append(write_line(measure_run(people, Path(place))))
        print(lines[-1], flush=True)
    text = (
        f"Made by `python benchmarks/large.py --sizes {' '.join(map(str, options.sizes))}`: `cfeval run "
        f"{' '.join(SETTINGS)}` on rows like those of Adults, each in a process of its own. {os.cpu_count()} cores; "
        "*at work* is the load average at the start. Memory is that of the largest process, what it has "
        "read of its files included."
    )
    options.out.write_text("\n".join(["# Whole runs on many instances", "", text, "", HEAD, *lines]) + "\n")


if __name__ == "__main__":
    main()
