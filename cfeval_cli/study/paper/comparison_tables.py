"""The tables of the comparison: the paper's tables beside those of cfeval, and the verdicts on its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.report.numbers import NumberFormat
from cfeval_cli.report.paper_answer import EXPERIMENTS
from cfeval_cli.report.published import DATASETS, EXPLAINERS, Coefficient, Key, Published
from cfeval_cli.report.table import DASH, Cell, Row, Table, Title
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL
from cfeval_cli.study.paper.claims import ClaimVerdict, count_required_seeds, list_truths
from cfeval_cli.study.paper.views import ComputedView

_SYMBOLS = {"tau": "τ", "rho": "ρ"}
_BY_PAPER = {None: Cell(), True: Cell("holds"), False: Cell("does not\u00a0hold")}


def build_brief(verdicts: Sequence[ClaimVerdict]) -> Table:
    """Build the table of claims for the screen: the verdicts, and in how many seeds a claim is true."""
    note = "Below a verdict: the seeds in which the claim is true. --full shows the intervals, the rule and all tables."
    return _build_claim_table(
        verdicts, {verdict.claim.id: verdict.claim.text for verdict in verdicts}, _build_brief_cell, [note]
    )


def build_claims(verdicts: Sequence[ClaimVerdict]) -> Table:
    """Build the table of claims with intervals and the rule of the verdicts."""
    titles = {verdict.claim.id: f"{verdict.claim.text} [{verdict.claim.scope}]" for verdict in verdicts}
    return _build_claim_table(verdicts, titles, _build_verdict_cell, _explain_verdicts(verdicts))


def _build_claim_table(
    verdicts: Sequence[ClaimVerdict],
    titles: Mapping[str, str],
    build_cell: Callable[[ClaimVerdict], Cell],
    notes: Sequence[str],
) -> Table:
    truths = list(dict.fromkeys(verdict.truth for verdict in verdicts))
    header = [*map(Title, ("claim", "paper's\u00a0own figures", *(f"cfeval, truth: {truth}" for truth in truths)))]
    rows: dict[str, list[Cell]] = {}
    for verdict in verdicts:
        rows.setdefault(verdict.claim.id, [_BY_PAPER[verdict.printed]]).append(build_cell(verdict))
    return Table(
        "What the paper claims", header, [[Row(Title(titles[name]), row) for name, row in rows.items()]], notes
    )


def _build_brief_cell(verdict: ClaimVerdict) -> Cell:
    if not verdict.seeds:
        return Cell(reason=verdict.outcome)
    return Cell(verdict.outcome.replace("not ", "not\u00a0"), detail=f"{verdict.holds_in}\u00a0of\u00a0{verdict.seeds}")


def _build_verdict_cell(verdict: ClaimVerdict) -> Cell:
    if not verdict.seeds:
        return Cell()
    low, high = verdict.interval
    required_seeds = f"; {verdict.n_required_seeds:,} seeds needed" if verdict.n_required_seeds else ""
    share = f"{verdict.holds_in} of {verdict.seeds}, {100 * low:.0f} to {100 * high:.0f} %{required_seeds}"
    return Cell(f"{verdict.outcome} ({share})")


def _explain_verdicts(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    tests = max((verdict.tests for verdict in verdicts if verdict.seeds), default=1)
    seeds = max((verdict.seeds for verdict in verdicts), default=0)
    notes = [
        "In brackets: in how many seeds the claim is true, and the exact 95 % CI (Clopper and Pearson) of that share. "
        "A seed decides split, training, explainers and search; the data stay the same.",
        "Always: one seed against the claim refutes it. Sometimes: one seed is enough. Mostly, and always without a "
        "seed against it: the claim holds if it is true in more than half of the seeds, with p ≤ "
        f"{SIGNIFICANCE_LEVEL:g} (two-sided sign test, Holm-adjusted for {tests} tests). It is refuted if it is false "
        "in more than half, with the same p. It does not hold if it is true in fewer than half. Otherwise it is open; "
        "the number of seeds needed assumes the same share.",
        "No number of seeds proves an always. The interval bounds the share of exceptions. claims.csv has the figures.",
    ]
    if seeds and 2.0 ** (1 - seeds) * tests > SIGNIFICANCE_LEVEL:
        notes.append(
            f"{seeds} seeds allow p ≥ {2.0 ** (1 - seeds):.4g} before the correction for {tests} tests: no claim can "
            f"pass the sign test. At least {count_required_seeds(1, 1, tests)} seeds are needed."
        )
    return notes


def build_tables(
    published: Published, cells: pd.DataFrame, views: Sequence[ComputedView], numbers: Sequence[str]
) -> list[Table]:
    """Build the paper's tables beside those of cfeval, under the first truth."""
    truth = list_truths(views)[0]
    cells = cells[cells["truth"] == truth]
    document = []
    for number in sorted(numbers):
        if number == "2" and cells.loc[cells["table"] == "2", "seeds"].max() > 0:
            document.append(_build_coefficient_table(published, cells[cells["table"] == "2"], truth))
        for table, dataset in EXPERIMENTS:
            lines = cells[(cells["table"] == table) & (cells["dataset"] == dataset)]
            if table == number and lines["seeds"].max() > 0:
                runs = [view for view in views if view.truth == truth and (table, dataset) in view.records]
                document.append(_build_value_table(published, lines, (table, dataset), runs, truth))
    return document


