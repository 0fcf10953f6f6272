"""Gathered figures against loops that follow the documentation and use no code of cfeval."""

import itertools
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.core.utils import JobReturn, JobStatus
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cfeval_cli.cli.callbacks import Gather, gather_sweep
from cfeval_cli.cli.gather import main
from cfeval_cli.cli.screen import Options
from cfeval_cli.errors import UserError
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.statistics.metrics_over_seeds import compare_metrics_over_seeds
from cfeval_cli.study.sweep.gather import gather
from tests.conftest import reseal, seal

FILES = [
    "seeds_correlations.csv",
    "seeds_metrics.csv",
    "stability.csv",
    "stability_truth.csv",
    "sweep.csv",
    "tables.md",
    "tables.tex",
]
HEADING = "metric,variant,explainer,quality_level,control,value,value_se,n,better,not_identifiable"
METRICS = {"c": "higher", "proximity": "lower", "recall": "higher", "coverage": "none"}
KINDS = {
    "c": {"role": "judged", "block": "counterfactual", "details": ["{search}", "{variant}"]},
    "proximity": {"role": "judged", "block": "counterfactual", "details": ["{variant}"]},
    "recall": {"role": "truth", "block": "truth", "details": ["{metric}", "{variant}"]},
    "coverage": {"role": "fact", "block": "truth", "details": [], "quantity": "complete explanations"},
}
QUICK = (
    "explainer=[random,omission,lr]",
    "n_explain=30",
    "n_jobs=1",
    "model.max_epochs=3",
    "bounds=0",
)


def write_run(
    folder, seed, overrides=(), values=None, taus=None, status="complete", rungs=(), draws=None, controls=(),
    is_changed=lambda key: None, **changed,
):  # fmt: skip
    """A run folder with `values` {(metric, explainer): (value, se)} and `taus` {(metric, truth): (tau, se, rho)}.

    `moves` of such a key, or of (metric, truth, "less") without controls, is whether other parameters move the figure.
    """
    (folder / ".hydra").mkdir(parents=True)
    # what lies beside it must never be made, nor even looked at
    (folder / ".hydra" / "config.yaml").write_text("seed: {_target_: os.mkdir, path: made}\n")
    (folder / "config.pickle").write_bytes(b"not to be read")
    values, taus = values or {}, taus or {}
    settings = {
        "seed": seed,
        "k": 1,
        "n_explain": None,
        "truth": ["signed"],
        "agreement": "recall",
        "incomplete": "skip",
    }
    record = {
        "status": status, "settings": {**settings, **changed}, "search": "disc.", "setup": "a search; a distance",
        "data": {"name": "toy"}, "accuracy": {"test": 0.8 + 0.01 * seed}, "instances": 20,
        "explainers": {name: name.upper() for name in dict.fromkeys(name for _, name in values)},
        "metrics": {
            name: {"title": name.title(), "latex": None, "better": better, "display_order": 50, **KINDS[name]}
            for name, better in METRICS.items()
        },
        "removals": {}, "truths": {},
    }  # fmt: skip
    if status != "complete":
        seal(folder, record, list(overrides))
        return
    pd.DataFrame(
        [
            {
                "metric": metric, "variant": "label" if metric != "recall" else "signed", "explainer": name,
                "quality_level": 0.5 if name in rungs else np.nan, "value": value, "value_se": error, "rank": 1,
                "n": 20,
                "better": METRICS[metric], "note": "", "control": name in controls,
                "not_identifiable": is_changed((metric, name)),
            }
            for (metric, name), (value, error) in values.items()
        ],
        columns=["metric", "variant", "explainer", "quality_level", "control", "value", "value_se", "rank", "n",
                 "better",
                 "not_identifiable", "note"],
    ).to_csv(folder / "metrics.csv", index=False)  # fmt: skip
    pd.DataFrame(
        [
            {
                "metric": metric, "variant": "label", "better": METRICS[metric], "family": "explainers", "truth": truth,
                "agreement": "recall", **figures,
            }
            for (metric, truth), (tau, error, rho) in taus.items()
            for figures in (
                {"subset": "all", "explainers": 5, "tau": tau, "tau_se": error, "rho": rho, "rho_se": error,
                 "not_identifiable": is_changed((metric, truth))},
                {"subset": "without_controls", "explainers": 4, "tau": tau / 2, "tau_se": error / 4,
                 "not_identifiable": is_changed((metric, truth, "less"))},
            )
        ],
        columns=["metric", "variant", "family", "truth", "agreement", "subset", "explainers", "tau", "tau_se", "rho",
                 "rho_se", "not_identifiable"],
    ).to_csv(folder / "correlations.csv", index=False)  # fmt: skip
    if draws is not None:
        draws.to_parquet(folder / "tau_resamples.parquet", index=False)
    seal(folder, record, list(overrides))


