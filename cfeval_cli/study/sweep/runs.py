"""The runs of a sweep: their settings, their groups of seeds, and the explainers that each metric ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Ints
from cfeval_cli.report.titles import list_truth_metrics
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.correlation import EXPLAINERS, GRADED
from cfeval_cli.statistics.small_rankings import MIN_RANKED_EXPLAINERS
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

DEFAULT = "default"  # the value of a setting that other runs override
SETTING_PREFIX = "setting."  # of columns with settings, since truth is a setting and a column
_IRRELEVANT = re.compile(r"(n_jobs|data_dir|figures|report|training|strict|redo|cache|executor|hydra)([./@].*)?")
_TAU_COLUMNS = ["metric", "variant", "family", "truth", "subset", "explainers", "tau", "not_identifiable"]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep, as its folder describes it."""

    name: str  # the folder, relative to the folder of the sweep
    record: RunRecord  # run.json
    overrides: Mapping[str, str]
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    correlations: pd.DataFrame = field(default_factory=pd.DataFrame)
    draws: pd.DataFrame = field(default_factory=pd.DataFrame)  # τ in resamples of its instances

    @property
    def seed(self) -> Any:
        """The seed; None if the run ended before its seed was recorded."""
        settings = self.record.settings
        return settings.seed if "seed" in settings.model_fields_set else None

    @cached_property
    def settings(self) -> dict[str, str]:
        """All recorded settings that results can depend on, without the seed, as a user types them.

        run.json precedes the overrides: it also has settings that were left at their defaults.
        """
        recorded = self.record.settings.model_dump(exclude_unset=True)
        settings = {**self.overrides, **{name: _format_setting(value) for name, value in recorded.items()}}
        return {key: value for key, value in settings.items() if key != "seed" and not _IRRELEVANT.fullmatch(key)}


