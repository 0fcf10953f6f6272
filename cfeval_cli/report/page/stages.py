"""The stages of a run as parts of one bar: where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cfeval_cli.results.record import StageEntry

MODEL_STAGE, OTHER_STAGE = "model evaluations", "other work"
_MIN_SHARE = 0.01  # of the duration: shorter stages are merged into other work
_N_COLOURS = 8  # of the page
_PARTS = {"explain": "explainer", "search": "search", "score": "metric"}  # the part of costs.csv of a stage


@dataclass(frozen=True)
class StageBar:
    """A part of the bar."""

    name: str
    seconds: float
    start: float  # in percent of the duration
    width: float
    colour: int


def compute_stage_bar(total: float, entries: Sequence[StageEntry], costs: pd.DataFrame) -> list[StageBar]:
    """Return the stages of a run in their order, those of one kind merged, and model evaluations apart from them.

    Starting, writing and stages that are too short to be seen are `other work`.
    """
    seconds: dict[str, float] = {}
    for entry in entries:
        seconds[entry.stage] = seconds.get(entry.stage, 0.0) + entry.seconds
    duration = max(total, sum(seconds.values()))
    if duration <= 0:
        return []
    model_seconds = 0.0
    for stage, part in _PARTS.items():
        in_model = seconds.get(stage, 0.0) * _compute_model_share(costs, part)
        if in_model:
            seconds[stage] -= in_model
            model_seconds += in_model
    seconds[MODEL_STAGE] = model_seconds
    shown = {name: value for name, value in seconds.items() if value >= _MIN_SHARE * duration}
    rest = duration - sum(shown.values())
    if rest > 1e-9 * duration:
        shown[OTHER_STAGE] = rest
    bars, start = [], 0.0
    for number, (name, value) in enumerate(shown.items()):
        width = 100 * value / duration
        bars.append(StageBar(name, value, start, width, number % _N_COLOURS))
        start += width
    return bars


def _compute_model_share(costs: pd.DataFrame, part: str) -> float:
    """Return the share of the seconds of a part that model evaluations took."""
    if "model_seconds" not in costs:
        return 0.0
    lines = costs[costs["part"] == part]
    total = float(lines["seconds"].sum())
    return min(1.0, float(lines["model_seconds"].sum()) / total) if total > 0 else 0.0
