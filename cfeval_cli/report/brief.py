"""What a screen of 80 columns is shown: one table, of scores, ranks and the agreement with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfeval_cli.errors import visible
from cfeval_cli.report.tables import (
    CIRCULAR,
    DASH,
    MOVES,
    OF_MOVES,
    contenders,
    headed,
    leading,
    low_coverage,
    marked,
    of_absent,
    of_coverage,
    of_faults,
    of_support,
    ordinal,
    row_title,
    together,
    words_of,
)

if TYPE_CHECKING:
    from rich.text import Text

    from cfeval_cli.statistics.findings import Findings

APART = "~"  # marks a rank that is not told apart from the next better one
_LEAST = 12  # signs of a metric's name that stand in one line
_Pair = tuple[str, str]  # metric and variant


@dataclass(frozen=True)
class Field:
    """A cell: lines below each other."""

    lines: Sequence[str]
    bold: bool = False


@dataclass(frozen=True)
class Column:
    """A heading, in lines or in words that may stand below each other, and a cell for each row."""

    heading: Sequence[str]
    fields: Sequence[Field]
    explainer: bool = False

    @property
    def width(self) -> int:
        """Signs of the longest line."""
        return max(len(line) for lines in (self.heading, *(one.lines for one in self.fields)) for line in lines or [""])


@dataclass(frozen=True)
class Brief:
    """A table that fits a narrow screen, and notes."""

    title: str
    rows: Sequence[str]  # names of metrics
    blocks: Sequence[str]  # a rule parts rows of different blocks
    columns: Sequence[Column]
    notes: Sequence[str] = ()

    def texts(self, width: int) -> list[Text]:
        """The lines of a screen of so many columns; no word is parted."""
        from rich.text import Text

        shown = [replace(column, heading=[visible(word) for word in column.heading]) for column in self.columns]
        made, more = replace(self, columns=shown)._fitting(width)
        lines = [Text(line, style="bold") for line in _wrapped(visible(self.title), width)]
        if made.rows:
            lines += made._table(width)
        notes = [line for note in (*more, *self.notes) for line in _wrapped(visible(note), width)]
        return [*lines, *(Text(line, style="dim") for line in notes)]

    def _fitting(self, width: int) -> tuple[Brief, list[str]]:
        """With the names of the explainers, with numbers in their place, with ranks alone, or with fewer of them."""
        if self._fits(width):
            return self, []
        names = [" ".join(column.heading) for column in self.columns if column.explainer]
        legend = ["Columns: " + ", ".join(f"{i} {name}" for i, name in enumerate(names, 1)) + "."]
        numbered = self._numbered(lambda lines: lines)
        if numbered._fits(width):
            return numbered, legend
        ranks = self._numbered(lambda lines: lines[-1:])
        if ranks._fits(width):
            return ranks, [*legend, "Ranks; --full has the values."]
        kept = len(names)
        while kept > 1 and not ranks._fits(width):
            kept -= 1
            ranks = replace(ranks, columns=_first(ranks.columns, kept))
        return ranks, [*legend, f"Ranks of {kept} of {len(names)} explainers; --full has all, and the values."]

    def _numbered(self, lines: Callable[[Sequence[str]], Sequence[str]]) -> Brief:
        """Numbers for the names of explainers, and some of the lines of their cells."""
        made, number = list[Column](), 0
        for column in self.columns:
            number += column.explainer
            fields = [replace(one, lines=lines(one.lines)) for one in column.fields]
            made.append(replace(column, heading=[str(number)], fields=fields) if column.explainer else column)
        return replace(self, columns=made)

    def _room(self, width: int) -> int:
        """Signs that are left for the names of metrics."""
        return width - sum(column.width + 1 for column in self.columns)

    def _fits(self, width: int) -> bool:
        longest = max((len(word) for row in self.rows for word in visible(row).split()), default=0)
        return self._room(width) >= max(_LEAST, longest)

    def _table(self, width: int) -> list[Text]:
        from rich.text import Text

        names = [_in_lines(visible(row), self._room(width)) for row in self.rows]
        first = max((len(line) for lines in names for line in lines), default=0)
        full = first + sum(column.width + 1 for column in self.columns)
        spare = 2 if full + len(self.columns) <= width else 1  # blanks between columns
        across = first + sum(column.width + spare for column in self.columns)
        high = max(len(column.heading) for column in self.columns)
        head = [["", *column.heading] if len(column.heading) < high else [*column.heading] for column in self.columns]
        lines = []
        for i in range(high):
            # names of explainers stand at the bottom of the heading, the lines of τ beside those of the rows
            texts = [(["" for _ in range(high - len(one))] + list(one))[i] for one in head]
            told = "".join(f"{'':{spare}}{text:>{c.width}}" for text, c in zip(texts, self.columns, strict=True))
            lines.append(Text(f"{'':{first}}{told}", style="bold"))
        for row, name in enumerate(names):
            if row == 0 or self.blocks[row] != self.blocks[row - 1]:
                lines.append(Text("─" * across, style="dim"))
            lines += self._row(row, name, first, spare)
        return [*lines, Text("─" * across, style="dim")]

    def _row(self, row: int, name: Sequence[str], first: int, spare: int) -> list[Text]:
        from rich.text import Text

        fields = [column.fields[row] for column in self.columns]
        lines = []
        for i in range(max(len(name), *(len(one.lines) for one in fields))):
            line = Text(f"{name[i] if i < len(name) else '':<{first}}")
            for column, one in zip(self.columns, fields, strict=True):
                text = visible(one.lines[i]) if i < len(one.lines) else ""
                line.append(f"{'':{spare}}{text:>{column.width}}", style="bold" if one.bold else "")
            line.rstrip()
            lines.append(line)
        return lines


def _first(columns: Sequence[Column], many: int) -> list[Column]:
    """So many of the explainers, and what is no explainer."""
    kept, left = list[Column](), many
    for column in columns:
        if not column.explainer or left:
            kept.append(column)
            left -= column.explainer
    return kept


def _wrapped(text: str, width: int) -> list[str]:
    """Text in lines; a word that is longer than a line has one of its own."""
    lines = wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines] or [""]


def _in_lines(name: str, width: int) -> list[str]:
    """A metric's name, what is in brackets below it if both do not fit one line."""
    head, sep, rest = name.partition(" (")
    if len(name) <= width or not sep:
        return _wrapped(name, width)
    detail, _, signs = rest.rpartition(")")
    arrow, _, marks = signs.strip().partition(" ")  # the arrow belongs to the name, a mark may stand below
    return [*_wrapped(f"{head}\u00a0{arrow}".strip(), width), *_wrapped(f"({detail}) {marks}".strip(), width)]


