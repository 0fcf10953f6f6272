"""Everything that follows from the paper's own figures, computed again and compared with what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache

import pandas as pd

from cfeval_cli.report.numbers import COUNT
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.study.paper import cells, chance, claims, counts, method
from cfeval_cli.study.paper.finding import KINDS, Finding, Result
from cfeval_cli.study.paper.published import Published, load, read

CHECKS: tuple[Callable[[Published], Iterator[Result]], ...] = (
    *cells.CHECKS, *counts.CHECKS, *method.CHECKS, *claims.CHECKS, *chance.CHECKS,
)  # fmt: skip
COLUMNS = [field.name for field in fields(Finding)]


@dataclass(frozen=True)
class Audit:
    """What was found, and how many comparisons found nothing."""

    findings: list[Finding]
    passed: int

    @property
    def summary(self) -> str:
        """In a line."""
        kinds = [(kind, sum(one.kind == kind for one in self.findings)) for kind in KINDS]
        told = ", ".join(f"{count} {kind}" for kind, count in kinds if count)
        return f"{len(self.findings)} findings ({told}), {self.passed} checks passed"

    def brief(self) -> Table:
        """How many of each kind."""
        many = {title: sum(one.kind == kind for one in self.findings) for kind, title in KINDS.items()}
        rows = [Row(Title(title), [Cell(count, form=COUNT)]) for title, count in many.items() if count]
        notes = [
            "By --full: where each is, what is printed, what comes out, and what it means; --csv and --md write it."
        ]
        return Table("What was found", [Title("kind"), Title("findings")], [rows], notes)

    def frame(self) -> pd.DataFrame:
        """One row for each finding."""
        rows = [[i, *(getattr(one, name) for name in COLUMNS)] for i, one in enumerate(self.findings, 1)]
        return pd.DataFrame(rows, columns=["number", *COLUMNS])

    def tables(self) -> list[Table]:
        """One for each kind; below it what the findings mean, those with the same meaning together."""
        made = []
        for kind, title in KINDS.items():
            found = {str(i): one for i, one in enumerate(self.findings, 1) if one.kind == kind}
            if not found:
                continue
            rows = [Row(Title(i), [*map(Cell, (one.where, one.printed, one.recomputed))]) for i, one in found.items()]
            meanings: dict[str, list[str]] = {}
            for i, one in found.items():
                meanings.setdefault(one.meaning, []).append(i)
            notes = [f"{', '.join(numbers)}: {meaning}" for meaning, numbers in meanings.items()]
            header = [*map(Title, ("No.", "Table", "Printed", "Recomputed"))]
            made.append(Table(f"{title} ({kind}: {len(found)})", header, [rows], notes))
        return made

    def markdown(self) -> str:
        """All tables and the summary."""
        return "\n".join([*map(render_markdown, self.tables()), f"{self.summary}.", ""])


@cache
def of_the_paper() -> Audit:
    """What is found in the published figures."""
    return audit(load())


def audit(frame: pd.DataFrame) -> Audit:
    """Run all checks on figures of the form of the published ones."""
    paper = read(frame)
    results = [result for check in CHECKS for result in check(paper)]
    findings = [result for result in results if result is not None]
    order = list(KINDS)
    return Audit(sorted(findings, key=lambda one: order.index(one.kind)), len(results) - len(findings))
