"""Instances a second with executor=local and with executor=dask on this machine, in turns, for the same results."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--explainer", default="anchor")
    parser.add_argument("--out", type=Path, default=HERE / "executors.md")
    options = parser.parse_args()

    from prepared import plan, ready, trained

    from cfeval_cli.executor.dask import Dask
    from cfeval_cli.executor.local import Local
    from cfeval_cli.pipeline import explain as explain_stage

    made = plan("adults", f"n_explain={options.people}")
    study = ready(made, *trained("adults"))
    executors = {"local": Local(2, min_seconds=0.0), "dask": Dask(n_jobs=2, min_seconds=0.0)}
    seconds = {name: [] for name in executors}
    busy = os.getloadavg()[0]
    for turn in range(options.rounds + 1):
        told = {}
        for name, executor in executors.items():
            here = replace(study, plan=replace(study.plan, executor=executor))
            begun = time.perf_counter()
            told[name] = explain_stage.explain_instances(here, options.explainer, {}, lambda _: None).explanation
            if turn:  # the first starts workers, and lets them import what they need
                seconds[name].append(time.perf_counter() - begun)
        one, two = told.values()
        assert one.features.tobytes() == two.features.tobytes() and one.scores.tobytes() == two.scores.tobytes()
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    lines = [
        "# Dask against worker processes of joblib",
        "",
        f"Made by `python benchmarks/executors.py --people {options.people} --rounds {options.rounds} --explainer "
        f"{options.explainer}`: two workers each on this machine, in turns, medians of {options.rounds} rounds, after "
        f"one that starts them. {os.cpu_count()} cores; processes that were at work when it began: {busy:.1f}. The "
        "explanations are the same to the bit.",
        "",
        "| executor | seconds | instances a second | against local |",
        "| --- | --- | --- | --- |",
    ]
    for name, value in middle.items():
        share = middle["local"] / value
        lines.append(f"| {name} | {value:.2f} | {len(study.instances) / value:,.0f} | {share:.2f} |")
    options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
