"""The paper's Tables 1 and 2, from the metrics, the correlations and the run's record alone."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from io import StringIO
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfeval_cli.errors import visible
from cfeval_cli.report.latex import Cell as Cell
from cfeval_cli.report.latex import escape_latex, latex
from cfeval_cli.statistics.correlation import without_controls
from cfeval_cli.statistics.resampled import LEAST, SURE, USUAL, too_few

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable

    from cfeval_cli.statistics.findings import Findings

DASH = "–"
_ARROW = {"higher": "↑", "lower": "↓", "none": ""}
LOW_COVERAGE = 0.9  # under which an explainer is marked
HALF = 0.5  # under which words say so
_Pair = tuple[str, str]  # metric and variant
_RUNGS = 11  # of a ladder, that a table has room for
CIRCULAR = "◦"  # marks what is so by construction
MOVES = "§"  # marks what other parameters of the model move, though they change no prediction


@dataclass(frozen=True)
class Table:
    """A table that can be written in several forms."""

    title: str
    header: Sequence[Cell]
    blocks: Sequence[Sequence[Sequence[Cell]]]  # rows, in groups that a rule parts
    notes: Sequence[str] = field(default_factory=tuple)
    detail: bool = False  # for those who read on: in the files, but not on the screen
    ranked: bool = False  # its columns are explainers, which a row ranks
    part: str = "trust"  # of a report: scores, trust in the metrics, cost or appendix

    def markdown(self) -> str:
        """As a GitHub table."""

        def line(cells: Sequence[Cell]) -> str:
            texts = [_bold(cell.text) if cell.bold else _markdown(cell.text) for cell in cells]
            return "| " + " | ".join(texts) + " |"

        rule = "|" + "|".join([" --- "] + [" ---: "] * (len(self.header) - 1)) + "|"
        lines = [_bold(self.title), "", line(self.header), rule]
        lines += [line(row) for block in self.blocks for row in block]
        return "\n".join([*lines, "", *(f"{_paragraph(note)}  " for note in self.notes)]).rstrip() + "\n"

    def latex(self) -> str:
        """As tables that fit a column or a page, the intervals apart."""
        return latex(self.title, self.header, self.blocks, self.notes)

    def csv(self) -> str:
        """The cells as they are read."""
        stream = StringIO()
        lines = csv.writer(stream, lineterminator="\n")
        for cells in (self.header, *(row for block in self.blocks for row in block)):
            lines.writerow([cell.text for cell in cells])
        return stream.getvalue()

    def rich(self, width: int) -> Group:
        """For a terminal: as many columns side by side as fit, the rest below, the notes at full width."""
        from rich.console import Group
        from rich.text import Text

        parts = [self._part(columns) for columns in self._fitting(width)] if self.blocks else []
        notes = (Text(visible(note), style="dim") for note in self.notes)
        return Group(Text(visible(self.title), style="italic"), *parts, *notes)

    def _fitting(self, width: int) -> list[list[int]]:
        """Columns in groups that fit the width, each group after the first column."""
        rows = [self.header, *(row for block in self.blocks for row in block)]
        wide = [max(len(visible(row[i].text)) for row in rows) + 3 for i in range(len(self.header))]
        groups: list[list[int]] = [[]]
        for i in range(1, len(wide)):
            if groups[-1] and wide[0] + sum(wide[j] for j in groups[-1]) + wide[i] + 1 > width:
                groups.append([])
            groups[-1].append(i)
        return groups

    def _part(self, columns: list[int]) -> RichTable:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable()
        for i in (0, *columns):
            table.add_column(Text(visible(self.header[i].text)), justify="left" if i == 0 else "right", overflow="fold")
        for block in self.blocks:
            for row in block:
                cells = (row[i] for i in (0, *columns))
                table.add_row(*(Text(visible(c.text), style="bold" if c.bold else "") for c in cells))
            table.add_section()
        return table


def make(findings: Findings, record: Mapping[str, Any]) -> list[Table]:
    """Table 1, the values and ranks; Table 2, the correlations; and how sure one can be of them."""
    rungs = findings.metrics["rung"].notna()
    record = marked(findings.metrics, record)
    made = [] if rungs.all() else [_values("Scores and ranks of the explainers", findings.metrics[~rungs], record)]
    if rungs.any():
        made.append(_ladder(findings.metrics[rungs], record, detail=not rungs.all()))
    if record["truths"]:
        table = _correlations(findings.correlations, record)
        notes = [*table.notes, *_of_controls(findings, record), *of_support(findings.metrics, record)]
        made.append(replace(table, notes=notes))
    elif len(record["explainers"]) > 1:
        table = _standings(findings.metrics, record)
        made.append(replace(table, notes=[*table.notes, *of_support(findings.metrics, record)]))
    if len(findings.metric_agreement):
        made.append(_agreement(findings.metric_agreement, record, detail=bool(record["truths"])))
    made += _differences(findings.differences, record)
    made += _without_controls(findings, record)
    if len(findings.instance_agreement):
        made += _by_instance(findings, record)
    if findings.invariance is not None and len(findings.invariance):
        made.append(_invariance(findings.invariance, record))
    if findings.bounds is not None and not findings.bounds["metric"].isin(truths_of(record)).all():
        made.append(_bounds(findings.bounds, findings.metrics[~rungs] if not rungs.all() else findings.metrics, record))
    if (findings.metrics["own_n"] != findings.metrics["n"]).any():
        made.append(_own(findings.metrics[~rungs], record))
    if findings.noise is not None and findings.noise_metrics is not None:
        made += _noise(findings.noise, findings.noise_metrics, record)
    told = of_coverage(low_coverage(findings.metrics[~rungs]), record)
    return [_explained(table, told) for table in made]


def chosen(findings: Findings, record: Mapping[str, Any]) -> Findings:
    """What is told of the metrics that a run wants in its LaTeX tables, ranks and tests as they were among all."""
    names = (record["settings"].get("tables") or {}).get("metrics")
    if names is None:
        return findings
    kept = {*names, *truths_of(record), *(name for name, m in record["metrics"].items() if m["role"] == "fact")}
    tables = {field.name: getattr(findings, field.name) for field in fields(findings)}
    for name, table in tables.items():
        for column in ("metric", "than_metric", "other_metric"):
            if table is not None and column in table:
                table = table[table[column].isin(kept)]
        tables[name] = table
    return replace(findings, **tables)


def _explained(table: Table, told: Sequence[str]) -> Table:
    """What a † in a table means, if nothing says so yet: each may stand alone in a paper."""
    texts = [*(cell.text for cell in table.header), *table.notes]
    known = any(note.startswith("†") for note in table.notes) or not any("†" in text for text in texts)
    return table if known else replace(table, notes=[*table.notes, *told])


def marked(metrics: pd.DataFrame, record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a † behind the name of each explainer that covers too few instances."""
    low = low_coverage(metrics)
    return {**record, "explainers": {n: title + "†" * (n in low) for n, title in record["explainers"].items()}}


def low_coverage(metrics: pd.DataFrame) -> dict[str, float]:
    """The explainers that name k features for too few of the instances, with the share of these."""
    mine = metrics[(metrics["metric"] == "coverage") & (metrics["value"] < LOW_COVERAGE)]
    return dict(zip(mine["explainer"], mine["value"], strict=True))


def of_coverage(low: Mapping[str, float], record: Mapping[str, Any]) -> list[str]:
    """What the † means, if there is one."""
    titles = {name: title.rstrip("†") for name, title in record["explainers"].items()}
    low = {name: share for name, share in low.items() if name in titles}
    if not low:
        return []
    shares = ", ".join(f"{titles[name]} {share:.1%}" for name, share in low.items())
    half = [titles[name] for name, share in low.items() if share < HALF]
    words = f" {', '.join(half)}: for under half of the instances." * bool(half)
    k = record["settings"]["k"]
    return [f"† names k = {k} features for under {LOW_COVERAGE:.0%} of the instances: {shares}.{words}"]


