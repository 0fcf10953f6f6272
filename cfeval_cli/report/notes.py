"""Notes below tables: what a run is about, what marks mean, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from cfeval_cli.report.table import CIRCULAR_MARK, LOW_COVERAGE_MARK, NOT_IDENTIFIABLE_MARK
from cfeval_cli.report.titles import LOW_COVERAGE, list_truth_metrics, make_metric_title
from cfeval_cli.results.record import RunRecord, TruthEntry
from cfeval_cli.statistics.bootstrap import DEFAULT_RESAMPLES, MIN_INSTANCES

HALF_COVERAGE = 0.5  # explainers that cover fewer instances are named
NOT_IDENTIFIABLE_NOTE = "depends on the parametrisation of the model (not identifiable)"


def describe_run(record: RunRecord) -> str:
    """Write what a table is about: data, accuracy, instances, k and seed."""
    data, settings = record.data, record.settings
    # not where the file came from: a second run, from the data folder, must give the same bytes
    hashes = ", ".join(f"{digest[:8]}…" for digest in data.sha256)
    rows = f"{data.rows_used:,} of {data.rows_read:,} rows of {data.file} (sha256 {hashes})"
    reference = record.reference.test_accuracy
    paper = f" (the paper's: {reference:.2%})" if reference else ""
    partial = "" if data.complete else f", an incomplete copy: {data.rows_read:,} of {data.rows_whole:,} rows"
    if data.embedding:
        partial += f"; {data.embedding.name} ({data.embedding.words:,} of {data.vocabulary:,} words)"
    if data.search_words:
        partial += f"; {data.search_words:,} words to search among"
    count = record.instances
    sample = f"{count:,} instance{'s' * (count != 1)}{_describe_sample(record)}"
    return (
        f"{data.name}: {rows}{partial}; test accuracy {record.accuracy['test']:.2%}{paper}"
        f"{describe_baselines(record)}.{describe_fidelity(record)} "
        f"{sample}, k = {settings.k}, seed {settings.seed}; {record.setup}; "
        f"incomplete explanations: {settings.incomplete}."
    )


def _describe_sample(record: RunRecord) -> str:
    """Write that the explained instances do not have the class sizes of the test set."""
    if not record.is_sampled_by_class:
        return ""
    return (
        f" (at least {record.settings.min_per_class} of each predicted class, where available; metrics are plain means "
        "over these)"
    )


def describe_baselines(record: RunRecord) -> str:
    """Write what an accuracy is compared with: the share of the largest class, and the AUC."""
    majority, area = record.majority.get("test"), record.auc.get("test")
    text = "" if majority is None else f", largest class {majority:.2%}"
    return text + ("" if area is None else f", AUC {area:.3f}")


def describe_fidelity(record: RunRecord) -> str:
    """Write how often a model that was trained on the predictions of another one agrees with it."""
    fidelity = record.fidelity
    if fidelity is None:
        return ""
    return (
        f" It was trained on the predictions of another model and agrees with it on {fidelity.test:.1%} "
        f"[{fidelity.low:.1%}, {fidelity.high:.1%}] of the {fidelity.rows:,} test rows (fidelity)."
    )


def write_interval_note(record: RunRecord, *, without_differences: bool = False) -> str:
    """Write what brackets mean; statistics without differences may have fewer resamples."""
    settings, count = record.settings, record.resampled
    if not count:
        return ""
    if without_differences and settings.resamples == "auto":
        count = min(count, DEFAULT_RESAMPLES)
    level = f"{100 * settings.confidence:.4g}"
    return (
        f" In brackets: {level} % CI from {count:,} resamples of the instances; none with fewer than {MIN_INSTANCES}."
    )


def write_coverage_notes(low_coverage: Mapping[str, float], record: RunRecord) -> list[str]:
    """Write what † means, for those explainers that the record has."""
    titles = record.explainers
    low = {name: share for name, share in low_coverage.items() if name in titles}
    if not low:
        return []
    shares = ", ".join(f"{titles[name]} {share:.1%}" for name, share in low.items())
    half = [titles[name] for name, share in low.items() if share < HALF_COVERAGE]
    below_half = f" Under half of the instances: {', '.join(half)}." * bool(half)
    returns = (
        f"{LOW_COVERAGE_MARK} returns k = {record.settings.k} features for under {LOW_COVERAGE:.0%} of the instances"
    )
    return [f"{returns}: {shares}.{below_half}"]


def describe_controls(titles: Sequence[str], record: RunRecord) -> str:
    """Write what controls are: those that return the ground truth are optimal for its question, and no other."""
    names = [name for name, title in record.explainers.items() if title in titles]
    settings = record.explainer_settings
    truths = list(dict.fromkeys(truth for name in names if (truth := settings.get(name, {}).get("truth_name"))))
    only = " for every question" * (len(record.settings.truth) > 1)
    parts = ["random features"] * (len(truths) < len(names)) + [f"the features of {truth}{only}" for truth in truths]
    return f"which select {' or '.join(parts)}"


def write_absent_notes(record: RunRecord) -> list[str]:
    """Write which explainers do not apply, and why."""
    absent = record.explainers_absent
    return [f"Explainers not applicable: {group_by_reason(absent)}."] if absent else []


def group_by_reason(absent: Mapping[str, str]) -> str:
    """Write names with their reasons, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for name, reason in absent.items():
        reasons.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())


