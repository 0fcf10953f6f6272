"""How far metrics agree with each other: what is left to say where no truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.correlation import RankCorrelations, RankedFamily, ReferenceRanking
from cfeval_cli.statistics.resampled_values import ResampledValues

COLUMNS = [
    "metric", "variant", "other_metric", "other_variant", "explainers", "tau", "tau_low", "tau_high",
]  # fmt: skip


def tabulate_metric_agreement(drawn: ResampledValues, family: RankedFamily, how: Bootstrap) -> Iterator[dict[str, Any]]:
    """Rows of metric_agreement.csv: for every two metrics, τ between their rankings of the explainers."""
    if len(family.explainers) < 2 or len(family.judged) < 2:
        return
    each_other = RankedFamily(
        family.name, family.explainers, family.judged, [ReferenceRanking("", "", row) for row in family.judged]
    )
    found = RankCorrelations.of(drawn, each_other, how, chance=False)
    low, high, _ = how.compute_interval(found.tau[1:], found.enough & found.enough.T)
    for a, b in combinations(range(len(family.judged)), 2):
        if not np.isnan(found.rho[0, a, b]):  # a metric that ties all explainers agrees with none
            (metric, variant), (other, other_variant) = (drawn.rows[family.judged[place]] for place in (a, b))
            yield {
                "metric": metric, "variant": variant, "other_metric": other, "other_variant": other_variant,
                "explainers": int(found.there[a, b].sum()), "tau": found.tau[0, a, b], "tau_low": low[a, b],
                "tau_high": high[a, b],
            }  # fmt: skip
