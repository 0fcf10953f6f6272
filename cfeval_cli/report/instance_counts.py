"""Notes on how many instances the rows of a table rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

import pandas as pd

from cfeval_cli.report.titles import Pair, make_metric_title
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES


def write_support_notes(metrics: pd.DataFrame, record: RunRecord, hidden: Container[Pair] = ()) -> list[str]:
    """Return over how many instances explainers are scored, and which rows have another n; nothing if all have all."""
    total, titles = record.instances, record.explainers
    counts = count_instances(metrics, record, hidden)
    coverage = _count_own_instances(metrics)
    own_text = ", ".join(f"{titles[name]} alone covers {n:,}" for name, n in coverage.items() if n < total)
    if not counts:
        return [f"No instance is covered by all explainers (support=common). {own_text}."] if coverage else []
    typical_counts = find_typical_counts(counts, coverage)
    is_unequal = len(set(coverage.values())) > 1 or any(typical_counts[name] != n for name, n in coverage.items())
    exceptions = write_exceptions(counts, typical_counts, record, titles)
    if not is_unequal and not exceptions and set(typical_counts.values()) == {total}:
        return []
    shared = _find_most_common(typical_counts.values())
    if len(set(typical_counts.values())) > 1:
        own = ", ".join(f"{titles[name]} {n:,}" for name, n in typical_counts.items() if n < total)
        first = (
            f"Each explainer is scored on its own instances (support=own), of {total:,}: {own}. "
            "Scores over different instances are not comparable."
        )
    elif is_unequal:
        first = (
            f"Scored on the {shared:,} of {total:,} instances that all explainers cover (support=common). {own_text}."
        )
    elif shared < total:
        first = f"Scored on {shared:,} of {total:,} instances."
    else:
        first = f"Scored on all {total:,} instances."
    too_few_note = (
        f" Fewer than {MIN_INSTANCES} instances allow no intervals: leave out the explainer with the lowest coverage, "
        "or set support=own." * (is_unequal and shared < MIN_INSTANCES)
    )
    return [f"{first}{exceptions}{too_few_note}"]


def count_instances(
    metrics: pd.DataFrame, record: RunRecord, hidden: Container[Pair] = ()
) -> dict[Pair, dict[str, int]]:
    """Return n by row of a table of scores and by explainer, without values and truths that such a table leaves out.

    A fact such as coverage is a share of all instances, as its table notes.
    """
    rows = _drop_graded(metrics)
    rows = rows[rows["n"] > 0]
    roles = rows["metric"].map({name: facts.role for name, facts in record.metrics.items()})
    is_total = roles.eq("fact") & rows["n"].eq(record.instances)
    is_other_truth = roles.eq("truth") & rows["metric"].ne(record.settings.agreement)
    rows = rows[~(is_total | is_other_truth)]
    counts = count_by_row(rows, rows["explainer"], rows["n"])
    return {pair: row for pair, row in counts.items() if pair not in hidden}


def count_by_row(lines: pd.DataFrame, columns: Iterable[str], instances: Iterable[float]) -> dict[Pair, dict[str, int]]:
    """Return n by row of a table and by column."""
    counts: dict[Pair, dict[str, int]] = {}
    for metric, variant, name, n in zip(lines["metric"], lines["variant"], columns, instances, strict=True):
        counts.setdefault((metric, variant), {})[name] = int(n)
    return counts


def find_typical_counts(counts: Mapping[Pair, Mapping[str, int]], columns: Iterable[str]) -> dict[str, int]:
    """Return the n of most rows of a table by column."""
    return {name: _find_most_common(row[name] for row in counts.values() if name in row) for name in columns}


def _drop_graded(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without graded controls, or all rows if there are only graded controls."""
    is_graded = metrics["quality_level"].notna()
    return metrics if is_graded.all() else metrics[~is_graded]


def _count_own_instances(metrics: pd.DataFrame) -> dict[str, int]:
    """Return how many instances each explainer is scored on by itself."""
    rows = _drop_graded(metrics)
    own_counts = rows[(rows["role"] != "fact") & (rows["own_n"] > 0)].groupby("explainer", sort=False)["own_n"].max()
    return {str(name): int(n) for name, n in own_counts.items()}


def write_exceptions(
    counts: Mapping[Pair, Mapping[str, int]],
    typical_counts: Mapping[str, int],
    record: RunRecord,
    titles: Mapping[str, str],
) -> str:
    """Return the rows that rest on another n than the most frequent n of each column."""
    rows: dict[str, list[str]] = {}  # titles of rows, by their numbers in words
    for pair, row in counts.items():
        exceptions = {name: n for name, n in row.items() if n != typical_counts.get(name)}
        if not exceptions:
            continue
        by_explainer = ", ".join(f"{titles.get(name, name)} {n:,}" for name, n in exceptions.items())
        is_shared = len(set(row.values())) == 1
        text = f" {next(iter(row.values())):,} instances" if is_shared else f": {by_explainer} instances"
        rows.setdefault(text, []).append(make_metric_title(*pair, record).plain)
    groups = [f"{', '.join(names)}{text}{' each' * (len(names) > 1)}" for text, names in rows.items()]
    return f" Other rows: {'; '.join(groups)}." if groups else ""


def _find_most_common(numbers: Iterable[int]) -> int:
    """Return the most frequent number, of several the largest; 0 of none."""
    return max(Counter(numbers).items(), key=lambda item: (item[1], item[0]), default=(0, 0))[0]
