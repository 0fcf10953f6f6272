"""Runs that belong together, as their folders tell of them."""

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
from cfeval_cli.statistics.correlation import GRADED

_COLUMNS = ["metric", "variant", "family", "gold", "subset", "explainers", "tau", "moves"]
DEFAULT = "default"  # what a run has that another one overrides
SETTING = "setting."  # before the names of settings in columns, since gold is a setting and a column
_IRRELEVANT = re.compile(r"(n_jobs|data_dir|figures|report|training|strict|redo|cache|executor|hydra)([./@].*)?")


@dataclass(frozen=True)
class Run:
    """A run as its folder tells of it."""

    name: str  # the folder, as seen from where the runs are gathered
    record: RunRecord  # run.json
    overrides: Mapping[str, str]
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    correlations: pd.DataFrame = field(default_factory=pd.DataFrame)
    draws: pd.DataFrame = field(default_factory=pd.DataFrame)  # τ in resamples of its instances

    @property
    def seed(self) -> Any:
        """The replicate; None of a run that ended before it was known."""
        settings = self.record.settings
        return settings.seed if "seed" in settings.model_fields_set else None

    @cached_property
    def settings(self) -> dict[str, str]:
        """All settings that are known but the seed, and that can matter for results, as one would type them.

        run.json is believed before the overrides: it also has what was left at its default.
        """
        known = {name: _typed(value) for name, value in self.record.settings.model_dump(exclude_unset=True).items()}
        told = {**self.overrides, **known}
        return {key: value for key, value in told.items() if key != "seed" and not _IRRELEVANT.fullmatch(key)}


def _typed(value: Any) -> str:
    """A setting's value as one would type it; a list of one as that one."""
    if isinstance(value, list):
        return _typed(value[0]) if len(value) == 1 else f"[{','.join(map(_typed, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together."""

    runs: list[Run]  # complete, and no two alike
    others: list[tuple[Run, str]]  # with the reason why they are not gathered

    @staticmethod
    def of(runs: Sequence[Run]) -> Sweep:
        """Sort out what cannot be gathered, and what would count twice."""
        kept: dict[Any, Run] = {}
        others = []
        for run in runs:
            if run.record.status != "complete":
                others.append((run, str(run.record.status)))
                continue
            same = kept.setdefault((run.seed, tuple(sorted(run.settings.items()))), run)
            if same is not run:
                others.append((run, f"same settings and seed as {same.name}"))
        return Sweep(list(kept.values()), others)

    @property
    def left_out(self) -> str:
        """The runs that are not gathered, with the reasons."""
        told = {"running": "running, or killed: cfeval run --resume"}
        return ", ".join(f"{run.name} ({told.get(why, why)})" for run, why in self.others)

    @cached_property
    def keys(self) -> list[str]:
        """The settings that vary, the seed apart."""
        known = dict.fromkeys(key for run in self.runs for key in run.settings)
        return sorted(key for key in known if len({run.settings.get(key, DEFAULT) for run in self.runs}) > 1)

    def values(self, run: Run) -> tuple[str, ...]:
        """What a run has for the settings that vary."""
        return tuple(run.settings.get(key, DEFAULT) for key in self.keys)

    @cached_property
    def groups(self) -> dict[tuple[str, ...], list[Run]]:
        """Runs that agree in everything but the seed."""
        found: dict[tuple[str, ...], list[Run]] = {}
        for run in self.runs:
            found.setdefault(self.values(run), []).append(run)
        return found

    def columns(self, run: Run) -> dict[str, str]:
        """The settings that vary, as columns."""
        return {f"{SETTING}{key}": value for key, value in zip(self.keys, self.values(run), strict=True)}

    @cached_property
    def numbered(self) -> Ints:
        """The settings that vary, and then the seed (R, K), each value as a number."""
        rows = [[*self.values(run), str(run.seed)] for run in self.runs]
        return np.stack([pd.factorize(np.array(column, dtype=object))[0] for column in zip(*rows, strict=True)], axis=1)


def ranked(run: Run, gold: str, *, controls: bool) -> dict[tuple[str, str], str]:
    """The explainers that each metric and variant ranks, as the truth does too; with or without controls."""
    rows = run.metrics[run.metrics["rung"].isna() & run.metrics["value"].notna()]
    rows = rows if controls else rows[rows["control"] != 1]
    names: dict[tuple[str, str], set[str]] = {}
    for metric, variant, explainer in zip(rows["metric"], rows["variant"], rows["explainer"], strict=True):
        names.setdefault((metric, variant), set()).add(explainer)
    true = names.get((run.record.settings.agreement, gold), set())
    return {pair: " ".join(sorted(mine & true)) for pair, mine in names.items()}


def ranked_alike(runs: Sequence[Run], gold: str, pairs: Iterable[tuple[str, str]], *, controls: bool) -> list[str]:
    """For each of some metrics whom it ranks in the runs, told once if that is the same in all."""
    told = [ranked(run, gold, controls=controls) for run in runs]
    return [" | ".join(dict.fromkeys(of.get(pair, "") for of in told)) for pair in pairs]


def most_ranked(who: Sequence[str]) -> str:
    """Of what metrics rank, the most explainers, and of those what the most metrics rank: these are compared."""
    return max(
        dict.fromkeys(who), key=lambda one: (min(len(part.split()) for part in one.split(" | ")), who.count(one))
    )


def taus(sweep: Sweep) -> pd.DataFrame:
    """For each run, metric and subset, τ with the truths that the run leads with; on a ladder if there is no other."""
    parts = []
    for number, run in enumerate(sweep.runs):
        rows, settings = run.correlations, run.record.settings
        lead = (rows["family"] == "explainers") & rows["gold"].isin(settings.gold)
        lead &= rows["agreement"] == settings.agreement
        mine = rows[lead] if lead.any() else rows[rows["family"] == GRADED]
        mine = mine[~mine["metric"].isin(list_truth_metrics(run.record))]
        parts.append(mine[_COLUMNS].assign(run=number))
    return pd.DataFrame(pd.concat(parts, ignore_index=True))