def draw_values(rng, explainers=("a", "b", "c", "d"), missing=0.0, coarse=False):
    """Return values with standard errors; coarse values are often tied."""
    values = {}
    for metric, name in itertools.product(METRICS, explainers):
        value = float(rng.integers(0, 3)) if coarse else float(rng.normal())
        values[metric, name] = (math.nan, math.nan) if rng.random() < missing else (value, float(rng.random()))
    return values


def draw_taus(rng, missing=0.0):
    taus = {}
    for metric, truth in itertools.product(("c", "proximity"), ("signed", "absolute")):
        is_missing = rng.random() < missing
        tau, rho = (math.nan, math.nan) if is_missing else rng.uniform(-1, 1, 2).tolist()
        taus[metric, truth] = tau, math.nan if is_missing else float(rng.random()), rho
    return taus


def assert_close(actual, expected):
    assert (math.isnan(actual) and math.isnan(expected)) or math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-12)


def check_seeds(line, figures):
    """Compare a line of seeds_*.csv with the (value, se) of every seed."""
    figures = [(value, error) for value, error in figures if not math.isnan(value)]
    n = len(figures)
    assert line["seeds"] == n
    mean = sum(value for value, _ in figures) / n if n else math.nan
    assert_close(line["mean"], mean)
    deviation = math.sqrt(sum((value - mean) ** 2 for value, _ in figures) / (n - 1)) if n > 1 else math.nan
    assert_close(line["deviation"], deviation)
    within = math.sqrt(sum(error**2 for _, error in figures) / n) if n else math.nan
    assert_close(line["within"], within)
    between_variance = deviation**2 - within**2
    assert_close(line["between"], math.nan if math.isnan(between_variance) else math.sqrt(max(0.0, between_variance)))


@pytest.fixture
def without_figures(monkeypatch):
    """Omit the figures of pages, which tests/report/test_page.py covers."""
    monkeypatch.setattr("cfeval_cli.study.sweep.page.draw_figures", lambda *_: {})


@pytest.mark.usefixtures("without_figures")
def test_conclusion_is_drawn_without_controls(tmp_path):
    taus = {("c", "signed"): (0.9, 0.1, 0.9), ("proximity", "signed"): (0.8, 0.1, 0.8)}
    for seed in range(2):
        folder = tmp_path / str(seed)
        write_run(folder, seed, [f"seed={seed}"], draw_values(np.random.default_rng(seed)), taus)
        lines = pd.read_csv(folder / "correlations.csv")
        lines.loc[lines["subset"] == "without_controls", "tau"] = [-0.3, 0.4]
        lines.to_csv(folder / "correlations.csv", index=False)
        reseal(folder)
    done = gather([tmp_path], tmp_path, page=True)
    titles = [
        "Agreement with the ground truth over 2 seeds",
        "Agreement with the ground truth over 2 seeds, without controls",
    ]
    assert [table.title for table in done.tables if table.title.startswith("Agreement")] == titles
    text = (tmp_path / "tables.md").read_text()
    assert "0.900 ± 0.000" in text and "-0.300 ± 0.000" in text
    page = (tmp_path / "report.html").read_text()
    assert "no metric is significantly better than chance; Proximity (label) has the highest mean τ" in page
    assert "Required sample size: about 7 seeds with this mean and spread." in page
    assert "τ is computed without controls, over 4 explainers." in page


def test_low_coverage_is_marked_in_means_over_seeds(tmp_path):
    shares = {0: {"a": 1.0, "b": 0.8, "c": 0.3}, 1: {"a": 1.0, "b": 0.9, "c": 0.5}}
    for seed, share in shares.items():
        values = {("c", name): (1.0, 0.1) for name in share}
        values |= {("coverage", name): (value, 0.0) for name, value in share.items()}
        write_run(tmp_path / str(seed), seed, [f"seed={seed}"], values)
    gather([tmp_path], tmp_path)
    text = (tmp_path / "tables.md").read_text()
    assert "| Metric | A | B† | C† |" in text
    assert "under 90% of the instances: B 85.0%, C 40.0%. Under half of the instances: C." in text


