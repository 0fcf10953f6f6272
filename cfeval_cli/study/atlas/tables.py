"""The atlas in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from cfeval_cli.report.numbers import COUNT, P_VALUE, TENTH_PERCENT, fixed
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import CIRCULAR, MOVES, Cell, Row, Table, Title
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS, HierarchicalMean
from cfeval_cli.study.atlas.claims import Claim
from cfeval_cli.study.atlas.summary import Answer, Metric, Summary

ASKED = {
    "contribution": "what made the prediction come out so",
    "change": "what would make it come out otherwise",
    "either": "whether the model reads the feature at all",
}
_TWO_DIGITS = fixed(2)  # as so few data sets deserve
_FEW = 3  # names in a sentence


def headlines(summary: Summary) -> list[tuple[str, str, list[str]]]:
    """For each of the two questions: its name, which metric to use, and what is to be known of that."""
    return [(one.question, *_say(one)) for one in summary.answers if one.question != "either"]


def _say(answer: Answer) -> tuple[str, list[str]]:
    best, clean = answer.best, answer.clean
    if best is None:
        few = f"fewer than {MIN_FACTOR_LEVELS} data sets or judges say nothing of others"
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
        among = f"among metrics with at least {MIN_FACTOR_LEVELS} data sets and {MIN_FACTOR_LEVELS} judges"
        text = f"Highest without what is right by construction, {among}: {clean.title}, {spread(clean.clean)}."
        if not best.clean.known and best.clean.rows:
            few = f"{best.clean.data} data sets, {best.clean.judges} judges, no interval"
            text += f" {best.title} has {number(best.clean.mean)} there ({few})."
        points.append(text)
    elif clean is best:
        points.append(f"It is the best without what is right by construction, too: {spread(clean.clean)}.")
    return f"{best.title} ranks first{', tied with others' * bool(tied)}", points


def named(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = [f"{len(names) - _FEW} more"] if len(names) > _FEW else []
    some = [*names[:_FEW], *more]
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"


def number(value: float) -> str:
    """Write two digits."""
    return Cell(value, form=_TWO_DIGITS).text


def spread(estimate: HierarchicalMean) -> str:
    """Write a mean with its interval, if it has one."""
    return _estimate_cell(estimate).text


def _estimate_cell(estimate: HierarchicalMean, *, bold: bool = False) -> Cell:
    return Cell(estimate.mean, estimate.low, estimate.high, bold=bold, form=_TWO_DIGITS)


def make(summary: Summary, claims: Sequence[Claim]) -> list[Table]:
    """All tables."""
    made = [_answer(one) for one in summary.answers]
    made += [_claims(claims), _variance(summary), _stability(summary), _circular(summary)]
    made += [by(summary, one.question, "k") for one in summary.answers]
    return made


def _answer(answer: Answer) -> Table:
    header = [
        "metric", "τ", "behind the best (p)", "nothing by construction", "with controls", "better half",
        "diagnosticity", "by instance", "model rows", "n", "data sets", "judges",
    ]  # fmt: skip
    best = answer.best
    blocks: list[list[Row]] = [[], []]
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
        f"{CIRCULAR} right by construction in some rows. {MOVES} depends on a constant that no prediction depends on. "
        "Below the line: not compared with the others, since it has fewer than nine tenths of the cells, or such a "
        "constant.",
    ]
    return Table(f"{answer.question.capitalize()}: {ASKED[answer.question]}", [*map(Title, header)],
                 [block for block in blocks if block], notes)  # fmt: skip


def _line(one: Metric, answer: Answer, best: Metric | None) -> Row:
    gap = answer.behind.get(one.pair)
    behind = Cell("the best") if one is best else Cell()
    if gap is not None and one is not best:
        behind = Cell(gap[0], detail=_p(gap[3]), form=_TWO_DIGITS)
    lead = best is not None and (one is best or one in answer.tied)
    means = [one.taus["tau"].mean, one.taus["tau_without_weak"].mean]
    cells = [
        _estimate_cell(one.lead, bold=lead), behind, _estimate_cell(one.clean),
        *(Cell(mean, form=_TWO_DIGITS) for mean in means),
        _estimate_cell(one.diagnosticity), Cell(one.agreement.mean, form=_TWO_DIGITS),
        Cell(one.model_rows, form=COUNT) if one.model_rows else Cell("shared"),
        *(Cell(count, form=COUNT) for count in (one.rows, one.lead.data, one.lead.judges)),
    ]  # fmt: skip
    return Row(Title(one.title, marks=CIRCULAR * bool(one.circular) + MOVES * one.arbitrary), cells)


def _p(value: float) -> str:
    return P_VALUE.write(value)


def _claims(claims: Sequence[Claim]) -> Table:
    rows = []
    for one in claims:
        figure = one.figure
        cells = [
            Cell(one.of), Cell(one.verdict, bold=one.verdict != "open"),
            Cell(figure.shown, *figure.ends, form=_TWO_DIGITS), Cell(one.limit, form=_TWO_DIGITS),
            Cell(one.p, form=P_VALUE), *(Cell(n, form=COUNT) for n in (figure.rows, figure.sets, figure.judges)),
        ]  # fmt: skip
        rows.append(Row(Title(one.name), cells))
    header = ["claim", "of", "answer", "figure", "limit", "p", "n", "data sets", "judges"]
    notes = [f"{one.name}: {one.text}" for one in claims]
    notes.append("p: two-sided, after Holm's correction over all claims. What is not told below 0.05 is open.")
    return Table("Claims", [*map(Title, header)], [rows], notes)


def _variance(summary: Summary) -> Table:
    lines = summary.variance.to_dict("records")
    counts = {str(line["question"]): int(line["rows"]) for line in lines}
    shares = {(str(line["question"]), str(line["factor"])): float(line["share"]) for line in lines}
    rows = [
        Row(Title(factor), [Cell(max(0.0, shares[question, factor]), form=TENTH_PERCENT) for question in counts])
        for factor in dict.fromkeys(factor for _, factor in shares)
    ]
    rows.append(Row(Title("n"), [Cell(count, form=COUNT) for count in counts.values()]))
    notes = [
        "Of the variance of τ without controls over rows: what each factor adds to the R² of a sum of effects, on "
        "average over the orders in which they could enter; these and all else sum to one. Lines with × are a part of "
        "all else: what is added if each metric may have an effect of its own in each judge, or data set."
    ]
    return Table("What τ depends on", [Title("factor"), *map(Title, counts)], [rows], notes)


def _stability(summary: Summary) -> Table:
    rows = [
        Row(
            Title(f"{line['truth']} and {line['other']}"),
            [Cell(float(line["tau"]), form=_TWO_DIGITS), Cell(int(line["metrics"]), form=COUNT)],
        )
        for line in summary.stability.to_dict("records")
    ]
    notes = [
        "Kendall's τ between the orders of the metrics by their mean τ with either truth; n metrics that both have."
    ]
    header = [*map(Title, ("truths", "τ", "n"))]
    return Table("Do two truths rank the metrics alike?", header, [rows], notes)


def _circular(summary: Summary) -> Table:
    rows = [
        Row(
            Title(str(line["title"])),
            [Cell(str(line["truth"])), Cell(str(line["k"])), Cell(int(line["rows"]), form=COUNT)],
        )
        for line in summary.circular.to_dict("records")
    ]
    notes = ["Metrics that are best at a truth by construction: the column “nothing by construction” is without them."]
    return Table("What is so by construction", [*map(Title, ("metric", "truth", "k", "n"))], [rows], notes)


def by(summary: Summary, question: str, factor: str) -> Table:
    """The mean τ of each metric for each value of a factor, with n."""
    means = summary.means(question, factor).to_dict("records")
    values = sorted({line[factor] for line in means})
    known = {(line["metric"], line["variant"], line[factor]): line for line in means}
    answer = next(one for one in summary.answers if one.question == question)
    rows = []
    for one in answer.metrics:
        lines = [known.get((*one.pair, value)) for value in values]
        cells = [
            Cell() if line is None else Cell(float(line["mean"]), n=int(line["rows"]), form=_TWO_DIGITS)
            for line in lines
        ]
        rows.append(Row(Title(one.title), cells))
    header = [Title("metric"), *(Title(f"{factor} = {value}" if factor == "k" else str(value)) for value in values)]
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
    return "\n".join([*lines, *map(render_markdown, made)])


def _numbers(some: Sequence[int]) -> str:
    return ", ".join(map(str, some))