def three(value: float) -> str:
    """Three digits: 0.155, 2.84, 31.4, 314, 3.1e+03."""
    if abs(value) < 0.9995:
        return f"{round(value, 3) + 0.0:.3f}"
    return next(
        (f"{value:.{d}f}" for top, d in ((9.995, 2), (99.95, 1), (999.5, 0)) if abs(value) < top), f"{value:.1e}"
    )


def tau(value: float, low: float, high: float) -> str:
    """0.87 [.73, .87], or without an interval."""
    ends = "" if pd.isna(low) else f" [{_short(low)},{_short(high)}]"
    return f"{_short(value)}{ends}"


def _short(value: float) -> str:
    """Two digits, no zero before the point; 1, 0 and -1 as they are."""
    text = f"{round(value, 2) + 0.0:.2f}"
    return text.removesuffix(".00") if text.endswith(".00") else text.replace("0.", ".", 1)


def scores(
    lines: pd.DataFrame,
    record: Mapping[str, Any],
    taus: Mapping[str, Mapping[_Pair, str]],
    leave: Iterable[_Pair] = (),
) -> tuple[list[str], list[str], list[Column], list[str]]:
    """Names, blocks and columns of the metrics and of the truths that lead, and notes of what is left out.

    `lines` has value, rank, and the ends that must not overlap for two to be told apart; `taus` are by question.
    """
    lead, gone = leading(record), set(leave)
    names = [name for name in record["explainers"] if name in set(lines["explainer"])]
    told: dict[_Pair, dict[str, dict[Any, Any]]] = {}
    for one in lines.to_dict("records"):
        told.setdefault((one["metric"], one["variant"]), {})[one["explainer"]] = one
    kept: dict[tuple[Any, ...], list[_Pair]] = {}
    empty, same = list[str](), list[str]()
    for pair, mine in told.items():
        facts = record["metrics"][pair[0]]
        if pair in gone or (facts["role"] == "truth" and pair not in lead):
            continue
        shown = {name: one for name, one in mine.items() if not pd.isna(one["value"])}
        title = words_of(row_title(*pair, record).text)
        if not shown:
            empty.append(title)
        elif len(names) > 1 and len(shown) == len(names) and len({three(one["value"]) for one in shown.values()}) == 1:
            value = next(iter(shown.values()))["value"]
            same.append(f"{title} {f'{value:.0%}' if facts['better'] == 'none' else three(value)}")
        elif facts["better"] != "none":
            said = tuple((name, one["value"], one["rank"]) for name, one in shown.items())
            ends = tuple(of.get(pair, "") for of in taus.values())
            kept.setdefault((pair[0] if facts["role"] != "truth" else pair, said, ends), []).append(pair)
    rows, blocks = list[str](), list[str]()
    cells: list[list[Field]] = [[] for _ in names]
    ends_of: list[list[str]] = []
    # the truths first: they say who is right
    for pairs in sorted(kept.values(), key=lambda pairs: pairs[0] not in lead):
        facts, shown = record["metrics"][pairs[0][0]], told[pairs[0]]
        named = row_title(*pairs[0], record, star=pairs[0] in lead)
        for other in pairs[1:]:
            named = together(named, row_title(*other, record))
        moves = any(one.get("moves") is True for one in shown.values())
        rows.append(f"{named.text} {MOVES}" if moves else named.text)
        blocks.append("truth" if facts["role"] == "truth" else str(facts["block"]))
        places = _places(shown)
        for name, column in zip(names, cells, strict=True):
            column.append(places.get(name, Field([DASH])))
        ends_of.append([of.get(pairs[0], DASH if facts["role"] != "truth" else "") for of in taus.values()])
    columns = [
        Column(spaced(record["explainers"][name]).split(), column, explainer=True)
        for name, column in zip(names, cells, strict=True)
    ]
    if taus:
        columns.append(Column([f"τ {name}" for name in taus], [Field(one) for one in ends_of]))
    notes = [f"The same for all explainers: {', '.join(same)}."] if same else []
    return rows, blocks, columns, [*notes, *([f"Without any value: {', '.join(empty)}."] if empty else [])]