def test_values_changed_by_reparametrisation_are_counted_and_marked(tmp_path, monkeypatch):
    monkeypatch.setattr("cfeval_cli.report.page.build.save_figures", lambda *_: None)  # figures are in the page, too
    changed_by_seed = {0: {("c", "a"), ("c", "signed")}, 1: {("c", "signed"), ("proximity", "signed", "less")}}
    rng = np.random.default_rng(0)
    values = {(metric, name): (float(rng.normal()), 0.1) for metric in METRICS for name in "abcde"}
    taus = {("c", "signed"): (0.5, 0.1, 0.5), ("proximity", "signed"): (0.8, 0.1, 0.8)}
    for seed, changed_keys in changed_by_seed.items():
        write_run(tmp_path / str(seed), seed, [f"seed={seed}"], values, taus, controls=["a"],
                  is_changed=lambda key, changed_keys=changed_keys: key in changed_keys)  # fmt: skip
    write_run(tmp_path / "2", 2, ["seed=2"], values, taus, controls=["a"])  # without this check
    gather([tmp_path], tmp_path, page=True)
    shares = pd.read_csv(tmp_path / "seeds_metrics.csv").set_index(["metric", "explainer"])["not_identifiable"]
    assert shares.to_dict() == {key: float(key == ("c", "a")) for key in values}
    shares = pd.read_csv(tmp_path / "seeds_correlations.csv")
    assert shares.loc[shares["coefficient"] == "rho", "not_identifiable"].isna().all()
    shares = shares[shares["coefficient"] == "tau"].set_index(["metric", "subset"])["not_identifiable"]
    counts = {("c", "all"): 2, ("c", "without_controls"): 0, ("proximity", "all"): 0,
              ("proximity", "without_controls"): 1}  # fmt: skip
    assert shares.to_dict() == counts
    text = (tmp_path / "tables.md").read_text()
    assert text.count(f"{NOT_IDENTIFIABLE_NOTE}, in at least one run") == 5
    for part in ("| C (disc., label) ↑ § |", "0.500 ± 0.000§",
                 "0.400 ± 0.000§", "0.500§", "0.400§"):  # fmt: skip
        assert part in text, part
    assert "Proximity (label) ↓ §" not in text and "0.800 ± 0.000§" not in text and "0.250 ± 0.000§" not in text
    assert f"Proximity (label) {NOT_IDENTIFIABLE_NOTE}, in 1 of 3" in text
    page = (tmp_path / "report.html").read_text()
    assert "Proximity (label) ↓ §" in page and "C (disc., label) ↑ §" in page
    unchecked = tmp_path / "none"
    for seed in range(2):
        write_run(unchecked / str(seed), seed, [f"seed={seed}"], values, taus)
    gather([unchecked], unchecked)
    assert "§" not in (unchecked / "tables.md").read_text()
    assert pd.read_csv(unchecked / "seeds_metrics.csv")["not_identifiable"].isna().all()


def compute_tau_by_hand(first_values, second_values):
    """Return (concordant - discordant) / pairs of explainers with both values, or None if every pair is tied."""
    names = [
        name
        for name in first_values
        if not math.isnan(first_values[name]) and not math.isnan(second_values.get(name, math.nan))
    ]
    n_concordant = n_discordant = n_pairs = n_ordered_pairs = 0
    for first, second in itertools.combinations(names, 2):
        first_difference, second_difference = (
            first_values[first] - first_values[second],
            second_values[first] - second_values[second],
        )
        # pairs that are tied in both rankings are concordant
        n_concordant += first_difference * second_difference > 0 or first_difference == second_difference == 0
        n_discordant += first_difference * second_difference < 0
        n_ordered_pairs += first_difference != 0 or second_difference != 0
        n_pairs += 1
    return (n_concordant - n_discordant) / n_pairs if n_ordered_pairs else None


def compute_order(values, other_values):
    """Return the sign of the difference of each pair of explainers with both values."""
    names = [
        name for name in values if not math.isnan(values[name]) and not math.isnan(other_values.get(name, math.nan))
    ]
    return {(a, b): np.sign(values[a] - values[b]) for a, b in itertools.permutations(names, 2)}


def find_best(values, other_values, better):
    names = {
        name for name in values if not math.isnan(values[name]) and not math.isnan(other_values.get(name, math.nan))
    }
    top = (max if better == "higher" else min)(values[name] for name in names)
    return {name for name in names if values[name] == top}


@given(st.integers(0, 10**6), st.sampled_from([(2, 2, 2), (1, 3, 2), (3, 1, 1), (2, 1, 2)]), st.booleans())
def test_means_over_seeds_and_stability_of_rankings(tmp_path_factory, number, sizes, coarse):
    """Both are checked on the same sweeps, since gathering takes longer than checking."""
    folder, rng = tmp_path_factory.mktemp("sweep"), np.random.default_rng(number)
    runs = []
    options = (range(sizes[0]), ["default", "x", "y"][: sizes[1]], ["signed", "absolute"][: sizes[2]])
    for i, (seed, distance, truth) in enumerate(itertools.product(*options)):
        values = draw_values(rng, ("a", "b", "c", "graded")[: rng.integers(3, 5)], missing=0.2, coarse=coarse)
        taus = draw_taus(rng, missing=0.3)
        overrides = [f"seed={seed}", f"n_jobs={i}", "cache=off", f"cache.max_mb={i}", f"truth=[{truth}]"]
        overrides += [f"distance={distance}"] * (distance != "default")
        write_run(folder / str(i), seed, overrides, values, taus, rungs=["graded"], truth=[truth], controls=["b"])
        runs.append(({"seed": seed, "distance": distance, "truth": truth}, values, taus))
    gather([folder], folder)
    check_means(folder, runs)
    check_stability(folder, runs)