def of_support(metrics: pd.DataFrame, record: Mapping[str, Any], hidden: Container[_Pair] = ()) -> list[str]:
    """Return over how many instances explainers are scored, and which rows have another n; nothing if all have all."""
    total, titles = record["instances"], record["explainers"]
    counts = instance_counts(metrics, record, hidden)
    coverage = _own_coverage(metrics)
    alone = ", ".join(f"{titles[name]} alone covers {n:,}" for name, n in coverage.items() if n < total)
    if not counts:
        return [f"No instance is covered by all explainers (support=common). {alone}."] if coverage else []
    usual = usual_counts(counts, coverage)
    is_unequal = len(set(coverage.values())) > 1 or any(usual[name] != n for name, n in coverage.items())
    exceptions = exceptions_note(counts, usual, record, titles)
    if not is_unequal and not exceptions and set(usual.values()) == {total}:
        return []
    shared = _most_common(usual.values())
    if len(set(usual.values())) > 1:
        own = ", ".join(f"{titles[name]} {n:,}" for name, n in usual.items() if n < total)
        first = (
            f"Each explainer is scored on its own instances (support=own), of {total:,}: {own}. "
            "Scores over different instances are not comparable."
        )
    elif is_unequal:
        first = f"Scored on the {shared:,} of {total:,} instances that all explainers cover (support=common). {alone}."
    elif shared < total:
        first = f"Scored on {shared:,} of {total:,} instances."
    else:
        first = f"Scored on all {total:,} instances."
    few = (
        f" Fewer than {LEAST} instances allow no intervals: leave out the explainer with the lowest coverage, or set "
        "support=own." * (is_unequal and shared < LEAST)
    )
    return [f"{first}{exceptions}{few}"]


def instance_counts(
    metrics: pd.DataFrame, record: Mapping[str, Any], hidden: Container[_Pair] = ()
) -> dict[_Pair, dict[str, int]]:
    """Return n by row of a table of scores and by explainer, without values and truths that such a table leaves out.

    A fact such as coverage is a share of all instances, and a table says so.
    """
    rows = _without_rungs(metrics)
    rows = rows[rows["n"] > 0]
    roles = rows["metric"].map({name: facts["role"] for name, facts in record["metrics"].items()})
    is_total = roles.eq("fact") & rows["n"].eq(record["instances"])
    is_other_truth = roles.eq("truth") & rows["metric"].ne(record["settings"]["agreement"])
    rows = rows[~(is_total | is_other_truth)]
    counts = _by_row(rows, rows["explainer"], rows["n"])
    return {pair: row for pair, row in counts.items() if pair not in hidden}


def _by_row(lines: pd.DataFrame, columns: Iterable[str], instances: Iterable[float]) -> dict[_Pair, dict[str, int]]:
    """Return n by row of a table and by column."""
    counts: dict[_Pair, dict[str, int]] = {}
    for metric, variant, name, n in zip(lines["metric"], lines["variant"], columns, instances, strict=True):
        counts.setdefault((metric, variant), {})[name] = int(n)
    return counts


def usual_counts(counts: Mapping[_Pair, Mapping[str, int]], columns: Iterable[str]) -> dict[str, int]:
    """Return the n of most rows of a table by column."""
    return {name: _most_common(row[name] for row in counts.values() if name in row) for name in columns}


