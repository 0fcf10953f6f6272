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
from prepared import (
    build_plan,
    create_plan_context,
    create_study,
    explain_instances,
    find_counterfactuals,
    select_reference_features,
)
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


class TimedModel(LinearModel):
    """A model that counts the seconds spent in its predictions and their gradients."""

    seconds = 0.0

    @staticmethod
    def of(model):
        return TimedModel(model.bias, model.weights, model.tables, model.means)

    def predict_positive(self, codes):
        return self._time(super().predict_positive, codes)

    def predict_edited(self, *edits):
        return self._time(super().predict_edited, *edits)

    def make_gradient_function(self, *features):
        gradient = super().make_gradient_function(*features)
        return lambda *vectors: self._time(gradient, *vectors)

    def _time(self, function, *arguments):
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds += time.perf_counter() - start
        return result


def measure_seconds(function, min_seconds=0.0):
    """Return the seconds of a call and its result; a call shorter than `min_seconds` is repeated and averaged."""
    start, calls, seconds = time.perf_counter(), 0, 0.0
    while not calls or seconds < min_seconds:
        result = function()
        calls += 1
        seconds = time.perf_counter() - start
    return seconds / calls, result


@dataclass
class SpeedComparison:
    """The seconds and the results of the loop and of cfeval, run in turns."""

    loop_seconds: list[float]  # seconds an instance, by round
    cfeval_seconds: list[float]
    loop_result: object
    cfeval_result: object
    share: float | None  # of the time of cfeval that the model takes

    @staticmethod
    def run(run_loop, run_cfeval, study, rounds, sizes, share=True):
        """Run `run_loop()` and `run_cfeval(study)` in turns; `sizes` are their instances."""
        with threadpool_limits(1):
            run_cfeval(study)  # imports, and tables that are made once
            a, b = [], []
            for _ in range(rounds):
                seconds, loop_result = measure_seconds(run_loop, 0.1)
                a.append(seconds / sizes[0])
                seconds, cfeval_result = measure_seconds(lambda: run_cfeval(study), 0.1)
                b.append(seconds / sizes[1])
            if not share:
                return SpeedComparison(a, b, loop_result, cfeval_result, None)
            timed_model = TimedModel.of(study.model)
            total, _ = measure_seconds(lambda: run_cfeval(replace(study, model=timed_model)))
        return SpeedComparison(a, b, loop_result, cfeval_result, timed_model.seconds / total)

    @property
    def ratio(self):
        """The median over the rounds, the smallest and the largest."""
        ratios = [a / b for a, b in zip(self.loop_seconds, self.cfeval_seconds, strict=True)]
        median, low, high = (
            f"{ratio:,.0f}" if ratio > 10 else f"{ratio:.2g}"
            for ratio in (statistics.median(ratios), min(ratios), max(ratios))
        )
        return f"{median} ({low}–{high})" if len(ratios) > 1 else median

    def row(self, case, instances, agreement):
        """Return a row of the table of speeds."""
        seconds = [f"{statistics.median(seconds):.2g}" for seconds in (self.loop_seconds, self.cfeval_seconds)]
        return SPEED, (
            case,
            instances,
            *seconds,
            self.ratio,
            "" if self.share is None else f"{self.share:.0%}",
            agreement,
        )


def make_problem(study):
    return plain.LoopProblem(
        study.dataset,
        study.model,
        study.instances,
        study.rows.predicted_classes,
        study.plan.settings.seed,
    )


def select_instances(study, start, stop):
    """Return the study with some of the instances."""
    rows = np.arange(len(study.instances))[start:stop]
    return replace(
        study,
        instances=study.instances.take(rows),
        rows=study.rows.take(rows),
        probabilities=study.probabilities[rows],
    )


# Cases: each yields rows of the table.


