"""Tables with a row for each metric, whose columns are explainers, ground truths or statistics."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import Pair, get_block, make_metric_title, mark_not_identifiable, merge_rows
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
    detail: bool = False,
    part: str = "trust",
) -> Table:
    """Build a table from the cells of each metric and variant.

    Variants with equal rows share a row. Rows without information are left out and named in a note.

    Parameters
    ----------
    columns
        The titles of the columns behind that of the metrics.
    starred
        The metrics that are the ground truth.
    not_identifiable
        The metrics whose values depend on the parametrisation of the model.
    in_blocks
        Whether the rows are grouped by kind of metric.
    ranked
        Whether the columns are explainers, which each row ranks.
    """
    blocks: dict[str, list[Row]] = {}
    for pair, row_cells in cells.items():
        row_title = make_metric_title(*pair, record, star=pair in starred)
        block = get_block(pair[1], record.metrics[pair[0]]) if in_blocks else ""
        row = Row(mark_not_identifiable(row_title, pair in not_identifiable), row_cells)
        blocks.setdefault(block, []).append(row)
    rows, left_out = merge_rows(blocks, ranked=ranked)
    return Table(title, [Title("Metric"), *columns], rows, [*notes, *left_out], detail, ranked, part)