def _without_rungs(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all explainers but the rungs of a ladder; of a ladder alone, its rows."""
    is_rung = metrics["rung"].notna()
    return metrics if is_rung.all() else metrics[~is_rung]


def _own_coverage(metrics: pd.DataFrame) -> dict[str, int]:
    """Return how many instances each explainer is scored on by itself."""
    rows = _without_rungs(metrics)
    most = rows[(rows["role"] != "fact") & (rows["own_n"] > 0)].groupby("explainer", sort=False)["own_n"].max()
    return {str(name): int(n) for name, n in most.items()}


def exceptions_note(
    counts: Mapping[_Pair, Mapping[str, int]],
    usual: Mapping[str, int],
    record: Mapping[str, Any],
    titles: Mapping[str, str],
) -> str:
    """Return the rows that rest on another n than the usual one of each column."""
    rows: dict[str, list[str]] = {}  # titles of rows, by their numbers in words
    for pair, row in counts.items():
        others = {name: n for name, n in row.items() if n != usual.get(name)}
        if not others:
            continue
        each = ", ".join(f"{titles.get(name, name)} {n:,}" for name, n in others.items())
        is_shared = len(set(row.values())) == 1
        text = f" {next(iter(row.values())):,} instances" if is_shared else f": {each} instances"
        rows.setdefault(text, []).append(words_of(row_title(*pair, record).text))
    groups = [f"{', '.join(names)}{text}{' each' * (len(names) > 1)}" for text, names in rows.items()]
    return f" Other rows: {'; '.join(groups)}." if groups else ""


def _most_common(numbers: Iterable[int]) -> int:
    """Return the most frequent number, of several the largest; 0 of none."""
    return max(Counter(numbers).items(), key=lambda item: (item[1], item[0]), default=(0, 0))[0]


def _own(metrics: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    """What each explainer scores on all instances that it covers, beside the common ones."""
    mine = metrics[(metrics["role"] == "judged") | metrics["metric"].eq(record["settings"]["agreement"])]
    names = [name for name in record["explainers"] if name in set(mine["explainer"])]
    column, blocks = _columns(mine), {}  # type: Callable[[_Pair, str], dict[str, float]], dict[str, list[list[Cell]]]
    for pair in dict.fromkeys(zip(mine["metric"], mine["variant"], strict=True)):
        values, counts = column(pair, "own_value"), column(pair, "own_n")
        cells = [
            Cell(DASH if pd.isna(values.get(name, np.nan)) else f"{_number(values[name])} ({counts[name]:,})")
            for name in names
        ]
        blocks.setdefault(block_of(pair[1], record["metrics"][pair[0]]), []).append([row_title(*pair, record), *cells])
    note = (
        "On all instances that an explainer covers (how many). They are not the same for all explainers, and so these "
        "scores are not to be compared: who covers the hard instances only looks bad."
    )
    header = [Cell("Metric"), *(Cell(record["explainers"][name]) for name in names)]
    kept, left = tidied(blocks)
    title = "Scores of each explainer on its own instances"
    return Table(title, header, kept, [note, *left], detail=True, part="scores")


def contenders(metrics: pd.DataFrame, record: Mapping[str, Any], *, controls: bool = False) -> list[str]:
    """The titles of the explainers that are no rungs and no controls; or of the controls."""
    mine = metrics[metrics["rung"].isna() & (metrics["control"].astype(bool) == controls) & metrics["value"].notna()]
    there = set(mine.loc[mine["role"] == "judged", "explainer"])
    return [title for name, title in record["explainers"].items() if name in there]


def _of_controls(findings: Findings, record: Mapping[str, Any]) -> list[str]:
    """Who is a control, and who is left."""
    controls = contenders(findings.metrics, record, controls=True)
    if not controls or findings.correlations["tau"].isna().all():
        return []
    left = contenders(findings.metrics, record)
    return [
        f"no controls: without {', '.join(controls)}, {of_controls(controls, record)}; what is left: "
        f"{', '.join(left) or 'nobody'}."
    ]


def of_controls(titles: Sequence[str], record: Mapping[str, Any]) -> str:
    """What controls are: those that name the gold are right by construction about that one's question, and no other."""
    names = [name for name, title in record["explainers"].items() if title in titles]
    settings = record.get("explainer_settings", {})
    golds = list(dict.fromkeys(gold for name in names if (gold := settings.get(name, {}).get("gold"))))
    only = ", whichever the question" * (len(record["settings"]["gold"]) > 1)
    parts = ["features at random"] * (len(golds) < len(names)) + [f"the gold itself ({gold}{only})" for gold in golds]
    return f"which name {' or '.join(parts)} and are there to be compared with"


def _without_controls(findings: Findings, record: Mapping[str, Any]) -> list[Table]:
    """Which metric is closer to the truth than which, the controls left out."""
    if findings.differences.empty:
        return []
    lines = without_controls(findings.differences)
    if lines["difference"].isna().all() or not contenders(findings.metrics, record, controls=True):
        return []
    # the larger τ over all explainers can be the smaller one without controls
    turned = lines["difference"] < 0
    for name in ("metric", "variant"):
        one, other = lines[name].copy(), lines[f"than_{name}"].copy()
        lines[name], lines[f"than_{name}"] = one.where(~turned, other), other.where(~turned, one)
    lines["difference"] = lines["difference"].abs()
    return [replace(table, title=f"{table.title}, without controls") for table in _differences(lines, record)]


def _ladder(metrics: pd.DataFrame, record: Mapping[str, Any], detail: bool) -> Table:
    """Some rungs, the first and the last among them."""
    rungs = list(dict.fromkeys(metrics["explainer"]))
    some = [rungs[round(i)] for i in np.linspace(0, len(rungs) - 1, min(len(rungs), _RUNGS))]
    table = _values("Scores and ranks on a ladder of explainers of known order", metrics, record, some)
    note = (
        f"Gold 0.9 names the gold with probability 0.9, random features otherwise. {len(some)} of {len(rungs)} rungs."
    )
    return replace(table, notes=[*table.notes, note], detail=detail, part="trust")


def _values(title: str, metrics: pd.DataFrame, record: Mapping[str, Any], names: Sequence[str] = ()) -> Table:
    shown = set(names or metrics["explainer"])
    explainers = {name: title for name, title in record["explainers"].items() if name in shown}
    settings, truths = record["settings"], leading(record)
    column = _columns(metrics)
    true_ranks = column(truths[0], "rank") if len(truths) == 1 else {}
    moves = moving(metrics)
    made = metrics[_circular(metrics)]
    circular = set(zip(made["metric"], made["variant"], made["explainer"], strict=True))
    header = [Cell("Metric"), *map(Cell, explainers.values())]
    blocks: dict[str, list[list[Cell]]] = {}
    pairs = list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))
    for metric, variant in [
        pair for pair in pairs if not is_truth(pair[0], record) or pair[0] == settings["agreement"]
    ]:
        facts = record["metrics"][metric]
        values, ranks, lows, highs = (
            column((metric, variant), name) for name in ("value", "rank", "value_low", "value_high")
        )
        star = (metric, variant) in truths
        row = [mark_moves(row_title(metric, variant, record, star), (metric, variant) in moves)]
        for name in explainers:
            value, rank = values.get(name), ranks.get(name)
            if value is None or pd.isna(value):
                row.append(Cell(DASH))
            elif facts["better"] == "none":
                row.append(Cell(f"{value:.1%}", latex=f"{100 * value:.1f}\\%"))
            else:
                tied = sum(other == rank for other in ranks.values()) > 1
                same = not star and not tied and len(explainers) > 1 and rank == true_ranks.get(name)
                same |= len(truths) > 1 and len(explainers) > 1 and rank == 1
                made_for = CIRCULAR * ((metric, variant, name) in circular)
                place = f"({ordinal(rank, tied)}{'*' if star else ''}{made_for})"
                row.append(Cell(f"{_with_interval(value, lows[name], highs[name])} {place}", bold=same))
        blocks.setdefault(block_of(variant, facts), []).append(row)
    notes = [caption(record), *of_support(metrics, record)]
    notes += _of_reference(record)
    if set(truths) & set(pairs):
        agree = "ranks that agree with it are bold" if len(truths) == 1 else "the first of a row is bold"
        notes.append(f"* marks the ground truth ({asked(record)}); {agree}.")
    notes.append(f"↑ higher is better, ↓ lower; = marks a tie.{_of_intervals(record)}")
    if _moving(metrics).any():
        notes.append(f"{MOVES} {OF_MOVES}: other parameters of the model move this value and change no prediction.")
    notes += _of_circular(metrics[metrics["explainer"].isin(list(explainers))], record)
    notes += _remarks(metrics[metrics["explainer"].isin(list(explainers))], record)
    reasons = sorted({note for note in metrics["note"] if note})
    if reasons:
        notes.append(f"{DASH}: {'; '.join(reasons)}.")
    if record["metrics_absent"]:
        notes.append(f"Not computed: {left_out(record['metrics_absent'])}.")
    notes += [*of_absent(record), *of_faults(explainers, record)]
    low = {name: share for name, share in low_coverage(metrics).items() if name in explainers}
    kept, left = tidied(blocks, ranked=True)
    return Table(title, header, kept, [*notes, *left, *of_coverage(low, record)], ranked=True, part="scores")


def of_absent(record: Mapping[str, Any]) -> list[str]:
    """Which explainers do not apply, and why."""
    absent = record["explainers_absent"]
    return [f"Explainers that do not apply: {left_out(absent)}."] if absent else []


def tidied(blocks: Mapping[str, list[list[Cell]]], *, ranked: bool = False) -> tuple[list[list[list[Cell]]], list[str]]:
    """Rows that say something: one for those that say the same of a metric; what is left out is named.

    In a table whose columns are explainers a row that says the same of all of them tells nothing either.
    """
    empty, same = list[str](), list[str]()
    kept: dict[str, dict[tuple[Any, ...], list[Cell]]] = {}
    seen: dict[tuple[Any, ...], tuple[str, tuple[Any, ...]]] = {}
    for block, rows in blocks.items():
        for row in rows:
            title, texts = words_of(row[0].text), [cell.text for cell in row[1:]]
            values = {text.partition(" (")[0] for text in texts}
            if values == {DASH}:
                empty.append(title)
            elif ranked and len(texts) > 1 and len(values) == 1:
                same.append(f"{title} {values.pop().partition(' [')[0]}")
            else:
                key = (_outside(row[0].text), *((cell.text, cell.bold) for cell in row[1:]))
                place, known = seen.setdefault(key, (block, (row[0].text, *key)))
                mine = kept.setdefault(place, {})
                mine[known] = row if known not in mine else [together(mine[known][0], row[0]), *row[1:]]
    notes = [f"The same for all explainers, and left out: {'; '.join(same)}."] if same else []
    notes += [f"Without any value: {', '.join(empty)}."] if empty else []
    return [list(rows.values()) for rows in kept.values()], notes


def words_of(title: str) -> str:
    """The name of a row without its signs."""
    return title.rstrip(f" ↑↓{MOVES}")


def _outside(title: str) -> str:
    """The name of a row but for what is in brackets, which tells variants of a metric apart."""
    return re.sub(r" \(.*\)", "", title)


def together(one: Cell, other: Cell) -> Cell:
    """One name for two rows that say the same: Validity (label / probability) ↑."""
    mine, theirs = (re.search(r" \((.*)\)", cell.text) for cell in (one, other))
    if mine is None or theirs is None:
        return one
    parts, more = mine[1].split(", "), theirs[1].split(", ")
    detail = ", ".join([*parts[:-1], f"{parts[-1]} / {more[-1]}"])
    latex = None if one.latex is None else one.latex.replace(f"({escape_latex(mine[1])})", f"({escape_latex(detail)})")
    return Cell(one.text.replace(f"({mine[1]})", f"({detail})"), one.bold, latex)


