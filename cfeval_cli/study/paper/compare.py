"""Ours and theirs side by side: every cell of the paper's tables, and every claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core.files import as_csv, make_folder, refuse_linked_path, whole_file
from cfeval_cli.errors import UserError
from cfeval_cli.report.numbers import fixed
from cfeval_cli.report.table import DASH, Cell, Row, Table, Title
from cfeval_cli.statistics.ranking import ranks
from cfeval_cli.study.paper import document
from cfeval_cli.study.paper.audit import of_the_paper
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, Key, Published, Series, load, read
from cfeval_cli.study.paper.verdicts import LEVEL, Verdict, Word, judge, needed
from cfeval_cli.study.paper.views import EXPERIMENTS, Computed, Printed, computed

CELLS = [
    "table", "dataset", "metric", "variant", "explainer", "coefficient", "gold", "seeds", "ours", "deviation", "theirs",
    "difference", "our_rank", "their_rank",
]  # fmt: skip
VERDICTS = [
    "claim", "text", "scope", "gold", "verdict", "seeds", "holds_in", "low", "high", "p", "p_holm", "tests", "needed",
    "by_their_own_figures", "figures",
]  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What is written."""

    cells: pd.DataFrame
    verdicts: list[Verdict]
    tables: list[Table]

    @property
    def answer(self) -> str:
        """How many claims hold under the definition of gold that leads."""
        golds = list(dict.fromkeys(one.gold for one in self.verdicts))
        mine = [one for one in self.verdicts if one.gold == golds[0]]
        many = {word: sum(one.word == word for one in mine) for word in _ORDER}
        told = ", ".join(f"{count} {_counted(word, count)}" for word, count in many.items() if count)
        seeds = max(one.seeds for one in mine)
        return f"of the paper's {len(mine)} claims {told} (gold {golds[0]}, {seeds} seed{'s' * (seeds != 1)})"

    @property
    def brief(self) -> Table:
        """Each claim, by the paper's own figures and by ours under each definition of gold."""
        golds = list(dict.fromkeys(one.gold for one in self.verdicts))
        claims = {one.claim.id: one for one in self.verdicts}
        by_own = {None: Cell(), True: Cell("holds"), False: Cell("does not\u00a0hold")}
        header = [Title("claim"), Title("its\u00a0own figures"), *(Title(f"gold: {gold}") for gold in golds)]
        verdicts = {(one.claim.id, one.gold): one for one in self.verdicts}
        rows = [
            Row(Title(one.claim.text), [by_own[one.printed], *(_short(verdicts[name, gold]) for gold in golds)])
            for name, one in claims.items()
        ]
        notes = [
            "Below a verdict: in how many seeds the claim is true. By --full: intervals, what an open one needs, the "
            "rule of the verdicts, and the paper's tables beside ours."
        ]
        return Table("What the paper claims", header, [rows], notes)


_ORDER: tuple[Word, ...] = ("holds", "does not hold", "refuted", "open", "not computed")


def _counted(word: Word, count: int) -> str:
    """The verdict on one or several claims."""
    if word in ("holds", "does not hold"):
        return word if count == 1 else {"holds": "hold", "does not hold": "do not hold"}[word]
    return f"{'is' if count == 1 else 'are'} {word}"


def _short(verdict: Verdict) -> Cell:
    """Write a verdict in lines of a few letters."""
    if verdict.word == "not computed" and not verdict.seeds:
        return Cell(reason=verdict.word)
    word = DASH if verdict.word == "not computed" else verdict.word.replace("not ", "not\u00a0")
    seeds = f"{verdict.holds_in}\u00a0of\u00a0{verdict.seeds}" if verdict.seeds else ""
    return Cell(word, detail=seeds)


