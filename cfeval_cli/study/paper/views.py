"""The results of the paper's experiments: as printed, or as computed with one seed and one truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.errors import UserError
from cfeval_cli.report.paper_answer import EXPERIMENTS, PAPER_SETTINGS, identify_experiment
from cfeval_cli.report.published import TRUTH, Better, Key, Pair, Published, Series
from cfeval_cli.results.record import RunRecord
from cfeval_cli.results.schema import get_table_file
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.subsets import select_subset
from cfeval_cli.study.paper.finding import correlate, rank_values
from cfeval_cli.study.run_folders import find_run_folders, read_columns, report_damage
from cfeval_cli.study.sweep.read import read_run
from cfeval_cli.study.sweep.runs import SweepRun

# settings of components that the paper defines: the experiments leave them at their defaults
PAPER_OVERRIDES = {"distance": "euclidean", "distance.space": "auto", "search.pick": "auto"}
_COMPONENTS = ("dataset", "model", "explainer", "search", "distance", "metric")


Row = tuple[Key, Pair]  # an experiment, and a metric with its variant


@dataclass(frozen=True)
class View:
    """The results of the paper's experiments that claims are evaluated on: as printed, or as computed."""

    values: Mapping[Row, Mapping[str, float]]  # by explainer
    better: Mapping[Row, Better]
    coefficients: Mapping[Row, Mapping[str, float]]  # τ and ρ with the truth
    shares_of_several: Mapping[Key, Mapping[str, float]]  # of instances with at least two selected features

    def rank_explainers(self, key: Key, pair: Pair) -> dict[str, float]:
        """Rank the explainers by their values, 1 is the best; empty without values."""
        values = self.values.get((key, pair), {})
        if not values:
            return {}
        return dict(zip(values, compute_ranks(np.array(list(values.values())), self.better[key, pair]), strict=True))

    def get_coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """Return τ or ρ with the truth; NaN if it was not computed."""
        return float(self.coefficients.get((key, pair), {}).get(name, np.nan))

    def get_share_of_several(self, key: Key, explainer: str) -> float:
        """Return the share of instances with at least two selected features; NaN if it is unknown."""
        return self.shares_of_several.get(key, {}).get(explainer, np.nan)


@dataclass(frozen=True)
class ComputedView(View):
    """The results of runs with one seed and one truth."""

    seed: int
    truth: str
    records: Mapping[Key, RunRecord]


def view_published(published: Published) -> View:
    """Return the paper's own results: ranks and coefficients are those of the printed values."""
    rows: dict[Row, Series] = {}
    for series in published.series:
        rows.setdefault((series.key, series.pair), series)
    rankings = {row: rank_values(series) for row, series in rows.items()}
    return View(
        values={row: {name: figure.value for name, figure in series.figures.items()} for row, series in rows.items()},
        better={row: series.better or "lower" for row, series in rows.items()},
        coefficients={
            row: correlate(ranking, rankings[row[0], TRUTH])
            for row, ranking in rankings.items()
            if (row[0], TRUTH) in rankings
        },
        shares_of_several={},
    )


def _view_runs(seed: int, truth: str, runs: Mapping[Key, tuple[SweepRun, Path]]) -> ComputedView:
    """Return the results of the experiments with one seed and one truth."""
    values: dict[Row, dict[str, float]] = {}
    better: dict[Row, Better] = {}
    coefficients: dict[Row, dict[str, float]] = {}
    for key, (run, _) in runs.items():
        lines = run.metrics[run.metrics["quality_level"].isna() & run.metrics["value"].notna()]
        for (metric, variant), rows in lines.groupby(["metric", "variant"], sort=False):
            values[key, (str(metric), str(variant))] = dict(zip(rows["explainer"], rows["value"], strict=True))
            better[key, (str(metric), str(variant))] = rows["better"].iloc[0]
        leading = (key, (TRUTH[0], truth))
        if leading in values:
            values[key, TRUTH], better[key, TRUTH] = values[leading], better[leading]
        table = select_subset(run.correlations)
        is_used = (table["family"] == "explainers") & (table["agreement"] == TRUTH[0]) & (table["truth"] == truth)
        for line in table[is_used].to_dict("records"):
            pair = (line["metric"], line["variant"])
            coefficients.setdefault((key, pair), {"tau": float(line["tau"]), "rho": float(line["rho"])})
    shares = {key: _compute_shares_of_several(run, path) for key, (run, path) in runs.items()}
    records = {key: run.record for key, (run, _) in runs.items()}
    return ComputedView(values, better, coefficients, shares, seed, truth, records)


def _compute_shares_of_several(run: SweepRun, path: Path) -> dict[str, float]:
    """Return the share of instances with at least two selected features, by explainer."""
    with report_damage(f"{path / get_table_file('explanations')} cannot be read; run the experiment again"):
        table = read_columns(path, run.record, "explanations", ["explainer", "features"])
        means = (table["features"].map(len) >= 2).groupby(table["explainer"]).mean()
        return {str(name): float(share) for name, share in means.items()}


def read_views(folders: Sequence[Path]) -> list[ComputedView]:
    """Read the runs of the paper's experiments by truth and seed; UserError for any other run."""
    views: dict[tuple[str, int], dict[Key, tuple[SweepRun, Path]]] = {}
    first_runs: dict[Key, tuple[dict[str, Any], Path]] = {}
    for path in find_run_folders(folders):
        run = read_run(path, str(path))
        key = _check_experiment(run, path)
        experiments = views.setdefault((run.record.settings.truth[0], run.seed), {})
        if key in experiments:
            raise UserError(f"{path} and {experiments[key][1]} are the same experiment with the same seed and truth.")
        experiments[key] = run, path
        settings = _describe_settings(run)
        first_settings, first_path = first_runs.setdefault(key, (settings, path))
        for name, value in settings.items():
            if first_settings.get(name) != value:
                raise UserError(
                    f"{path} has {name} {value}, and {first_path} has {first_settings.get(name)}: only runs of an "
                    "experiment that differ in nothing but seed and truth can be compared. Leave some out."
                )
    return [_view_runs(seed, truth, runs) for (truth, seed), runs in sorted(views.items())]


def _check_experiment(run: SweepRun, path: Path) -> Key:
    """Return the experiment of a complete run with the paper's definitions; UserError for other runs."""
    if run.record.status != "complete":
        raise UserError(f"{path} is not complete ({run.record.status}). Run it again, or leave it out.")
    key = identify_experiment(run.record)
    if key is None:
        names = ", ".join(EXPERIMENTS.values())
        raise UserError(f"{path} is none of the paper's experiments ({names}): cfeval run experiment=NAME makes one.")
    settings = {name: str(getattr(run.record.settings, name)) for name in PAPER_SETTINGS}
    settings |= {name: run.overrides.get(name, default) for name, default in PAPER_OVERRIDES.items()}
    for name, value in (PAPER_SETTINGS | PAPER_OVERRIDES).items():
        if settings[name] != value:
            raise UserError(
                f"{path} has {name}={settings[name]}, and the paper's definition is {name}={value}: its figures cannot "
                "be compared with the paper's. Run the experiment without that setting, or leave the folder out."
            )
    return key


def _describe_settings(run: SweepRun) -> dict[str, Any]:
    """Return the settings that must be equal in all seeds of an experiment."""
    record = run.record
    components = sorted(f"{key}={value}" for key, value in run.overrides.items() if key.split(".")[0] in _COMPONENTS)
    return {
        "k": record.settings.k, "n_explain": record.settings.n_explain, "setup": record.setup,
        "data": ", ".join(record.data.sha256), "components": ", ".join(components),
    }  # fmt: skip
