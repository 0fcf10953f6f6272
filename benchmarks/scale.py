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

FOLDER = Path(__file__).parent
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
VALUES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WIDTH, ROWS = 12, 1_000  # of the synthetic tables with so many values a feature

# The largest number of instances of each stage; slow stages have fewer.
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
# The largest number of values; k=2 with 1,024 values exceeds the default limit of a million candidates.
VALUE_STAGES = {"omission": 1024, "discrete k=1": 1024, "discrete k=2": 512}
SAMPLES = {"lime": 500, "decision_boundary": 100}  # fewer than by default

# Okabe and Ito's colours, which suit any colour vision, each with a mark of its own.
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


# Functions of the process that measures.


def measure_stage(stage, n, values, stored):
    """Return the seconds of a stage, its additional peak memory and the size of its results in MB."""
    from prepared import build_plan

    name, _, k = stage.partition(" k=")
    search = "continuous" if name == "continuous" else "discrete"
    pick = ["search.pick=largest_drop"] if name == "discrete" else []  # at one level of access
    sample_sizes = [f"explainer.{explainer}.n_samples={size}" for explainer, size in SAMPLES.items()]
    plan = build_plan("adults", f"search={search}", f"k={k or 1}", *pick, *sample_sizes)
    dataset, model = pickle.loads(Path(stored).read_bytes()) if values is None else make_synthetic_data(values)
    prepare_stage(plan, dataset, model, name, 20)()  # imports and tables that are made once
    run = prepare_stage(plan, dataset, model, name, n)
    memory_before = measure_memory(reset=True)
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "peak": max(0.0, measure_memory() - memory_before),
        "result": count_bytes(result) / 2**20,
    }


def prepare_stage(plan, dataset, model, name, n):
    """Return a function that runs a stage on n synthetic instances."""
    from prepared import create_plan_context, explain_instances, find_counterfactuals, select_reference_features

    from cfeval_cli.pipeline import explain as explain_stage
    from cfeval_cli.pipeline.score import compute_scores

    context = create_plan_context(plan, replace(dataset, test=draw_rows(dataset, n)), model)
    features = select_reference_features(context, plan.settings.k)
    if name in ("discrete", "continuous"):
        return lambda: find_counterfactuals(context, "lr", features)
    if name == "scoring":
        results = {
            explainer: explain_stage.explain_instances(context, explainer, {}, lambda _: None)
            for explainer in ("random", "lr")
        }
        usable = {
            explainer: explain_stage.select_top_k(context, explainer, result) for explainer, result in results.items()
        }
        counterfactuals = {
            explainer: find_counterfactuals(context, explainer, selected) for explainer, selected in usable.items()
        }
        truth = {definition: context.compute_importance(definition) for definition in context.plan.truths}
        return lambda: compute_scores(context, truth, results, usable, counterfactuals)
    return lambda: explain_instances(context, name)


def draw_rows(dataset, n):
    """Draw each column of n instances from its training distribution."""
    import numpy as np

    from cfeval_cli.core import Split

    rng = np.random.default_rng(0)
    columns = [rng.choice(len(shares), n, p=shares).astype(np.int32) for shares in dataset.frequencies]
    return Split(np.arange(n), np.stack(columns, axis=1), rng.integers(0, 2, n))


def make_synthetic_data(values):
    """Make a table with a number of values for each feature, and a linear model for it."""
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


def measure_memory(reset=False):
    """Return the peak memory of this process in MB; with `reset` the current memory, from which the peak starts."""
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: the peak since the start
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # else the stage would fill what was freed before, unseen
        Path("/proc/self/clear_refs").write_text("5")
    # not getrusage's, in which a child starts with the peak of its parent
    key = "VmRSS:" if reset else "VmHWM:"
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(key)) / 2**10