def compare(folders: Sequence[Path], into: Path, tables: Sequence[str] = ("1", "2", "3")) -> Comparison:
    """From stored run folders only: paper.csv, claims.csv, paper.md, paper.tex and paper.html."""
    refuse_linked_path(into)
    published, views = read(load()), computed(folders)
    keys = {key for view in views for key in view.runs}
    if not keys:
        raise UserError("none of the folders has a run of the paper's experiments.")
    cells = pd.DataFrame([*_values(published, views), *_coefficients(published, views)], columns=CELLS)
    verdicts = judge(published, views)
    made = [table for table in _tables(published, cells, views, verdicts) if table.number in ("", *tables)]
    checked = [
        replace(table, detail=True) for table in of_the_paper().tables()
    ]  # in the files; cfeval paper audit shows them
    told = Comparison(cells, verdicts, [*(part.table for part in made), *checked])
    make_folder(into)
    lines = pd.DataFrame([_line(verdict) for verdict in verdicts], columns=VERDICTS)
    texts = {"paper.csv": as_csv(cells), "claims.csv": as_csv(lines)}
    texts |= document.write(told.tables)
    for name, text in texts.items():
        with whole_file(into / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return told


def _line(verdict: Verdict) -> dict[str, Any]:
    own = {None: "not printed", True: "holds", False: "does not hold"}[verdict.printed]
    figures = "; ".join(f"{name} {value:.4f}" for name, value in verdict.figures.items())
    told = (
        verdict.claim.id,
        verdict.claim.text,
        verdict.claim.scope,
        verdict.gold,
        verdict.word,
        verdict.seeds,
        verdict.holds_in,
        *verdict.interval,
        verdict.p,
        verdict.corrected,
        verdict.tests,
        verdict.needed or "",
        own,
        figures,
    )
    return dict(zip(VERDICTS, told, strict=True))


def _values(published: Published, views: Sequence[Computed]) -> list[dict[str, Any]]:
    """Cells of Tables 1 and 3 that are values of explainers."""
    paper, lines = Printed(published), []
    for series in published.series:
        key, pair = (series.table, series.dataset), series.pair
        theirs = paper.ranked(key, pair)
        for gold in _golds(views):
            mine = [view.values(key, pair) for view in views if view.gold == gold and key in view.runs]
            means = {name: np.array([one[name] for one in mine if name in one]) for name in series.figures}
            ours = _ranked(means, series)
            for name, figure in series.figures.items():
                lines.append(
                    {
                        **_where(series.table, series.dataset, pair, gold), "explainer": name, "coefficient": "",
                        **_told(means[name], figure.value), "our_rank": ours[name], "their_rank": theirs[name],
                    }
                )  # fmt: skip
    return lines


def _ranked(values: Mapping[str, Any], series: Series) -> dict[str, float]:
    means = np.array([some.mean() if len(some) else np.nan for some in values.values()])
    return dict(zip(values, ranks(means, series.better or "lower").tolist(), strict=True))


def _coefficients(published: Published, views: Sequence[Computed]) -> list[dict[str, Any]]:
    """τ and ρ, of Tables 2 and 3."""
    lines = []
    for one in published.coefficients:
        key, pair = one.source, one.pair
        for gold in _golds(views):
            mine = [view.coefficient(key, pair, one.kind) for view in views if view.gold == gold]
            values = np.array([value for value in mine if not isnan(value)])
            lines.append(
                {
                    **_where(one.table, one.dataset, pair, gold), "explainer": "", "coefficient": one.kind,
                    **_told(values, one.figure.value),
                }
            )  # fmt: skip
    return lines


def _where(table: str, dataset: str, pair: tuple[str, str], gold: str) -> dict[str, str]:
    return {"table": table, "dataset": dataset, "metric": pair[0], "variant": pair[1], "gold": gold}


def _told(values: Any, theirs: float) -> dict[str, float]:
    ours = float(values.mean()) if len(values) else np.nan
    spread = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return {"seeds": len(values), "ours": ours, "deviation": spread, "theirs": theirs, "difference": ours - theirs}


def _golds(views: Sequence[Computed]) -> list[str]:
    return sorted({view.gold for view in views}, key=lambda gold: (gold != "signed", gold))


@dataclass(frozen=True)
class _Numbered:
    """A table, and which of the paper's it is."""

    number: str
    table: Table


def _tables(
    published: Published, cells: pd.DataFrame, views: Sequence[Computed], verdicts: Sequence[Verdict]
) -> list[_Numbered]:
    gold = _golds(views)[0]
    lead = cells[cells["gold"] == gold]
    made = []
    for table, dataset in EXPERIMENTS:
        mine = lead[(lead["table"] == table) & (lead["dataset"] == dataset)]
        if mine["seeds"].max() > 0:
            made.append(_Numbered(table, _side_by_side(published, mine, (table, dataset), views, gold)))
    two = lead[(lead["table"] == "2")]
    if two["seeds"].max() > 0:
        made.insert(sum(part.number == "1" for part in made), _Numbered("2", _table_2(published, two, gold)))
    made.append(_Numbered("", _claims(verdicts)))
    return made


def _side_by_side(published: Published, cells: pd.DataFrame, key: Key, views: Sequence[Computed], gold: str) -> Table:
    """Two lines for each metric: ours, and the paper's."""
    table, dataset = key
    explainers = list(published.of(key)[0].figures)
    header = [Title(f"Table {table}, {DATASETS[dataset]}"), *(Title(EXPLAINERS[name]) for name in explainers)]
    if table == "3":
        header += [Title("τ"), Title("ρ")]
    blocks = []
    lines = {
        (c["metric"], c["variant"], c["explainer"]): c for c in cells[cells["coefficient"] == ""].to_dict("records")
    }
    for series in published.of(key):
        mine = [lines[*series.pair, name] for name in explainers]
        our_ranks, their_ranks = ([c[name] for c in mine] for name in ("our_rank", "their_rank"))
        ours = [_cell(c["ours"], c["deviation"], c["our_rank"], our_ranks) for c in mine]
        ours = [replace(cell, bold=c["our_rank"] == c["their_rank"]) for cell, c in zip(ours, mine, strict=True)]
        theirs = [_cell(c["theirs"], np.nan, c["their_rank"], their_ranks) for c in mine]
        if table == "3":  # which has its correlations below the values
            ours += [_cell(c["ours"], c["deviation"]) for c in _pair_of(cells, series)]
            theirs += [_cell(c["theirs"], np.nan) for c in _pair_of(cells, series)]
        arrow = {"higher": " ↑", "lower": " ↓", None: ""}[series.better]
        title = Title(f"{series.title}{arrow}, ours")
        blocks.append([Row(title, ours), Row(Title("the paper's"), theirs)])
    told = [view for view in views if view.gold == gold and key in view.runs]
    accuracy = [view.runs[key].record.accuracy["test"] for view in told]
    printed = published.texts.get((dataset, "accuracy", "test"))
    notes = [
        f"Ours: mean ± standard deviation over {len(told)} seeds ({', '.join(str(view.seed) for view in told)}), "
        f"{told[0].runs[key].record.instances:,} instances each, gold: {gold}, ranks of the means; the paper's "
        "ranks are those of its values. Ranks of ours that are also the paper's are bold. Test accuracy "
        f"{min(accuracy):.2%} to {max(accuracy):.2%}" + (f"; the paper's: {printed.printed} %." if printed else "."),
        told[0].runs[key].record.setup
        + "."
        + (" Its C_soft (cont.) is compared with the discrete search's." if table == "3" else ""),
    ]
    return Table(f"Table {table} of the paper, {DATASETS[dataset]}, and ours", header, blocks, notes)


def _pair_of(cells: pd.DataFrame, series: Series) -> list[dict[str, Any]]:
    """τ and ρ of a metric."""
    nothing = {"ours": np.nan, "deviation": np.nan, "theirs": np.nan}
    mine = cells[(cells["metric"] == series.metric) & (cells["variant"] == series.variant)]
    by_kind: dict[str, Any] = {line["coefficient"]: line for line in mine.to_dict("records")}
    return [by_kind.get(kind, nothing) for kind in ("tau", "rho")]


def _cell(value: float, deviation: float, rank: float = np.nan, ranks: Sequence[float] = ()) -> Cell:
    is_tied = list(ranks).count(rank) > 1
    return Cell(value, deviation=deviation, rank=rank, is_tied=is_tied, form=fixed(4))


def _table_2(published: Published, cells: pd.DataFrame, gold: str) -> Table:
    header = [Title("Metric")]
    columns = [(dataset, kind) for dataset in DATASETS for kind in ("tau", "rho")]
    signs = {"tau": "τ", "rho": "ρ"}
    header += [
        Title(f"{signs[kind]} {DATASETS[dataset]}: {whose}") for dataset, kind in columns for whose in ("ours", "paper")
    ]
    titles = list(dict.fromkeys(one.title for one in published.coefficients if one.table == "2"))
    rows = []
    for title in titles:
        row = list[Cell]()
        for dataset, kind in columns:
            one = next(
                (
                    c
                    for c in published.coefficients
                    if (c.table, c.title, c.dataset, c.kind) == ("2", title, dataset, kind)
                ),
                None,
            )
            mine = None
            if one is not None:
                some = cells[(cells["dataset"] == dataset) & (cells["coefficient"] == kind)]
                some = some[(some["metric"] == one.metric) & (some["variant"] == one.variant)]
                mine = some.iloc[0] if len(some) else None
            row.append(Cell() if mine is None else _cell(mine["ours"], mine["deviation"]))
            row.append(Cell() if one is None or isnan(one.figure.value) else Cell(one.figure.printed))
        rows.append(Row(Title(title), row))
    notes = [
        f"Ours: mean ± standard deviation over the seeds, gold: {gold}. The paper's as printed; {DASH} where it prints "
        "0 for a metric that it did not compute. C_soft (cont.) of Adults is the discrete search's, as in its Table 1."
    ]
    return Table("Table 2 of the paper, and ours", header, [rows], notes)


def _claims(verdicts: Sequence[Verdict]) -> Table:
    golds = list(dict.fromkeys(verdict.gold for verdict in verdicts))
    header = [*map(Title, ("Claim", "by the paper's own figures", *(f"ours, gold: {gold}" for gold in golds)))]
    rows: dict[str, list[Cell]] = {}
    titles: dict[str, Title] = {}
    for verdict in verdicts:
        own = {None: Cell(), True: Cell("holds"), False: Cell("does not hold")}[verdict.printed]
        titles[verdict.claim.id] = Title(f"{verdict.claim.text} [{verdict.claim.scope}]")
        row = rows.setdefault(verdict.claim.id, [own])
        row.append(Cell(in_words(verdict)) if verdict.seeds else Cell())
    lines = [Row(titles[name], cells) for name, cells in rows.items()]
    return Table("What the paper claims", header, [lines], _rules(verdicts))


def in_words(verdict: Verdict) -> str:
    """The verdict, in how many seeds the claim is true, the interval of that share, and what an open one needs."""
    low, high = verdict.interval
    more = f"; {verdict.needed:,} seeds needed" if verdict.needed else ""
    return f"{verdict.word} ({verdict.holds_in} of {verdict.seeds}, {100 * low:.0f} to {100 * high:.0f} %{more})"


def _rules(verdicts: Sequence[Verdict]) -> list[str]:
    tests = max((verdict.tests for verdict in verdicts if verdict.seeds), default=1)
    seeds = max((verdict.seeds for verdict in verdicts), default=0)
    notes = [
        "In brackets: in how many of the seeds the claim is true (training, split and explainers all reseeded, the "
        "data the same), and the exact 95 % interval (Clopper and Pearson) for the share of all seeds. What the claim "
        "says of seeds decides what that means. Always: one seed against it refutes it. Sometimes: one seed for it is "
        "enough. Mostly, and always without a seed against it: holds if true in more than half of the seeds and a "
        f"two-sided sign test, corrected by Holm over the {tests} claims and definitions tested, has p ≤ {LEVEL:g}; "
        "refuted if the same says the opposite; does not hold if true in fewer than half, though that could be chance: "
        "a claim has to be shown; open otherwise, and then so many seeds are needed as would pass if it went on being "
        "true as often.",
        "An always without a seed against it is never proven: the interval says how rare exceptions may be. The "
        "figures behind each verdict are in claims.csv.",
    ]
    if seeds and 2.0 ** (1 - seeds) * tests > LEVEL:
        notes.insert(
            1,
            f"With {seeds} seeds the smallest p is {2.0 ** (1 - seeds):.4g}, times {tests} tests: nothing could have "
            f"passed the sign test. {needed(1, 1, tests)} seeds are the fewest that could.",
        )
    return notes