def compare_discrete_search(sizes):
    for name, k, n in (("adults", 1, sizes.people), ("adults", 2, sizes.people), ("movie_reviews", 1, sizes.sentences)):
        context = select_instances(create_study(name, "search.pick=largest_drop", f"k={k}"), 0, n)
        features, problem = select_reference_features(context, k), make_problem(context)

        def run_loop(problem=problem, features=features):
            return [plain.find_largest_drop(problem, i, list(row)) for i, row in enumerate(features)]

        def run_cfeval(study, features=features):
            return find_counterfactuals(study, "lr", features)[Access.PROBABILITY]

        n = len(features)
        models = {"": context.model}
        if name == "adults":  # sentences share their table and have padding
            models[", the loop evaluates a torch module"] = plain.TorchModel(context.model)
        for model_note, model in models.items():
            loop_problem = replace(problem, model=model)
            duel = SpeedComparison.run(
                lambda loop_problem=loop_problem: run_loop(loop_problem), run_cfeval, context, sizes.rounds, (n, n)
            )
            assert (np.stack([edit.codes for edit in duel.loop_result]) == duel.cfeval_result.codes).all()
            assert np.allclose([edit.distance for edit in duel.loop_result], duel.cfeval_result.distance)
            yield duel.row(f"discrete search, {name}, k={k}{model_note}", n, "the same edits")
        yield measure_throughput(f"{name}, k={k}", context, features)


def measure_throughput(case, context, features):
    """Compare the candidates a second of the search with those of the model on the same rows in one array."""
    parts = []
    for group in np.unique(features, axis=0):
        rows = np.flatnonzero((features == group).all(axis=1))
        axes = np.meshgrid(*(context.dataset.candidates[j] for j in group), indexing="ij")
        values = np.stack([axis.ravel() for axis in axes], axis=1)
        row_numbers, edits = np.repeat(rows, len(values)), np.tile(values, (len(rows), 1))
        parts.append(apply_edits(context.instances.codes, features, row_numbers, edits))
    candidates = np.concatenate(parts)
    n = len(candidates)
    duel = SpeedComparison.run(
        lambda: context.model.predict_positive(candidates),
        lambda study: find_counterfactuals(study, "lr", features),
        context, 5, (n, n),
    )  # fmt: skip
    speeds = [f"{1e-6 / statistics.median(seconds):.2g}" for seconds in (duel.cfeval_seconds, duel.loop_seconds)]
    return THROUGHPUT, (case, f"{n:,}", *speeds, duel.ratio)


def compare_continuous_search(sizes):
    for name in ("adults", "movie_reviews"):
        context = select_instances(create_study(name, "search=continuous"), 0, sizes.batched)
        features = select_reference_features(context, 1)
        n = min(sizes.alone, len(features))
        subset, problem = select_instances(context, 0, n), make_problem(context)

        def run_loop(problem=problem, features=features, search=context.plan.search, n=n):
            return [plain.minimise_objective(problem, search, i, features[i].tolist()) for i in range(n)]

        def run_cfeval(study, features=features):
            return find_counterfactuals(study, "lr", features[: len(study.instances)])[Access.GRADIENT]

        for batch, instances in (
            (subset, f"{n} alone; the same {n} batched"),
            (context, f"{n} alone; all {len(features):,} batched"),
        ):
            duel = SpeedComparison.run(run_loop, run_cfeval, batch, sizes.rounds, (n, len(batch.instances)))
            alpha = context.plan.search.alpha
            objectives = duel.cfeval_result.distance[:n] ** 2 + alpha * duel.cfeval_result.probability[:n]
            loop_objectives = np.array([edit.distance**2 + alpha * edit.probability for edit in duel.loop_result])
            assert np.allclose(objectives, loop_objectives, rtol=0, atol=1e-6)
            assert np.allclose(
                duel.cfeval_result.distance[:n], [edit.distance for edit in duel.loop_result], rtol=0, atol=1e-6
            )
            yield duel.row(
                f"continuous search, {name}, k=1", instances,
                f"objectives within {np.abs(objectives - loop_objectives).max():.0e}",
            )  # fmt: skip