def count_bytes(result):
    """Return the bytes of all arrays in a result."""
    import pandas as pd

    if isinstance(result, pd.DataFrame):
        return int(result.memory_usage(index=False, deep=True).sum())
    if isinstance(result, dict):
        return sum(map(count_bytes, result.values()))
    if isinstance(result, tuple):
        return sum(map(count_bytes, result))
    if is_dataclass(result):
        return sum(count_bytes(getattr(result, field.name)) for field in fields(result))
    return getattr(result, "nbytes", 0)


# Functions of the process that starts the measurements.


def measure_in_process(stage, n, values, stored):
    command = [sys.executable, __file__, "--one", stage, str(n), "--stored", stored]
    if values is not None:
        command += ["--values", str(values)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"stage": stage, "n": n, "values": values, **json.loads(output.splitlines()[-1])}


def write_line(row):
    against = f"{row['n']:,}" if row["values"] is None else f"{row['n']:,} × {row['values']:,} values"
    microseconds = f"{1e6 * row['seconds'] / row['n']:,.1f}"
    memory = f"{row['peak']:.0f} | {row['result']:.1f}"
    return f"| {row['stage']} | {against} | {row['seconds']:.3g} | {microseconds} | {memory} |"


def draw_plot(rows, path):
    """Plot seconds above and memory below, against instances on the left and values on the right."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(2, 2, figsize=(11, 8.5), layout="constrained", sharex="col")
    for column, against in enumerate(("n", "values")):
        panel_rows = [row for row in rows if (row["values"] is None) == (against == "n")]
        for axis, key in zip(axes[:, column], FLOOR, strict=True):
            for position, (stage, (colour, mark)) in enumerate(LOOKS.items()):
                stage_rows = [row for row in panel_rows if row["stage"] == stage]
                x, y, results = ([row[name] for row in stage_rows] for name in (against, key, "result"))
                # the first three use the same memory: larger marks lie below smaller ones
                mark_size = max(5, 9 - 2 * position)
                axis.plot(x, [max(v, FLOOR[key]) for v in y], color=colour, marker=mark, ms=mark_size, label=stage)
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
    dotted_line = plt.Line2D([], [], color="0.4", ls=":")
    names = [f"{name} ({SAMPLES[name]} samples)" if name in SAMPLES else name for name in names]
    figure.legend(
        [*handles, dotted_line], [*names, "results themselves"], loc="outside lower center", ncols=4, frameon=False
    )
    figure.savefig(path, dpi=130)


FLOOR = {"seconds": 1e-5, "peak": 0.1}  # smaller values are drawn here, since a logarithmic axis has no zero


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, default=FOLDER / "scale.md", help="the plot goes beside it")
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "N"), help="one measurement, in this process")
    parser.add_argument("--values", type=int, help="with --one: on a synthetic table with so many values a feature")
    parser.add_argument("--stored", help="with --one: data and model, as a pickle")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_stage(options.one[0], int(options.one[1]), options.values, options.stored)))
        return

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "trained.pickle"
        from prepared import load_trained_model

        model_file.write_bytes(pickle.dumps(load_trained_model("adults")))
        measurements = [(stage, n, None) for stage, max_size in STAGES.items() for n in SIZES if n <= max_size]
        measurements += [(stage, ROWS, v) for stage, max_size in VALUE_STAGES.items() for v in VALUES if v <= max_size]
        if options.quick:
            measurements = [(stage, n // 10, v) for stage, n, v in measurements if n <= 3_000 and (v or 0) <= 64]
        for stage, n, v in measurements:
            rows.append(measure_in_process(stage, n, v, str(model_file)))
            print(write_line(rows[-1]), flush=True)
    header = [
        "# Scale",
        "",
        f"Made by `python benchmarks/scale.py`. {os.cpu_count()} cores. Each row is a process of its own; memory is "
        f"the peak above what the process held before the stage.\n\n![seconds and memory]({options.out.stem}.png)\n",
        "| stage | instances | seconds | µs/instance | peak memory, MB | of which results, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    options.out.write_text("\n".join([*header, *map(write_line, rows)]) + "\n")
    draw_plot(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