def check_means(folder, runs):
    """Compare means over runs that differ in their seeds only."""
    groups = {}
    for settings, values, taus in runs:
        groups.setdefault((settings["distance"], settings["truth"]), []).append((values, taus))
    metrics, correlations = (pd.read_csv(folder / f"seeds_{name}.csv") for name in ("metrics", "correlations"))
    varied = [len(set(names)) > 1 for names in zip(*groups, strict=True)]
    for table in (metrics, correlations):
        assert [name in table for name in ("setting.distance", "setting.truth")] == varied
    assert len(metrics) == sum(len({key for values, _ in group for key in values}) for group in groups.values())
    assert len(correlations) == len(groups) * 4 * 3

    def find_group(line):
        return groups[line.get("setting.distance", "default"), line.get("setting.truth", "signed")]

    for line in metrics.to_dict("records"):
        key = line["metric"], line["explainer"]
        check_seeds(line, [values.get(key, (math.nan, math.nan)) for values, _ in find_group(line)])
    for line in correlations.to_dict("records"):
        figures = [taus[line["metric"], line["truth"]] for _, taus in find_group(line)]
        expected_figures = {
            ("tau", "all"): [(tau, error) for tau, error, _ in figures],
            ("tau", "without_controls"): [(tau / 2, error / 4) for tau, error, _ in figures],
            ("rho", "all"): [(rho, error) for _, error, rho in figures],
        }
        check_seeds(line, expected_figures[line["coefficient"], line["subset"]])
    seeds = len(next(iter(groups.values())))
    text = (folder / "tables.md").read_text()
    assert text.count(f"**Means over {seeds} seeds") == (len(groups) if seeds > 1 else 0)


def check_stability(folder, runs):
    """Compare the similarity of rankings for each pair of runs."""
    lines = pd.read_csv(folder / "stability.csv")
    ranges = pd.read_csv(folder / "stability_truth.csv").set_index(["metric", "variant", "subset", "truth"])
    varied = [key for key in ("distance", "truth", "seed") if len({run[0][key] for run in runs}) > 1]
    assert list(dict.fromkeys(lines["key"])) == [*varied, "all"]
    assert set(lines["metric"]) == set(METRICS) - {"coverage"}
    for line in lines.to_dict("records"):
        excluded, share = (("b",), 0.5) if line["subset"] == "without_controls" else ((), 1)
        metric, key, taus, same_bests, same_orders, n_left_out = line["metric"], line["key"], [], [], [], 0
        for (first_run, first_values, _), (second_run, second_values, _) in itertools.combinations(runs, 2):
            if key not in ("all", *[name for name in first_run if first_run[name] != second_run[name]]):
                continue
            if key != "all" and sum(first_run[name] != second_run[name] for name in first_run) > 1:
                continue
            a, b = (
                {name: v for (m, name), (v, _) in values.items() if m == metric and name not in ("graded", *excluded)}
                for values in (first_values, second_values)
            )
            tau = compute_tau_by_hand(a, b)
            if all(math.isnan(v) for v in a.values()) or all(math.isnan(v) for v in b.values()):
                continue  # the metric has no values
            n_left_out += tau is None
            if tau is not None:
                taus.append(tau)
                same_orders.append(compute_order(a, b) == compute_order(b, a))
                same_bests.append(find_best(a, b, METRICS[metric]) == find_best(b, a, METRICS[metric]))
        assert (line["pairs"], line["left_out"]) == (len(taus), n_left_out)
        assert_close(line["tau"], sum(taus) / len(taus) if taus else math.nan)
        assert_close(line["tau_lowest"], min(taus, default=math.nan))
        assert_close(line["same"], sum(same_orders) / len(same_orders) if same_orders else math.nan)
        assert_close(line["same_best"], sum(same_bests) / len(same_bests) if same_bests else math.nan)
        for truth in {settings["truth"] for settings, _, _ in runs}:
            run_taus = [
                taus_of_run
                for settings, _, taus_of_run in runs
                if settings["truth"] == truth and (metric, truth) in taus_of_run
            ]
            truths = [
                taus_of_run[metric, truth][0]
                for taus_of_run in run_taus
                if not math.isnan(taus_of_run[metric, truth][0])
            ]
            row = ranges.loc[(metric, "label", line["subset"], truth)] if truths else {}
            assert_close(row.get("tau_lowest", math.nan), share * min(truths, default=math.nan))
            assert_close(row.get("tau_highest", math.nan), share * max(truths, default=math.nan))