def _places(shown: Mapping[str, Mapping[Any, Any]]) -> dict[str, Field]:
    """Value and rank of each explainer, marked if it is not told apart from the next better one."""
    there = {name: one for name, one in shown.items() if not pd.isna(one["value"])}
    order = sorted(there, key=lambda name: there[name]["rank"])
    ranks = [one["rank"] for one in there.values()]
    made = {}
    for name in order:
        one = there[name]
        better = [other for other in order if there[other]["rank"] < one["rank"]]
        close = bool(better) and _overlap(there[better[-1]], one)
        rank = ordinal(one["rank"], ranks.count(one["rank"]) > 1) + CIRCULAR * (one.get("circular") is True)
        first = one["rank"] == min(ranks) and len(there) > 1
        lines = [three(one["value"])] if len(there) == 1 else [three(one["value"]), f"{rank}{APART * close}"]
        made[name] = Field(lines, bold=first)
    return made


def _overlap(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    ends = [one["low_end"], one["high_end"], other["low_end"], other["high_end"]]
    return not any(pd.isna(end) for end in ends) and ends[0] <= ends[3] and ends[2] <= ends[1]


def spaced(title: str) -> str:
    """The words of a name: Decision Boundary."""
    letters = list(title)
    return "".join(
        f" {sign}" if i and sign.isupper() and letters[i - 1].islower() and letters[i + 1 : i + 2] and
        letters[i + 1].islower() else sign
        for i, sign in enumerate(letters)
    )  # fmt: skip


def of_run(findings: Findings, record: Mapping[str, Any]) -> Brief:
    """Of one run; a ladder's rungs are left to the tables."""
    record = marked(findings.metrics, record)
    lines = findings.metrics[findings.metrics["rung"].isna()]
    if lines.empty:
        lines = findings.metrics
    lines = lines.rename(columns={"value_low": "low_end", "value_high": "high_end"})
    left = arbitrary(lines, record)
    taus = _taus(findings.correlations, record)
    rows, blocks, columns, notes = scores(lines, record, taus, left)
    level = f"{100 * record['settings']['confidence']:.4g} %"
    told = [of_marks(rows, columns, f"the {level} intervals of two neighbours overlap")]
    if taus:
        controls = contenders(findings.metrics, record, controls=True)
        less = f", without the controls ({', '.join(controls)})" if controls else ""
        told.append(f"τ: of a metric's ranking with the truth{less}; in brackets its {level} interval.")
    told += notes
    told += of_left(left, record)
    told += [*of_coverage(low_coverage(lines), record), *of_support(findings.metrics, record, left)]
    told += [*of_absent(record), *of_faults(record["explainers"], record)]
    return Brief(_title(record), rows, blocks, columns, [note for note in told if note])


def of_left(pairs: Sequence[_Pair], record: Mapping[str, Any]) -> list[str]:
    """Which metrics are not shown, and how to see them."""
    names = ", ".join(words_of(row_title(*pair, record).text) for pair in pairs)
    return [f"By --full: {names}."] if pairs else []


def _title(record: Mapping[str, Any]) -> str:
    settings, count = record["settings"], record["instances"]
    return (
        f"{record['data']['name']}: {count:,} instance{'s' * (count != 1)}, k = {settings['k']}, seed "
        f"{settings['seed']}, test accuracy {record['accuracy']['test']:.1%}"
    )


def of_marks(rows: Sequence[str], columns: Sequence[Column], apart: str) -> str:
    """What the signs mean that are there."""
    text = " ".join([*rows, *(line for column in columns for one in column.fields for line in one.lines)])
    told = ["Value, below it the rank"] if any(len(c.fields[0].lines) > 1 for c in columns[:1] if c.fields) else []
    told += [f"{APART} not told apart from the next better one: {apart}"] * (APART in text)
    told += [f"{CIRCULAR} good by construction"] * (CIRCULAR in text)
    told += [f"{MOVES} {OF_MOVES}"] * (MOVES in text)
    told += ["* the truth"] * ("*" in text)
    return f"{'; '.join(told)}." if told else ""


def arbitrary(lines: pd.DataFrame, record: Mapping[str, Any]) -> list[_Pair]:
    """Metrics by a removal that depends on an arbitrary constant, where another removal is there and no truth does."""
    constants = {name for name, facts in record["removals"].items() if facts.get("arbitrary")}
    if any(record["truths"].get(gold, {}).get("arbitrary") for gold in record["settings"]["gold"]):
        return []
    there = lines[lines["value"].notna()]
    pairs = list(dict.fromkeys(zip(there["metric"], there["variant"], strict=True)))
    of_erasure = [pair for pair in pairs if record["metrics"][pair[0]]["block"] != "counterfactual"]
    other = {metric for metric, variant in of_erasure if variant not in constants and variant in record["removals"]}
    return [(metric, variant) for metric, variant in of_erasure if variant in constants and metric in other]


def _taus(correlations: pd.DataFrame, record: Mapping[str, Any]) -> dict[str, dict[_Pair, str]]:
    """For each question of the truths that lead, each metric's τ, without controls where that is known."""
    settings = record["settings"]
    mine = correlations[(correlations["agreement"] == settings["agreement"]) & (correlations["family"] == "explainers")]
    found: dict[str, dict[_Pair, str]] = {}
    for gold, name in headed(settings["gold"], record).items():
        lines = mine[mine["gold"] == gold]
        of = "tau_without_controls" if lines["tau_without_controls"].notna().any() else "tau"
        if lines[of].isna().all():
            continue
        moves = {"tau": "moves", "tau_without_controls": "moves_without_controls"}[of]
        found[name] = {
            (one["metric"], one["variant"]): tau(one[of], one[f"{of}_low"], one[f"{of}_high"])
            + MOVES * (one[moves] is True) + CIRCULAR * (one["circular"] is True)
            for one in lines.to_dict("records")
            if not pd.isna(one[of])
        }  # fmt: skip
    return found
