"""A plan: everything that a run is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cfeval_cli.core import (
    Access,
    Cache,
    Dataset,
    Distance,
    Executor,
    Explainer,
    JudgeSettings,
    Loadable,
    Metric,
    ModelSpec,
    Removal,
    Search,
    Trainable,
    Truth,
)
from cfeval_cli.errors import UserError
from cfeval_cli.settings.run_settings import RunSettings


@dataclass(frozen=True)
class Absences:
    """What was chosen and does not apply to the data or the model, each with the reason."""

    explainers: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    truths: Mapping[str, str] = field(default_factory=dict)
    removals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Components and settings."""

    dataset: Loadable
    model: Trainable
    truths: Mapping[str, Truth]  # by name, in the order of the tables
    removals: Mapping[str, Removal]  # by name
    explainers: Mapping[str, Explainer]  # by config key, in the order of the tables
    search: Search
    distance: Distance
    metrics: Mapping[str, Metric]  # by name, in the order of the tables
    access: Access
    levels: tuple[Access, ...]  # at which the search is to run
    settings: RunSettings
    executor: Executor
    cache: Cache
    absent: Absences = field(default_factory=Absences)
    judges: Mapping[str, JudgeSettings] = field(default_factory=dict)  # by name

    @property
    def graded_truth(self) -> str:
        """The truth that the graded control explainers are made from."""
        graded = (explainer for explainer in self.explainers.values() if not math.isnan(explainer.quality_level))
        return next((explainer.truth_name for explainer in graded if explainer.truth_name), "")

    @property
    def components(self) -> dict[str, Any]:
        """What the results come from, by config key."""
        one = {"dataset": self.dataset, "model": self.model, "search": self.search, "distance": self.distance}
        several: dict[str, Mapping[str, Any]] = {
            "truth": self.truths, "removal": self.removals, "explainer": self.explainers, "metric": self.metrics,
            "judge": self.judges,
        }  # fmt: skip
        return one | {f"{group}.{name}": one for group, made in several.items() for name, one in made.items()}

    def applied(self, spec: ModelSpec) -> Plan:
        """The plan for some data and a kind of model: what does not apply is left out with the reason, or refused."""
        dataset = spec.dataset
        if self.settings.k > dataset.n_features:
            raise UserError(f"k={self.settings.k} is more than the {dataset.n_features} features of {dataset.name}.")
        check_size(dataset, self.settings.n_explain)
        self.search.check(dataset, self.settings.k)
        if reason := self.search.not_applicable_reason(spec):
            raise UserError(f"search: {self.search.label} {reason}.")
        one_way = next((feature for feature in dataset.features if feature.allowed_change in ("up", "down")), None)
        if self.search.moves and one_way is not None:
            raise UserError(
                f"dataset.only.{one_way.name}={one_way.allowed_change}: a moved embedding goes neither up nor down. "
                "Use search=discrete, or dataset.immutable."
            )
        if reason := self.distance.not_applicable_reason(spec, self.search):
            raise UserError(reason)
        out = Absences(
            explainers=_reasons(self.explainers, spec),
            metrics={**self.absent.metrics, **_reasons(self.metrics, spec)},
            truths=_reasons(self.truths, spec),
            removals=_reasons(self.removals, spec),
        )
        out = replace(out, truths={**out.truths, **self._too_dear(spec, out.truths)})
        truths = {name: truth for name, truth in self.truths.items() if name not in out.truths}
        if not truths:
            no = next(iter(out.truths.values()), "no truth is chosen")
            out = replace(
                out, metrics={**out.metrics, **{m.name: no for m in self.metrics.values() if m.role == "truth"}}
            )
        plan = replace(
            self,
            truths=truths,
            explainers={name: one for name, one in self.explainers.items() if name not in out.explainers},
            metrics={name: metric for name, metric in self.metrics.items() if name not in out.metrics},
            levels=tuple(level for level in self.levels if spec.missing_access_reason(level) is None),
            absent=out,
        )  # fmt: skip
        if not plan.explainers:
            told = "; ".join(f"{name} {reason}" for name, reason in out.explainers.items())
            raise UserError(f"explainer=[…] leaves nobody to explain this model: {told}.")
        if out.metrics and not any(metric.role == "judged" for metric in plan.metrics.values()):
            told = "; ".join(f"{name} {reason}" for name, reason in out.metrics.items())
            raise UserError(f"metric=[…] leaves nothing to be judged: {told}.")
        for name, explainer in plan.explainers.items():
            try:
                explainer.check(spec)
            except ValueError as error:
                raise UserError(f"explainer.{name}: {error}") from error
        return plan

    def _too_dear(self, spec: ModelSpec, out: Mapping[str, str]) -> dict[str, str]:
        """The truths that take more model rows for one instance than they may take in all."""
        asked = {name: one for name, one in self.truths.items() if name not in out and one.evaluates_model(spec)}
        rows = {name: one.count_evaluations(spec) for name, one in asked.items()}
        return {
            name: f"may take {many:,} model rows for one instance, more than truth.budget={self.settings.budget} in all"
            for name, many in rows.items()
            if many > self.settings.budget
        }


def check_size(dataset: Dataset, n_explain: int | None) -> None:
    """Refuse to explain more instances than there are."""
    if n_explain is not None and n_explain > len(dataset.test):
        raise UserError(
            f"n_explain={n_explain} is more than the {len(dataset.test)} test instances of {dataset.name}. "
            "Use n_explain=null for all of them."
        )


def _reasons(components: Mapping[str, Any], spec: ModelSpec) -> dict[str, str]:
    """Those that sit out, with the reasons."""
    asked = ((name, component.not_applicable_reason(spec)) for name, component in components.items())
    return {name: reason for name, reason in asked if reason is not None}