def compare_lime(sizes):
    for name, n in (("adults", sizes.lime_people), ("movie_reviews", sizes.lime_sentences)):
        context = select_instances(create_study(name, "search=continuous"), 0, n)
        problem = make_problem(context)
        duel = SpeedComparison.run(
            lambda problem=problem: plain.explain_by_lime(problem),
            lambda study: explain_instances(study, "lime"),
            context, sizes.rounds, (n, n),
        )  # fmt: skip
        gap = max(
            abs(score - dict(rule)[int(j)])
            for rule, features, scores in zip(
                duel.loop_result, duel.cfeval_result.features, duel.cfeval_result.scores, strict=True
            )
            for j, score in zip(features, scores, strict=True)
            if j != NO_FEATURE
        )
        assert gap < 1e-8
        yield duel.row(f"LIME, {name}", n, f"coefficients within {gap:.0e}")


def compare_shap(sizes):
    for name, kernel in (("shap", False), ("shap_kernel", True)):
        context = select_instances(create_study("adults", f"explainer={name}"), 0, sizes.shap_people)
        problem, rows = make_problem(context), draw_background(context.dataset, 100, context.plan.settings.seed)
        first = replace(problem, instances=context.instances.take(np.arange(1)), labels=problem.labels[:1])
        plain.compute_shap_values(first, kernel, rows)  # the package compiles at its first call
        duel = SpeedComparison.run(
            lambda problem=problem, kernel=kernel, rows=rows: plain.compute_shap_values(problem, kernel, rows),
            lambda study, name=name: explain_instances(study, name),
            context, sizes.rounds, (sizes.shap_people, sizes.shap_people),
        )  # fmt: skip
        loop_values = np.take_along_axis(duel.loop_result, duel.cfeval_result.features, axis=1)
        gap = float(np.abs(loop_values - duel.cfeval_result.scores).max())
        assert gap < 1e-9
        yield duel.row(
            f"SHAP, {'kernel' if kernel else 'permutation'}, adults", len(loop_values), f"values within {gap:.0e}"
        )


def compare_anchor(sizes):
    """Compare Anchor; each round has instances of its own, since the package is slow."""
    for name, n in (("adults", sizes.anchor_people), ("movie_reviews", sizes.anchor_sentences)):
        context = select_instances(create_study(name, "search=continuous"), 0, n)
        duels, cfeval_rules, loop_rules, other_seed_rules = [], [], [], []
        for rows in np.array_split(np.arange(n), sizes.rounds):
            subset = select_instances(context, rows[0], rows[-1] + 1)
            problem = make_problem(subset)
            duel = SpeedComparison.run(
                lambda problem=problem: plain.explain_by_anchor(problem),
                lambda study: explain_instances(study, "anchor"),
                subset, 1, (len(rows), len(rows)),
            )  # fmt: skip
            duels.append(duel)
            cfeval_rules += [[j for j in row.tolist() if j != NO_FEATURE] for row in duel.cfeval_result.features]
            loop_rules += [[j for j, _ in rule] for rule in duel.loop_result]
            other_seed_rules += [[j for j, _ in rule] for rule in plain.explain_by_anchor(problem, shift=1)]
        if name == "adults":  # on sentences the package draws its masks in another way
            assert cfeval_rules == loop_rules
        loop_seconds, cfeval_seconds = (
            [duel.loop_seconds[0] for duel in duels],
            [duel.cfeval_seconds[0] for duel in duels],
        )
        share = float(np.mean([duel.share for duel in duels]))
        yield SpeedComparison(loop_seconds, cfeval_seconds, None, None, share).row(
            f"Anchor, {name}", n,
            f"rules (first feature): {write_agreement(cfeval_rules, loop_rules)}; the package with another seed: "
            f"{write_agreement(other_seed_rules, loop_rules)}",
        )  # fmt: skip


def write_agreement(rules, baseline):
    """Write the shares of rules that agree as sets, and in their first feature."""
    pairs = list(zip(rules, baseline, strict=True))
    set_share, first_share = (np.mean([set(a[:n]) == set(b[:n]) for a, b in pairs]) for n in (None, 1))
    return f"{set_share:.0%} ({first_share:.0%})"


