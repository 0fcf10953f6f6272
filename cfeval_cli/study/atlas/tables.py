"""The atlas in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cfeval_cli.report.numbers import COUNT, P_VALUE, TENTH_PERCENT, NumberFormat
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import CIRCULAR_MARK, NOT_IDENTIFIABLE_MARK, Cell, Row, Table, Title
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS, HierarchicalMean
from cfeval_cli.study.atlas.claims import INCONCLUSIVE, ClaimResult
from cfeval_cli.study.atlas.summary import AtlasSummary, MetricSummary, QuestionSummary
from cfeval_cli.study.words import join_first_names

QUESTION_TEXTS = {
    "contribution": "which features contributed to the prediction",
    "change": "which features would change the prediction",
    "either": "whether the model uses the feature at all",
}
_TWO_DIGITS = NumberFormat(decimals=2)  # as many as the number of data sets supports
_MAX_NAMED_METRICS = 5  # in a sentence


@dataclass(frozen=True)
class QuestionHeadline:
    """The conclusion for one question: a headline, and the points below it."""

    question: str
    text: str
    points: Sequence[str]


def write_headlines(summary: AtlasSummary) -> list[QuestionHeadline]:
    """Write which metric to use, for contribution and for change."""
    return [write_headline(question) for question in summary.questions if question.question != "either"]


def write_headline(question: QuestionSummary) -> QuestionHeadline:
    """Write which metric to use for one question."""
    best, alternative = question.best, question.best_without_circular
    if best is None:
        text = f"Inconclusive: at least {MIN_FACTOR_LEVELS} data sets and {MIN_FACTOR_LEVELS} judges are needed"
        highest = next(iter(question.compared), None)
        points = [] if highest is None else [
            f"In these runs {highest.title} has the highest mean τ, {format_number(highest.tau.mean)}."
        ]  # fmt: skip
        return QuestionHeadline(question.question, text, points)
    if not question.is_conclusive:
        text = "Inconclusive: no metric is significantly better than chance over data sets and judges"
        return QuestionHeadline(
            question.question, text, [f"{best.title} has the highest mean τ, {format_estimate(best.tau)}."]
        )
    tied = [metric.title for metric in question.tied]
    low, high = format_number(best.tau.low), format_number(best.tau.high)
    text = f"{best.title} ranks first (mean τ {format_number(best.tau.mean)}, 95 % CI [{low}, {high}])"
    text += f", statistically tied with {join_first_names(tied, _MAX_NAMED_METRICS)}" if tied else ""
    points = [f"{best.tau.n_rows:,} rows: {best.tau.n_data_sets} data sets, {best.tau.n_judges} judges."]
    if not tied:
        points.append("Every other metric is significantly worse.")
    if alternative is best:
        points.append(f"It also ranks first without circular rows: {format_estimate(best.tau_without_circular)}.")
    elif alternative is not None:
        points.append(_describe_alternative(best, alternative))
    return QuestionHeadline(question.question, text, points)


def _describe_alternative(best: MetricSummary, alternative: MetricSummary) -> str:
    """Describe the best metric without circular rows, if it is not the best of all rows."""
    text = (
        f"Highest without circular rows (optimal by construction), among metrics with at least {MIN_FACTOR_LEVELS} "
        f"data sets and {MIN_FACTOR_LEVELS} judges: {alternative.title}, "
        f"{format_estimate(alternative.tau_without_circular)}."
    )
    own = best.tau_without_circular
    if own.has_interval or not own.n_rows:
        return text
    return (
        f"{text} {best.title} has {format_number(own.mean)} there ({own.n_data_sets} data sets, {own.n_judges} judges, "
        "no interval)."
    )


def format_number(value: float) -> str:
    """Write a number with two digits."""
    return Cell(value, form=_TWO_DIGITS).text


def format_estimate(estimate: HierarchicalMean) -> str:
    """Write a mean with its interval, if it has one."""
    return _build_estimate_cell(estimate).text


def _build_estimate_cell(estimate: HierarchicalMean, *, bold: bool = False) -> Cell:
    return Cell(estimate.mean, estimate.low, estimate.high, bold=bold, form=_TWO_DIGITS)


def build_tables(summary: AtlasSummary, claims: Sequence[ClaimResult]) -> list[Table]:
    """Build all tables."""
    built = [_build_question(question) for question in summary.questions]
    built += [_build_claims(claims), _build_variance(summary), _build_truth_agreement(summary)]
    built += [_build_circular_metrics(summary)]
    built += [build_factor_table(summary, question.question, "k") for question in summary.questions]
    return built


def _build_question(question: QuestionSummary) -> Table:
    header = [
        "metric", "τ", "below the best (p)", "without circular", "with controls", "better half",
        "diagnosticity", "by instance", "model evaluations", "n", "data sets", "judges",
    ]  # fmt: skip
    compared = [_build_metric_row(metric, question) for metric in question.metrics if metric.is_compared]
    not_compared = [_build_metric_row(metric, question) for metric in question.metrics if not metric.is_compared]
    notes = [
        "τ: mean over data sets, judges, truths and seeds, without controls, with its 95 % CI over all of these; – if "
        f"fewer than {MIN_FACTOR_LEVELS} data sets or judges have it. Below the best: the mean difference, without the "
        "rows in which the best metric is circular, and the Holm-adjusted p of a t-test over data sets. Without "
        "circular: without rows in which the metric is circular, and without explainers that are circular with the "
        "metric or the ground truth. Better half: explainers with a true score of at least the median. Diagnosticity: "
        "how often the more faithful of two explanations of one instance is preferred, ties count half; chance is 0.5. "
        "By instance: mean τ within one instance. Model evaluations: for one explanation, without evaluations that "
        "another metric already made; shared: there are no others.",
        f"{CIRCULAR_MARK} circular (optimal by construction) in some rows. "
        f"{NOT_IDENTIFIABLE_MARK} not identifiable: depends on the parametrisation of the model. "
        "Below the line: metrics that are not compared, because they have less than 90 % of the cells or are not "
        "identifiable.",
    ]
    title = f"{question.question.capitalize()}: {QUESTION_TEXTS[question.question]}"
    return Table(title, [*map(Title, header)], [block for block in (compared, not_compared) if block], notes)


def _build_metric_row(metric: MetricSummary, question: QuestionSummary) -> Row:
    best, difference = question.best, question.differences.get(metric.pair)
    below = Cell("the best") if metric is best else Cell()
    if difference is not None and metric is not best:
        below = Cell(difference.mean, detail=P_VALUE.write(difference.p), form=_TWO_DIGITS)
    is_best = best is not None and (metric is best or metric in question.tied)
    means = [metric.taus["tau"].mean, metric.taus["tau_without_weak"].mean]
    cells = [
        _build_estimate_cell(metric.tau, bold=is_best), below, _build_estimate_cell(metric.tau_without_circular),
        *(Cell(mean, form=_TWO_DIGITS) for mean in means),
        _build_estimate_cell(metric.diagnosticity), Cell(metric.agreement.mean, form=_TWO_DIGITS),
        Cell(metric.model_evaluations, form=COUNT) if metric.model_evaluations else Cell("shared"),
        *(Cell(count, form=COUNT) for count in (metric.n_rows, metric.tau.n_data_sets, metric.tau.n_judges)),
    ]  # fmt: skip
    return Row(
        Title(
            metric.title, marks=CIRCULAR_MARK * bool(metric.n_circular) + NOT_IDENTIFIABLE_MARK * metric.is_arbitrary
        ),
        cells,
    )


def _build_claims(claims: Sequence[ClaimResult]) -> Table:
    rows = []
    for claim in claims:
        definition, estimate = claim.definition, claim.estimate
        cells = [
            Cell(definition.source), Cell(claim.verdict, bold=claim.verdict != INCONCLUSIVE),
            Cell(estimate.quantity, *estimate.interval, form=_TWO_DIGITS), Cell(definition.limit, form=_TWO_DIGITS),
            Cell(claim.p, form=P_VALUE),
            *(Cell(n, form=COUNT) for n in (estimate.n_rows, estimate.n_data_sets, estimate.n_judges)),
        ]  # fmt: skip
        rows.append(Row(Title(definition.name), cells))
    header = ["claim", "source", "verdict", "estimate", "limit", "p", "n", "data sets", "judges"]
    notes = [f"{claim.definition.name}: {claim.definition.text}" for claim in claims]
    notes.append("p: two-sided, Holm-adjusted over all claims; a claim with p ≥ 0.05 is inconclusive.")
    return Table("Claims", [*map(Title, header)], [rows], notes)


def _build_variance(summary: AtlasSummary) -> Table:
    lines = summary.variance.to_dict("records")
    counts = {str(line["question"]): int(line["rows"]) for line in lines}
    shares = {(str(line["question"]), str(line["factor"])): float(line["share"]) for line in lines}
    rows = [
        Row(Title(factor), [Cell(max(0.0, shares[question, factor]), form=TENTH_PERCENT) for question in counts])
        for factor in dict.fromkeys(factor for _, factor in shares)
    ]
    rows.append(Row(Title("n"), [Cell(count, form=COUNT) for count in counts.values()]))
    notes = [
        "Shares of the variance of τ (without controls) over rows: the increase of R² of an additive model by each "
        "factor, averaged over the orders of the factors; these and the residual sum to one. Lines with × are part of "
        "the residual: the increase if each metric has its own effect for each judge, or data set."
    ]
    return Table("What τ depends on", [Title("factor"), *map(Title, counts)], [rows], notes)


def _build_truth_agreement(summary: AtlasSummary) -> Table:
    rows = [
        Row(
            Title(f"{line['truth']} and {line['other']}"),
            [Cell(float(line["tau"]), form=_TWO_DIGITS), Cell(int(line["metrics"]), form=COUNT)],
        )
        for line in summary.truth_agreement.to_dict("records")
    ]
    notes = ["Kendall's τ between the rankings of the metrics by their mean τ with either truth; n metrics have both."]
    header = [*map(Title, ("truths", "τ", "n"))]
    return Table("Agreement of two truths on the ranking of the metrics", header, [rows], notes)


def _build_circular_metrics(summary: AtlasSummary) -> Table:
    rows = [
        Row(
            Title(str(line["title"])),
            [Cell(str(line["truth"])), Cell(str(line["k"])), Cell(int(line["rows"]), form=COUNT)],
        )
        for line in summary.circular_metrics.to_dict("records")
    ]
    notes = ["Metrics that are optimal for a truth by construction; the column “without circular” leaves them out."]
    return Table("Circular metrics", [*map(Title, ("metric", "truth", "k", "n"))], [rows], notes)


def build_factor_table(summary: AtlasSummary, question: str, factor: str) -> Table:
    """Build the mean τ of each metric for each value of a factor, with n."""
    means = summary.compute_means(question, factor).to_dict("records")
    values = sorted({line[factor] for line in means})
    by_place = {(line["metric"], line["variant"], line[factor]): line for line in means}
    rows = []
    for metric in summary.get_question(question).metrics:
        lines = [by_place.get((*metric.pair, value)) for value in values]
        cells = [
            Cell() if line is None else Cell(float(line["mean"]), n=int(line["rows"]), form=_TWO_DIGITS)
            for line in lines
        ]
        rows.append(Row(Title(metric.title), cells))
    header = [Title("metric"), *(Title(f"{factor} = {value}" if factor == "k" else str(value)) for value in values)]
    notes = ["Mean τ without controls; n in brackets."]
    return Table(f"{question.capitalize()}, by {factor}", header, [rows], notes, is_supplementary=True)


def write_markdown(summary: AtlasSummary, claims: Sequence[ClaimResult], *, with_supplement: bool = True) -> str:
    """Write atlas.md; without `with_supplement` only the main tables."""
    about = summary.atlas.description
    lines = ["# Which metric should I use?", ""]
    for headline in write_headlines(summary):
        question = headline.question
        lines += [f"**{question.capitalize()}** ({QUESTION_TEXTS[question]}): **{headline.text}.**", ""]
        lines += [*(f"- {point}" for point in headline.points), ""]
    lines += [
        f"{about.runs:,} runs, {about.rows:,} rows; data: {', '.join(about.data)}; judges: "
        f"{', '.join(about.judges)}; truths: {', '.join(about.truths)}; seeds {', '.join(map(str, about.seeds))}; "
        f"k {', '.join(map(str, about.k))}. cfeval {', '.join(about.cfeval)}; rows sha256 {about.sha256}.", "",
    ]  # fmt: skip
    if excluded := summary.atlas.excluded:
        lines += [f"Excluded runs: {len(excluded)}.", "", *(f"- {reason}" for reason in excluded), ""]
    tables = build_tables(summary, claims)
    if with_supplement:
        tables += [
            build_factor_table(summary, question.question, factor)
            for question in summary.questions for factor in ("judge", "data")
        ]  # fmt: skip
    return "\n".join(
        [*lines, *(render_markdown(table) for table in tables if with_supplement or not table.is_supplementary)]
    )
