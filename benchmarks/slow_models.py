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
from prepared import explain, plan, ready
from threadpoolctl import threadpool_limits

from cfeval_cli.core import Probabilistic
from cfeval_cli.explainer.coalitions import draw_background

HERE = Path(__file__).parent
SERVICE = 0.05  # seconds of a call
LOOPS = {
    "omission_marginal": plain.omission,
    "lime": plain.lime,
    "anchor": plain.anchor,
    "shap_kernel": lambda problem: plain.shap_values(
        problem, True, draw_background(problem.dataset, 100, problem.seed)
    ),
}
HEAD = (
    "explainer", "people", "loop, s a person", "cfeval, s a person", "ratio", "loop, calls a person",
    "cfeval, calls a person", "the model's share of cfeval's time",
)  # fmt: skip


@dataclass
class Watched(Probabilistic):
    """A model that notes how often it is asked and how long that takes, and sleeps before it answers."""

    model: object
    clock: object
    sleep: float = 0.0
    calls: int = 0
    seconds: float = 0.0

    def predict_proba(self, codes):
        begun = self.clock()
        if self.sleep:
            time.sleep(self.sleep)
        told = self.model.predict_proba(codes)
        self.calls += 1
        self.seconds += self.clock() - begun
        return told

    def positive(self, codes):
        """As the loops ask."""
        return self.predict_proba(codes)[:, 1]


class Plain:
    """What cfeval is shown of it: probabilities, and nothing that could be asked in a cheaper way."""

    def __init__(self, watched):
        self.predict_proba = watched.predict_proba


def part(study, people):
    rows = np.arange(people)
    return replace(
        study, instances=study.instances.take(rows), rows=study.rows.take(rows), probabilities=study.probabilities[rows]
    )


def duel(study, name, few, many, clock, sleep=0.0):
    """The loop on a few people, cfeval on many; a line of the table, and the loop's seconds a person."""
    looped, ours = (Watched(study.model, clock, sleep) for _ in range(2))
    some = part(study, few)
    problem = plain.Problem(some.dataset, looped, some.instances, some.rows.labels, some.plan.settings.seed)
    begun = clock()
    told = LOOPS[name](problem)
    theirs = (clock() - begun) / few
    more = replace(part(study, many), model=Plain(ours), identity=None)
    begun = clock()
    found = explain(more, name)
    mine = (clock() - begun) / many
    if name == "anchor":  # the same rules
        assert [[j for j, _ in rule] for rule in told] == [
            [j for j in row if j >= 0] for row in found.features[:few].tolist()
        ]
    share = ours.seconds / (mine * many)
    return (
        name, f"{few} and {many}", f"{theirs:.3g}", f"{mine:.3g}", f"{theirs / mine:.1f}",
        f"{looped.calls / few:.1f}", f"{ours.calls / many:.2f}", f"{share:.0%}",
    ), theirs  # fmt: skip


def whole(people):
    """A run with all explainers and metrics: seconds of the processor, and the model's share of its time."""
    with tempfile.TemporaryDirectory(prefix="slow-") as place:
        command = [str(Path(sys.executable).parent / "cfeval"), "run", "--quiet", "dataset=adults", "model=estimator"]
        command += ["explainer=field", "metric=field", f"n_explain={people}", "n_jobs=1", "cache=off"]
        command += ["figures=[]", "report=false", f"hydra.run.dir={place}/run"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs = pd.read_csv(f"{place}/run/costs.csv")
        total = pd.read_json(f"{place}/run/run.json", typ="series")["seconds"]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(costs["model_seconds"].sum()) / float(total)


def table(head, lines):
    rows = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs=2, default=(24, 400), help="of the loop, and of cfeval")
    parser.add_argument("--service", type=int, nargs=2, default=(8, 1500), help="the same with a service")
    parser.add_argument("--run", type=int, default=200, help="people of the whole run")
    parser.add_argument("--out", type=Path, default=HERE / "slow_models.md")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    made = plan("adults", "model=estimator", "explainer=field", "metric=field")
    dataset = made.dataset.load(made.settings.data_dir, made.settings.seed)
    study = ready(made, dataset, made.model.fit(dataset, made.settings.seed))
    with threadpool_limits(1):
        boosted = [duel(study, name, *options.people, time.process_time) for name in LOOPS]
        service = [duel(study, name, *options.service, time.perf_counter, SERVICE) for name in ("lime", "anchor")]
    loops = options.run * sum(seconds for _, seconds in boosted)
    seconds, share = whole(options.run)
    text = "\n\n".join(
        [
            "# Models whose predictions are the cost",
            f"Made by `python benchmarks/slow_models.py {' '.join(sys.argv[1:])}`. {os.cpu_count()} cores, one of "
            f"which is used; processes that were at work when it began: {busy:.1f}.",
            "## Boosted trees (HistGradientBoostingClassifier), Adults, seconds of the processor",
            table(HEAD, [line for line, _ in boosted]),
            f"A whole run of {options.run} people (`cfeval run dataset=adults model=estimator explainer=field "
            f"metric=field n_explain={options.run} n_jobs=1 cache=off figures=[] report=false`: more explainers than "
            f"these, search, metrics and tables too): {seconds:.0f} s of the processor. The loops above alone, for as "
            f"many people: {loops:.0f} s, {loops / seconds:.1f} times as long. The model's own predictions are "
            f"{share:.0%} of the run.",
            f"## A service of {SERVICE * 1000:.0f} ms a call, seconds of the clock",
            table(HEAD, [line for line, _ in service]),
        ]
    )
    options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
