"""Can a metric of my own be trusted to rank explainers?"""

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
class Left(Metric):
    """How much of the probability is left after the edit."""

    name = "left"
    title = "Left"
    better = "lower"
    range = (0.0, 1.0)
    access = Access.PROBABILITY
    place = 45  # its order in the tables

    def score(self, inputs):  # Σ numerator / Σ denominator is its value; one Score for each variant
        """The probability of the predicted class, of each counterfactual."""
        for level, found in inputs.counterfactuals.items():
            if found.probability is not None:
                yield Score(level.name.lower(), found.probability, np.ones(len(inputs)))


rows = load_wine(as_frame=True).frame.iloc[:, 7:]  # six features and the label
train, test = train_test_split(rows, test_size=0.3, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train.drop(columns="target"), train["target"])

run = evaluate(
    model.predict_proba, train, test, label="target", metrics=[Left(), "comprehensiveness", "recall"],
    explainers=["random", "omission", "lime"], settings={"figures": [], "report": False, "bounds": 0},
)  # fmt: skip

judged = run.correlations[run.correlations["truth"].isin(run.record.settings.truth)].query("subset == 'all'")
print(judged[["metric", "variant", "truth", "tau", "tau_low", "tau_high"]].dropna().to_string(index=False))