def write_fault_notes(explainers: Mapping[str, str], record: RunRecord) -> list[str]:
    """Write which explainers failed on instances, and why."""
    explained = {title: record.explained[name] for name, title in explainers.items() if name in record.explained}
    return [
        f"{title} returned no explanation for {facts.faults:,} of {record.instances:,} instances, which are left out: "
        f"{facts.reasons}."
        for title, facts in explained.items()
        if facts.faults
    ]


def describe_method(truth: TruthEntry, record: RunRecord) -> str:
    """Write how a ground truth was computed, and for how many instances if not for all."""
    if truth.instances is None or truth.instances == record.instances:
        return truth.method
    return f"{truth.method}; on {truth.instances:,} of {record.instances:,} instances"


def write_reference_notes(record: RunRecord) -> list[str]:
    """Write which ground truths are known for part of the instances only, and how precisely."""
    notes = []
    for name, truth in record.truths.items():
        method = describe_method(truth, record)
        if truth.error is not None:
            error = f"standard error {truth.error:.4f} on average, {truth.largest_error:.4f} at most"
            notes.append(f"{name} {method}, {error}")
        elif not truth.exact or method != truth.method:
            notes.append(f"{name} {method}")
    if not notes:
        return []
    text = f"Reference attributions, computed by model evaluations: {'; '.join(notes)}."
    minimum = record.settings.min_per_class
    counts = [truth.instances for truth in record.truths.values() if truth.instances is not None]
    if minimum and any(count < record.instances for count in counts):
        text += (
            f" Where available, {minimum} of these instances or more belong to each predicted class; metrics of "
            "agreement are plain means over them, only the answer is reweighted."
        )
    return [text]


def select_not_identifiable(lines: pd.DataFrame) -> pd.Series:
    """Return which lines depend on the parametrisation of the model; none if that was not computed."""
    return (
        lines["not_identifiable"].isin([True]) if "not_identifiable" in lines else pd.Series(False, index=lines.index)
    )


def select_circular(lines: pd.DataFrame) -> pd.Series:
    """Return which lines are circular; none if that was not computed."""
    return lines["circular"].isin([True]) if "circular" in lines else pd.Series(False, index=lines.index)


def write_circular_notes(metrics: pd.DataFrame, record: RunRecord) -> list[str]:
    """Write which explainers are optimal by construction for which metrics of a table of scores."""
    is_shown = ~metrics["metric"].isin(list_truth_metrics(record)) | (metrics["metric"] == record.settings.agreement)
    lines = metrics[is_shown & select_circular(metrics) & metrics["value"].notna()]
    notes = []
    for name, of_explainer in lines.groupby("explainer", sort=False):
        pairs = zip(of_explainer["metric"], of_explainer["variant"], strict=True)
        rows = [make_metric_title(*pair, record).plain for pair in pairs]
        notes.append(f"{record.explainers[str(name)]}: {', '.join(rows)}")
    is_dropped = record.settings.circular == "drop"
    left_out = "; left out of every τ (circular=drop)" * is_dropped
    return [f"{CIRCULAR_MARK} circular (optimal by construction){left_out}. {'; '.join(notes)}."] if notes else []


def write_remark_notes(metrics: pd.DataFrame, record: RunRecord) -> list[str]:
    """Write how values were computed and what to note about them: once, if it is the same for all explainers."""
    notes = []
    has_text = (metrics["method"] != "") | (metrics["remark"] != "")
    for pair, lines in metrics[has_text].groupby(["metric", "variant"], sort=False):
        title = make_metric_title(str(pair[0]), str(pair[1]), record).plain
        names = [record.explainers[name] for name in lines["explainer"]]
        methods, remarks = lines["method"].tolist(), lines["remark"].tolist()
        texts = ["; ".join(filter(None, both)) for both in zip(methods, remarks, strict=True)]
        if len(set(texts)) == 1:
            notes.append(f"{title}: {texts[0]}.")
            continue
        is_shared = len(set(methods)) == 1 and all([*methods, *remarks])
        by_explainer = zip(names, remarks if is_shared else texts, strict=True)
        first = f"{title}: {methods[0]}." if is_shared else f"{title}."
        notes.append(f"{first} {'; '.join(f'{name}: {text}' for name, text in by_explainer)}.")
    return notes


def find_not_identifiable(metrics: pd.DataFrame) -> set[tuple[str, str]]:
    """Return the metrics with a value that depends on the parametrisation of the model."""
    lines = metrics[select_not_identifiable(metrics)]
    return set(zip(lines["metric"], lines["variant"], strict=True))


def write_not_identifiable_note(quantity: str) -> str:
    """Write what § means."""
    note = f"{NOT_IDENTIFIABLE_MARK} {NOT_IDENTIFIABLE_NOTE}"
    return f"{note}: other parameters with the same predictions give another {quantity}."