def test_rankings_that_tie_all_explainers_are_compared_with_other_rankings_only(tmp_path):
    flat, steep = {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}
    for i, values in enumerate((flat, flat, steep)):
        write_run(tmp_path / str(i), i, [f"seed={i}"], {("c", name): (value, 0.1) for name, value in values.items()})
    gather([tmp_path], tmp_path)
    line = pd.read_csv(tmp_path / "stability.csv").query("key == 'seed'").iloc[0]
    assert (line["pairs"], line["left_out"], line["tau"]) == (2, 1, 0)


def test_varied_settings_are_those_that_results_depend_on(tmp_path):
    rng = np.random.default_rng(0)
    overrides_of_runs = [
        ["k=1"],
        [],
        ["++explainer.lime.n_samples=10", "~metric.hit", "executor=local", "hydra.verbose=true"],
    ]
    for i, overrides in enumerate(overrides_of_runs):
        write_run(tmp_path / str(i), i, [f"seed={i}", f"data_dir=/{i}", *overrides], draw_values(rng))
    gather([tmp_path], tmp_path)
    lines = pd.read_csv(tmp_path / "sweep.csv")
    assert list(lines) == [
        "folder", "seed", "setting.explainer.lime.n_samples", "setting.metric.hit", "status", "test_accuracy",
        "instances",
    ]  # fmt: skip
    assert lines["setting.explainer.lime.n_samples"].tolist() == ["default", "default", "10"]
    assert lines["setting.metric.hit"].tolist() == ["default", "default", "removed"]
    assert lines["test_accuracy"].tolist() == pytest.approx([0.80, 0.81, 0.82])


def test_runs_are_sorted_by_number_and_files_do_not_depend_on_location(tmp_path):
    rng, numbers = np.random.default_rng(0), [1, 2, 10]
    for i in numbers:
        taus = {("c", "signed"): (float(rng.uniform(-1, 1)), 0.1, 0.5)}
        write_run(tmp_path / "sweep" / str(i), i, [f"seed={i}"], draw_values(rng, "abc"), taus)
    gather([tmp_path / "sweep"], tmp_path / "sweep")
    first = {name: (tmp_path / "sweep" / name).read_bytes() for name in FILES}
    assert pd.read_csv(tmp_path / "sweep" / "sweep.csv")["folder"].tolist() == numbers
    (tmp_path / "sweep").rename(tmp_path / "moved")
    runs = [tmp_path / "moved" / str(i) for i in reversed(numbers)]
    gather([*runs, tmp_path / "moved"], tmp_path / "moved")
    assert {name: (tmp_path / "moved" / name).read_bytes() for name in FILES} == first
    gather(runs, tmp_path / "else")
    assert pd.read_csv(tmp_path / "else" / "sweep.csv")["folder"][2] == "../moved/10"
    assert (tmp_path / "else" / "seeds_metrics.csv").read_bytes() == first["seeds_metrics.csv"]


def test_excluded_runs_are_listed_with_reason(tmp_path):
    rng = np.random.default_rng(0)
    for i, seed in enumerate((0, 1, 1)):
        write_run(tmp_path / str(i), seed, [], draw_values(rng))
    write_run(tmp_path / "3", 3, ["k=2"], status="failed")
    write_run(tmp_path / "4", 4, [], status="running")
    done = gather([tmp_path], tmp_path, {tmp_path / "5": ["seed=7", "k=99"]})
    reasons = "2 (same settings and seed as 1), 3 (failed), 4 (running, or killed: cfeval run --resume), 5 (failed)"
    assert (
        done.sweep.describe_excluded() == reasons
        and f"Not gathered: {reasons}." in (tmp_path / "tables.md").read_text()
    )
    lines = pd.read_csv(tmp_path / "sweep.csv")
    assert lines["seed"].tolist() == [0, 1, 1, 3, 4, 7]
    same_as = "same settings and seed as 1"
    assert lines["status"].tolist() == ["complete", "complete", same_as, "failed", "running", "failed"]
    assert pd.read_csv(tmp_path / "seeds_metrics.csv")["seeds"].eq(2).all()


