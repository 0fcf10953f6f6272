"""Agreement of the metrics with each other, whether or not a truth is known."""

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


def tabulate_metric_agreement(
    resampled: ResampledValues, family: RankedFamily, bootstrap: Bootstrap
) -> Iterator[dict[str, Any]]:
    """Yield rows of metric_agreement.csv: for every two metrics, τ between their rankings of the explainers."""
    if len(family.explainers) < 2 or len(family.judged) < 2:
        return
    each_other = [ReferenceRanking("", "", metric) for metric in family.judged]
    correlations = RankCorrelations.compute(
        resampled, RankedFamily(family.name, family.explainers, family.judged, each_other), bootstrap, with_p=False
    )
    is_sufficient = correlations.is_sufficient & correlations.is_sufficient.T
    low, high, _ = bootstrap.compute_interval(correlations.tau[1:], is_sufficient)
    for a, b in combinations(range(len(family.judged)), 2):
        if np.isnan(correlations.rho[0, a, b]):  # a metric that ties all explainers agrees with no other
            continue
        (metric, variant), (other, other_variant) = (resampled.metrics[family.judged[i]] for i in (a, b))
        yield {
            "metric": metric, "variant": variant, "other_metric": other, "other_variant": other_variant,
            "explainers": int(correlations.is_ranked[a, b].sum()), "tau": correlations.tau[0, a, b],
            "tau_low": low[a, b], "tau_high": high[a, b],
        }  # fmt: skip
