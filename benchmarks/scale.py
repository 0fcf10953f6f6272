"""Seconds and peak memory against the number of instances and of values, each measured in a process of its own."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
VALUES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WIDTH, ROWS = 12, 1_000  # of the synthetic tables with so many values a feature

# Up to how many instances; what works on one instance at a time, with samples of its own, is told by fewer.
STAGES = {
    "random": 100_000,
    "omission": 100_000,
    "lr": 100_000,
    "discrete k=1": 100_000,
    "discrete k=2": 100_000,
    "continuous k=1": 100_000,
    "scoring": 100_000,
    "decision_boundary": 10_000,
    "lime": 3_000,
    "anchor": 1_000,
}
# Up to how many values; a run refuses 1,024 with k=2, over its default of a million candidates an instance.
VALUE_STAGES = {"omission": 1024, "discrete k=1": 1024, "discrete k=2": 512}
SAMPLES = {"lime": 500, "decision_boundary": 100}  # fewer than by default

# Okabe and Ito's colours, told apart with any colour vision, and a mark for each as well.
LOOKS = dict(
    zip(
        STAGES,
        (
            ("#999999", "o"), ("#E69F00", "s"), ("#000000", "^"), ("#0072B2", "D"), ("#56B4E9", "v"),
            ("#D55E00", "P"), ("#009E73", "X"), ("#CC79A7", "<"), ("#7F6000", ">"), ("#882255", "*"),
        ),
        strict=True,
    )
)  # fmt: skip


# In the process of one measurement.


def one(stage, n, values, stored):
    """Seconds of a stage, its peak memory above what was there before, and the size of its results, in MB."""
    from prepared import plan

    name, _, k = stage.partition(" k=")
    search = "continuous" if name == "continuous" else "discrete"
    once = ["search.pick=largest_drop"] if name == "discrete" else []  # at one level of access
    fewer = [f"explainer.{explainer}.n_samples={size}" for explainer, size in SAMPLES.items()]
    made = plan("adults", f"search={search}", f"k={k or 1}", *once, *fewer)
    dataset, model = pickle.loads(Path(stored).read_bytes()) if values is None else synthetic(values)
    prepared(made, dataset, model, name, 20)()  # imports and tables that are made once
    run = prepared(made, dataset, model, name, n)
    before = memory(reset=True)
    begun = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "peak": max(0.0, memory() - before), "result": size(result) / 2**20}


def prepared(made, dataset, model, name, n):
    """A function that runs a stage on n synthetic instances."""
    from prepared import explain, find, ready, reference_features

    from cfeval_cli.pipeline import explain as explain_stage
    from cfeval_cli.pipeline.score import compute_scores

    context = ready(made, replace(dataset, test=rows_like(dataset, n)), model)
    features = reference_features(context, made.settings.k)
    if name in ("discrete", "continuous"):
        return lambda: find(context, "lr", features)
    if name == "scoring":
        told = {
            explainer: explain_stage.explain_instances(context, explainer, {}, lambda _: None)
            for explainer in ("random", "lr")
        }
        usable = {explainer: explain_stage.select_top_k(context, explainer, done) for explainer, done in told.items()}
        found = {explainer: find(context, explainer, named) for explainer, named in usable.items()}
        truth = {definition: context.compute_importance(definition) for definition in context.plan.truths}
        return lambda: compute_scores(context, truth, told, usable, found)
    return lambda: explain(context, name)


def rows_like(dataset, n):
    """Instances with each column drawn from its training distribution."""
    import numpy as np

    from cfeval_cli.core import Split

    rng = np.random.default_rng(0)
    columns = [rng.choice(len(shares), n, p=shares).astype(np.int32) for shares in dataset.frequencies]
    return Split(np.arange(n), np.stack(columns, axis=1), rng.integers(0, 2, n))


def synthetic(values):
    """A table of so many values a feature, and a white box for it."""
    import numpy as np

    from cfeval_cli.core import Dataset, Feature, Split
    from cfeval_cli.model.logistic import LinearModel

    rng = np.random.default_rng(0)
    codes = rng.integers(0, values, (4 * ROWS, WIDTH)).astype(np.int32)
    train = Split(np.arange(len(codes)), codes, rng.integers(0, 2, len(codes)))
    dataset = Dataset(
        name="synthetic",
        kind="tabular",
        features=tuple(Feature(f"f{j}", tuple(str(v) for v in range(values))) for j in range(WIDTH)),
        classes=("no", "yes"),
        train=train,
        validation=train,
        test=train,
        frequencies=tuple(np.bincount(column, minlength=values) / len(codes) for column in codes.T),
        candidates=(np.arange(values, dtype=np.int32),) * WIDTH,
    )
    tables = tuple(rng.normal(size=(values, 4)) for _ in range(WIDTH))
    return dataset, LinearModel(0.0, rng.normal(size=(WIDTH, 4)) / 4, tables, np.zeros((WIDTH, 4)))


def memory(reset=False):
    """The peak of this process in MB, or what it holds now if that is to be the new beginning of the peak."""
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: the peak since the start
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # else the stage would fill what was freed before, unseen
        Path("/proc/self/clear_refs").write_text("5")
    # not getrusage's, in which a child starts with the peak of its parent
    wanted = "VmRSS:" if reset else "VmHWM:"
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(wanted)) / 2**10


def size(result):
    """Bytes of all arrays in a result."""
    import pandas as pd

    if isinstance(result, pd.DataFrame):
        return int(result.memory_usage(index=False, deep=True).sum())
    if isinstance(result, dict):
        return sum(map(size, result.values()))
    if isinstance(result, tuple):
        return sum(map(size, result))
    if is_dataclass(result):
        return sum(size(getattr(result, field.name)) for field in fields(result))
    return getattr(result, "nbytes", 0)


# In the process that asks for the measurements.


def measured(stage, n, values, stored):
    command = [sys.executable, __file__, "--one", stage, str(n), "--stored", stored]
    if values is not None:
        command += ["--values", str(values)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"stage": stage, "n": n, "values": values, **json.loads(told.splitlines()[-1])}


def line(row):
    against = f"{row['n']:,}" if row["values"] is None else f"{row['n']:,} × {row['values']:,} values"
    each = f"{1e6 * row['seconds'] / row['n']:,.1f}"
    return f"| {row['stage']} | {against} | {row['seconds']:.3g} | {each} | {row['peak']:.0f} | {row['result']:.1f} |"


def plot(rows, path):
    """Seconds above, memory below; against instances on the left, against values on the right."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(2, 2, figsize=(11, 8.5), layout="constrained", sharex="col")
    for column, against in enumerate(("n", "values")):
        chosen = [row for row in rows if (row["values"] is None) == (against == "n")]
        for axis, key in zip(axes[:, column], FLOOR, strict=True):
            for place, (stage, (colour, mark)) in enumerate(LOOKS.items()):
                own = [row for row in chosen if row["stage"] == stage]
                x, y, results = ([row[name] for row in own] for name in (against, key, "result"))
                size = max(5, 9 - 2 * place)  # the first three cost the same memory: larger marks lie below smaller
                axis.plot(x, [max(v, FLOOR[key]) for v in y], color=colour, marker=mark, ms=size, label=stage)
                if key == "peak" and against == "n":
                    axis.plot(x, [max(v, FLOOR[key]) for v in results], color=colour, ls=":", lw=1.3)
            axis.set(xscale="log", yscale="log")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("")
            axis.grid(alpha=0.25)
    axes[1, 0].xaxis.set_major_formatter("{x:,.0f}")
    axes[1, 1].set_xscale("log", base=2)
    axes[1, 1].set_xticks(VALUES, [f"{v:,}" for v in VALUES])
    axes[0, 0].set(title="Rows like those of Adults, 12 features", ylabel="seconds")
    axes[0, 1].set(title=f"{ROWS:,} rows of a synthetic table, {WIDTH} features")
    axes[1, 0].set(xlabel="instances", ylabel="peak memory above the start, MB")
    axes[1, 1].set(xlabel="values of each feature", yticks=(0.1, 0.3, 1, 3, 10))
    handles, names = axes[0, 0].get_legend_handles_labels()
    dotted = plt.Line2D([], [], color="0.4", ls=":")
    names = [f"{name} ({SAMPLES[name]} samples)" if name in SAMPLES else name for name in names]
    figure.legend(
        [*handles, dotted], [*names, "results themselves"], loc="outside lower center", ncols=4, frameon=False
    )
    figure.savefig(path, dpi=130)


