"""The rule of the recommendation, as an atlas gives it."""

from __future__ import annotations

import json

from cfeval_cli.errors import UserError
from cfeval_cli.statistics.recommendation import QUESTIONS
from cfeval_cli.study.atlas.summary import Summary


def text(summary: Summary) -> str:
    """rule.json: for each question the metrics whose mean τ is significantly positive, the highest first."""
    answers = {one.question: one for one in summary.answers}
    believed = {}
    for question in QUESTIONS:
        answer = answers.get(question)
        if answer is None or answer.best is None or not answer.sure:
            raise UserError(f"the atlas leaves open which metric answers the question of {question}: no rule follows.")
        names = [one.pair[0] for one in answer.compared if one.lead.known and one.lead.low > 0]
        believed[question] = list(dict.fromkeys(names))
    about = summary.atlas.about
    source = (
        f"the atlas: {about['runs']} runs on {len(about['data'])} data sets with {len(about['judges'])} judges, "
        f"cfeval {', '.join(about['cfeval'])}, rows {about['sha256'][:12]}"
    )
    return json.dumps({"source": source, "believed": believed}, indent=1, ensure_ascii=False) + "\n"
