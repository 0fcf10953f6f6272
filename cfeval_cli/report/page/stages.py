"""Where the time of a run went: its stages, as one bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cfeval_cli.results.record import StageEntry

_LEAST = 0.01  # of the whole: what is shorter is put together
_COLOURS = 8  # that the page has
_PARTS = {"explain": "explainer", "search": "search", "score": "metric"}  # stages whose work is told by costs.csv
MODEL_STAGE, OTHER_STAGE = "the model’s answers", "other work"


@dataclass(frozen=True)
class Stage:
    """A part of the bar."""

    name: str
    seconds: float
    start: float  # in percent of the whole
    width: float
    colour: int


def compute_stage_bar(total: float, entries: Sequence[StageEntry], costs: pd.DataFrame) -> list[Stage]:
    """The stages of a run in their order, those of one kind together, and apart from them the model's own answers.

    What is no stage, such as starting and writing, and what is too short to be seen, is `other work`.
    """
    kinds: dict[str, float] = {}
    for entry in entries:
        kinds[entry.stage] = kinds.get(entry.stage, 0.0) + entry.seconds
    whole = max(total, sum(kinds.values()))
    if whole <= 0:
        return []
    answers = 0.0
    for kind, part in _PARTS.items():
        inside = kinds.get(kind, 0.0) * _share(costs, part)
        if inside:
            kinds[kind], answers = kinds[kind] - inside, answers + inside
    told = {name: value for name, value in (kinds | {MODEL_STAGE: answers}).items() if value >= _LEAST * whole}
    rest = whole - sum(told.values())
    made, start = [], 0.0
    for place, (name, value) in enumerate([*told.items(), *([(OTHER_STAGE, rest)] if rest > 1e-9 * whole else [])]):
        width = 100 * value / whole
        made.append(Stage(name, value, start, width, place % _COLOURS))
        start += width
    return made


def _share(costs: pd.DataFrame, part: str) -> float:
    """Of the seconds of a part, those within the model."""
    if "model_seconds" not in costs:  # of a run of before it was measured
        return 0.0
    mine = costs[costs["part"] == part]
    total = float(mine["seconds"].sum())
    return min(1.0, float(mine["model_seconds"].sum()) / total) if total > 0 else 0.0
