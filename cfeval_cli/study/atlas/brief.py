"""The one table of the atlas that a screen is shown."""

from __future__ import annotations

from cfeval_cli.report.numbers import SHORT
from cfeval_cli.report.table import CIRCULAR, Cell, Row, Table, Title
from cfeval_cli.study.atlas.summary import Answer, Metric, Pair, Summary


def of_atlas(summary: Summary) -> Table:
    """The mean τ of each metric with the truth, by question, of the metrics that can be compared with each other."""
    shown: dict[Pair, Metric] = {}
    for answer in summary.answers:
        shown |= {one.pair: one for one in answer.compared if one.pair not in shown}
    known = [{one.pair: _tau_cell(one, answer) for one in answer.compared} for answer in summary.answers]
    rows = [Row(Title(one.title), [of.get(pair, Cell()) for of in known]) for pair, one in shown.items()]
    about = summary.atlas.about
    title = f"Mean τ of each metric with the truth: {about['runs']:,} runs, {len(about['data'])} data sets, "
    notes = [
        "By question, controls left out; in brackets the 95 % interval over data sets, judges, truths and seeds, where "
        "at least three data sets and judges have the metric. Bold: the best, and those that are not significantly "
        "different from it (t-test over data sets, Holm-adjusted). "
        f"{CIRCULAR} right by construction in some rows. By --full: metrics that cannot be compared, what τ depends "
        "on, and the claims."
    ]
    header = [Title("metric"), *(Title(answer.question) for answer in summary.answers)]
    return Table(f"{title}{len(about['judges'])} judges", header, [rows] if rows else [], notes)


def _tau_cell(metric: Metric, answer: Answer) -> Cell:
    is_best = answer.best is not None and (metric is answer.best or metric in answer.tied)
    lead, marks = metric.lead, CIRCULAR * bool(metric.circular)
    return Cell(lead.mean, lead.low, lead.high, marks=marks, bold=is_best, form=SHORT)
