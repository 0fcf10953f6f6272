"""Models whose predictions are the cost: instances that wait for the model together, and the packages' own loops.

Boosted trees on Adults, in one process, seconds of the processor; and the same trees behind a service that takes 50 ms
a call, seconds of the clock. The loops are those of `straightforward.py`: one instance after the other, each with its
own calls of the model.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import straightforward as plain
from prepared import build_plan, create_plan_context, explain_instances
from threadpoolctl import threadpool_limits

from cfeval_cli.core import Probabilistic
from cfeval_cli.explainer.coalitions import draw_background

FOLDER = Path(__file__).parent
SERVICE = 0.05  # seconds of a call
LOOPS = {
    "omission_marginal": plain.explain_by_omission,
    "lime": plain.explain_by_lime,
    "anchor": plain.explain_by_anchor,
    "shap_kernel": lambda problem: plain.compute_shap_values(
        problem, True, draw_background(problem.dataset, 100, problem.seed)
    ),
}
HEAD = (
    "explainer", "people", "loop, s a person", "cfeval, s a person", "ratio", "loop, calls a person",
    "cfeval, calls a person", "the model's share of cfeval's time",
)  # fmt: skip


@dataclass
class CountingModel(Probabilistic):
    """A model that counts its evaluations and their seconds, and waits before each."""

    model: object
    clock: object
    sleep: float = 0.0
    calls: int = 0
    seconds: float = 0.0

    def predict_proba(self, codes):
        start = self.clock()
        if self.sleep:
            time.sleep(self.sleep)
        probabilities = self.model.predict_proba(codes)
        self.calls += 1
        self.seconds += self.clock() - start
        return probabilities

    def predict_positive(self, codes):
        """Return the probability of the positive class."""
        return self.predict_proba(codes)[:, 1]


class ProbabilitiesOnly(Probabilistic):
    """A model with probabilities only, so that cfeval cannot use cheaper methods."""

    def __init__(self, model):
        self._model = model

    def predict_proba(self, codes):
        return self._model.predict_proba(codes)


def select_instances(study, people):
    rows = np.arange(people)
    return replace(
        study, instances=study.instances.take(rows), rows=study.rows.take(rows), probabilities=study.probabilities[rows]
    )


def compare_speeds(study, name, n_loop, n_cfeval, clock, sleep=0.0):
    """Compare the loop on few people with cfeval on many; return a line and the seconds of the loop for a person."""
    loop_model, cfeval_model = (CountingModel(study.model, clock, sleep) for _ in range(2))
    loop_study = select_instances(study, n_loop)
    problem = plain.LoopProblem(
        loop_study.dataset,
        loop_model,
        loop_study.instances,
        loop_study.rows.predicted_classes,
        loop_study.plan.settings.seed,
    )
    start = clock()
    rules = LOOPS[name](problem)
    loop_seconds = (clock() - start) / n_loop
    cfeval_study = replace(select_instances(study, n_cfeval), model=ProbabilitiesOnly(cfeval_model), subject_hash=None)
    start = clock()
    explanation = explain_instances(cfeval_study, name)
    cfeval_seconds = (clock() - start) / n_cfeval
    if name == "anchor":  # the same rules
        assert [[j for j, _ in rule] for rule in rules] == [
            [j for j in row if j >= 0] for row in explanation.features[:n_loop].tolist()
        ]
    share = cfeval_model.seconds / (cfeval_seconds * n_cfeval)
    return (
        name, f"{n_loop} and {n_cfeval}", f"{loop_seconds:.3g}", f"{cfeval_seconds:.3g}",
        f"{loop_seconds / cfeval_seconds:.1f}",
        f"{loop_model.calls / n_loop:.1f}", f"{cfeval_model.calls / n_cfeval:.2f}", f"{share:.0%}",
    ), loop_seconds  # fmt: skip


def measure_run(people):
    """Run all explainers and metrics; return the processor seconds and the share of the model."""
    with tempfile.TemporaryDirectory(prefix="slow-") as place:
        command = [str(Path(sys.executable).parent / "cfeval"), "run", "--quiet", "dataset=adults", "model=estimator"]
        command += ["explainer=field", "metric=field", f"n_explain={people}", "n_jobs=1", "cache=off"]
        command += ["figures=[]", "report=false", f"hydra.run.dir={place}/run"]
        usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs = pd.read_csv(f"{place}/run/costs.csv")
        total = pd.read_json(f"{place}/run/run.json", typ="series")["seconds"]
    seconds = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    return seconds, float(costs["model_seconds"].sum()) / float(total)


def write_table(head, lines):
    rows = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs=2, default=(24, 400), help="of the loop, and of cfeval")
    parser.add_argument("--service", type=int, nargs=2, default=(8, 1500), help="the same with a service")
    parser.add_argument("--run", type=int, default=200, help="people of the whole run")
    parser.add_argument("--out", type=Path, default=FOLDER / "slow_models.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    run_plan = build_plan("adults", "model=estimator", "explainer=field", "metric=field")
    dataset = run_plan.dataset.load(run_plan.settings.data_dir, run_plan.settings.seed)
    study = create_plan_context(run_plan, dataset, run_plan.model.fit(dataset, run_plan.settings.seed))
    with threadpool_limits(1):
        tree_results = [compare_speeds(study, name, *options.people, time.process_time) for name in LOOPS]
        service_results = [
            compare_speeds(study, name, *options.service, time.perf_counter, SERVICE) for name in ("lime", "anchor")
        ]
    loops = options.run * sum(seconds for _, seconds in tree_results)
    seconds, share = measure_run(options.run)
    text = "\n\n".join(
        [
            "# Models whose predictions are the cost",
            f"Made by `python benchmarks/slow_models.py {' '.join(sys.argv[1:])}`. {os.cpu_count()} cores, one of "
            f"which is used; load average at the start: {load:.1f}.",
            "## Boosted trees (HistGradientBoostingClassifier), Adults, seconds of the processor",
            write_table(HEAD, [line for line, _ in tree_results]),
            f"A whole run of {options.run} people (`cfeval run dataset=adults model=estimator explainer=field "
            f"metric=field n_explain={options.run} n_jobs=1 cache=off figures=[] report=false`: more explainers than "
            f"these, search, metrics and tables too): {seconds:.0f} s of the processor. The loops above alone, for as "
            f"many people: {loops:.0f} s, {loops / seconds:.1f} times as long. The model's own predictions are "
            f"{share:.0%} of the run.",
            f"## A service of {SERVICE * 1000:.0f} ms a call, seconds of the clock",
            write_table(HEAD, [line for line, _ in service_results]),
        ]
    )
    options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
