"""The paper's experiments as one seed and one truth have them: printed, or computed."""

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
from cfeval_cli.study.run_folders import find_run_folders
from cfeval_cli.study.sweep.read import read_run
from cfeval_cli.study.sweep.runs import SweepRun

EXPERIMENTS: dict[Key, str] = {
    ("1", "adults"): "table1_adults",
    ("1", "movie_reviews"): "table1_movie_reviews",
    ("3", "adults"): "table3",
}
_TOO_MUCH = (OverflowError, MemoryError)
_K = {"1": 1, "3": 2}
_NEEDED = {"adults": {"label", "probability"}, "movie_reviews": {"gradient"}}  # levels of the search


class View(Protocol):
    """What claims are judged by."""

    def values(self, key: Key, pair: Pair) -> dict[str, float]:
        """A metric's value for each explainer; empty if there is none."""
        ...

    def ranked(self, key: Key, pair: Pair) -> dict[str, float]:
        """The explainers' ranks, 1 the best."""
        ...

    def coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """τ or ρ with the truth; NaN if there is none."""
        ...

    def several(self, key: Key, explainer: str) -> float:
        """The share of instances for which an explainer names at least two features; NaN if it is not known."""
        ...


@dataclass(frozen=True)
class Printed:
    """As the paper's tables have it, by their values."""

    published: Published

    def values(self, key: Key, pair: Pair) -> dict[str, float]:
        """What the digits must have been."""
        series = self.published.find(key, pair)
        return {} if series is None else {name: figure.value for name, figure in series.figures.items()}

    def ranked(self, key: Key, pair: Pair) -> dict[str, float]:
        """By value, not as printed."""
        series = self.published.find(key, pair)
        return {} if series is None else rank_values(series)

    def coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """From the values, not as printed."""
        ours, truth = self.ranked(key, pair), self.ranked(key, TRUTH)
        return correlate(ours, truth)[name] if ours and truth else np.nan

    def several(self, key: Key, explainer: str) -> float:
        """Not printed."""
        return np.nan


@dataclass(frozen=True)
class Computed:
    """Runs of the experiments with one seed and one truth."""

    seed: int
    truth: str
    runs: Mapping[Key, SweepRun]
    paths: Mapping[Key, Path]

    def values(self, key: Key, pair: Pair) -> dict[str, float]:
        """From metrics.csv; the truth is that of the first truth."""
        lines = self._lines(key, pair)
        return dict(zip(lines["explainer"], lines["value"], strict=True))

    def ranked(self, key: Key, pair: Pair) -> dict[str, float]:
        """From the values."""
        lines = self._lines(key, pair)
        if lines.empty:
            return {}
        return dict(
            zip(lines["explainer"], compute_ranks(lines["value"].to_numpy(), lines["better"].iloc[0]), strict=True)
        )

    def coefficient(self, key: Key, pair: Pair, name: str) -> float:
        """From correlations.csv."""
        told = self._correlations.get((key, pair))
        return np.nan if told is None else float(told[name])

    @cached_property
    def _correlations(self) -> dict[tuple[Key, Pair], Mapping[Any, Any]]:
        """The coefficients of the explainers' rankings by experiment, metric and variant."""
        found: dict[tuple[Key, Pair], Mapping[Any, Any]] = {}
        for key, run in self.runs.items():
            told = select_subset(run.correlations)
            mine = (told["family"] == "explainers") & (told["agreement"] == "recall") & (told["truth"] == self.truth)
            for line in told[mine].to_dict("records"):
                found.setdefault((key, (line["metric"], line["variant"])), line)
        return found

    def several(self, key: Key, explainer: str) -> float:
        """From explanations.parquet."""
        told = self._explanations.get(key)
        return np.nan if told is None or explainer not in told else float(told[explainer])

    @cached_property
    def _explanations(self) -> dict[Key, dict[str, float]]:
        found = {}
        for key, path in self.paths.items():
            try:
                told = pd.read_parquet(path / "explanations.parquet", columns=["explainer", "features"])
                shares = (told["features"].map(len) >= 2).groupby(told["explainer"]).mean()
                found[key] = {str(name): float(share) for name, share in shares.items()}
            except (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, *_TOO_MUCH) as error:
                raise UserError(f"{path / 'explanations.parquet'} cannot be read ({error}). Run it again.") from error
        return found

    def _lines(self, key: Key, pair: Pair) -> pd.DataFrame:
        pair = (pair[0], self.truth) if pair == TRUTH else pair
        return self._metrics.get((key, pair), pd.DataFrame(columns=["explainer", "value", "better"]))

    @cached_property
    def _metrics(self) -> dict[tuple[Key, Pair], pd.DataFrame]:
        """The lines of explainers that have a value, by experiment, metric and variant."""
        found = {}
        for key, run in self.runs.items():
            told = run.metrics[run.metrics["rung"].isna() & run.metrics["value"].notna()]
            for (metric, variant), lines in told.groupby(["metric", "variant"], sort=False):
                found[key, (str(metric), str(variant))] = pd.DataFrame(lines)
        return found


