"""The tables of the comparison: the paper's tables beside those of cfeval, and the verdicts on its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.report.numbers import fixed
from cfeval_cli.report.table import DASH, Cell, Row, Table, Title
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, Coefficient, Key, Published
from cfeval_cli.study.paper.verdicts import LEVEL, Verdict, count_needed_seeds, list_truths
from cfeval_cli.study.paper.views import EXPERIMENTS, Computed

_SIGNS = {"tau": "τ", "rho": "ρ"}
_BY_PAPER = {None: Cell(), True: Cell("holds"), False: Cell("does not\u00a0hold")}


def build_brief(verdicts: Sequence[Verdict]) -> Table:
    """Build the table of claims for the screen: the verdicts, and in how many seeds a claim is true."""
    note = "Below a verdict: the seeds in which the claim is true. --full shows the intervals, the rule and all tables."
    return _tabulate_claims(verdicts, {one.claim.id: one.claim.text for one in verdicts}, _write_brief, [note])


def build_claims(verdicts: Sequence[Verdict]) -> Table:
    """Build the table of claims with intervals and the rule of the verdicts."""
    titles = {one.claim.id: f"{one.claim.text} [{one.claim.scope}]" for one in verdicts}
    return _tabulate_claims(verdicts, titles, _write_verdict, _explain_verdicts(verdicts))


def _tabulate_claims(verdicts: Sequence[Verdict], titles: Mapping[str, str], write: Any, notes: Sequence[str]) -> Table:
    truths = list(dict.fromkeys(one.truth for one in verdicts))
    header = [*map(Title, ("claim", "paper's\u00a0own figures", *(f"cfeval, truth: {truth}" for truth in truths)))]
    rows: dict[str, list[Cell]] = {}
    for one in verdicts:
        rows.setdefault(one.claim.id, [_BY_PAPER[one.printed]]).append(write(one))
    return Table(
        "What the paper claims", header, [[Row(Title(titles[name]), row) for name, row in rows.items()]], notes
    )


def _write_brief(verdict: Verdict) -> Cell:
    if not verdict.seeds:
        return Cell(reason=verdict.word)
    return Cell(verdict.word.replace("not ", "not\u00a0"), detail=f"{verdict.holds_in}\u00a0of\u00a0{verdict.seeds}")


def _write_verdict(verdict: Verdict) -> Cell:
    if not verdict.seeds:
        return Cell()
    low, high = verdict.interval
    more = f"; {verdict.needed:,} seeds needed" if verdict.needed else ""
    share = f"{verdict.holds_in} of {verdict.seeds}, {100 * low:.0f} to {100 * high:.0f} %{more}"
    return Cell(f"{verdict.word} ({share})")


def _explain_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    tests = max((verdict.tests for verdict in verdicts if verdict.seeds), default=1)
    seeds = max((verdict.seeds for verdict in verdicts), default=0)
    notes = [
        "In brackets: in how many seeds the claim is true, and the exact 95 % CI (Clopper and Pearson) of that share. "
        "A seed decides split, training, explainers and search; the data stay the same.",
        "Always: one seed against the claim refutes it. Sometimes: one seed is enough. Mostly, and always without a "
        "seed against it: the claim holds if it is true in more than half of the seeds, with p ≤ "
        f"{LEVEL:g} (two-sided sign test, Holm-adjusted for {tests} tests). It is refuted if it is false in more than "
        "half, with the same p. It does not hold if it is true in fewer than half. Otherwise it is open; the number of "
        "seeds needed assumes the same share.",
        "No number of seeds proves an always. The interval bounds the share of exceptions. claims.csv has the figures.",
    ]
    if seeds and 2.0 ** (1 - seeds) * tests > LEVEL:
        notes.append(
            f"{seeds} seeds allow p ≥ {2.0 ** (1 - seeds):.4g} before the correction for {tests} tests: no claim can "
            f"pass the sign test. At least {count_needed_seeds(1, 1, tests)} seeds are needed."
        )
    return notes


def build_tables(
    published: Published, cells: pd.DataFrame, views: Sequence[Computed], numbers: Sequence[str]
) -> list[Table]:
    """Build the paper's tables beside those of cfeval, under the first truth."""
    truth = list_truths(views)[0]
    some = cells[(cells["truth"] == truth)]
    built = []
    for number in sorted(numbers):
        if number == "2" and some.loc[some["table"] == "2", "seeds"].max() > 0:
            built.append(_build_coefficients(published, some[some["table"] == "2"], truth))
        for table, dataset in EXPERIMENTS:
            lines = some[(some["table"] == table) & (some["dataset"] == dataset)]
            if table == number and lines["seeds"].max() > 0:
                runs = [view for view in views if view.truth == truth and (table, dataset) in view.runs]
                built.append(_build_values(published, lines, (table, dataset), runs, truth))
    return built


