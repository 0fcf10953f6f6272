"""How much faster than the straightforward way, on the same work and with the same results.

Both ways run in turn in this process; a ratio is the median over the rounds, with the smallest and the largest. All but
the whole runs are held to one core.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import straightforward as plain
import torch
from prepared import explain, find, plan, ready, reference_features, study
from threadpoolctl import threadpool_limits

from cfeval_cli.api.experiment import run_experiment
from cfeval_cli.core import NO_FEATURE, Access
from cfeval_cli.core.client import apply_edits
from cfeval_cli.executor.local import Local
from cfeval_cli.explainer.coalitions import draw_background
from cfeval_cli.model.logistic import LinearModel
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.results.folder import RunFolder

# all cores, nothing left over from an earlier run, and nothing that the straightforward script does not do
WHOLE_OVERRIDES = ["n_jobs=2", "cache=off", "bounds=0", "resamples=0", "figures=[]", "report=false"]

# The tables and their columns; the second sets the search beside the model that it calls.
SPEED = (
    "case", "instances", "straightforward, s/instance", "cfeval, s/instance", "ratio (min–max)",
    "model's share of cfeval's time", "same results?",
)  # fmt: skip
THROUGHPUT = (
    "search", "candidates", "search, million candidates/s", "one call of the model on the same rows, million rows/s",
    "search / model (min–max)",
)  # fmt: skip


@dataclass
class Sizes:
    """Instances of each case."""

    rounds: int = 3
    people: int | None = None  # discrete search on Adults; None: all
    sentences: int = 8  # discrete search on Movie Reviews, 18,258 candidates each
    alone: int = 40  # continuous search, one optimisation after the other
    batched: int | None = None  # continuous search, in large batches; None: all
    lime_people: int = 60
    lime_sentences: int = 20
    shap_people: int = 60
    anchor_people: int = 100
    anchor_sentences: int = 60
    worker_people: int = 600
    worker_sentences: int = 400
    whole_people: int | None = 200
    whole_sentences: int | None = 100  # at more than a second each


QUICK = Sizes(2, 40, 1, 4, 50, 4, 2, 4, 4, 4, 40, 40, 6, 6)


class Timed(LinearModel):
    """A model that counts the seconds spent in its predictions and their gradients."""

    seconds = 0.0

    @staticmethod
    def of(model):
        return Timed(model.bias, model.weights, model.tables, model.means)

    def predict_positive(self, codes):
        return self._timed(super().predict_positive, codes)

    def predict_edited(self, *edits):
        return self._timed(super().predict_edited, *edits)

    def make_gradient_function(self, *features):
        made = super().make_gradient_function(*features)
        return lambda *moved: self._timed(made, *moved)

    def _timed(self, function, *arguments):
        begun = time.perf_counter()
        result = function(*arguments)
        self.seconds += time.perf_counter() - begun
        return result


def clock(function, least=0.0):
    """Seconds of a call and its result; what is shorter than `least` is called several times and averaged."""
    begun, calls, seconds = time.perf_counter(), 0, 0.0
    while not calls or seconds < least:
        result = function()
        calls += 1
        seconds = time.perf_counter() - begun
    return seconds / calls, result


@dataclass
class Duel:
    """What came of running both ways in turn."""

    theirs: list[float]  # seconds an instance, by round
    ours: list[float]
    told: object  # their results
    found: object  # ours
    share: float | None  # of our time, spent in the model

    @staticmethod
    def run(theirs, ours, study, rounds, sizes, share=True):
        """`theirs()` against `ours(study)`; the instances of each are given by `sizes`."""
        with threadpool_limits(1):
            ours(study)  # imports, and tables that are made once
            a, b = [], []
            for _ in range(rounds):
                seconds, told = clock(theirs, 0.1)
                a.append(seconds / sizes[0])
                seconds, found = clock(lambda: ours(study), 0.1)
                b.append(seconds / sizes[1])
            if not share:
                return Duel(a, b, told, found, None)
            timed = Timed.of(study.model)
            whole, _ = clock(lambda: ours(replace(study, model=timed)))
        return Duel(a, b, told, found, timed.seconds / whole)

    @property
    def ratio(self):
        """The median over the rounds, the smallest and the largest."""
        ratios = [a / b for a, b in zip(self.theirs, self.ours, strict=True)]
        median, low, high = (
            f"{ratio:,.0f}" if ratio > 10 else f"{ratio:.2g}"
            for ratio in (statistics.median(ratios), min(ratios), max(ratios))
        )
        return f"{median} ({low}–{high})" if len(ratios) > 1 else median

    def row(self, case, instances, same):
        """For the table of speeds."""
        seconds = [f"{statistics.median(seconds):.2g}" for seconds in (self.theirs, self.ours)]
        return SPEED, (case, instances, *seconds, self.ratio, "" if self.share is None else f"{self.share:.0%}", same)


def problem_of(study):
    return plain.Problem(study.dataset, study.model, study.instances, study.rows.labels, study.plan.settings.seed)


def part(study, start, stop):
    """The same with some of the instances."""
    rows = np.arange(len(study.instances))[start:stop]
    return replace(
        study, instances=study.instances.take(rows), rows=study.rows.take(rows), probabilities=study.probabilities[rows]
    )


# Cases: each yields rows of the table.


def discrete(sizes):
    for name, k, n in (("adults", 1, sizes.people), ("adults", 2, sizes.people), ("movie_reviews", 1, sizes.sentences)):
        made = part(study(name, "search.pick=largest_drop", f"k={k}"), 0, n)
        features, problem = reference_features(made, k), problem_of(made)

        def theirs(problem=problem, features=features):
            return [plain.largest_drop(problem, i, list(row)) for i, row in enumerate(features)]

        def ours(study, features=features):
            return find(study, "lr", features)[Access.PROBABILITY]

        n = len(features)
        models = {"": made.model}
        if name == "adults":  # sentences share their table and have padding
            models[", the loop asks a torch module"] = plain.Module(made.model)
        for how, model in models.items():
            asked = replace(problem, model=model)
            duel = Duel.run(lambda asked=asked: theirs(asked), ours, made, sizes.rounds, (n, n))
            assert (np.stack([found.codes for found in duel.told]) == duel.found.codes).all()
            assert np.allclose([found.distance for found in duel.told], duel.found.distance)
            yield duel.row(f"discrete search, {name}, k={k}{how}", n, "the same edits")
        yield throughput(f"{name}, k={k}", made, features)


def throughput(case, made, features):
    """Candidates a second of the search, and of the model given the very same rows in one array."""
    parts = []
    for group in np.unique(features, axis=0):
        rows = np.flatnonzero((features == group).all(axis=1))
        axes = np.meshgrid(*(made.dataset.candidates[j] for j in group), indexing="ij")
        values = np.stack([axis.ravel() for axis in axes], axis=1)
        which, edits = np.repeat(rows, len(values)), np.tile(values, (len(rows), 1))
        parts.append(apply_edits(made.instances.codes, features, which, edits))
    candidates = np.concatenate(parts)
    n = len(candidates)
    duel = Duel.run(
        lambda: made.model.predict_positive(candidates),
        lambda study: find(study, "lr", features),
        made, 5, (n, n),
    )  # fmt: skip
    speeds = [f"{1e-6 / statistics.median(seconds):.2g}" for seconds in (duel.ours, duel.theirs)]
    return THROUGHPUT, (case, f"{n:,}", *speeds, duel.ratio)


def continuous(sizes):
    for name in ("adults", "movie_reviews"):
        everyone = part(study(name, "search=continuous"), 0, sizes.batched)
        features = reference_features(everyone, 1)
        n = min(sizes.alone, len(features))
        some, problem = part(everyone, 0, n), problem_of(everyone)

        def theirs(problem=problem, features=features, search=everyone.plan.search, n=n):
            return [plain.descent(problem, search, i, features[i].tolist()) for i in range(n)]

        def ours(study, features=features):
            return find(study, "lr", features[: len(study.instances)])[Access.GRADIENT]

        for batch, instances in (
            (some, f"{n} alone; the same {n} batched"),
            (everyone, f"{n} alone; all {len(features):,} batched"),
        ):
            duel = Duel.run(theirs, ours, batch, sizes.rounds, (n, len(batch.instances)))
            alpha = everyone.plan.search.alpha
            reached = duel.found.distance[:n] ** 2 + alpha * duel.found.probability[:n]
            alone = np.array([found.distance**2 + alpha * found.probability for found in duel.told])
            assert np.allclose(reached, alone, rtol=0, atol=1e-6)
            assert np.allclose(duel.found.distance[:n], [found.distance for found in duel.told], rtol=0, atol=1e-6)
            yield duel.row(
                f"continuous search, {name}, k=1", instances,
                f"objectives within {np.abs(reached - alone).max():.0e}",
            )  # fmt: skip


def lime(sizes):
    for name, n in (("adults", sizes.lime_people), ("movie_reviews", sizes.lime_sentences)):
        made = part(study(name, "search=continuous"), 0, n)
        problem = problem_of(made)
        duel = Duel.run(
            lambda problem=problem: plain.lime(problem),
            lambda study: explain(study, "lime"),
            made, sizes.rounds, (n, n),
        )  # fmt: skip
        gap = max(
            abs(score - dict(told)[int(j)])
            for told, features, scores in zip(duel.told, duel.found.features, duel.found.scores, strict=True)
            for j, score in zip(features, scores, strict=True)
            if j != NO_FEATURE
        )
        assert gap < 1e-8
        yield duel.row(f"LIME, {name}", n, f"coefficients within {gap:.0e}")


def shap(sizes):
    for name, kernel in (("shap", False), ("shap_kernel", True)):
        made = part(study("adults", f"explainer={name}"), 0, sizes.shap_people)
        problem, rows = problem_of(made), draw_background(made.dataset, 100, made.plan.settings.seed)
        plain.shap_values(replace(problem, instances=made.instances.take(np.arange(1)), labels=problem.labels[:1]),
                          kernel, rows)  # which compiles when it is first called  # fmt: skip
        duel = Duel.run(
            lambda problem=problem, kernel=kernel, rows=rows: plain.shap_values(problem, kernel, rows),
            lambda study, name=name: explain(study, name),
            made, sizes.rounds, (sizes.shap_people, sizes.shap_people),
        )  # fmt: skip
        ours = np.take_along_axis(duel.told, duel.found.features, axis=1)
        gap = float(np.abs(ours - duel.found.scores).max())
        assert gap < 1e-9
        yield duel.row(f"SHAP, {'kernel' if kernel else 'permutation'}, adults", len(ours), f"values within {gap:.0e}")


def anchor(sizes):
    """Each round has instances of its own: the package takes too long for more."""
    for name, n in (("adults", sizes.anchor_people), ("movie_reviews", sizes.anchor_sentences)):
        everyone = part(study(name, "search=continuous"), 0, n)
        duels, ours, stock, again = [], [], [], []
        for rows in np.array_split(np.arange(n), sizes.rounds):
            made = part(everyone, rows[0], rows[-1] + 1)
            problem = problem_of(made)
            duel = Duel.run(
                lambda problem=problem: plain.anchor(problem),
                lambda study: explain(study, "anchor"),
                made, 1, (len(rows), len(rows)),
            )  # fmt: skip
            duels.append(duel)
            ours += [[j for j in row.tolist() if j != NO_FEATURE] for row in duel.found.features]
            stock += [[j for j, _ in rule] for rule in duel.told]
            again += [[j for j, _ in rule] for rule in plain.anchor(problem, shift=1)]
        if name == "adults":  # on sentences the package draws its masks in another way
            assert ours == stock
        theirs, mine = ([duel.theirs[0] for duel in duels], [duel.ours[0] for duel in duels])
        yield Duel(theirs, mine, None, None, float(np.mean([duel.share for duel in duels]))).row(
            f"Anchor, {name}", n,
            f"rules (first feature): {agreeing(ours, stock)}; the package with another seed: {agreeing(again, stock)}",
        )  # fmt: skip


def agreeing(some, others):
    """Shares of rules that agree as sets, and in their first feature."""
    pairs = list(zip(some, others, strict=True))
    sets, first = (np.mean([set(a[:n]) == set(b[:n]) for a, b in pairs]) for n in (None, 1))
    return f"{sets:.0%} ({first:.0%})"


def workers(sizes):
    """Two processes against one, which is no loop to be beaten but what the second core is worth."""
    for name, explainer, n in (
        ("adults", "anchor", sizes.worker_people),
        ("movie_reviews", "lime", sizes.worker_sentences),
    ):
        made = part(study(name, "search=continuous"), 0, n)
        two = replace(made.plan, executor=Local(n_jobs=2, min_seconds=0.0))
        duel = Duel.run(
            lambda made=made, explainer=explainer: explain(made, explainer),
            lambda study, two=two, explainer=explainer: explain(replace(study, plan=two), explainer),
            made, sizes.rounds, (n, n), share=False,
        )  # fmt: skip
        assert (duel.told.features == duel.found.features).all()
        assert np.array_equal(duel.told.scores, duel.found.scores, equal_nan=True)
        yield duel.row(f"two processes against one: {explainer}, {name}", n, "to the bit")


def whole(sizes):
    """From loading to tables, all six explainers, with all cores."""
    for name, search, size in (
        ("adults", "discrete", sizes.whole_people),
        ("movie_reviews", "continuous", sizes.whole_sentences),
    ):
        made = plan(
            name, f"experiment=table1_{name}", f"n_explain={'null' if size is None else size}", *WHOLE_OVERRIDES
        )

        def theirs(made=made):
            dataset = made.dataset.load(made.settings.data_dir, made.settings.seed)
            model = made.model.fit(dataset, made.settings.seed)
            chosen = ready(made, dataset, model)
            told = plain.whole(dataset, model, chosen.instances, chosen.rows.labels, made.search, made.settings.k)
            return len(chosen.instances), told

        def ours(made=made):
            with tempfile.TemporaryDirectory() as path:
                progress = Progress()
                total, _ = clock(lambda: run_experiment(made, RunFolder(Path(path), []), progress))
                scoring = progress.seconds["score", ""] + progress.seconds["conclude", ""]
                return scoring / total, pd.read_csv(Path(path) / "metrics.csv")

        seconds, (n, told) = clock(theirs)
        mine, (scoring, metrics) = clock(ours)
        gaps = whole_gaps(told["values"], metrics)
        same = ["random", "omission", "lime", "lr", *(["anchor"] if name == "adults" else [])]  # by their seeds
        assert max(gaps[explainer] for explainer in same) < 1e-6, gaps
        lr = metrics[(metrics["explainer"] == "lr") & metrics["metric"].isin(["validity", "c"])]
        figures = ", ".join(f"{row.metric} ({row.variant}) {row.value:.4f}" for row in lr.itertuples())
        largest = ", ".join(f"{explainer} {gap:.0e}" for explainer, gap in gaps.items())
        yield Duel([seconds / n], [mine / n], told, metrics, None).row(
            f"whole run, {name}, {search} search", n,
            f"LR: {figures}; largest gap in any metric: {largest}; scores and statistics take {scoring:.1%} of the "
            "run of cfeval",
        )  # fmt: skip


def whole_gaps(values, metrics):
    """For each explainer the largest difference in any metric."""
    gaps = {}
    for row in metrics.dropna(subset="value").itertuples():
        if (row.metric, row.variant) in values:
            gap = abs(values[row.metric, row.variant][row.explainer] - row.value)
            gaps[row.explainer] = max(gaps.get(row.explainer, 0.0), gap)
    return gaps


CASES = {
    "discrete": discrete, "continuous": continuous, "lime": lime, "shap": shap, "anchor": anchor, "workers": workers,
    "whole": whole,
}  # fmt: skip


def heading():
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch", "lime", "shap", "anchor-exp"))
    arguments = " ".join(["python benchmarks/speed.py", *sys.argv[1:]])
    return f"""# Speed

{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}. Made by
`{arguments}`. Medians over rounds in which both ways take turns, on one core; whole runs: one round, all cores, loading
and training on both sides. The model's share counts its predictions and their gradients."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few instances of everything")
    parser.add_argument("--only", choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--whole", metavar="N|all", help="instances of each whole run (200 people, 100 sentences)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("speed.md"))
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    if options.whole:
        size = None if options.whole == "all" else int(options.whole)
        sizes = replace(sizes, whole_people=size, whole_sentences=size)

    tables = {SPEED: [], THROUGHPUT: []}
    threads = torch.get_num_threads()
    for name, case in CASES.items():
        if options.only in (None, name):
            torch.set_num_threads(threads if name == "whole" else 1)
            for table, row in case(sizes):
                tables[table].append(row)
                print(line(row), flush=True)
    texts = [
        "\n".join([line(columns), line("---" for _ in columns), *map(line, rows)])
        for columns, rows in tables.items()
        if rows
    ]
    options.out.write_text("\n\n".join([heading(), *texts]) + "\n")


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
