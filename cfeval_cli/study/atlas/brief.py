"""The one table of the atlas that a screen is shown."""

from __future__ import annotations

from cfeval_cli.report.brief import Brief, Column, Field, tau
from cfeval_cli.report.tables import CIRCULAR, DASH
from cfeval_cli.study.atlas.summary import Answer, Metric, Pair, Summary


def of_atlas(summary: Summary) -> Brief:
    """The mean τ of each metric with the truth, by question, of the metrics that can be compared with each other."""
    shown: dict[Pair, Metric] = {}
    for answer in summary.answers:
        shown |= {one.pair: one for one in answer.compared if one.pair not in shown}
    columns = [_column(answer, list(shown)) for answer in summary.answers]
    about = summary.atlas.about
    title = f"Mean τ of each metric with the truth: {about['runs']:,} runs, {len(about['data'])} data sets, "
    notes = [
        "By question, controls left out; in brackets the 95 % interval over data sets, judges, truths and seeds, where "
        "at least three data sets and judges have the metric. Bold: the best, and those that are not significantly "
        "different from it (t-test over data sets, Holm-adjusted). "
        f"{CIRCULAR} right by construction in some rows. By --full: metrics that cannot be compared, what τ depends "
        "on, and the claims."
    ]
    titles = [one.title for one in shown.values()]
    return Brief(f"{title}{len(about['judges'])} judges", titles, [""] * len(titles), columns if titles else [], notes)


def _column(answer: Answer, pairs: list[Pair]) -> Column:
    known = {one.pair: one for one in answer.compared}
    fields = []
    for pair in pairs:
        one = known.get(pair)
        if one is None:
            fields.append(Field([DASH]))
            continue
        lead = answer.best is not None and (one is answer.best or one in answer.tied)
        fields.append(Field([tau(one.lead.mean, one.lead.low, one.lead.high) + CIRCULAR * bool(one.circular)], lead))
    return Column([answer.question], fields)