def test_components_in_run_folder_are_not_instantiated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write_run(tmp_path / "0", 0, ["+x={_target_:os.mkdir,path:made}"], draw_values(rng))
    (tmp_path / "0" / ".hydra" / "overrides.yaml").write_text("- !!python/object/apply:os.mkdir [made]\n")
    gather([tmp_path], tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.json", "{", "run.json is damaged: Expecting"),
        ("run.json", "[]", "run.json is not the record of a run"),
        ("run.json", "[" * 100_000, "run.json is damaged"),
        ("run.json", '{"status": "complete", "schema": 1}', "written by another version of cfeval"),
        ("run.json", '{"status": "complete", "schema": 8}', "no list of files"),
        ("run.json", '{"status": "complete", "schema": 8, "files": {"../0/run.json": "x"}}', "not in the run's folder"),
        ("run.json", '{"status": "complete", "schema": 8, "files": {}}', "run.json has no overrides"),
        ("run.json", '{"status": "complete", "schema": 8, "files": {}, "overrides": [[]]}', "overrides.0 must be"),
        (
            "run.json",
            '{"status": "complete", "schema": 8, "files": {}, "overrides": []}',
            "has no entry settings, expl",
        ),
        ("metrics.csv", None, "metrics.csv is missing, or a link"),
        ("metrics.csv", "changed", "metrics.csv is not as the run left it"),
        ("correlations.csv", None, "correlations.csv is missing, or a link"),
    ],
)
def test_changed_run_folder_is_reported(tmp_path, name, text, message):
    assert_refused(tmp_path, name, text, message)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.csv", None, "run.json does not list metrics.csv"),
        ("metrics.csv", "", "cannot be gathered: No columns"),
        ("metrics.csv", "metric,variant\nc,label\n", "metrics.csv has no column explainer"),
        ("metrics.csv", f"{HEADING}\nc,label,a,,False,many,0,20,higher,\n", "cannot be gathered: could not convert"),
        ("correlations.csv", None, "run.json does not list correlations.csv"),
    ],
)
def test_run_folder_with_invalid_table_is_reported(tmp_path, name, text, message):
    assert_refused(tmp_path, name, text, message, reseal)  # the hashes match the invalid table


def assert_refused(folder, name, text, message, finish=lambda folder: None):
    """Change one of two runs, and check that the message names it and nothing is written."""
    rng = np.random.default_rng(0)
    for i in range(2):
        write_run(folder / str(i), i, [], draw_values(rng), draw_taus(rng))
    path = folder / "1" / name
    path.unlink() if text is None else path.write_text(text)
    finish(folder / "1")
    with pytest.raises(UserError, match=message) as error:
        gather([folder], folder)
    assert str(folder / "1") in str(error.value)
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]


def test_folder_without_complete_run_is_reported(tmp_path):
    rng = np.random.default_rng(0)
    write_run(tmp_path / "run", 0, [], draw_values(rng), draw_taus(rng))
    write_run(tmp_path / "ended" / "0", 0, [], status="stopped")
    (tmp_path / "empty").mkdir()
    for folder, into, message in (
        ("empty", "empty", "empty nor a folder below it contains a run.json"),
        ("ended", "ended", r"no run is complete. Not gathered: 0 \(stopped\)\."),
        ("run", "run", "run is the folder of a run, whose tables would be overwritten"),
        ("nowhere", "else", "there is no folder .*nowhere"),
    ):
        with pytest.raises(UserError, match=message):
            gather([tmp_path / folder], tmp_path / into)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "ended", "run"]


def test_output_folder_is_that_of_the_sweep_or_into(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for i in range(2):
        write_run(tmp_path / "sweep" / str(i), i, [], draw_values(rng))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "cfeval_cli.study.sweep.page.write_page", lambda *_: None
    )  # tests/report/test_page.py looks at pages
    ways = {
        "sweep": ["sweep"],
        "gathered": ["sweep/0", "sweep/1"],
        "k=1": ["--into", "k=1", "sweep/0"],  # no setting, although it has the form of one
    }
    for into, arguments in ways.items():
        main(arguments)
        assert f": {tmp_path / into}\n" in capsys.readouterr().out
        assert set(FILES) <= {path.name for path in (tmp_path / into).iterdir()}


def find_sweep_folder(cwd) -> Path:
    (folder,) = cwd.glob("outputs/multirun/*/*")
    return folder


def test_sweep_with_failed_job_gathers_the_others(toy, tmp_path):
    """Complete jobs are gathered, failed jobs are listed, and the exit code is that of the sweep."""
    few_metrics = ("metric=[c,recall]", "resamples=100")
    done = toy.run("--multirun", "truth=[signed]", "seed=-1,0,1", *QUICK, *few_metrics, cwd=tmp_path, code=2)
    folder = find_sweep_folder(tmp_path)
    assert set(FILES) <= {path.name for path in folder.iterdir()}
    statuses = {path.parent.name: json.loads(path.read_text())["status"] for path in folder.glob("*/run.json")}
    assert statuses == dict.fromkeys("12", "complete")  # jobs after a failed job are run
    assert "cfeval: job 0: seed must be" in done.stderr
    assert f"Gathered 2 runs: {folder}" in done.stdout and "Not gathered: 0 (failed)" in done.stdout
    assert "cfeval: not all jobs of the sweep succeeded, see above" in done.stderr and "Traceback" not in done.stderr
    runs = [folder / "1", folder / "2"]
    tables = [pd.read_csv(run / "metrics.csv").set_index(["metric", "variant", "explainer"]) for run in runs]
    records = [json.loads((run / "run.json").read_text()) for run in runs]
    assert [record["settings"]["seed"] for record in records] == [0, 1]
    assert len({(run / "metrics.csv").read_text() for run in runs}) == 2
    lines = pd.read_csv(folder / "seeds_metrics.csv").to_dict("records")
    assert len(lines) == len(tables[0])
    for line in lines:
        key = line["metric"], line["variant"], line["explainer"]
        check_seeds(line, [(table["value"][key], table["value_se"][key]) for table in tables])
    c = next(line for line in lines if (line["metric"], line["variant"], line["explainer"]) == ("c", "label", "lr"))
    text = (folder / "tables.md").read_text()
    assert "Means over 2 seeds" in text and f"{c['mean']:.4f} ± {c['deviation']:.4f}" in text
    assert "Means over 2 seeds (0, 1)." in done.stdout and f" {c['mean']:.3f}" in done.stdout
    assert "± " not in done.stdout and "Verdict: " in done.stdout
    assert rf"{c['mean']:.4f} $\pm$ {c['deviation']:.4f}" in (folder / "tables.tex").read_text()
    # the excluded files list failed jobs
    names = [name for name in FILES if name not in ("sweep.csv", "tables.md", "tables.tex")]
    first = {name: (folder / name).read_bytes() for name in names}
    gather([folder], folder)
    assert {name: (folder / name).read_bytes() for name in names} == first


