"""The entries of run.json and dataset.json, built from the plan and the data of a run."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cfeval_cli import __version__
from cfeval_cli.core import (
    Codes,
    Dataset,
    Explainer,
    ExplainerResult,
    Metric,
    ModelSpec,
    Removal,
    Reparametrisable,
    Spellings,
    Split,
    Trainable,
    Truth,
    TruthEstimate,
)
from cfeval_cli.core.fingerprint import get_version
from cfeval_cli.core.scratch import Scratch, iterate_slabs
from cfeval_cli.results.record import (
    DataEntry,
    DefinitionsEntry,
    Entry,
    ExplainedEntry,
    MetricEntry,
    ModelEntry,
    ReferenceEntry,
    RemovalEntry,
    RunRecord,
    SettingsEntry,
    TruthEntry,
    name_invalid_entry,
)
from cfeval_cli.results.validation import SCHEMA_VERSION
from cfeval_cli.settings.plan import Plan

_PACKAGES = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "lime", "hydra-core")
_UNRECORDED = {"report", "redo", "strict", "data_dir"}  # settings that results do not depend on

_C = TypeVar("_C")
_E = TypeVar("_E", bound=Entry)


def get_time() -> str:
    """Return the current time in the format of run.json."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def build_start_record(command: Sequence[str], overrides: Sequence[str]) -> RunRecord:
    """Return the record of a run that starts."""
    return RunRecord(
        schema=SCHEMA_VERSION,
        status="running",
        cfeval=__version__,
        command=list(command),
        overrides=list(overrides),
        started=get_time(),
    )


def add_plan_entries(record: RunRecord, plan: Plan, dataset: Dataset, inputs: str | None) -> RunRecord:
    """Return the record with the entries that are known before anything is computed.

    ValueError names an entry whose value, which a component declares, has the wrong type.
    """
    settings = plan.settings.model_dump(mode="json", exclude=_UNRECORDED)
    origin = {"name": dataset.name, "kind": dataset.kind, **dataset.origin, "fingerprint": dataset.fingerprint}
    with name_invalid_entry("data"):
        data = DataEntry.model_validate(origin)
    with name_invalid_entry("reference"):
        reference = ReferenceEntry(**dataset.reference)
    components: dict[str, Mapping[str, object]] = {
        "metric": {metric.name: metric for metric in plan.metrics.values()},
        "explainer": plan.explainers, "truth": plan.truths, "removal": plan.removals,
    }  # fmt: skip
    entries = {
        "git_commit": _find_git_commit(),
        "python": platform.python_version(),
        "packages": {name: get_version(name) for name in _PACKAGES},
        "inputs": inputs,
        "redo": plan.settings.redo,
        "settings": SettingsEntry(truth=list(plan.truths), **settings),
        "data": data,
        "model": ModelEntry(name=_name_model(plan.model), settings=_get_plain_settings(plan.model)),
        "splits": {"train": len(dataset.train), "validation": len(dataset.validation), "test": len(dataset.test)},
        "reference": reference,
        "explainers": _make_explainer_titles(plan.explainers),
        "explainer_settings": {name: _get_plain_settings(explainer) for name, explainer in plan.explainers.items()},
        "effects": {name: explainer.scores_are_effects for name, explainer in plan.explainers.items()},
        "ordered": {name: explainer.output == "scores" for name, explainer in plan.explainers.items()},
        "search": plan.search.title,
        "explainers_absent": dict(plan.absent.explainers),
        "metrics_absent": dict(plan.absent.metrics),
        "truths_absent": dict(plan.absent.truths),
        "removals_absent": dict(plan.absent.removals),
        "invariance_absent": _explain_missing_invariance(plan, dataset),
        "truths": build_entries("truths", plan.truths, _build_truth_entry),
        "removals": {
            plan.removals[name].variant: entry
            for name, entry in build_entries("removals", plan.removals, _build_removal_entry).items()
        },
        "definitions": DefinitionsEntry(
            **{
                kind: {name: _get_summary_line(component) for name, component in by_name.items()}
                for kind, by_name in components.items()
            }
        ),
        "setup": f"{plan.search.label}; {plan.distance.label}",
        "levels": [level.name.lower() for level in plan.levels],
        "metrics": build_entries(
            "metrics", {metric.name: metric for metric in plan.metrics.values()}, _build_metric_entry
        ),
    }
    return record.model_copy(update=entries)


def build_entries(section: str, components: Mapping[str, _C], build: Callable[[str, _C], _E]) -> dict[str, _E]:
    """Return the entry of each component; ValueError names a component that declares a wrong value."""
    entries = {}
    for name, component in components.items():
        with name_invalid_entry(f"{section}.{name}"):
            entries[name] = build(name, component)
    return entries


def _build_truth_entry(name: str, truth: Truth) -> TruthEntry:
    return TruthEntry(question=truth.question, arbitrary=truth.arbitrary, settings=_get_plain_settings(truth))


def _build_removal_entry(name: str, removal: Removal) -> RemovalEntry:
    return RemovalEntry(
        name=name, title=removal.title, arbitrary=removal.arbitrary, settings=_get_plain_settings(removal)
    )


def _build_metric_entry(name: str, metric: Metric) -> MetricEntry:
    return MetricEntry(
        title=metric.title,
        latex=metric.latex,
        better=metric.better,
        display_order=metric.display_order,
        role=metric.role,
        quantity=metric.quantity,
        block=metric.block,
        details=list(metric.title_details),
        settings=_get_plain_settings(metric),
    )