def _format_setting(value: Any) -> str:
    """Write a setting as a user types it; a list with one item as the item."""
    if isinstance(value, list):
        return _format_setting(value[0]) if len(value) == 1 else f"[{','.join(map(_format_setting, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Sweep:
    """Complete runs that are compared, and runs that are not, with the reasons."""

    runs: list[SweepRun]  # no two with the same settings and seed
    excluded: list[tuple[SweepRun, str]]

    @staticmethod
    def from_runs(runs: Sequence[SweepRun]) -> Sweep:
        """Exclude runs that are not complete, and duplicates."""
        included: dict[Any, SweepRun] = {}
        excluded = []
        for run in runs:
            if run.record.status != "complete":
                excluded.append((run, str(run.record.status)))
                continue
            first = included.setdefault((run.seed, tuple(sorted(run.settings.items()))), run)
            if first is not run:
                excluded.append((run, f"same settings and seed as {first.name}"))
        return Sweep(list(included.values()), excluded)

    def describe_excluded(self) -> str:
        """List the excluded runs with the reasons."""
        advice = {"running": "running, or killed: cfeval run --resume"}
        return ", ".join(f"{run.name} ({advice.get(reason, reason)})" for run, reason in self.excluded)

    @cached_property
    def varied(self) -> list[str]:
        """The settings that differ between runs, without the seed."""
        keys = dict.fromkeys(key for run in self.runs for key in run.settings)
        return sorted(key for key in keys if len({run.settings.get(key, DEFAULT) for run in self.runs}) > 1)

    def get_values(self, run: SweepRun) -> tuple[str, ...]:
        """Return the values of the varied settings in a run."""
        return tuple(run.settings.get(key, DEFAULT) for key in self.varied)

    def list_values(self, key: str) -> list[str]:
        """Return the values of one varied setting, in the order of the runs."""
        return list(dict.fromkeys(run.settings.get(key, DEFAULT) for run in self.runs))

    @cached_property
    def groups(self) -> dict[tuple[str, ...], list[SweepRun]]:
        """Runs that differ in the seed only, by the values of the varied settings."""
        groups: dict[tuple[str, ...], list[SweepRun]] = {}
        for run in self.runs:
            groups.setdefault(self.get_values(run), []).append(run)
        return groups

    def describe_group(self, values: Sequence[str]) -> str:
        """Write the settings of a group as `key=value, …`."""
        return ", ".join(f"{key}={value}" for key, value in zip(self.varied, values, strict=True))

    def make_columns(self, run: SweepRun) -> dict[str, str]:
        """Return the values of the varied settings, by the names of their columns."""
        return {f"{SETTING_PREFIX}{key}": value for key, value in zip(self.varied, self.get_values(run), strict=True)}

    def select_group(self, frame: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
        """Select the rows of one group from a table with columns of settings."""
        for key, value in zip(self.varied, values, strict=True):
            frame = frame[frame[f"{SETTING_PREFIX}{key}"] == value]
        return frame

    def encode_settings(self) -> Ints:
        """Return the varied settings and then the seed (R, K), each value as a number."""
        rows = [[*self.get_values(run), str(run.seed)] for run in self.runs]
        return np.stack([pd.factorize(np.array(column, dtype=object))[0] for column in zip(*rows, strict=True)], axis=1)


def merge_records(runs: Sequence[SweepRun]) -> RunRecord:
    """Return the record of the first run with the explainers, metrics, searches and removals of all runs."""
    records = [run.record for run in runs]
    entries = {
        "explainers": {name: title for record in reversed(records) for name, title in record.explainers.items()},
        "metrics": {name: metric for record in records for name, metric in record.metrics.items()},
        "search": " / ".join(dict.fromkeys(record.search for record in records)),
        "removals": {name: removal for record in records for name, removal in record.removals.items()},
    }
    return records[0].model_copy(update=entries)


@dataclass(frozen=True)
class RankedExplainers:
    """The explainers that a metric ranks: once if they are the same in all runs, otherwise for each run."""

    by_run: tuple[tuple[str, ...], ...] = ()

    @property
    def smallest_size(self) -> int:
        """The number of explainers in the run with the fewest."""
        return min(map(len, self.by_run), default=0)

    def __str__(self) -> str:
        return " | ".join(" ".join(names) for names in self.by_run)


def find_ranked_explainers(run: SweepRun, truth: str, *, controls: bool) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the explainers with ranks by both a metric and the truth, for each metric and variant."""
    rows = run.metrics[run.metrics["quality_level"].isna() & run.metrics["value"].notna()]
    rows = rows if controls else rows[rows["control"] != 1]
    names: dict[tuple[str, str], set[str]] = {}
    for metric, variant, explainer in zip(rows["metric"], rows["variant"], rows["explainer"], strict=True):
        names.setdefault((metric, variant), set()).add(explainer)
    ranked_by_truth = names.get((run.record.settings.agreement, truth), set())
    return {pair: tuple(sorted(ranked & ranked_by_truth)) for pair, ranked in names.items()}


def list_ranked_explainers(
    runs: Sequence[SweepRun], truth: str, pairs: Iterable[tuple[str, str]], *, controls: bool
) -> list[RankedExplainers]:
    """List the explainers that each metric and variant ranks in some runs."""
    by_run = [find_ranked_explainers(run, truth, controls=controls) for run in runs]
    return [RankedExplainers(tuple(dict.fromkeys(ranked.get(pair, ()) for ranked in by_run))) for pair in pairs]


def select_largest_ranking(rankings: Sequence[RankedExplainers]) -> RankedExplainers:
    """Select the ranked explainers for the comparison: the most explainers, and then the most metrics."""
    return max(dict.fromkeys(rankings), key=lambda ranking: (ranking.smallest_size, rankings.count(ranking)))


def collect_taus(sweep: Sweep) -> pd.DataFrame:
    """Return τ of each run, metric and subset with the run's leading truths; over graded controls if it has no other.

    The column `run` has the number of the run.
    """
    parts = []
    for number, run in enumerate(sweep.runs):
        rows, settings = run.correlations, run.record.settings
        is_leading = (rows["family"] == "explainers") & rows["truth"].isin(settings.truth)
        is_leading &= rows["agreement"] == settings.agreement
        rows = rows[is_leading] if is_leading.any() else rows[rows["family"] == GRADED]
        rows = rows[~rows["metric"].isin(list_truth_metrics(run.record))]
        parts.append(rows[_TAU_COLUMNS].assign(run=number))
    return pd.DataFrame(pd.concat(parts, ignore_index=True))


def collect_taus_without_controls(sweep: Sweep) -> pd.DataFrame:
    """Return τ over at least four explainers without controls; graded controls have no such subset and keep all."""
    rows = collect_taus(sweep)
    is_ranked = (rows["subset"] == WITHOUT_CONTROLS) & (rows["explainers"] >= MIN_RANKED_EXPLAINERS)
    return rows[(rows["family"] == GRADED) | is_ranked].dropna(subset="tau")


def drop_small_rankings(correlations: pd.DataFrame) -> pd.DataFrame:
    """Return rows of seeds_correlations.csv of one group without metrics that rank too few explainers in a run."""
    keys = ["metric", "variant", "truth", "agreement"]
    lines = select_subset(correlations[correlations["family"] == EXPLAINERS], WITHOUT_CONTROLS)
    is_small = [ranked.smallest_size < MIN_RANKED_EXPLAINERS for ranked in lines["ranked"]]
    small = set(lines.loc[is_small, keys].itertuples(index=False, name=None))
    is_ranked = [key not in small for key in correlations[keys].itertuples(index=False, name=None)]
    return correlations[np.array(is_ranked, dtype=bool)]