def computed(folders: Sequence[Path]) -> list[Computed]:
    """Sort runs by truth and seed, and by the experiment that they are; others are refused."""
    found: dict[tuple[str, int], dict[Key, tuple[SweepRun, Path]]] = {}
    alike: dict[Key, tuple[dict[str, Any], Path]] = {}  # what all runs of an experiment must share
    for path in find_run_folders(folders):
        run = read_run(path, str(path))
        if run.record.status != "complete":
            raise UserError(f"{path} is not complete ({run.record.status}). Run it again, or leave it out.")
        key = _experiment(run)
        if key is None:
            names = ", ".join(EXPERIMENTS.values())
            raise UserError(
                f"{path} is none of the paper's experiments ({names}): cfeval run experiment=NAME makes one."
            )
        if (other := _undefined(run)) is not None:
            name, value, wanted = other
            raise UserError(
                f"{path} has {name}={value}, and the paper's definition is {name}={wanted}: its figures cannot be held "
                "against the paper's. Run the experiment without that setting, or leave the folder out."
            )
        mine = found.setdefault((run.record.settings.truth[0], run.seed), {})
        if key in mine:
            raise UserError(f"{path} and {mine[key][1]} are the same experiment with the same seed and truth.")
        mine[key] = run, path
        first, where = alike.setdefault(key, (_described(run), path))
        for name, value in _described(run).items():
            if first.get(name) != value:
                raise UserError(
                    f"{path} has {name} {value}, and {where} has {first.get(name)}: only runs of an experiment that "
                    "differ in nothing but seed and truth can be compared. Leave some out."
                )
    return [
        Computed(seed, truth, {k: run for k, (run, _) in mine.items()}, {k: path for k, (_, path) in mine.items()})
        for (truth, seed), mine in sorted(found.items())
    ]


def _described(run: SweepRun) -> dict[str, Any]:
    """The settings that may not differ between seeds."""
    settings, record = run.record.settings, run.record
    told = {"k": settings.k, "n_explain": settings.n_explain}
    own = sorted(f"{key}={value}" for key, value in run.overrides.items() if key.split(".")[0] in _COMPONENTS)
    return told | {"setup": record.setup, "data": record.data.sha256, "components": ", ".join(own)}


# what the experiments set, or leave at its default, because the paper says so
DEFINED = {"support": "own", "incomplete": "skip", "agreement": "recall", "access": "gradient"}
CHOSEN = {"distance": "euclidean", "distance.space": "auto", "search.pick": "auto"}


def _undefined(run: SweepRun) -> tuple[str, str, str] | None:
    """The first setting by which a run is not what the paper defines, what it is and what it should be."""
    settings = run.record.settings
    told = {name: str(getattr(settings, name)) for name in DEFINED}
    told |= {name: run.overrides.get(name, wanted) for name, wanted in CHOSEN.items()}
    for name, wanted in (DEFINED | CHOSEN).items():
        if told[name] != wanted:
            return name, told[name], wanted
    return None


_COMPONENTS = ("dataset", "model", "explainer", "search", "distance", "metric")


def _experiment(run: SweepRun) -> Key | None:
    """By what it did, whatever it was called."""
    for table, dataset in EXPERIMENTS:
        record = run.record
        named = {"random", "lime", "anchor", "lr"} if table == "3" else set(EXPLAINERS)
        fits = record.data.name == dataset and record.settings.k == _K[table]
        # other runs have LIME in another order than the package, and the paper, lists its features
        fits = fits and record.explainer_settings.get("lime", {}).get("order") == "absolute"
        if fits and _NEEDED[dataset] <= set(record.levels) and named <= set(record.explainers):
            return table, dataset
    return None
