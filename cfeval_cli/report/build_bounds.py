"""The table of bounds: what the best and the worst explanation score."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from cfeval_cli.report.build_scores import group_lines
from cfeval_cli.report.instance_counts import count_by_row, find_typical_counts, write_exceptions
from cfeval_cli.report.metric_table import build_metric_table
from cfeval_cli.report.numbers import PERCENT
from cfeval_cli.report.table import STAR, Cell, Table, Title
from cfeval_cli.report.titles import (
    is_truth,
    list_truth_metrics,
    make_explainer_titles,
    name_truths,
)
from cfeval_cli.results.record import RunRecord

_MAX_SHOWN_EXPLAINERS = 11
_METHOD_TEXTS = {
    "enumerated": "every set of {k} of its features is tried",
    "greedy": "sets are grown greedily by one feature at a time, so that better and worse ones may exist",
}


def build_bounds(
    bounds: pd.DataFrame,
    bounds_truth: pd.DataFrame,
    metrics: pd.DataFrame,
    record: RunRecord,
    low_coverage: Mapping[str, float],
) -> Table:
    """Build the worst and the best score of each metric, and each explainer's position between them."""
    settings, lines = record.settings, group_lines(metrics)
    explainers = list(dict.fromkeys(metrics["explainer"]))[:_MAX_SHOWN_EXPLAINERS]
    titles = make_explainer_titles(record, low_coverage)
    truths = name_truths([truth for truth in record.truths if truth in set(bounds_truth["truth"])], record)
    agreement = bounds_truth.set_index(["metric", "variant", "truth"])["share_informative"]
    columns = [Title("worst"), Title("best"), *(titles[name] for name in explainers), Title("informative")]
    columns += [Title(f"truth {name}", marks=STAR * (truth in settings.truth)) for truth, name in truths.items()]
    cells = {}
    for line in bounds.to_dict("records"):
        pair = (line["metric"], line["variant"])
        if is_truth(pair[0], record):
            continue  # its best explanation is the ground truth itself
        positions = [lines.get(pair, {}).get(name, {}).get("normalised") for name in explainers]
        shares = [line["informative"] / line["instances"], *(agreement[*pair, truth] for truth in truths)]
        percentages = [Cell(share, form=PERCENT) for share in (*positions, *shares)]
        cells[pair] = [Cell(line["worst"]), Cell(line["best"]), *percentages]
    bound_lines = bounds[~bounds["metric"].isin(list_truth_metrics(record))]
    counts = count_by_row(bound_lines, [""] * len(bound_lines), bound_lines["instances"])
    typical_counts = find_typical_counts(counts, [""])
    method_text = _METHOD_TEXTS[bounds["method"].iloc[0]].format(k=settings.k)
    note = (
        f"{record.data.name}: the worst and the best score of any explanation of size k = {settings.k}; for each of "
        f"{max(typical_counts.values()):,} instances {method_text}."
        f"{write_exceptions(counts, typical_counts, record, {})} Explainers: their position between the two "
        "(0 % the worst, 100 % the best, on the instances that they are scored on). Informative: the share of "
        "instances on which not all sets score the same. Truth: on these instances, the agreement of the metric's own "
        "optimum with each ground truth (the mean of several optima). bounds_truth.csv has the same over all instances."
    )
    title = "Bounds of each metric, and the position of each explainer between them"
    return build_metric_table(title, columns, cells, [note], record, in_blocks=False, is_supplementary=True)
