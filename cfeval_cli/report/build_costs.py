"""Tables of costs: seconds and model evaluations of each component, and the seconds of each stage."""

from __future__ import annotations

import pandas as pd

from cfeval_cli.report.numbers import COUNT, PERCENT, NumberFormat
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import is_truth
from cfeval_cli.results.record import RunRecord

_HEADER = ("", "seconds", "ms per instance", "model evaluations", "evaluations per instance")
_MAX_LISTED_EXPLAINERS = 6
_SHORT_SECONDS = NumberFormat("count", 1)
_SECONDS, _ROWS_EACH = NumberFormat("count", 3), NumberFormat("count", 1)


def write_cost_summary(ledger: pd.DataFrame, record: RunRecord) -> str:
    """Write what the explanations cost by explainer, and what the whole run cost."""
    lines = ledger[(ledger["part"] == "explainer") & ledger["name"].isin(list(record.explainers))]
    lines = lines.sort_values("model_rows", ascending=False, kind="stable")
    parts = [
        f"{record.explainers[line['name']]} {COUNT.write(line['model_rows'] / record.instances)} "
        f"({_SHORT_SECONDS.write(line['seconds'])} s)"
        for line in lines.iloc[:_MAX_LISTED_EXPLAINERS].to_dict("records")
    ]
    remainder = f", {len(lines) - len(parts)} more" * (len(lines) > len(parts))
    duration = f", {COUNT.write(record.seconds)} s" * bool(record.seconds)
    return (
        f"Model evaluations per instance, and seconds: {', '.join(parts)}{remainder}. Whole run: "
        f"{COUNT.write(ledger['model_rows'].sum())} evaluations{duration}."
    )


def build_costs(ledger: pd.DataFrame, record: RunRecord) -> Table:
    """Build seconds and model evaluations by explainer, search and metric."""
    instances = record.instances
    titles = {"explainer": record.explainers, "search": record.explainers}
    blocks: dict[str, list[Row]] = {}
    for line in ledger.to_dict("records"):
        part, name, seconds, count = (line[key] for key in ("part", "name", "seconds", "model_rows"))
        metric = record.metrics.get(name)
        title = titles.get(part, {}).get(name) or (part if metric is None else metric.title)
        detail = line["access"] or (name if is_truth(name, record) else "")
        cells = [
            Cell(seconds, form=_SECONDS),
            Cell(1000 * seconds / instances, form=_SECONDS),
            Cell(count, form=COUNT),
            Cell(count / instances, form=_ROWS_EACH),
        ]
        row_title = Title(f"{part}: {title}", (detail,) if detail else ()) if name else Title(part.replace("_", " "))
        blocks.setdefault(part, []).append(Row(row_title, cells))
    note = (
        f"{record.data.name}, {instances:,} instances. Seconds of one core; for cached explanations, those of their "
        "first computation. Model evaluations: rows that the model received."
    )
    return Table("Costs", [*map(Title, _HEADER)], list(blocks.values()), [note], is_supplementary=True, part="cost")


def build_stages(record: RunRecord) -> list[Table]:
    """Build the seconds of each stage of a run; no table if they were not recorded."""
    seconds: dict[str, float] = {}
    for entry in record.stages:
        seconds[entry.stage] = seconds.get(entry.stage, 0.0) + entry.seconds
    if not record.seconds:
        return []
    seconds["other work"] = max(0.0, record.seconds - sum(seconds.values()))
    rows = [
        Row(Title(stage), [Cell(spent, form=_SECONDS), Cell(spent / record.seconds, form=PERCENT)])
        for stage, spent in seconds.items()
    ]
    header = [Title("stage"), Title("seconds"), Title("share")]
    note = "Wall-clock time until the scores were computed, without figures and page."
    return [Table("Time by stage", header, [rows], [note], is_supplementary=True, part="cost")]
