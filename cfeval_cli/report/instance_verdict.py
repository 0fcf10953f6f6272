"""Which metric prefers the more faithful of two explanations of the same instance, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from cfeval_cli.report.titles import make_metric_title, name_truths
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS

_Line = Mapping[Any, Any]
_MIN_SHARE_OF_PAIRS = 0.9  # of the pairs of the metric with the most
_KEYS = ["metric", "variant", "truth", "agreement"]


def write_instance_verdict(statistics: RunStatistics, record: RunRecord) -> list[str]:
    """Write a sentence for each leading truth: the best metric, and the best one of the other family.

    Controls are left out, and metrics that are circular, not identifiable, or computed for a sample only.
    """
    lines = statistics.instance_agreement
    lines = lines[(lines["agreement"] == record.settings.agreement) & (lines["subset"] == WITHOUT_CONTROLS)]
    lines = lines[lines["d"].notna() & (lines["pairs"] > 0)]
    circular = statistics.correlations[[*_KEYS, "circular"]].drop_duplicates(_KEYS)
    lines = lines.merge(circular, on=_KEYS, how="left").sort_values("d", ascending=False, kind="stable")
    sentences = []
    for truth, question in name_truths(record.settings.truth, record).items():
        of_truth = lines[lines["truth"] == truth]
        is_arbitrary = truth in record.truths and record.truths[truth].arbitrary
        if not is_arbitrary:
            of_truth = of_truth[~of_truth["variant"].isin(record.arbitrary_removals)]
        of_truth = of_truth[of_truth["pairs"] >= _MIN_SHARE_OF_PAIRS * of_truth["pairs"].max()]
        if not of_truth["circular"].eq(True).all():
            of_truth = of_truth[~of_truth["circular"].eq(True)]
        if len(of_truth):
            sentences.append(f"{question.capitalize()}: {_compare_families(of_truth, record)}")
    return sentences


def _compare_families(lines: pd.DataFrame, record: RunRecord) -> str:
    """Write the share of pairs for the best metric, and for the best metric of the other family.

    If the interval of the best one includes chance, the comparison is inconclusive.
    """
    best, *lower_lines = lines.to_dict("records")
    family = record.metrics[best["metric"]].block
    competitor = next((line for line in lower_lines if record.metrics[line["metric"]].block != family), None)
    low, high = (_to_share(best[name]) for name in ("d_low", "d_high"))
    level = f"{100 * record.settings.confidence:g} % CI"
    interval = "" if pd.isna(low) else f"{level} [{100 * low:.0f}, {100 * high:.0f}]"
    mark = ", circular" * (best["circular"] is True)
    inconclusive = "" if pd.isna(low) or low > 0.5 else "inconclusive; "
    text = (
        f"{inconclusive}{_write_title(best, record)} prefers the more faithful of two explanations of an instance in "
        f"{100 * _to_share(best['d']):.0f} % of {int(best['pairs']):,} pairs"
    )
    if competitor is None:
        return f"{text} ({f'{interval}; ' * bool(interval)}chance: 50 %){mark}"
    text += f" ({interval})" * bool(interval) + mark
    return f"{text}; {_write_title(competitor, record)} in {100 * _to_share(competitor['d']):.0f} % (chance: 50 %)"


def _to_share(d: float) -> float:
    """Return the share of concordant pairs; pairs with tied scores of the metric count half."""
    return (1 + d) / 2


def _write_title(line: _Line, record: RunRecord) -> str:
    return make_metric_title(line["metric"], line["variant"], record).plain
