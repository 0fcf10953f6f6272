"""The audit of the paper: all checks of its printed figures, and the tables of what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache

import pandas as pd

from cfeval_cli.report.numbers import COUNT
from cfeval_cli.report.published import Published, load_figures, parse_figures
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.study.paper.finding import KINDS, Finding, Result
from cfeval_cli.study.paper.statements import STATEMENT_CHECKS
from cfeval_cli.study.paper.tables import TABLE_CHECKS

CHECKS: tuple[Callable[[Published], Iterator[Result]], ...] = (*TABLE_CHECKS, *STATEMENT_CHECKS)


@dataclass(frozen=True)
class Audit:
    """The findings, and how many comparisons passed."""

    findings: list[Finding]
    n_passed: int

    @property
    def summary(self) -> str:
        """Write the numbers in one line."""
        return f"{len(self.findings)} findings, {self.n_passed} comparisons passed"

    def build_brief(self) -> Table:
        """Count the findings of each kind."""
        counts = {title: sum(finding.kind == kind for finding in self.findings) for kind, title in KINDS.items()}
        rows = [Row(Title(title), [Cell(count, form=COUNT)]) for title, count in counts.items() if count]
        notes = ["--full shows each finding; --md and --csv write them to files."]
        return Table("Findings by kind", [Title("kind"), Title("findings")], [rows], notes)

    def write_lines(self) -> list[str]:
        """Write each finding in a line, below the title of its kind."""
        lines, numbered_findings = [], list(enumerate(self.findings, 1))
        for kind, title in KINDS.items():
            kind_lines = [
                f"{i}. {finding.place}. Printed: {finding.printed}. Recomputed: {finding.recomputed}. {finding.meaning}"
                for i, finding in numbered_findings if finding.kind == kind
            ]  # fmt: skip
            lines += ["", title, *kind_lines] if kind_lines else []
        return lines

    def build_frame(self) -> pd.DataFrame:
        """Return one row for each finding."""
        return pd.DataFrame([{"number": i, **asdict(finding)} for i, finding in enumerate(self.findings, 1)])

    def build_tables(self) -> list[Table]:
        """Return one table for each kind; its notes explain the findings."""
        tables = []
        for kind, title in KINDS.items():
            findings = {str(i): finding for i, finding in enumerate(self.findings, 1) if finding.kind == kind}
            if not findings:
                continue
            rows, numbers = [], dict[str, list[str]]()
            for i, finding in findings.items():
                rows.append(Row(Title(i), [*map(Cell, (finding.place, finding.printed, finding.recomputed))]))
                numbers.setdefault(finding.meaning, []).append(i)
            notes = [f"{', '.join(places)}: {meaning}" for meaning, places in numbers.items()]
            header = [*map(Title, ("No.", "Place", "Printed", "Recomputed"))]
            tables.append(Table(f"{title} ({len(findings)})", header, [rows], notes))
        return tables

    def write_markdown(self) -> str:
        """Write all tables and the summary."""
        return "\n".join([*map(render_markdown, self.build_tables()), f"{self.summary}.", ""])


@cache
def audit_paper() -> Audit:
    """Audit the published figures."""
    return audit(load_figures())


def audit(frame: pd.DataFrame) -> Audit:
    """Run all checks on a table of the form of the published figures."""
    paper = parse_figures(frame)
    results = [result for check in CHECKS for result in check(paper)]
    findings = [result for result in results if result is not None]
    order = list(KINDS)
    return Audit(sorted(findings, key=lambda finding: order.index(finding.kind)), len(results) - len(findings))
