"""Tables with a row for each metric and columns for explainers, ground truths or statistics."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import Pair, get_block, join_titles, make_metric_title, mark_not_identifiable
from cfeval_cli.results.record import RunRecord


def build_metric_table(
    title: str,
    columns: Sequence[Title],
    cells: Mapping[Pair, Sequence[Cell]],
    notes: Sequence[str],
    record: RunRecord,
    *,
    starred: Container[Pair] = (),
    not_identifiable: Container[Pair] = (),
    in_blocks: bool = True,
    ranked: bool = False,
    is_supplementary: bool = False,
    part: str = "trust",
) -> Table:
    """Build a table from the cells of each metric and variant.

    Variants with equal rows share a row. Rows without information are left out and named in a note.

    Parameters
    ----------
    columns
        The titles of the columns behind that of the metrics.
    cells
        The cells of each metric and variant, one for each of the columns.
    notes
        The sentences below the table.
    starred
        The metrics that are the ground truth.
    not_identifiable
        The metrics whose values depend on the parametrisation of the model.
    in_blocks
        Whether the rows are grouped by kind of metric.
    ranked
        Whether the columns are explainers, which each row ranks.
    is_supplementary
        Whether the table is in the files and with --full only, not on the screen.
    part
        The part of the report: scores, trust, cost or appendix.
    """
    blocks: dict[str, list[Row]] = {}
    for pair, row_cells in cells.items():
        row_title = make_metric_title(*pair, record, star=pair in starred)
        block = get_block(pair[1], record.metrics[pair[0]]) if in_blocks else ""
        row = Row(mark_not_identifiable(row_title, pair in not_identifiable), row_cells)
        blocks.setdefault(block, []).append(row)
    rows, left_out = merge_rows(blocks, ranked=ranked)
    return Table(title, [Title("Metric"), *columns], rows, [*notes, *left_out], is_supplementary, ranked, part)


def merge_rows(blocks: Mapping[str, Sequence[Row]], *, ranked: bool = False) -> tuple[list[list[Row]], list[str]]:
    """Merge variants of a metric whose rows are the same; leave out rows without information, and name them in notes.

    If the columns are explainers, a row with the same value for all of them has no information either.
    """
    empty, same = list[str](), list[str]()
    merged: dict[str, dict[Any, Row]] = {}
    first_block: dict[Any, str] = {}
    for block, rows in blocks.items():
        for row in rows:
            title = row.title
            values = {(cell.value_text, cell.interval_text) for cell in row.cells}
            if all(cell.is_missing for cell in row.cells):
                empty.append(title.plain)
            elif ranked and len(row.cells) > 1 and len(values) == 1:
                same.append(f"{title.plain} {row.cells[0].value_text}")
            else:
                key = (replace(title, details=()), *((cell.text, cell.bold) for cell in row.cells))
                rows_of_block = merged.setdefault(first_block.setdefault(key, block), {})
                before = rows_of_block.get(key)
                rows_of_block[key] = row if before is None else replace(row, title=join_titles(before.title, title))
    notes = [f"Same value for all explainers, not shown: {'; '.join(same)}."] if same else []
    notes += [f"No values: {', '.join(empty)}."] if empty else []
    return [list(rows.values()) for rows in merged.values()], notes
