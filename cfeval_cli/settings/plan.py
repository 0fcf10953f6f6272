"""A plan: everything that a run is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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

_T = TypeVar("_T")


@dataclass(frozen=True)
class Absences:
    """Chosen components that are not applicable to the data or the model, by name, with the reason."""

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
    levels: tuple[Access, ...]  # access levels at which the search runs
    settings: RunSettings
    executor: Executor
    cache: Cache
    absent: Absences = field(default_factory=Absences)
    judges: Mapping[str, JudgeSettings] = field(default_factory=dict)  # by name

    @property
    def graded_truth(self) -> str:
        """The truth that the graded control explainers are made from; empty if there are none."""
        graded = (explainer for explainer in self.explainers.values() if not math.isnan(explainer.quality_level))
        return next((explainer.truth_name for explainer in graded if explainer.truth_name), "")

    @property
    def explainer_titles(self) -> dict[str, str]:
        """The names of the explainers in tables; explainers with the same title have their config keys."""
        titles = {name: explainer.title or name for name, explainer in self.explainers.items()}
        shared = [title for title in titles.values() if list(titles.values()).count(title) > 1]
        return {name: name if title in shared else title for name, title in titles.items()}

    @property
    def components(self) -> dict[str, Any]:
        """All components that determine the results, by config key."""
        groups: dict[str, Mapping[str, Any]] = {
            "truth": self.truths, "removal": self.removals, "explainer": self.explainers, "metric": self.metrics,
            "judge": self.judges,
        }  # fmt: skip
        return {
            "dataset": self.dataset, "model": self.model, "search": self.search, "distance": self.distance,
            **{f"{group}.{name}": member for group, members in groups.items() for name, member in members.items()},
        }  # fmt: skip

    def restrict_to(self, spec: ModelSpec) -> Plan:
        """Return the plan without components that are not applicable to the data and the kind of model.

        UserError if the settings cannot be applied at all.
        """
        self._check_data(spec.dataset)
        self._check_search(spec)
        truths_absent = _find_reasons(self.truths, spec)
        truths_absent |= self._find_costly_truths(spec, truths_absent)
        truths = _omit(self.truths, truths_absent)
        metrics_absent = {**self.absent.metrics, **_find_reasons(self.metrics, spec)}
        if not truths:
            reason = next(iter(truths_absent.values()), "no truth is chosen")
            metrics_absent |= {metric.name: reason for metric in self.metrics.values() if metric.role == "truth"}
        absent = Absences(
            explainers=_find_reasons(self.explainers, spec),
            metrics=metrics_absent,
            truths=truths_absent,
            removals=_find_reasons(self.removals, spec),
        )
        plan = replace(
            self,
            truths=truths,
            explainers=_omit(self.explainers, absent.explainers),
            metrics=_omit(self.metrics, absent.metrics),
            levels=tuple(level for level in self.levels if spec.missing_access_reason(level) is None),
            absent=absent,
        )
        if not plan.explainers:
            raise UserError(f"explainer=[…]: no explainer is applicable to this model: {_join(absent.explainers)}.")
        if absent.metrics and not any(metric.role == "judged" for metric in plan.metrics.values()):
            raise UserError(f"metric=[…]: no metric to be judged is applicable to this model: {_join(absent.metrics)}.")
        for name, explainer in plan.explainers.items():
            try:
                explainer.check(spec)
            except ValueError as error:
                raise UserError(f"explainer.{name}: {error}") from error
        return plan

    def _check_data(self, dataset: Dataset) -> None:
        if self.settings.k > dataset.n_features:
            raise UserError(
                f"k={self.settings.k} exceeds the {dataset.n_features} features of {dataset.name}. Use k ≤ "
                f"{dataset.n_features}."
            )
        check_size(dataset, self.settings.n_explain)

    def _check_search(self, spec: ModelSpec) -> None:
        self.search.check(spec.dataset, self.settings.k)
        if reason := self.search.not_applicable_reason(spec):
            raise UserError(f"search: {self.search.label} {reason}.")
        for feature in spec.dataset.features:
            if self.search.moves_embeddings and feature.allowed_change in ("up", "down"):
                raise UserError(
                    f"dataset.only.{feature.name}={feature.allowed_change}: a moved embedding goes neither up nor "
                    "down. Use search=discrete, or dataset.immutable."
                )
        if reason := self.distance.not_applicable_reason(spec, self.search):
            raise UserError(reason)

    def _find_costly_truths(self, spec: ModelSpec, absent: Mapping[str, str]) -> dict[str, str]:
        """Return the reasons of truths for which a single instance exceeds the budget of all."""
        budget = self.settings.budget
        n_rows = {
            name: truth.count_evaluations(spec)
            for name, truth in _omit(self.truths, absent).items()
            if truth.evaluates_model(spec)
        }
        return {
            name: f"may use {n:,} model evaluations for one instance, more than truth.budget={budget} in all"
            for name, n in n_rows.items()
            if n > budget
        }


def check_size(dataset: Dataset, n_explain: int | None) -> None:
    """Raise UserError if more instances are to be explained than there are."""
    if n_explain is not None and n_explain > len(dataset.test):
        raise UserError(
            f"n_explain={n_explain} is more than the {len(dataset.test)} test instances of {dataset.name}. "
            "Use n_explain=null for all of them."
        )


def _find_reasons(components: Mapping[str, Any], spec: ModelSpec) -> dict[str, str]:
    """Return the reasons of components that are not applicable."""
    reasons = ((name, component.not_applicable_reason(spec)) for name, component in components.items())
    return {name: reason for name, reason in reasons if reason is not None}


def _omit(components: Mapping[str, _T], absent: Mapping[str, str]) -> dict[str, _T]:
    return {name: component for name, component in components.items() if name not in absent}


def _join(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {reason}" for name, reason in reasons.items())