def of_faults(explainers: Mapping[str, str], record: Mapping[str, Any]) -> list[str]:
    """Who failed on some instances, and why."""
    told = {title: record.get("explained", {}).get(name, {}) for name, title in explainers.items()}
    return [
        f"{title} has no explanation of {one['faults']:,} of {record['instances']:,} instances, which are left out: "
        f"{one['reasons']}."
        for title, one in told.items()
        if one.get("faults")
    ]


def _of_reference(record: Mapping[str, Any]) -> list[str]:
    """Which truths are known of some of the instances only, and how well."""
    many, told = record["instances"], []
    for name, facts in record["truths"].items():
        if "error" in facts:
            error = f"standard error {facts['error']:.4f} on average, {facts['largest_error']:.4f} at most"
            told.append(f"{name} {facts['how']}, {error}")
        elif facts.get("instances", many) < many or not facts.get("exact", True):
            told.append(f"{name} {facts['how']}")
    return [f"Truths that the model was asked for (reference): {'; '.join(told)}."] if told else []


def _of_circular(metrics: pd.DataFrame, record: Mapping[str, Any]) -> list[str]:
    """Who is made for what, of the rows that a table of values has."""
    shown = ~metrics["metric"].isin(truths_of(record)) | (metrics["metric"] == record["settings"]["agreement"])
    lines = metrics[shown & _circular(metrics) & metrics["value"].notna()]
    told = []
    for name, mine in lines.groupby("explainer", sort=False):
        rows = [
            row_title(*pair, record).text.rstrip(" ↑↓") for pair in zip(mine["metric"], mine["variant"], strict=True)
        ]
        told.append(f"{record['explainers'][name]}: {', '.join(rows)}")
    counts = record["settings"].get("circular") == "drop"
    left = "; left out of every τ (circular=drop)" * counts
    return [f"{CIRCULAR} good by construction, which tells nothing{left}. {'; '.join(told)}."] if told else []


def _remarks(metrics: pd.DataFrame, record: Mapping[str, Any]) -> list[str]:
    """What metrics have to say of their values: once, if it is the same for all explainers."""
    told = []
    for pair, lines in metrics[metrics["remark"] != ""].groupby(["metric", "variant"], sort=False):
        remarks = dict(zip(lines["explainer"], lines["remark"], strict=True))
        title = row_title(str(pair[0]), str(pair[1]), record).text.rstrip(" ↑↓")
        shared = {remark.partition("; ")[0] for remark in remarks.values()}
        own = {name: remark.partition("; ")[2] for name, remark in remarks.items()}
        if len(set(remarks.values())) == 1:
            told.append(f"{title}: {next(iter(remarks.values()))}.")
        elif len(shared) == 1 and all(own.values()):
            said = "; ".join(f"{record['explainers'][name]}: {remark}" for name, remark in own.items())
            told.append(f"{title}: {shared.pop()}. {said}.")
        else:
            said = "; ".join(f"{record['explainers'][name]}: {remark}" for name, remark in remarks.items())
            told.append(f"{title}. {said}.")
    return told


