"""Common support: the instances that all explainers cover, on which they are compared."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools
from cfeval_cli.statistics.scores import ScoreKey, Scores

NO_COMMON_INSTANCE = "no instance that all explainers cover"


def find_common_instances(scores: Scores, summary: pd.DataFrame) -> dict[ScoreKey, Bools]:
    """Return for each series of scores whether every explainer with a value of the metric covers the instance.

    Series with common instances only are left out. An explainer without any value does not limit the others.
    Graded control explainers are compared among themselves: they limit no others, and all their instances are common.
    """
    graded = set(summary.loc[summary["quality_level"].notna(), "explainer"])
    common: dict[ScoreKey, Bools] = {}
    for metric in dict.fromkeys(metric for metric, _ in scores.series):  # one at a time: memory stays bounded
        metric_series = {key: series for key, series in scores.series.items() if key[0] == metric}
        compared_series = [
            series
            for (_, explainer), series in metric_series.items()
            if explainer not in graded and series.denominator.sum() != 0
        ]
        n_covering = np.zeros(scores.n_instances, dtype=np.int32)
        for series in compared_series:
            n_covering[series.positions] += 1
        for key, series in metric_series.items():
            is_common = n_covering[series.positions] == len(compared_series)
            if key[1] not in graded and not is_common.all():
                common[key] = is_common
        scores.scratch.release()
    return common