def _build_values(published: Published, cells: pd.DataFrame, key: Key, views: Sequence[Computed], truth: str) -> Table:
    """Build Table 1 or 3 with two lines for each metric: that of cfeval, and that of the paper."""
    table, dataset = key
    explainers = list(published.of(key)[0].figures)
    header = [Title(f"Table {table}, {DATASETS[dataset]}"), *(Title(EXPLAINERS[name]) for name in explainers)]
    header += [*map(Title, _SIGNS.values())] if table == "3" else []
    by_place = {(c["metric"], c["variant"], c["explainer"], c["coefficient"]): c for c in cells.to_dict("records")}
    blocks = []
    for series in published.of(key):
        lines = [by_place[*series.pair, name, ""] for name in explainers]
        rows = [
            [
                _write_rank(line[side], line["deviation"] if side == "cfeval" else np.nan, line[f"{side}_rank"],
                            [other[f"{side}_rank"] for other in lines],
                            bold=side == "cfeval" and line["cfeval_rank"] == line["paper_rank"])
                for line in lines
            ] for side in ("cfeval", "paper")
        ]  # fmt: skip
        if table == "3":  # its correlations stand below the values
            correlations = [by_place.get((*series.pair, "", kind)) for kind in _SIGNS]
            rows[0] += [Cell() if c is None else _write(c["cfeval"], c["deviation"]) for c in correlations]
            rows[1] += [Cell() if c is None else _write(c["paper"]) for c in correlations]
        title = Title(series.title, ["cfeval"], direction=series.better or "none")
        blocks.append([Row(title, rows[0]), Row(Title("paper"), rows[1])])
    return Table(
        f"Table {table}, {DATASETS[dataset]}: paper and cfeval", header, blocks, _note(published, key, views, truth)
    )


def _note(published: Published, key: Key, views: Sequence[Computed], truth: str) -> list[str]:
    records = [view.runs[key].record for view in views]
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


def _write(value: float, deviation: float = np.nan) -> Cell:
    return Cell(value, deviation=deviation, form=fixed(4))


def _write_rank(value: float, deviation: float, rank: float, ranks: Sequence[float], *, bold: bool) -> Cell:
    is_tied = list(ranks).count(rank) > 1
    return Cell(value, deviation=deviation, rank=rank, is_tied=is_tied, bold=bold, form=fixed(4))


def _build_coefficients(published: Published, cells: pd.DataFrame, truth: str) -> Table:
    columns = [(dataset, kind) for dataset in DATASETS for kind in _SIGNS]
    header = [Title("Metric")]
    header += [
        Title(f"{_SIGNS[kind]} {DATASETS[dataset]}: {side}")
        for dataset, kind in columns
        for side in ("cfeval", "paper")
    ]
    printed: dict[tuple[str, str, str], Coefficient] = {
        (one.title, one.dataset, one.kind): one for one in published.coefficients if one.table == "2"
    }
    by_place = {(c["metric"], c["variant"], c["dataset"], c["coefficient"]): c for c in cells.to_dict("records")}
    rows = []
    for title in dict.fromkeys(name for name, _, _ in printed):
        row = list[Cell]()
        for dataset, kind in columns:
            row += _write_coefficient(printed.get((title, dataset, kind)), by_place)
        rows.append(Row(Title(title), row))
    notes = [
        f"cfeval: mean ± standard deviation over the seeds, truth: {truth}. Paper: as printed; {DASH} where it prints "
        "0 for a metric that was not computed. C_soft (cont.) of Adults is that of the discrete search, as in Table 1."
    ]
    return Table("Table 2: paper and cfeval", header, [rows], notes)


def _write_coefficient(one: Coefficient | None, by_place: Mapping[tuple[Any, ...], Mapping[Any, Any]]) -> list[Cell]:
    if one is None:
        return [Cell(), Cell()]
    line = by_place[*one.pair, one.dataset, one.kind]
    return [_write(line["cfeval"], line["deviation"]), Cell(one.figure.printed) if one.figure.meant else Cell()]
