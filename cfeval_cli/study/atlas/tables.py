"""The atlas in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.report.tables import Cell, Table
from cfeval_cli.statistics.hierarchical import LEAST, Told
from cfeval_cli.study.atlas.claims import Claim
from cfeval_cli.study.atlas.summary import Answer, Metric, Summary

ASKED = {
    "contribution": "what made the prediction come out so",
    "change": "what would make it come out otherwise",
    "either": "whether the model reads the feature at all",
}
_CIRCLE = "◦"  # behind what is best by construction in some rows
_MOVES = "§"  # behind what depends on a constant that no prediction depends on
_FEW = 3  # names in a sentence


def headlines(summary: Summary) -> list[tuple[str, str, list[str]]]:
    """For each of the two questions: its name, which metric to use, and what is to be known of that."""
    return [(one.question, *_say(one)) for one in summary.answers if one.question != "either"]


def _say(answer: Answer) -> tuple[str, list[str]]:
    best, clean = answer.best, answer.clean
    if best is None:
        few = f"fewer than {LEAST} data sets or judges say nothing of others"
        first = next(iter(answer.compared), None)
        more = (
            [] if first is None else [f"In these runs {first.title} has the highest mean τ, {number(first.lead.mean)}."]
        )
        return f"Open: {few}", more
    if not answer.sure:
        return (
            "Open: no metric agrees with the truth better than chance, whichever data sets and judges are drawn",
            [f"The highest mean τ is that of {best.title}, {spread(best.lead)}."],
        )
    tied = [one.title for one in answer.tied]
    points = [
        f"Mean τ {spread(best.lead)} over {best.lead.rows:,} rows: {best.lead.data} data sets, "
        f"{best.lead.judges} judges.",
        f"Not significantly different from it: {named(tied)}."
        if tied
        else "Every other metric is significantly worse.",
    ]
    if clean is not None and clean is not best:
        points.append(f"Without what is right by construction: {clean.title}, {spread(clean.clean)}.")
    elif clean is best:
        points.append(f"It is the best without what is right by construction, too: {spread(clean.clean)}.")
    return f"{best.title} ranks first{', tied with others' * bool(tied)}", points


def named(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = [f"{len(names) - _FEW} more"] if len(names) > _FEW else []
    some = [*names[:_FEW], *more]
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"


def number(value: float) -> str:
    """Two digits, as so few data sets deserve."""
    return "–" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def spread(told: Told) -> str:
    """A mean with its interval, if it has one."""
    return f"{number(told.mean)} [{number(told.low)}, {number(told.high)}]" if told.known else number(told.mean)


def make(summary: Summary, claims: Sequence[Claim]) -> list[Table]:
    """All tables."""
    made = [_answer(one) for one in summary.answers]
    made += [_claims(claims), _variance(summary), _stability(summary), _circular(summary)]
    made += [by(summary, one.question, "k") for one in summary.answers]
    return made


def _answer(answer: Answer) -> Table:
    header = [
        "metric", "τ", "behind the best, p", "nothing by construction", "with controls", "better half",
        "diagnosticity", "by instance", "model rows", "n", "data sets", "judges",
    ]  # fmt: skip
    best = answer.best
    blocks: list[list[list[Cell]]] = [[], []]
    for one in answer.metrics:
        blocks[0 if one.compared else 1].append(_line(one, answer, best))
    notes = [
        "τ: mean over data sets, judges, truths and seeds, controls left out, with its 95 % interval over all of "
        "these; – where fewer than three data sets or judges have it. Behind the best: the mean difference, "
        "without the rows in which the best is right by construction, and p of a t-test over data sets after Holm's "
        "correction. Nothing by construction: without rows in which the metric is right by construction, and without "
        "explainers that are made for it or for the truth. Better half: explainers whose true score is not below the "
        "median. Diagnosticity: how often the truer of two explanations of one instance is preferred, ties by half; "
        "0.5 is chance. Model rows: for one explanation; what another metric has asked before is not counted "
        "again, and shared if that is all.",
        f"{_CIRCLE} right by construction in some rows. {_MOVES} depends on a constant that no prediction depends on. "
        "Below the line: not compared with the others, since it has fewer than nine tenths of the cells, or such a "
        "constant.",
    ]
    return Table(f"{answer.question.capitalize()}: {ASKED[answer.question]}", [Cell(name) for name in header],
                 [block for block in blocks if block], notes)  # fmt: skip


def _line(one: Metric, answer: Answer, best: Metric | None) -> list[Cell]:
    marks = _CIRCLE * bool(one.circular) + _MOVES * one.arbitrary
    gap = answer.behind.get(one.pair)
    behind = "the best" if one is best else "" if gap is None else f"{number(gap[0])}, {_p(gap[3])}"
    lead = best is not None and (one is best or one in answer.tied)
    return [
        Cell(f"{one.title}{marks}"), Cell(spread(one.lead), bold=lead), Cell(behind or "–"), Cell(spread(one.clean)),
        Cell(number(one.taus["tau"].mean)), Cell(number(one.taus["tau_without_weak"].mean)),
        Cell(spread(one.diagnosticity)), Cell(number(one.agreement.mean)),
        Cell(f"{one.model_rows:,.0f}" if one.model_rows else "shared"),
        Cell(f"{one.rows:,}"), Cell(str(one.lead.data)), Cell(str(one.lead.judges)),
    ]  # fmt: skip


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _claims(claims: Sequence[Claim]) -> Table:
    rows = [
        [
            Cell(one.name), Cell(one.of), Cell(one.verdict, bold=one.verdict != "open"),
            Cell(f"{number(one.figure.shown)} [{number(one.figure.ends[0])}, {number(one.figure.ends[1])}]"),
            Cell(number(one.limit)), Cell(_p(one.p)), Cell(f"{one.figure.rows:,}"), Cell(str(one.figure.sets)),
            Cell(str(one.figure.judges)),
        ]
        for one in claims
    ]  # fmt: skip
    header = ["claim", "of", "answer", "figure", "limit", "p", "n", "data sets", "judges"]
    notes = [f"{one.name}: {one.text}" for one in claims]
    notes.append("p: two-sided, after Holm's correction over all claims. What is not told below 0.05 is open.")
    return Table("Claims", [Cell(name) for name in header], [rows], notes)


def _variance(summary: Summary) -> Table:
    found = summary.variance.to_dict("records")
    many = {str(line["question"]): int(line["rows"]) for line in found}
    shares = {(str(line["question"]), str(line["factor"])): float(line["share"]) for line in found}
    rows = [
        [Cell(factor), *(Cell(f"{max(0.0, shares[question, factor]):.1%}") for question in many)]
        for factor in dict.fromkeys(factor for _, factor in shares)
    ]
    rows.append([Cell("n"), *(Cell(f"{size:,}") for size in many.values())])
    notes = [
        "Of the variance of τ without controls over rows: what each factor adds to the R² of a sum of effects, on "
        "average over the orders in which they could enter; these and all else sum to one. Lines with × are a part of "
        "all else: what is added if each metric may have an effect of its own in each judge, or data set."
    ]
    return Table("What τ depends on", [Cell("factor"), *map(Cell, many)], [rows], notes)


def _stability(summary: Summary) -> Table:
    rows = [
        [Cell(f"{line['truth']} and {line['other']}"), Cell(number(float(line["tau"]))), Cell(str(line["metrics"]))]
        for line in summary.stability.to_dict("records")
    ]
    notes = [
        "Kendall's τ between the orders of the metrics by their mean τ with either truth; n metrics that both have."
    ]
    return Table("Do two truths rank the metrics alike?", [Cell("truths"), Cell("τ"), Cell("n")], [rows], notes)


def _circular(summary: Summary) -> Table:
    rows = [
        [Cell(str(line["title"])), Cell(str(line["truth"])), Cell(str(line["k"])), Cell(f"{line['rows']:,}")]
        for line in summary.circular.to_dict("records")
    ]
    notes = ["Metrics that are best at a truth by construction: the column “nothing by construction” is without them."]
    return Table("What is so by construction", [Cell("metric"), Cell("truth"), Cell("k"), Cell("n")], [rows], notes)


def by(summary: Summary, question: str, factor: str) -> Table:
    """The mean τ of each metric for each value of a factor, with n."""
    found = summary.means(question, factor).to_dict("records")
    values = sorted({line[factor] for line in found})
    known = {(line["metric"], line["variant"], line[factor]): line for line in found}
    answer = next(one for one in summary.answers if one.question == question)
    rows = []
    for one in answer.metrics:
        lines = [known.get((*one.pair, value)) for value in values]
        texts = ["–" if line is None else f"{number(float(line['mean']))} ({line['rows']})" for line in lines]
        rows.append([Cell(one.title), *map(Cell, texts)])
    header = [Cell("metric"), *(Cell(f"{factor} = {value}" if factor == "k" else str(value)) for value in values)]
    notes = ["Mean τ without controls; n in brackets."]
    return Table(f"{question.capitalize()}, by {factor}", header, [rows], notes, detail=True)


def markdown(summary: Summary, claims: Sequence[Claim], *, detail: bool = True) -> str:
    """atlas.md; without `detail`, what a first look needs of it."""
    about = summary.atlas.about
    lines = ["# Which metric should I use?", ""]
    for question, headline, points in headlines(summary):
        lines += [
            f"**{question.capitalize()}** ({ASKED[question]}): **{headline}.**",
            "",
            *(f"- {one}" for one in points),
            "",
        ]
    lines += [
        f"{about['runs']:,} runs, {about['rows']:,} rows; data: {', '.join(about['data'])}; judges: "
        f"{', '.join(about['judges'])}; truths: {', '.join(about['truths'])}; seeds {_numbers(about['seeds'])}; "
        f"k {_numbers(about['k'])}. cfeval {', '.join(about['cfeval'])}; rows sha256 {about['sha256']}.", "",
    ]  # fmt: skip
    if summary.atlas.left:
        lines += [f"Left out: {len(summary.atlas.left)}.", "", *(f"- {one}" for one in summary.atlas.left), ""]
    made = make(summary, claims)
    if detail:
        made += [by(summary, one.question, factor) for one in summary.answers for factor in ("judge", "data")]
    made = [table for table in made if detail or not table.detail]
    return "\n".join([*lines, *(table.markdown() for table in made)])


def _numbers(some: Sequence[int]) -> str:
    return ", ".join(map(str, some))
