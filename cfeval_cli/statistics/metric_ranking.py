"""The ranking of explainers by the metric that agrees best with the ground truth in the atlas: a check."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib import resources

import pandas as pd

from cfeval_cli.statistics.recommendation import Check, Question

_ROUNDING = 1e-12


@dataclass(frozen=True)
class PreferredMetrics:
    """The metrics that agree with the ground truth of each question, the metric with the highest mean τ first."""

    source: str
    metrics: Mapping[str, Sequence[str]]  # by question

    @staticmethod
    def load() -> PreferredMetrics:
        """Load those that the atlas supports."""
        text = resources.files("cfeval_cli.statistics").joinpath("preferred_metrics.json").read_text(encoding="utf-8")
        return PreferredMetrics(**json.loads(text))

    def rank_first(
        self, question: Question, values: pd.DataFrame, explainers: Collection[str], arbitrary: Set[str]
    ) -> Check | None:
        """Rank the explainers by the first preferred metric that has a value for each of them; None if there is none.

        `values` is metrics.csv. Variants that depend on the parametrisation of the model (`arbitrary`) do not count.
        """
        values = values[values["explainer"].isin(explainers) & values["value"].notna()]
        for metric in self.metrics.get(question, ()):
            for variant, rows in values[values["metric"] == metric].groupby("variant", sort=False):
                if variant not in arbitrary and len(rows) == len(explainers):
                    sign = 1.0 if rows["better"].iloc[0] == "higher" else -1.0
                    is_first = sign * rows["value"] >= (sign * rows["value"]).max() - _ROUNDING
                    return Check("metric", metric, str(variant), first=rows.loc[is_first, "explainer"].tolist())
        return None