def test_runs_with_other_component_are_compared_by_ranking(toy, make_run, tmp_path):
    for distance in ("euclidean", "cosine"):
        overrides = [f"distance={distance}"]
        shutil.copytree(
            make_run(
                toy, *overrides, *QUICK, "truth=[signed]", "metric=[dfr,c,recall]", "removal=[marginal]", "resamples=0"
            ),
            tmp_path / distance,
        )
        record = json.loads((tmp_path / distance / "run.json").read_text())
        (tmp_path / distance / "run.json").write_text(json.dumps(record | {"overrides": overrides}))
    done = gather([tmp_path], tmp_path)
    stability = pd.read_csv(tmp_path / "stability.csv").query("subset == 'all'")
    assert list(dict.fromkeys(stability["key"])) == ["distance", "all"]
    assert stability.query("metric == 'c' and variant == 'label'")["pairs"].tolist() == [1, 1]
    erasure = stability.query("metric == 'dfr' and pairs > 0")
    assert not erasure.empty
    assert erasure.query("key == 'distance'")["same"].eq(1).all()  # erasure does not depend on the distance
    assert "Means over" not in (tmp_path / "tables.md").read_text()
    brief = "\n".join(text.plain for text in render_narrow(done.brief, 80))
    assert re.search(r"C \(disc\., label\) ↑ +-?[01]\.\d{2} \(-?[01]\.\d{2}\)", brief)


def aggregate_sweep(folder, jobs):
    """Aggregate a sweep whose `jobs` {folder: status} have ended, and return the exit code."""
    config, callback = OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}}), Gather()
    callback.on_multirun_start(config)
    for name, status in jobs.items():
        job = {"runtime": {"output_dir": str(folder / name)}, "overrides": {"task": ["k=9"]}}
        callback.on_job_end(OmegaConf.create({"hydra": job}), JobReturn(status=status))
    return gather_sweep(Options())