def _correlations(correlations: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    settings = record["settings"]
    title = "Agreement of each metric's ranking with the ground truth"
    if correlations.empty or correlations["tau"].isna().all():
        told = "; ".join(sorted({note for note in correlations["note"] if note}))
        reason = record["correlations_absent"] or told or "no metric has values for two explainers"
        return Table(
            title, [Cell("Metric"), Cell("τ"), Cell("ρ")], [], [f"No correlations: {reason}.", caption(record)]
        )
    columns = _coefficients(correlations, record)
    pairs: dict[_Pair, None] = dict.fromkeys(pair for column in columns for pair in column.lines.index.tolist())
    blocks: dict[str, list[list[Cell]]] = {}
    outside = False
    tied = _tied(columns, list(pairs))
    # of the truths, which only a ladder can judge, the one that the run leads with
    for pair in [p for p in pairs if p not in tied and (not is_truth(p[0], record) or p in leading(record))]:
        row = [row_title(*pair, record)]
        for column in columns:
            of, line = column.name, column.by_pair.get(pair)
            if line is None or pd.isna(line[of]):
                row.append(Cell(DASH))
            elif not of.startswith("p_"):
                low, high, best = line[f"{of}_low"], line[f"{of}_high"], bool(line[of] == column.best)
                beyond = bool(line[of] < low - 1e-9 or line[of] > high + 1e-9)
                outside |= beyond
                marks = "‡" * beyond + MOVES * (line.get(_MOVES.get(of, "")) is True)
                marks += CIRCULAR * (line.get("circular") is True)
                row.append(Cell(_with_interval(line[of], low, high) + marks, bold=best))
            else:
                row.append(_probability(line[of]))
        blocks.setdefault(block_of(pair[1], record["metrics"][pair[0]]), []).append(row)
    shown = pd.concat([column.lines for column in columns])
    notes = [
        caption(record),
        f"Kendall's τ and Spearman's ρ against the ground truth ({settings['agreement']}) under each definition "
        f"of gold; * marks what this run leads with ({asked(record)}). The largest of a column is bold."
        f"{_of_intervals(record)} "
        "p: how often a random order of the explainers would agree with the truth as well.",
    ]
    if outside:
        notes.append(
            "‡ outside its interval: a resample is noisier than the sample, and among many close explainers its "
            "τ and ρ are too small."
        )
    if _moving(shown).any():
        notes.append(
            f"{MOVES} {OF_MOVES}: other parameters of the model move this τ and change no prediction. The table of "
            "ranges says how far."
        )
    if (_circular(shown) & shown["tau"].notna()).any():
        notes.append(f"{CIRCULAR} this metric is best at this truth by construction, whoever explains.")
    ladder = correlations[correlations["family"] == "ladder"]
    if len(ladder):
        notes.append(
            f"Ladder: {ladder['explainers'].max()} explainers that name the gold ({ladder['gold'].iloc[0]}) more and "
            "more often, judged by that order."
        )
    short = sorted({note for note in shown["note"] if note})
    if short:
        notes.append(f"{DASH}: " + "; ".join(short) + ".")
    if tied:
        names = ", ".join(words_of(row_title(*pair, record).text) for pair in tied)
        notes.append(f"Tie all explainers, and are left out: {names}.")
    kept, left = tidied(blocks)
    return Table(title, [Cell("Metric"), *(column.header for column in columns)], kept, [*notes, *left])


def _tied(columns: Sequence[_Column], pairs: Sequence[_Pair]) -> list[_Pair]:
    """The metrics that tie all explainers, so that no τ of theirs tells anything; none if all do."""
    lines = {pair: [line for column in columns if (line := column.by_pair.get(pair)) is not None] for pair in pairs}
    there = {pair: [one for one in of if not pd.isna(one["tau"])] for pair, of in lines.items()}
    tied = [pair for pair, of in there.items() if of and all(pd.isna(one["rho"]) for one in of)]
    return tied if len(tied) < sum(map(bool, there.values())) else []


@dataclass(frozen=True)
class _Column:
    """A column of correlations: τ, ρ or a p."""

    header: Cell
    name: str
    lines: pd.DataFrame  # by metric and variant
    by_pair: Mapping[_Pair, dict[Any, Any]]  # the same, which several columns share
    truths: Sequence[str]  # metrics that are the truth

    @cached_property
    def best(self) -> float:
        """The largest, not counting a truth that is judged by itself."""
        judged = [pair[0] not in self.truths for pair in self.lines.index]
        return float(self.lines[judged][self.name].max())


def _by_pair(lines: pd.DataFrame) -> dict[_Pair, dict[Any, Any]]:
    """Lines that are indexed by metric and variant."""
    return dict(zip(lines.index.tolist(), lines.to_dict("records"), strict=True))


def _coefficients(correlations: pd.DataFrame, record: Mapping[str, Any]) -> list[_Column]:
    """The leading truths with their p, the ladder, and the other definitions of gold."""
    settings, truths = record["settings"], truths_of(record)
    chosen = correlations[correlations["agreement"] == settings["agreement"]]
    names = headed(chosen["gold"], record)
    sides = [(name, "*" * (gold in settings["gold"]), chosen[chosen["gold"] == gold]) for gold, name in names.items()]
    ladder = ("ladder", "", correlations[correlations["family"] == "ladder"])
    sides.insert(sum(bool(star) for _, star, _ in sides), ladder)
    columns = []
    for name, star, lines in sides:
        lines = lines.set_index(["metric", "variant"])
        if lines["tau"].isna().all():
            continue
        by_pair = _by_pair(lines)
        for of, sign, tex, less in _COEFFICIENTS:
            if less and not (lines["explainers_without_controls"] < lines["explainers"]).any():
                continue  # nobody is left out
            if lines[of].isna().all():
                continue
            text, latex = f"{sign} {name}{star}{less}", f"{tex} {escape_latex(name)}{star}{less}"
            columns.append(_Column(Cell(text, latex=latex), of, lines, by_pair, truths))
            if star or name == "ladder":
                # a narrow screen can part it from its figure
                of_what = f"{sign} ladder" if name == "ladder" else f"{sign}{less}"
                columns.append(_Column(Cell(f"p({of_what})"), f"p_{of}", lines, by_pair, truths))
    return columns


_MOVES = {"tau": "moves", "tau_without_controls": "moves_without_controls"}
_COEFFICIENTS = (
    ("tau", "τ", r"$\tau$", ""),
    ("tau_without_controls", "τ", r"$\tau$", ", no controls"),
    ("rho", "ρ", r"$\rho$", ""),
)

OF_MOVES = "depends on an arbitrary constant of the model, not on its predictions"


def _moving(lines: pd.DataFrame) -> pd.Series:
    """Which lines other parameters of the model move; none if that was not asked."""
    return lines["moves"].isin([True]) if "moves" in lines else pd.Series(False, index=lines.index)


def moving(metrics: pd.DataFrame) -> set[_Pair]:
    """The metrics whose value of some explainer moves."""
    mine = metrics[_moving(metrics)]
    return set(zip(mine["metric"], mine["variant"], strict=True))


def _circular(lines: pd.DataFrame) -> pd.Series:
    """Which lines are so by construction; none if that was not asked."""
    return lines["circular"].isin([True]) if "circular" in lines else pd.Series(False, index=lines.index)


def mark_moves(title: Cell, moves: bool) -> Cell:
    """A § behind the name of what other parameters of the model move."""
    return Cell(f"{title.text} {MOVES}", title.bold, f"{title.latex} {escape_latex(MOVES)}") if moves else title


def _invariance(ranges: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    """For each metric the lowest and the highest τ with each truth, and what moves it."""
    settings = record["settings"]
    lead = ranges["agreement"] == settings["agreement"]
    chosen = ranges[lead] if lead.any() else ranges  # of a ladder alone there is its order only
    golds = headed(chosen["gold"], record)
    told = {(one["metric"], one["variant"], one["gold"]): one for one in chosen.to_dict("records")}
    rows = []
    for pair in dict.fromkeys(zip(chosen["metric"], chosen["variant"], strict=True)):
        cells = []
        for gold in golds:
            one = told.get((*pair, gold))
            if one is None:
                cells.append(Cell(DASH))
            elif one["moves"] is not True:
                cells.append(Cell(_number(one["tau"], 3)))
            else:
                span = f"{_number(one['tau_lowest'], 3)} to {_number(one['tau_highest'], 3)}"
                cells.append(Cell(f"{_number(one['tau'], 3)}{MOVES} {span} ({one['moved_by']})"))
        rows.append([row_title(*pair, record), *cells])
    header = [Cell("Metric")]
    for gold, name in golds.items():
        star = "*" * (gold in settings["gold"])
        header.append(Cell(f"τ {name}{star}", latex=rf"$\tau$ {escape_latex(name)}{star}"))
    note = (
        f"τ of each metric with the ground truth on {chosen['instances'].max():,} instances, and, where it moves ("
        f"{MOVES}), from the lowest to the highest over {chosen['reparametrisations'].max():,} draws of other "
        "parameters of the model that change no prediction, the explanations being the same. In parentheses, what "
        "moves it alone: the constant that a feature's effects share with the bias, the part of the embeddings that is "
        "orthogonal to the weights, or the scale of the embeddings. What moves is no property of the model."
    )
    kept, left = tidied({"": rows})
    return Table("What an arbitrary constant of the model moves", header, kept, [note, *left], detail=True)


def standings(metrics: pd.DataFrame, record: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """For each block of metrics the mean rank of each explainer, the best first, and over how many metrics.

    A rank among fewer explainers is another figure: of a block those metrics count that rank the most.
    """
    judged = metrics[(metrics["role"] == "judged") & metrics["rank"].notna() & metrics["rung"].isna()]
    blocks = judged["metric"].map({name: facts["block"] for name, facts in record["metrics"].items()})
    found = {}
    for block, lines in judged.groupby(blocks, sort=False):
        several = (
            lines.groupby(["metric", "variant"])["rank"].transform("nunique") > 1
        )  # one that ties all says nothing
        told = lines[several]
        who = told.groupby(["metric", "variant"])["explainer"].transform(lambda names: " ".join(sorted(names)))
        if len(told):
            most = max(dict.fromkeys(who), key=lambda one: (len(one.split()), (who == one).sum()))
            mean = told[who == most].groupby("explainer", sort=False)["rank"].agg(["mean", "count"])
            found[str(block)] = mean.sort_values("mean", kind="stable")
    return found


def _standings(metrics: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    """Where no truth is known: who comes first, by the metrics of each kind."""
    explainers = record["explainers"]
    rows = []
    for block, mean in standings(metrics, record).items():
        best = mean["mean"].min()
        cells = [
            Cell(f"{mean['mean'][name]:.2f}", bold=bool(mean["mean"][name] == best))
            if name in mean.index
            else Cell(DASH)
            for name in explainers
        ]
        rows.append([Cell(f"{block} metrics ({mean['count'].max()})"), *cells])
    note = (
        "No truth is known of this model, so that no metric can be judged: these are mean ranks over the metrics of "
        "each kind (how many), the lowest bold. Metrics that tie all explainers, or rank fewer of them than others of "
        "their kind, are left out. Erasure asks what "
        "contributed, counterfactuals ask what would change the prediction; an average over both answers neither."
    )
    header = [Cell("Rank by"), *map(Cell, explainers.values())]
    return Table("Mean ranks of the explainers", header, [rows], [note], part="scores")


def _agreement(pairs: pd.DataFrame, record: Mapping[str, Any], detail: bool) -> Table:
    """A triangle: τ between the rankings of two metrics."""
    told = {
        ((line["metric"], line["variant"]), (line["other_metric"], line["other_variant"])): line["tau"]
        for line in pairs.to_dict("records")
    }
    order = list(dict.fromkeys([pair for one in told for pair in one]))
    header = [Cell("Metric")] + [Cell(str(i)) for i in range(2, len(order) + 1)]
    rows = []
    for i, row in enumerate(order[:-1], 1):
        title = row_title(*row, record)
        cells = [Cell("" if (row, other) not in told else f"{told[row, other] + 0.0:.2f}") for other in order[1:]]
        rows.append([Cell(f"{i} {title.text}", latex=f"{i} {title.latex}"), *cells])
    last = row_title(*order[-1], record)
    rows.append([Cell(f"{len(order)} {last.text}", latex=f"{len(order)} {last.latex}"), *(Cell("") for _ in order[1:])])
    note = (
        "Kendall's τ between the rankings of the explainers by the row's metric and by the column's: 1 the same order, "
        "-1 the opposite. Metrics that agree need not be right."
    )
    return Table("How far the metrics agree with each other", header, [rows], [note], detail=detail)


def left_out(absent: Mapping[str, str]) -> str:
    """Names, together where the reason is the same."""
    reasons: dict[str, list[str]] = {}
    for name, reason in absent.items():
        reasons.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())


def _differences(differences: pd.DataFrame, record: Mapping[str, Any]) -> list[Table]:
    """For each truth that leads, which metric is closer to it than which."""
    if differences.empty:
        return []
    chosen = differences[differences["agreement"] == record["settings"]["agreement"]]
    names = headed(chosen["gold"], record)
    parts = {gold: chosen[chosen["gold"] == gold] for gold in names if gold in record["settings"]["gold"]}
    several = len(parts) > 1
    return [_closer(part, record, f": {names[gold]}" if several else "") for gold, part in parts.items()]


def _closer(mine: pd.DataFrame, record: Mapping[str, Any], about: str) -> Table:
    """A triangle: how much larger the τ of a row's metric is than that of a column's."""
    pairs: dict[tuple[_Pair, _Pair], Any] = {
        ((line["metric"], line["variant"]), (line["than_metric"], line["than_variant"])): line
        for line in mine.to_dict("records")
    }
    # twins, which have the same τ in every resample, share a row
    twins: dict[_Pair, list[_Pair]] = {}
    wins: dict[_Pair, int] = {}
    for (one, other), line in pairs.items():
        wins[one], wins[other] = wins.get(one, 0) + 1, wins.get(other, 0)
        if line["same"]:
            twins.setdefault(one, []).append(other)
    hidden = {other for one, others in twins.items() for other in others}
    order = sorted((row for row in wins if row not in hidden), key=lambda row: -wins[row])
    header = [Cell("Metric")] + [Cell(str(i)) for i in range(2, len(order) + 1)]
    pairs = {both: line for both, line in pairs.items() if not pd.isna(line["difference"])}
    unlike = {both for both in combinations(order, 2) if both not in pairs and both[::-1] not in pairs}
    rows = []
    for i, row in enumerate(order, 1):
        cells = []
        for other in order[1:]:
            line = pairs.get((row, other))
            sure = line is not None and bool(line["p_holm"] < SURE)
            blank = DASH if (row, other) in unlike else ""
            cells.append(Cell(blank if line is None else f"{line['difference']:.3f}{'*' * sure}", bold=sure))
        title = row_title(*row, record)
        rows.append([Cell(f"{i} {title.text}", latex=f"{i} {title.latex}"), *cells])
    notes = [
        f"τ of the row's metric less τ of the column's, against the ground truth ({mine['agreement'].iloc[0]}, gold: "
        f"{mine['gold'].iloc[0]}); * p < {SURE} after Holm's correction over all pairs. Paired: both metrics see the "
        f"same {record['resampled']:,} resamples of the instances; the explainers are what they are."
    ]
    if twins:
        same = (
            f"{row_title(*one, record).text} as {', '.join(row_title(*other, record).text for other in others)}"
            for one, others in twins.items()
            if one not in hidden
        )
        notes.append(f"The same τ in every resample: {'; '.join(same)}.")
    if unlike:
        notes.append(f"{DASH}: the two rank unlike explainers, and their τ cannot be compared.")
    hypotheses = len(order) * (len(order) - 1) // 2 - len(unlike)
    if too_few(record["resampled"], hypotheses):
        notes.append(
            f"With {record['resampled']:,} resamples no p of {hypotheses} can be small enough: raise resamples."
        )
    return Table(f"Which metric is closer to the truth than which{about}", header, [rows], notes, detail=True)


def _by_instance(findings: Findings, record: Mapping[str, Any]) -> list[Table]:
    """Agreement instance by instance, over all explainers and, if there are controls, without those."""
    table = _instances(findings.instance_agreement, record)
    lines = without_controls(findings.instance_agreement)
    lines = pd.DataFrame(lines[lines["tau"].notna()])
    if lines.empty or not contenders(findings.metrics, record, controls=True):
        return [table]
    return [table, replace(_instances(lines, record), title=f"{table.title}, without controls")]


def _instances(instances: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    settings = record["settings"]
    chosen = instances[instances["agreement"] == settings["agreement"]]
    golds = headed(chosen["gold"], record)
    header = [Cell("Metric")]
    for gold, name in golds.items():
        star = "*" * (gold in settings["gold"])
        header += [Cell(f"τ {name}{star}", latex=rf"$\tau$ {escape_latex(name)}{star}"), Cell(f"d {name}{star}")]
    by_gold = {gold: chosen[chosen["gold"] == gold].set_index(["metric", "variant"]) for gold in golds}
    best = {(gold, of): column[of].max() for gold, column in by_gold.items() for of in ("tau", "d")}
    told = {gold: _by_pair(lines) for gold, lines in by_gold.items()}
    rows = []
    for pair in dict.fromkeys(zip(chosen["metric"], chosen["variant"], strict=True)):
        row = [row_title(*pair, record)]
        for gold in golds:
            line = told[gold].get(pair)
            for of in ("tau", "d"):
                if line is None or pd.isna(line[of]):
                    row.append(Cell(DASH))
                else:
                    text = _with_interval(line[of], line[f"{of}_low"], line[f"{of}_high"])
                    row.append(Cell(text, bold=bool(line[of] == best[gold, of])))
        rows.append(row)
    there = chosen[chosen["tau"].notna()]
    counts = _by_row(there, there["gold"], there["instances"])
    usual = usual_counts(counts, golds)
    many = ", ".join(f"{name} {usual[gold]:,}" for gold, name in golds.items())
    same = f"{max(usual.values()):,} instances" if len(set(usual.values())) == 1 else f"some instances ({many})"
    note = (
        f"For each of {same}, how a metric orders the explainers against "
        f"how much of the gold ({settings['agreement']}) each found. τ: mean over instances, a tied pair being neither "
        "right nor wrong. d: (right - wrong) / all pairs of explainers that the gold does not tie, 1 if the metric "
        f"always sees which explainer found more.{_of_intervals(record, alone=True)}"
        f"{exceptions_note(counts, usual, record, golds)}"
    )
    kept, left = tidied({"": rows})
    return Table("Agreement instance by instance", header, kept, [note, *left], detail=True)


def _bounds(bounds: pd.DataFrame, metrics: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    settings, data = record["settings"], record["data"]
    named = list(dict.fromkeys(metrics["explainer"]))[:_RUNGS]
    found = [name.removeprefix("gold_") for name in bounds.columns.astype(str) if name.startswith("gold_")]
    golds = headed([gold for gold in found if f"gold_{gold}_telling" in bounds.columns], record)
    header = [Cell("Metric"), Cell("worst"), Cell("best"), *(Cell(record["explainers"][name]) for name in named)]
    header += [
        Cell("telling"),
        *(Cell(f"gold {name}{'*' * (gold in settings['gold'])}") for gold, name in golds.items()),
    ]
    column = _columns(metrics)
    rows = []
    for line in bounds.to_dict("records"):
        pair = (line["metric"], line["variant"])
        if is_truth(pair[0], record):
            continue  # whose best is the gold itself
        places = column(pair, "place")
        shares = [line["telling"] / line["instances"], *(line[f"gold_{gold}_telling"] for gold in golds)]
        cells = [*(_percent(places.get(name)) for name in named), *map(_percent, shares)]
        rows.append([row_title(*pair, record), Cell(_number(line["worst"])), Cell(_number(line["best"])), *cells])
    first = bounds.iloc[0]
    shown = bounds[~bounds["metric"].isin(truths_of(record))]
    counts = _by_row(shown, [""] * len(shown), shown["instances"])
    usual = usual_counts(counts, [""])
    exceptions = exceptions_note(counts, usual, record, {})
    how = {
        "enumerated": f"every set of {settings['k']} of its features is tried",
        "greedy": "sets are grown greedily, each metric's best and worst by one feature at a time, so that better "
        "and worse ones may exist",
    }[first["method"]]
    notes = [
        f"{data['name']}: the worst and the best score that any explanation of size k = {settings['k']} could get; for "
        f"each of {max(usual.values()):,} instances {how}.{exceptions} Then where each explainer stands between them "
        "(0 % the worst, 100 % the best, on the instances that it is scored on). Telling: the share of instances on "
        "which not all sets score the same. On those, how much of the gold, under each definition, the metric's own "
        "optimum has (where several sets are best, on average): what the metric rewards. bounds.csv has the same over "
        "all instances."
    ]
    kept, left = tidied({"": rows})
    title = "Bounds of each metric, and each explainer's place between them"
    return Table(title, header, kept, [*notes, *left], detail=True)


def _noise(names: pd.DataFrame, values: pd.DataFrame, record: Mapping[str, Any]) -> list[Table]:
    """How often another seed of an explainer names the same features, and what that does to its values."""
    settings, titles = record["settings"], record["explainers"]
    what = "the same feature" if settings["k"] == 1 else f"the same {settings['k']} features"
    rows: list[list[Cell]] = []
    said, alike = list[str](), list[str]()
    for line in names.to_dict("records"):
        title = titles[line["explainer"]]
        share = Cell(DASH)
        if line["instances"]:
            ends = (_percent(line[end]).text for end in ("same_features", "low", "high"))
            share = Cell("{} [{}, {}]".format(*ends))
            if line["deterministic"] == "yes":
                alike.append(title)
            else:
                said.append(f"{title} {_percent(line['same_features']).text}")
        told = [_percent(line["overlap"]), _percent(line["same_order"]), Cell(f"{line['instances']:,}")]
        rows.append([Cell(title), share, *told])
    many, level = names["asked"].max(), f"{100 * settings['confidence']:.4g}"
    notes = [
        f"{record['data']['name']}: {many:,} instances explained a second time with another seed of the explainer, the "
        f"model and the search as they were. Same features: how often it names {what}, with the exact {level} % "
        "interval; overlap: features in common, as a share of the larger set; same order: how often all that it names "
        "is the same; instances: for which it names anything."
    ]
    if said:
        notes.append(f"Another seed of the explainer names {what} for so many of the instances: {'; '.join(said)}.")
    if alike:
        notes.append(f"Draw nothing, features and scores are the same: {', '.join(alike)}.")
    title = "What another seed of the explainer names"
    made = [Table(title, [*map(Cell, _NOISE)], [rows], notes, detail=True, part="appendix")]
    drawn = names.loc[names["deterministic"] == "no", "explainer"].tolist()
    mine = values[values["explainer"].isin(drawn) & ~values["metric"].isin(truths_of(record))]
    return [*made, _moved(mine, drawn, record)] if len(mine) else made


_NOISE = ("Explainer", "same features", "overlap", "same order", "instances")


def _moved(values: pd.DataFrame, names: Sequence[str], record: Mapping[str, Any]) -> Table:
    """How far each value moves with another seed of the explainer, beside how sure it is."""
    lines = {(line["metric"], line["variant"], line["explainer"]): line for line in values.to_dict("records")}
    blocks: dict[str, list[list[Cell]]] = {}
    for pair in dict.fromkeys(zip(values["metric"], values["variant"], strict=True)):
        row = [row_title(*pair, record)]
        for name in names:
            line = lines.get((*pair, name))
            if line is None or pd.isna(line["difference"]):
                row.append(Cell(DASH))
            else:
                known = "" if pd.isna(line["se"]) else f" ({_number(line['noise_se'])} of {_number(line['se'])})"
                row.append(Cell(f"{_number(abs(line['difference']))}{known}"))
        blocks.setdefault(block_of(pair[1], record["metrics"][pair[0]]), []).append(row)
    counts = _by_row(values, values["explainer"], values["instances"])
    usual = usual_counts(counts, names)
    many = ", ".join(f"{record['explainers'][name]} {usual[name]:,}" for name in names)
    note = (
        "How far each explainer's value moves with another seed of the explainer, on the instances that it explains "
        f"with both ({many}).{exceptions_note(counts, usual, record, record['explainers'])} In brackets the standard "
        "error that its own noise makes, of the standard error over the same instances, which contains it; none from "
        f"fewer than {LEAST}. Explainers that draw nothing are left out."
    )
    title = "What another seed of the explainer does to each metric's value"
    kept, left = tidied(blocks)
    header = [Cell("Metric"), *(Cell(record["explainers"][name]) for name in names)]
    return Table(title, header, kept, [note, *left], detail=True, part="appendix")


def costs(ledger: pd.DataFrame, record: Mapping[str, Any]) -> Table:
    """Seconds and model rows by explainer, search and metric."""
    instances = record["instances"]
    titles = {"explainer": record["explainers"], "search": record["explainers"]}
    blocks: dict[str, list[list[Cell]]] = {}
    for line in ledger.to_dict("records"):
        part, name, each = line["part"], line["name"], line["model_rows"] / instances
        title = titles.get(part, {}).get(name) or record["metrics"].get(name, {}).get("title") or part
        detail = f" ({line['access']})" if line["access"] else f" ({name})" if is_truth(name, record) else ""
        cells = [
            f"{line['seconds']:.3f}",
            f"{1000 * line['seconds'] / instances:.3f}",
            f"{line['model_rows']:,}",
            f"{each:,.1f}",
        ]
        label = f"{part}: {title}{detail}" if name else part
        blocks.setdefault(part, []).append([Cell(label), *map(Cell, cells)])
    header = ["", "seconds", "ms an instance", "model rows", "rows an instance"]
    note = (
        f"{record['data']['name']}, {instances:,} instances. Seconds of one core; of explanations known from earlier "
        "runs, what computing them took then. Model rows: inputs put before the model."
    )
    return Table("What it cost", [*map(Cell, header)], list(blocks.values()), [note], detail=True, part="cost")


def _percent(share: float | None) -> Cell:
    return (
        Cell(DASH)
        if share is None or pd.isna(share)
        else Cell(f"{round(100 * share) + 0}%", latex=f"{round(100 * share) + 0}\\%")
    )


def _with_interval(value: float, low: float, high: float) -> str:
    """0.2521 [0.241, 0.263]."""
    return _number(value) if pd.isna(low) else f"{_number(value)} [{_number(low, 3)}, {_number(high, 3)}]"


def _of_intervals(record: Mapping[str, Any], *, alone: bool = False) -> str:
    """What the brackets are; `alone` of what no differences are taken of."""
    settings, many = record["settings"], record["resampled"]
    if not many:
        return ""
    if alone and settings["resamples"] == "auto":
        many = min(many, USUAL)
    level = f"{100 * settings['confidence']:.4g}"
    return f" In brackets: {level} % intervals over {many:,} resamples of the instances; none from fewer than {LEAST}."


def _probability(p: float) -> Cell:
    return Cell(DASH) if pd.isna(p) else Cell("<0.001" if p < 0.001 else f"{p:.3f}")


def caption(record: Mapping[str, Any]) -> str:
    """What a table is about: data, instances, k, seed."""
    data, settings = record["data"], record["settings"]
    # not where the file came from this time: the second run, from the data folder, must give the same bytes
    hashes = ", ".join(f"{one[:8]}…" for one in data["sha256"].split(", "))
    rows = f"{data['rows_used']:,} of {data['rows_read']:,} rows of {data['file']} (sha256 {hashes})"
    theirs = record["reference"].get("test_accuracy")
    paper = f" (the paper's: {theirs:.2%})" if theirs else ""
    partial = "" if data["complete"] else f", an incomplete copy: {data['rows_read']:,} of {data['rows_whole']:,} rows"
    vectors = data.get("embedding")
    if vectors:
        partial += f"; {vectors['name']} ({vectors['words']:,} of {data['vocabulary']:,} words)"
    if data.get("search_words"):
        partial += f"; {data['search_words']:,} words to search among"
    count = record["instances"]
    return (
        f"{data['name']}: {rows}{partial}; test accuracy {record['accuracy']['test']:.2%}{paper}"
        f"{beside_accuracy(record)}.{of_fidelity(record)} "
        f"{count:,} instance{'s' * (count != 1)}, k = {settings['k']}, seed {settings['seed']}; {record['setup']}; "
        f"incomplete explanations: {settings['incomplete']}."
    )


def beside_accuracy(record: Mapping[str, Any]) -> str:
    """What an accuracy is to be held against: the share of the largest class, and the AUC, which does not see it."""
    majority, area = (record.get(name, {}).get("test") for name in ("majority", "auc"))
    told = "" if majority is None else f", largest class {majority:.2%}"
    return told + ("" if area is None else f", AUC {area:.3f}")


def of_fidelity(record: Mapping[str, Any]) -> str:
    """Of a model that learned another one's predictions: how often it says the same."""
    told = record.get("fidelity")
    if not told:
        return ""
    return (
        f" It learned another model's predictions, and says the same for {told['test']:.1%} "
        f"[{told['low']:.1%}, {told['high']:.1%}] of the {told['rows']:,} test rows (fidelity)."
    )


def is_truth(metric: str, record: Mapping[str, Any]) -> bool:
    """Whether a metric is the truth itself, by which others are judged."""
    return bool(record["metrics"].get(metric, {}).get("role") == "truth")


def leading(record: Mapping[str, Any]) -> list[_Pair]:
    """The ground truths, as metric and variant, that a run leads with."""
    settings = record["settings"]
    return [(settings["agreement"], gold) for gold in settings["gold"]]


def headed(golds: Iterable[str], record: Mapping[str, Any]) -> dict[str, str]:
    """Definitions of gold with their headings, the leading ones first, which are named by what they ask."""
    lead = record["settings"]["gold"]
    questions = [record["truths"].get(gold, {}).get("question", "paper") for gold in lead]
    names = {
        gold: question if question != "paper" and questions.count(question) == 1 else gold
        for gold, question in zip(lead, questions, strict=True)
    }
    known = dict.fromkeys(golds)
    return {gold: name for gold, name in names.items() if gold in known} | {g: g for g in known if g not in names}


def asked(record: Mapping[str, Any]) -> str:
    """The agreement and the golds that a run leads with, in words."""
    settings = record["settings"]
    names = headed(settings["gold"], record)
    told = [f"gold: {gold}" if name == gold else f"{name} (gold: {gold})" for gold, name in names.items()]
    return ", ".join([settings["agreement"], *told])


def truths_of(record: Mapping[str, Any]) -> list[str]:
    """The metrics that are the truth itself."""
    return [name for name in record["metrics"] if is_truth(name, record)]


def block_of(variant: str, facts: Mapping[str, Any]) -> str:
    """Rows of one block stand together: counterfactual metrics by what the search could see."""
    return variant if facts["block"] == "counterfactual" else str(facts["block"])


def row_title(metric: str, variant: str, record: Mapping[str, Any], star: bool = False) -> Cell:
    """A metric as the first column names it."""
    facts = record["metrics"][metric]
    titled = record["removals"].get(variant, {}) if facts["block"] != "counterfactual" else {}
    shown = str(titled.get("title", variant))
    fields = {"{variant}": shown, "{search}": record["search"], "{metric}": metric}
    detail = re.sub(r"\{\w+\}", lambda m: fields.get(m[0], ""), facts["detail"])
    text, latex = facts["title"], _formula(facts["latex"]) or escape_latex(facts["title"])
    arrow = _ARROW[facts["better"]]
    suffix = ("*" if star else "") + (f" ({detail})" if detail else "")
    math = {"↑": r" $\uparrow$", "↓": r" $\downarrow$", "": ""}[arrow]
    return Cell(f"{text}{suffix} {arrow}".rstrip(), latex=latex + escape_latex(suffix) + math)


def _columns(metrics: pd.DataFrame) -> Callable[[_Pair, str], dict[str, float]]:
    """A function of a metric with its variant and the name of a column: what that says of each explainer."""
    lines: dict[_Pair, list[dict[Any, Any]]] = {}
    for line in metrics.to_dict("records"):
        lines.setdefault((line["metric"], line["variant"]), []).append(line)
    return lambda pair, what: {line["explainer"]: line[what] for line in lines.get(pair, [])}


def _number(value: float, digits: int = 4) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < 1000 else f"{value:.{digits}g}"  # no -0


def ordinal(rank: float | None, tied: bool = False) -> str:
    """1st, 2nd, 3rd …; a rank that is shared, the mean of several places, is written as in 2.5=."""
    if rank is None or pd.isna(rank):
        return DASH
    if tied:
        return f"{rank:g}="
    whole = int(rank)
    ending = "th" if 10 <= whole % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(whole % 10, "th")
    return f"{whole}{ending}"


# what a metric's own LaTeX may be made of; a run folder of another hand may say \input
_FORMULA = re.compile(
    r"(?:[A-Za-z0-9 .,:;()+=/_^-]|\\(?:mathcal|mathrm|mathbf|mathit|mathsf|text|textit|textsc|alpha|beta|delta|tau|rho|"
    r"Delta|uparrow|downarrow)(?![A-Za-z])|[{}$])*"
)


def _formula(latex: object) -> str | None:
    """A metric's name in LaTeX, if it is no more than that."""
    if not isinstance(latex, str) or not _FORMULA.fullmatch(latex) or latex.count("$") % 2:
        return None
    depth, inside = 0, False
    for sign in latex:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        inside ^= sign == "$"
        if depth < 0 or (sign == "$" and depth) or (sign in "_^" and not inside):
            return None
    return None if depth or re.search(r"[_^]\s*([_^$]|$)|[_^][^{}$]*[_^]|\$\$", latex) else latex


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|&~$])", r"\\\1", visible(text))


def _bold(text: str) -> str:
    inner = _markdown(text).strip()  # what has spaces around it would not be bold
    return f"**{inner}**" if inner else ""


def _paragraph(text: str) -> str:
    """Text that begins a line, and is no heading, list or rule."""
    return re.sub(
        r"^([#+=-]|\d+(?=[.)]))", lambda m: f"{m[0]}\\" if m[0][0].isdigit() else f"\\{m[0]}", _markdown(text).strip()
    )