def compare_workers(sizes):
    """Compare two processes with one."""
    for name, explainer, n in (
        ("adults", "anchor", sizes.worker_people),
        ("movie_reviews", "lime", sizes.worker_sentences),
    ):
        context = select_instances(create_study(name, "search=continuous"), 0, n)
        plan = replace(context.plan, executor=Local(n_jobs=2, min_seconds=0.0))
        duel = SpeedComparison.run(
            lambda context=context, explainer=explainer: explain_instances(context, explainer),
            lambda study, plan=plan, explainer=explainer: explain_instances(replace(study, plan=plan), explainer),
            context, sizes.rounds, (n, n), share=False,
        )  # fmt: skip
        assert (duel.loop_result.features == duel.cfeval_result.features).all()
        assert np.array_equal(duel.loop_result.scores, duel.cfeval_result.scores, equal_nan=True)
        yield duel.row(f"two processes against one: {explainer}, {name}", n, "to the bit")


def compare_whole_runs(sizes):
    """Compare whole runs, from loading to tables, with six explainers and all cores."""
    for name, search, size in (
        ("adults", "discrete", sizes.whole_people),
        ("movie_reviews", "continuous", sizes.whole_sentences),
    ):
        run_plan = build_plan(
            name, f"experiment=table1_{name}", f"n_explain={'null' if size is None else size}", *WHOLE_OVERRIDES
        )

        def run_loop(run_plan=run_plan):
            dataset = run_plan.dataset.load(run_plan.settings.data_dir, run_plan.settings.seed)
            model = run_plan.model.fit(dataset, run_plan.settings.seed)
            context = create_plan_context(run_plan, dataset, model)
            result = plain.compute_run(
                dataset, model, context.instances, context.rows.predicted_classes, run_plan.search, run_plan.settings.k
            )
            return len(context.instances), result

        def run_cfeval(run_plan=run_plan):
            with tempfile.TemporaryDirectory() as path:
                progress = Progress()
                total, _ = measure_seconds(lambda: run_experiment(run_plan, RunFolder(Path(path), []), progress))
                scoring = progress.seconds["score", ""] + progress.seconds["conclude", ""]
                return scoring / total, pd.read_csv(Path(path) / "metrics.csv")

        loop_seconds, (n, result) = measure_seconds(run_loop)
        cfeval_seconds, (scoring, metrics) = measure_seconds(run_cfeval)
        gaps = find_largest_gaps(result["values"], metrics)
        seeded = ["random", "omission", "lime", "lr", *(["anchor"] if name == "adults" else [])]  # by their seeds
        assert max(gaps[explainer] for explainer in seeded) < 1e-6, gaps
        lr = metrics[(metrics["explainer"] == "lr") & metrics["metric"].isin(["validity", "c"])]
        figures = ", ".join(f"{row.metric} ({row.variant}) {row.value:.4f}" for row in lr.itertuples())
        largest = ", ".join(f"{explainer} {gap:.0e}" for explainer, gap in gaps.items())
        yield SpeedComparison([loop_seconds / n], [cfeval_seconds / n], result, metrics, None).row(
            f"whole run, {name}, {search} search", n,
            f"LR: {figures}; largest gap in any metric: {largest}; scores and statistics take {scoring:.1%} of the "
            "run of cfeval",
        )  # fmt: skip


def find_largest_gaps(values, metrics):
    """Return the largest difference in any metric, by explainer."""
    gaps = {}
    for row in metrics.dropna(subset="value").itertuples():
        if (row.metric, row.variant) in values:
            gap = abs(values[row.metric, row.variant][row.explainer] - row.value)
            gaps[row.explainer] = max(gaps.get(row.explainer, 0.0), gap)
    return gaps


CASES = {
    "discrete": compare_discrete_search, "continuous": compare_continuous_search, "lime": compare_lime,
    "shap": compare_shap, "anchor": compare_anchor, "workers": compare_workers, "whole": compare_whole_runs,
}  # fmt: skip


def write_heading():
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
                print(write_line(row), flush=True)
    texts = [
        "\n".join([write_line(columns), write_line("---" for _ in columns), *map(write_line, rows)])
        for columns, rows in tables.items()
        if rows
    ]
    options.out.write_text("\n\n".join([write_heading(), *texts]) + "\n")


def write_line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
