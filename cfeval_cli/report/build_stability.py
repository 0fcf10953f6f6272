"""Tables of explainer stability: what another seed of the explainer changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from cfeval_cli.report.instance_counts import count_by_row, find_typical_counts, write_exceptions
from cfeval_cli.report.metric_table import build_metric_table
from cfeval_cli.report.numbers import COUNT, PERCENT, SCORE
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import list_truth_metrics, make_explainer_titles
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES

_HEADER = ("Explainer", "same features", "overlap", "same order", "instances")


def build_stability(
    features: pd.DataFrame, values: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float]
) -> list[Table]:
    """Build the table of how often another seed selects the same features, and how much it changes the values."""
    random_explainers = features.loc[features["deterministic"] == "no", "explainer"].tolist()
    changes = values[values["explainer"].isin(random_explainers) & ~values["metric"].isin(list_truth_metrics(record))]
    tables = [_build_features(features, record, low_coverage)]
    return [*tables, _build_values(changes, random_explainers, record, low_coverage)] if len(changes) else tables


def _build_features(features: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float]) -> Table:
    settings, titles = record.settings, make_explainer_titles(record, low_coverage)
    same_features = "the same feature" if settings.k == 1 else f"the same {settings.k} features"
    rows, random, deterministic = list[Row](), list[str](), list[str]()
    for line in features.to_dict("records"):
        explainer = titles[line["explainer"]]
        share = Cell(line["same_features"] if line["instances"] else None, line["low"], line["high"], form=PERCENT)
        if line["instances"] and line["deterministic"] == "yes":
            deterministic.append(explainer.name)
        elif line["instances"]:
            random.append(f"{explainer.name} {share.value_text}")
        further_cells = [Cell(line[name], form=PERCENT) for name in ("overlap", "same_order")]
        rows.append(Row(explainer, [share, *further_cells, Cell(line["instances"], form=COUNT)]))
    asked, level = features["n_requested"].max(), f"{100 * settings.confidence:.4g}"
    notes = [
        f"{record.data.name}: {asked:,} instances were explained a second time with another explainer seed; model and "
        f"search are the same. Same features: share of instances with {same_features}, with exact {level} % CI; "
        "overlap: common features as a share of the larger set; same order: share with the same features in the same "
        "order; instances: those with an explanation."
    ]
    if random:
        notes.append(f"Share of instances with {same_features} for another explainer seed: {'; '.join(random)}.")
    if deterministic:
        notes.append(f"Deterministic, with the same features and scores: {', '.join(deterministic)}.")
    title = "Explainer stability: selected features"
    return Table(title, [*map(Title, _HEADER)], [rows], notes, is_supplementary=True, part="appendix")


def _build_values(
    values: pd.DataFrame, names: Sequence[str], record: RunRecord, low_coverage: Mapping[str, float]
) -> Table:
    """Build how far each value moves, beside its standard error."""
    lines = {(line["metric"], line["variant"], line["explainer"]): line for line in values.to_dict("records")}
    cells = {
        pair: [_make_value_cell(lines.get((*pair, name))) for name in names]
        for pair in dict.fromkeys(zip(values["metric"], values["variant"], strict=True))
    }
    counts = count_by_row(values, values["explainer"], values["instances"])
    typical_counts = find_typical_counts(counts, names)
    counts_text = ", ".join(f"{record.explainers[name]} {typical_counts[name]:,}" for name in names)
    note = (
        "Change of each explainer's value with another explainer seed, on the instances that it explains with both "
        f"({counts_text}).{write_exceptions(counts, typical_counts, record, record.explainers)} In brackets: the "
        "standard error due to the explainer seed, of the standard error over the same instances, which contains it; "
        f"none with fewer than {MIN_INSTANCES}. Deterministic explainers are left out."
    )
    title = "Explainer stability: values of the metrics"
    titles = make_explainer_titles(record, low_coverage)
    columns = [titles[name] for name in names]
    return build_metric_table(title, columns, cells, [note], record, is_supplementary=True, part="appendix")


def _make_value_cell(line: Mapping[Any, Any] | None) -> Cell:
    if line is None:
        return Cell()
    errors = "" if pd.isna(line["se"]) else f"{SCORE.write(line['explainer_se'])} of {SCORE.write(line['se'])}"
    return Cell(abs(line["difference"]), detail=errors)