def _build_value_table(
    published: Published, cells: pd.DataFrame, key: Key, views: Sequence[ComputedView], truth: str
) -> Table:
    """Build Table 1 or 3 with two lines for each metric: that of cfeval, and that of the paper."""
    table, dataset = key
    explainers = list(published.list_series(key)[0].figures)
    header = [Title(f"Table {table}, {DATASETS[dataset]}"), *(Title(EXPLAINERS[name]) for name in explainers)]
    header += [*map(Title, _SYMBOLS.values())] if table == "3" else []
    by_place = {(c["metric"], c["variant"], c["explainer"], c["coefficient"]): c for c in cells.to_dict("records")}
    blocks = []
    for series in published.list_series(key):
        lines = [by_place[*series.pair, name, ""] for name in explainers]
        rows = [[_build_ranked_cell(line, lines, side) for line in lines] for side in ("cfeval", "paper")]
        if table == "3":  # its correlations stand below the values
            correlations = [by_place.get((*series.pair, "", kind)) for kind in _SYMBOLS]
            rows[0] += [Cell() if c is None else _build_value_cell(c["cfeval"], c["deviation"]) for c in correlations]
            rows[1] += [Cell() if c is None else _build_value_cell(c["paper"]) for c in correlations]
        title = Title(series.title, ["cfeval"], direction=series.better or "none")
        blocks.append([Row(title, rows[0]), Row(Title("paper"), rows[1])])
    notes = _write_notes(published, key, views, truth)
    return Table(f"Table {table}, {DATASETS[dataset]}: paper and cfeval", header, blocks, notes)


def _write_notes(published: Published, key: Key, views: Sequence[ComputedView], truth: str) -> list[str]:
    records = [view.records[key] for view in views]
    accuracy = [record.accuracy["test"] for record in records]
    printed = published.texts.get((key[1], "accuracy", "test"))
    notes = [
        f"cfeval: mean ± standard deviation over {len(views)} seeds ({', '.join(str(view.seed) for view in views)}), "
        f"{records[0].instances:,} instances each, truth: {truth}. Ranks of cfeval are those of the means, ranks of "
        "the paper those of its values. Bold: the same rank as in the paper.",
        f"Test accuracy of cfeval: {min(accuracy):.2%} to {max(accuracy):.2%}"
        + (f"; of the paper: {printed.printed} %." if printed else "."),
        f"{records[0].setup}.",
    ]
    return [*notes, "C_soft (cont.) of the paper is compared with the discrete search."] if key[0] == "3" else notes


def _build_value_cell(value: float, deviation: float = np.nan) -> Cell:
    return Cell(value, deviation=deviation, form=NumberFormat(decimals=4))


def _build_ranked_cell(line: Mapping[Any, Any], lines: Sequence[Mapping[Any, Any]], side: str) -> Cell:
    """Return a value of cfeval or of the paper with its rank among all explainers."""
    is_cfeval, rank = side == "cfeval", line[f"{side}_rank"]
    return Cell(
        line[side],
        deviation=line["deviation"] if is_cfeval else np.nan,
        rank=rank,
        is_tied=[other[f"{side}_rank"] for other in lines].count(rank) > 1,
        bold=is_cfeval and line["cfeval_rank"] == line["paper_rank"],
        form=NumberFormat(decimals=4),
    )


def _build_coefficient_table(published: Published, cells: pd.DataFrame, truth: str) -> Table:
    columns = [(dataset, kind) for dataset in DATASETS for kind in _SYMBOLS]
    header = [Title("Metric")]
    header += [
        Title(f"{_SYMBOLS[kind]} {DATASETS[dataset]}: {side}")
        for dataset, kind in columns
        for side in ("cfeval", "paper")
    ]
    printed: dict[tuple[str, str, str], Coefficient] = {
        (coefficient.title, coefficient.dataset, coefficient.kind): coefficient
        for coefficient in published.coefficients
        if coefficient.table == "2"
    }
    by_place = {(c["metric"], c["variant"], c["dataset"], c["coefficient"]): c for c in cells.to_dict("records")}
    rows = []
    for title in dict.fromkeys(name for name, _, _ in printed):
        row = list[Cell]()
        for dataset, kind in columns:
            row += _build_coefficient_cells(printed.get((title, dataset, kind)), by_place)
        rows.append(Row(Title(title), row))
    notes = [
        f"cfeval: mean ± standard deviation over the seeds, truth: {truth}. Paper: as printed; {DASH} where it prints "
        "0 for a metric that was not computed. C_soft (cont.) of Adults is that of the discrete search, as in Table 1."
    ]
    return Table("Table 2: paper and cfeval", header, [rows], notes)


def _build_coefficient_cells(
    coefficient: Coefficient | None, by_place: Mapping[tuple[Any, ...], Mapping[Any, Any]]
) -> list[Cell]:
    if coefficient is None:
        return [Cell(), Cell()]
    line = by_place[*coefficient.pair, coefficient.dataset, coefficient.kind]
    printed = Cell(coefficient.figure.printed) if coefficient.figure.corrected else Cell()
    return [_build_value_cell(line["cfeval"], line["deviation"]), printed]
