"""Tables as CSV."""

from __future__ import annotations

import csv
from io import StringIO

from cfeval_cli.report.table import Table


def render_csv(table: Table) -> str:
    """Write the cells as a reader sees them."""
    stream = StringIO()
    lines = csv.writer(stream, lineterminator="\n")
    lines.writerow([title.text for title in table.header])
    lines.writerows([row.title.text, *row.texts] for row in table.rows)
    return stream.getvalue()