def test_failure_of_gathering_leaves_runs_intact_and_sets_exit_code(tmp_path, capsys):
    rng = np.random.default_rng(0)
    write_run(tmp_path / "0", 0, [], draw_values(rng), draw_taus(rng))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write_run(tmp_path / "1", 1, [], draw_values(rng), draw_taus(rng))
    (tmp_path / "1" / "run.json").write_text("{")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{")  # a run of another sweep is ignored
    assert aggregate_sweep(tmp_path, {"0": JobStatus.COMPLETED, "1": JobStatus.COMPLETED}) == 1
    error_output = capsys.readouterr().err
    assert (
        error_output.startswith("cfeval: the runs are intact, but could not be gathered: ")
        and error_output.count("\n") == 1
    )
    assert (
        str(tmp_path / "1") in error_output
        and str(tmp_path / "old") not in error_output
        and not (tmp_path / "sweep.csv").exists()
    )
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.usefixtures("without_figures")
def test_sweep_of_one_job_and_sweep_of_failed_jobs(tmp_path, capsys):
    rng = np.random.default_rng(0)
    write_run(tmp_path / "one" / "0", 0, [], draw_values(rng), draw_taus(rng))
    aggregate_sweep(tmp_path / "one", {"0": JobStatus.COMPLETED})
    # a single run cannot be compared
    output = capsys.readouterr().out
    assert "Inconclusive" in output or "over 1 run" in output
    assert output.endswith(f"\nGathered 1 run: {tmp_path / 'one'}\nReport: {tmp_path / 'one' / 'report.html'}\n")
    assert pd.read_csv(tmp_path / "one" / "stability.csv").empty
    (tmp_path / "none").mkdir()
    aggregate_sweep(tmp_path / "none", {"0": JobStatus.FAILED, "1": JobStatus.FAILED})
    assert capsys.readouterr() == ("", "") and not list((tmp_path / "none").iterdir())


def test_tests_over_seeds_use_seeds_and_instances(tmp_path):
    rng = np.random.default_rng(3)
    values, draws = {}, {}
    for seed in range(8):
        taus = {
            ("c", "signed"): (0.8 + 0.1 * rng.random(), 0.1, 0.9),
            ("proximity", "signed"): (rng.uniform(-1, 1), 0.1, 0.1),
        }
        values[seed] = [taus[metric, "signed"][0] for metric in ("c", "proximity")]
        draws[seed] = np.clip(rng.normal(values[seed], 0.05, size=(40, 2)), -1, 1)
        table = pd.DataFrame(
            [
                (i, metric, "label", "signed", "recall", subset, share * draws[seed][i, j])
                for i in range(40)
                for j, metric in enumerate(("c", "proximity"))
                for subset, share in (("all", 1), ("without_controls", 0.5))
            ],
            columns=["draw", "metric", "variant", "truth", "agreement", "subset", "tau"],
        )
        write_run(
            tmp_path / str(7 - seed),  # seeds are sorted whatever the names of folders
            seed,
            [f"seed={seed}"],
            draw_values(rng),
            taus,
            draws=table.sample(frac=1, random_state=0),
        )
    done = gather([tmp_path], tmp_path)
    correlations = pd.read_csv(tmp_path / "seeds_correlations.csv")
    correlations = correlations.set_index(["coefficient", "subset", "metric"]).sort_index()
    # the ends of the keys of random streams never change
    for subset, stream, share in (("all", "tau", 1), ("without_controls", "tau_without_controls", 0.5)):
        expected = compare_metrics_over_seeds(
            share * np.array([*values.values()]),
            [share * seed_draws for seed_draws in draws.values()],
            f"signed.{stream}",
        )
        for j, metric in enumerate(("c", "proximity")):
            for column in expected:
                assert_close(correlations.loc[("tau", subset, metric), column], expected[column][j])
    assert correlations.loc["rho"][[*expected]].isna().all(axis=None)
    (table,) = (table for table in done.tables if table.title.startswith("Agreement") and "controls" in table.title)
    assert any(
        "C (disc., label) agrees with the ground truth significantly better than chance over 8 seeds" in note
        for note in table.notes
    )


def test_invalid_resamples_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    twice = pd.DataFrame({"draw": [0, 0], "metric": "c", "variant": "label", "truth": "signed", "agreement": "recall",
                          "subset": "all", "tau": 0.1})  # fmt: skip
    for name, draws in (
        ("twice", twice),
        ("words", twice.head(1).assign(tau="much")),
        ("less", twice.head(1).drop(columns="tau")),
    ):
        write_run(tmp_path / name, 0, [], draw_values(rng), draw_taus(rng), draws=draws)
        with pytest.raises(UserError, match="cannot be gathered"):
            gather([tmp_path / name], tmp_path / "into")


def test_rows_with_other_number_of_instances_are_noted(tmp_path):
    def list_instance_notes(*counts):
        for seed, n in enumerate(counts):
            folder = tmp_path / str(n) / str(seed)
            write_run(folder, seed, values=draw_values(np.random.default_rng(seed)))
            table = pd.read_csv(folder / "metrics.csv")
            table.loc[table["metric"] == "c", "n"] = n
            table.to_csv(folder / "metrics.csv", index=False)
            reseal(folder)
        result = gather([tmp_path], tmp_path)
        shutil.rmtree(tmp_path)
        assert [note for note in result.tables[0].notes if "Each run scores" in note] == [
            note for note in result.brief.notes if "Each run scores" in note
        ]
        return [note for note in result.brief.notes if "Each run scores" in note]

    assert list_instance_notes(17, 18) == [
        "Each run scores explainers on 20 instances. Other rows: C (disc., label) 17 to 18 instances."
    ]
    assert list_instance_notes(20, 20) == []


def test_three_explainers_have_no_tau_in_tables_and_conclusion(tmp_path):
    taus = {("c", "signed"): (0.9, 0.1, 0.9), ("proximity", "signed"): (0.8, 0.1, 0.8)}
    for seed in range(2):
        values = draw_values(np.random.default_rng(seed))
        write_run(tmp_path / str(seed), seed, [f"seed={seed}"], values, taus, controls=["d"])
    done = gather([tmp_path], tmp_path)
    assert not [table for table in done.tables if table.title.startswith("Agreement")]
    assert "τ is not computed: fewer than 4 explainers that are not controls." in (tmp_path / "tables.md").read_text()
    assert not any(title.text.startswith("τ") for title in done.brief.header)
    assert pd.read_csv(tmp_path / "seeds_correlations.csv")["mean"].notna().any()  # descriptive