def describe_dataset(dataset: Dataset, stored: Sequence[Split]) -> dict[str, Any]:
    """Return the content of dataset.json; `stored` are the splits with rows in the run folder."""
    lists: dict[tuple[str, ...], int] = {}  # texts share one vocabulary
    features = [
        {"name": feature.name, "values": lists.setdefault(feature.values, len(lists)), "kind": feature.kind}
        | ({"ordered": True} if feature.is_ordered else {})
        | ({} if feature.missing_code is None else {"missing": feature.missing_code})
        | ({} if feature.allowed_change == "any" else {"allowed_change": feature.allowed_change})
        | ({"candidates": dataset.candidates[j].tolist()} if feature.kind == "number" else {})
        for j, feature in enumerate(dataset.features)
    ]
    content: dict[str, Any] = {
        "name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes),
        "features": features, "values": list(lists), "unknown": dataset.mask_code, "fitted": dict(dataset.fitted),
    }  # fmt: skip
    if dataset.spellings is not None and dataset.restore_spellings() is dataset:
        content["spellings"] = _describe_spellings(dataset.spellings, [split.codes for split in stored])
    return content


def _describe_spellings(spellings: Spellings, stored: Sequence[Codes]) -> dict[str, Any]:
    """Return the spellings of a dataset; separators, which can be the rest of a text, only those of stored rows."""
    codes = np.unique(np.concatenate([part[part >= spellings.first] for part in stored])) - spellings.first
    indices = {"before": spellings.before, "after": spellings.after, "rest": spellings.remainder}
    used_indices = {0}.union(*(index[codes].tolist() for index in indices.values()))
    return {
        "first": spellings.first,
        "vocabulary": spellings.vocabulary.tolist(),
        **{name: index.tolist() for name, index in indices.items()},
        "separators": [text if i in used_indices else None for i, text in enumerate(spellings.separators)],
    }


def complete_truth_entries(
    entries: Mapping[str, TruthEntry], truth: Mapping[str, TruthEstimate], scratch: Scratch
) -> dict[str, TruthEntry]:
    """Return the entries of the truths, with how each was computed and how large its errors are."""
    updated = dict(entries)
    for name, estimate in truth.items():
        n_instances = 0
        for slab in iterate_slabs(len(estimate.importance)):
            n_instances += int((~np.isnan(estimate.importance[slab]).all(axis=1)).sum())
            scratch.release()
        facts = {"exact": estimate.standard_error is None, "method": estimate.method, "instances": n_instances}
        if estimate.standard_error is not None and not np.isnan(estimate.standard_error).all():
            facts["error"] = float(np.nanmean(estimate.standard_error))
            facts["largest_error"] = float(np.nanmax(estimate.standard_error))
        updated[name] = updated[name].model_copy(update=facts)
    return updated


def build_explained_entries(results: Mapping[str, ExplainerResult]) -> dict[str, ExplainedEntry]:
    """Return for each explainer the costs of its explanations, and on how many instances it failed."""
    return {
        name: ExplainedEntry(
            n_cached=result.n_cached,
            seconds=round(result.cost.seconds, 3),
            faults=len(result.failures),
            reasons=result.failure_summary,
        )
        for name, result in results.items()
    }


def explain_missing_correlations(record: RunRecord) -> str:
    """Return why a run has no correlations; empty if it has."""
    if len(record.explainers) < 2:
        return "a ranking needs two explainers, and this run has one"
    roles = {metric.role for metric in record.metrics.values()}
    if record.truths_absent and not record.truths:
        reason = next(iter(record.truths_absent.values()))
        return f"this model has no ground truth: each {reason}"
    if "truth" not in roles:
        return "neither ground truth (recall, hit) is among the metrics"
    return "" if "judged" in roles else "no metric to be judged is among the metrics"


def _explain_missing_invariance(plan: Plan, dataset: Dataset) -> str:
    """Return why the model is not reparametrised; empty if it is."""
    if not plan.settings.reparametrisations:
        return "reparametrisations=0"
    return ModelSpec.from_settings(dataset, plan.model).missing_ability_reason(Reparametrisable) or ""


def _make_explainer_titles(explainers: Mapping[str, Explainer]) -> dict[str, str]:
    """Return names for the tables; explainers with the same title get their config keys."""
    titles = {name: explainer.title or name for name, explainer in explainers.items()}
    shared = [title for title in titles.values() if list(titles.values()).count(title) > 1]
    return {name: name if title in shared else title for name, title in titles.items()}


def _get_plain_settings(component: object) -> dict[str, Any]:
    return {
        name: value for name, value in vars(component).items() if isinstance(value, bool | int | float | str | None)
    }


def _get_summary_line(component: object) -> str:
    """Return the first paragraph of the docstring of a component's class; empty if it has none."""
    kind = type(component)
    text = kind.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{kind.__name__}(") else " ".join(text.partition("\n\n")[0].split())


def _name_model(model: Trainable) -> str:
    """Return the class of the model with those of its parts: Estimator (HistGradientBoostingClassifier), blind."""
    settings = vars(model)
    simple = (bool, int, float, str, type(None), Sequence, Mapping)
    parts = [type(value).__name__ for value in settings.values() if not isinstance(value, simple)]
    blind = ", blind" if settings.get("blind") else ""
    return type(model).__name__ + (f" ({', '.join(parts)})" if parts else "") + blind


@cache
def _find_git_commit() -> str | None:
    """Return the commit of the source tree; None for an installed package."""
    file = Path(__file__)

    def run_git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        run_git("ls-files", "--error-unmatch", file.name)
        commit = run_git("rev-parse", "HEAD")
        changes = run_git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("-dirty" if changes else "")
