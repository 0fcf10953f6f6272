"""Does my own metric rank explainers as the ground truth does?"""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cfeval_cli import evaluate
from cfeval_cli.core import Access, Metric, Score


@dataclass(frozen=True)
class ProbabilityAfterEdit(Metric):
    """The probability of the originally predicted class after the counterfactual edit."""

    name = "probability_after_edit"
    title = "P after edit"
    better = "lower"
    range = (0.0, 1.0)
    access = Access.PROBABILITY
    display_order = 45  # in the tables

    def score(self, inputs):
        """Yield one Score for each access level; its value is Σ numerator / Σ denominator."""
        for access, counterfactual in inputs.counterfactuals.items():
            if counterfactual.probability is not None:
                yield Score(access.name.lower(), counterfactual.probability, np.ones(len(inputs)))


rows = load_wine(as_frame=True).frame.iloc[:, 7:]  # six features and the label
train, test = train_test_split(rows, test_size=0.3, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train.drop(columns="target"), train["target"])

results = evaluate(
    model.predict_proba, train, test, label="target",
    metrics=[ProbabilityAfterEdit(), "comprehensiveness", "recall"], explainers=["random", "omission", "lime"],
    settings={"figures": [], "report": False, "bounds": 0},
)  # fmt: skip

truths = results.record.settings.truth
correlations = results.correlations[results.correlations["truth"].isin(truths)].query("subset == 'all'")
print(correlations[["metric", "variant", "truth", "tau", "tau_low", "tau_high"]].dropna().to_string(index=False))
