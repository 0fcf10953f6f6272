"""Common support: the instances on which explainers are compared like with like."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools
from cfeval_cli.statistics.scores import ScoreKey, Scores, ScoreSeries

NO_COMMON_INSTANCE = "no instance that all explainers cover"


def find_common_instances(scores: Scores, order: pd.DataFrame) -> dict[ScoreKey, Bools]:
    """For each score, whether every explainer that has a value for its metric covers the instance; none where all do.

    An explainer without any value leaves the others theirs. The rungs of a ladder are compared among themselves: they
    limit nobody, and all of their own instances are common.
    """
    rungs = set(order.loc[order["rung"].notna(), "explainer"])
    found: dict[ScoreKey, Bools] = {}
    for row in dict.fromkeys(row for row, _ in scores.parts):  # a row at a time, so that memory stays bounded
        mine = {key: part for key, part in scores.parts.items() if key[0] == row}
        valued = [part for (_, name), part in mine.items() if name not in rungs and _valued(part)]
        covering = np.zeros(scores.size, dtype=np.int32)
        for part in valued:
            covering[part.places] += 1
        for key, part in mine.items():
            everywhere = covering[part.places] == len(valued)
            if key[1] not in rungs and not everywhere.all():
                found[key] = everywhere
        scores.scratch.release()
    return found


def _valued(part: ScoreSeries) -> bool:
    """Whether there is anything to divide by."""
    return bool(part.denominator.sum() != 0)
