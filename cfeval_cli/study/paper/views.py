"""The paper's experiments with one seed and one truth: as printed, or as computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cfeval_cli.errors import UserError
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.subsets import select_subset
from cfeval_cli.study.paper.finding import correlate, rank_values
from cfeval_cli.study.paper.published import EXPLAINERS, TRUTH, Key, Pair, Published
from cfeval_cli.study.run_folders import find_run_folders, report_damage
from cfeval_cli.study.sweep.read import read_run
from cfeval_cli.study.sweep.runs import SweepRun

EXPERIMENTS: dict[Key, str] = {
    ("1", "adults"): "table1_adults",
    ("1", "movie_reviews"): "table1_movie_reviews",
    ("3", "adults"): "table3",
}
_K = {"1": 1, "3": 2}
_REQUIRED_LEVELS = {"adults": {"label", "probability"}, "movie_reviews": {"gradient"}}  # of the search
_REQUIRED_EXPLAINERS = {"1": set(EXPLAINERS), "3": {"random", "lime", "anchor", "lr"}}

# settings that the paper defines: the experiments set them, or leave them at their defaults
PAPER_SETTINGS = {"support": "own", "incomplete": "skip", "agreement": "recall", "access": "gradient"}
PAPER_OVERRIDES = {"distance": "euclidean", "distance.space": "auto", "search.pick": "auto"}
_COMPONENTS = ("dataset", "model", "explainer", "search", "distance", "metric")


class View(Protocol):
    """The results that claims are evaluated on."""

    def rank_explainers(self, key: Key, pair: Pair) -> dict[str, float]:
        """Return the ranks of the explainers, 1 is the best; empty without values."""
        ...

    def get_coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """Return τ or ρ with the truth; NaN if it was not computed."""
        ...

    def get_share_of_several(self, key: Key, explainer: str) -> float:
        """Return the share of instances with at least two selected features; NaN if it is unknown."""
        ...


@dataclass(frozen=True)
class PrintedView:
    """The values of the paper's tables."""

    published: Published

    def rank_explainers(self, key: Key, pair: Pair) -> dict[str, float]:
        """Rank by the printed values, not by the printed ranks."""
        series = self.published.find_series(key, pair)
        return {} if series is None else rank_values(series)

    def get_coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """Compute the coefficient from the printed values."""
        ranking, truth = self.rank_explainers(key, pair), self.rank_explainers(key, TRUTH)
        return correlate(ranking, truth)[name] if ranking and truth else np.nan

    def get_share_of_several(self, key: Key, explainer: str) -> float:
        """Return NaN: the paper does not print these shares."""
        return np.nan


@dataclass(frozen=True)
class ComputedView:
    """Runs of the experiments with one seed and one truth."""

    seed: int
    truth: str
    runs: Mapping[Key, SweepRun]
    paths: Mapping[Key, Path]

    def get_values(self, key: Key, pair: Pair) -> dict[str, float]:
        """Return the value of a metric for each explainer, from metrics.csv."""
        lines = self._get_lines(key, pair)
        return dict(zip(lines["explainer"], lines["value"], strict=True))

    def rank_explainers(self, key: Key, pair: Pair) -> dict[str, float]:
        """Rank by the values."""
        lines = self._get_lines(key, pair)
        if lines.empty:
            return {}
        ranks = compute_ranks(lines["value"].to_numpy(), lines["better"].iloc[0])
        return dict(zip(lines["explainer"], ranks, strict=True))

    def get_coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """Return the coefficient from correlations.csv."""
        line = self._correlations.get((key, pair))
        return np.nan if line is None else float(line[name])

    def get_share_of_several(self, key: Key, explainer: str) -> float:
        """Return the share from explanations.parquet."""
        return self._shares.get(key, {}).get(explainer, np.nan)

    @cached_property
    def _correlations(self) -> dict[tuple[Key, Pair], Mapping[Any, Any]]:
        """The coefficients of the explainers' rankings by experiment, metric and variant."""
        lines: dict[tuple[Key, Pair], Mapping[Any, Any]] = {}
        for key, run in self.runs.items():
            table = select_subset(run.correlations)
            is_used = (table["family"] == "explainers") & (table["agreement"] == "recall")
            for line in table[is_used & (table["truth"] == self.truth)].to_dict("records"):
                lines.setdefault((key, (line["metric"], line["variant"])), line)
        return lines

    @cached_property
    def _shares(self) -> dict[Key, dict[str, float]]:
        """The share of instances with at least two selected features, by experiment and explainer."""
        shares = {}
        for key, path in self.paths.items():
            file = path / "explanations.parquet"
            with report_damage(f"{file} cannot be read; run the experiment again"):
                table = pd.read_parquet(file, columns=["explainer", "features"])
                means = (table["features"].map(len) >= 2).groupby(table["explainer"]).mean()
                shares[key] = {str(name): float(share) for name, share in means.items()}
        return shares

    def _get_lines(self, key: Key, pair: Pair) -> pd.DataFrame:
        pair = (pair[0], self.truth) if pair == TRUTH else pair
        return self._metrics.get((key, pair), pd.DataFrame(columns=["explainer", "value", "better"]))

    @cached_property
    def _metrics(self) -> dict[tuple[Key, Pair], pd.DataFrame]:
        """The rows of explainers that have a value, by experiment, metric and variant."""
        tables = {}
        for key, run in self.runs.items():
            rows = run.metrics[run.metrics["rung"].isna() & run.metrics["value"].notna()]
            for (metric, variant), lines in rows.groupby(["metric", "variant"], sort=False):
                tables[key, (str(metric), str(variant))] = pd.DataFrame(lines)
        return tables


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
    return [
        ComputedView(
            seed,
            truth,
            {key: run for key, (run, _) in experiments.items()},
            {key: path for key, (_, path) in experiments.items()},
        )
        for (truth, seed), experiments in sorted(views.items())
    ]


def _check_experiment(run: SweepRun, path: Path) -> Key:
    """Return the experiment of a complete run with the paper's definitions; UserError for other runs."""
    if run.record.status != "complete":
        raise UserError(f"{path} is not complete ({run.record.status}). Run it again, or leave it out.")
    key = _identify_experiment(run)
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


def _identify_experiment(run: SweepRun) -> Key | None:
    """Return the experiment by what the run computed, whatever its name is."""
    record = run.record
    for table, dataset in EXPERIMENTS:
        if (
            record.data.name == dataset
            and record.settings.k == _K[table]
            # the paper's LIME, like the package, orders features by their absolute weights
            and record.explainer_settings.get("lime", {}).get("order") == "absolute"
            and _REQUIRED_LEVELS[dataset] <= set(record.levels)
            and _REQUIRED_EXPLAINERS[table] <= set(record.explainers)
        ):
            return table, dataset
    return None


def _describe_settings(run: SweepRun) -> dict[str, Any]:
    """Return the settings that must be equal in all seeds of an experiment."""
    record = run.record
    components = sorted(f"{key}={value}" for key, value in run.overrides.items() if key.split(".")[0] in _COMPONENTS)
    return {
        "k": record.settings.k, "n_explain": record.settings.n_explain, "setup": record.setup,
        "data": ", ".join(record.data.sha256), "components": ", ".join(components),
    }  # fmt: skip
