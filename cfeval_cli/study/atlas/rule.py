"""The ranking of metrics that recommendations use, as an atlas supports it."""

from __future__ import annotations

import json

from cfeval_cli.errors import UserError
from cfeval_cli.statistics.recommendation import QUESTIONS
from cfeval_cli.study.atlas.summary import AtlasSummary


def write_rule(summary: AtlasSummary) -> str:
    """Write preferred_metrics.json: the metrics of each question with a significantly positive τ, the highest first."""
    summaries = {question.question: question for question in summary.questions}
    preferred = {}
    for name in QUESTIONS:
        question = summaries.get(name)
        if question is None or not question.is_conclusive:
            raise UserError(
                f"the atlas is inconclusive for {name}: no metric is significantly better than chance. Add data sets, "
                "judges or seeds."
            )
        metrics = [metric.pair[0] for metric in question.compared if metric.tau.has_interval and metric.tau.low > 0]
        preferred[name] = list(dict.fromkeys(metrics))
    about = summary.atlas.description
    source = (
        f"the atlas: {about.runs} runs on {len(about.data)} data sets with {len(about.judges)} judges, "
        f"cfeval {', '.join(about.cfeval)}, rows {about.sha256[:12]}"
    )
    return json.dumps({"source": source, "metrics": preferred}, indent=1, ensure_ascii=False) + "\n"
