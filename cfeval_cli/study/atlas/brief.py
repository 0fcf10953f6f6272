"""The table of an atlas for the screen."""

from __future__ import annotations

from cfeval_cli.report.numbers import SHORT_DECIMAL
from cfeval_cli.report.table import CIRCULAR_MARK, Cell, Row, Table, Title
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS
from cfeval_cli.study.atlas.summary import AtlasSummary, MetricSummary, Pair, QuestionSummary


def build_brief(summary: AtlasSummary) -> Table:
    """Build the mean τ of each compared metric, by question."""
    titles: dict[Pair, str] = {}
    for question in summary.questions:
        titles |= {metric.pair: metric.title for metric in question.compared if metric.pair not in titles}
    columns = [
        {metric.pair: _build_tau_cell(metric, question) for metric in question.compared}
        for question in summary.questions
    ]
    rows = [Row(Title(title), [column.get(pair, Cell()) for column in columns]) for pair, title in titles.items()]
    about = summary.atlas.description
    title = (
        f"Mean τ of each metric with the ground truth: {about.runs:,} runs, {len(about.data)} data sets, "
        f"{len(about.judges)} judges"
    )
    notes = [
        "By question, without controls; in brackets the 95 % CI over data sets, judges, truths and seeds, if at least "
        f"{MIN_FACTOR_LEVELS} data sets and judges have the metric. Bold: the best metric, and those that are not "
        "significantly different from it (t-test over data sets, Holm-adjusted). "
        f"{CIRCULAR_MARK} circular (optimal by construction) in some rows. "
        "--full shows the metrics that are not compared, what τ depends on, and the claims."
    ]
    header = [Title("metric"), *(Title(question.question) for question in summary.questions)]
    return Table(title, header, [rows] if rows else [], notes)


def _build_tau_cell(metric: MetricSummary, question: QuestionSummary) -> Cell:
    is_best = question.best is not None and (metric is question.best or metric in question.tied)
    tau, marks = metric.tau, CIRCULAR_MARK * bool(metric.n_circular)
    return Cell(tau.mean, tau.low, tau.high, marks=marks, bold=is_best, form=SHORT_DECIMAL)