FLOOR = {"seconds": 1e-5, "peak": 0.1}  # what is less is drawn there: logarithms know no zero


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, default=HERE / "scale.md", help="the plot goes beside it")
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "N"), help="one measurement, in this process")
    parser.add_argument("--values", type=int, help="with --one: on a synthetic table with so many values a feature")
    parser.add_argument("--stored", help="with --one: data and model, as a pickle")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], int(options.one[1]), options.values, options.stored)))
        return

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "trained.pickle"
        from prepared import trained

        stored.write_bytes(pickle.dumps(trained("adults")))
        wanted = [(stage, n, None) for stage, most in STAGES.items() for n in SIZES if n <= most]
        wanted += [(stage, ROWS, v) for stage, most in VALUE_STAGES.items() for v in VALUES if v <= most]
        if options.quick:
            wanted = [(stage, n // 10, v) for stage, n, v in wanted if n <= 3_000 and (v or 0) <= 64]
        for stage, n, v in wanted:
            rows.append(measured(stage, n, v, str(stored)))
            print(line(rows[-1]), flush=True)
    header = [
        "# Scale",
        "",
        f"Made by `python benchmarks/scale.py`. {os.cpu_count()} cores. Each row is a process of its own; memory is "
        f"the peak above what the process held before the stage.\n\n![seconds and memory]({options.out.stem}.png)\n",
        "| stage | instances | seconds | µs/instance | peak memory, MB | of which results, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    options.out.write_text("\n".join([*header, *map(line, rows)]) + "\n")
    plot(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
