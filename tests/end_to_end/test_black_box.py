"""Models without embeddings: probabilities only, labels only, or three classes."""

import json
import re
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.report.page import build
from cfeval_cli.report.verdict import write_verdict
from cfeval_cli.results.read import read_results
from tests import inside
from tests.conftest import FEW_METRICS, SMALL_RUN, drop_overridden

FOREST = """
from pathlib import Path

from cfeval_cli.core import Classifier, Probabilistic, Trainable
from sklearn.ensemble import RandomForestClassifier


class Forest(Trainable):
    def fit(self, dataset, seed) -> "Probabilities":
        Path(__file__).with_name("trained").touch()
        forest = RandomForestClassifier(4, random_state=seed)
        return Probabilities(forest.fit(dataset.train.codes, dataset.train.labels))


class LabelForest(Forest):
    def fit(self, dataset, seed) -> "Labels":
        return Labels(super().fit(dataset, seed).forest)


class Probabilities(Probabilistic):
    def __init__(self, forest):
        self.forest = forest

    def predict_proba(self, codes):
        assert (codes >= 0).all(), "a code for absent"
        return self.forest.predict_proba(codes)


class Labels(Classifier):
    def __init__(self, forest):
        self.forest = forest

    def predict(self, codes):
        assert (codes >= 0).all(), "a code for absent"
        return self.forest.predict(codes)
"""
FEWER_SAMPLES = ("explainer.lime.n_samples=300", "explainer.decision_boundary.n_samples=200")


@pytest.fixture
def folder(toy, tmp_path, monkeypatch):
    """A folder with two models of the user's own, in a module that Python finds."""
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "model").mkdir()
    (tmp_path / "forest.py").write_text(FOREST)
    for name, kind in (("forest", "Forest"), ("label_forest", "LabelForest")):
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_text(f"_target_: forest.{kind}\n")
    (tmp_path / "run").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("forest", None)


def compute(toy, folder, *arguments):
    defaults = [*toy.arguments[2:], *drop_overridden(SMALL_RUN, arguments), *drop_overridden([FEW_METRICS], arguments)]
    return read_results(inside.run(folder / "run", *arguments, defaults=defaults, folder=folder / "conf"))


def test_model_with_probabilities_has_every_explainer_and_metric_that_applies(toy, folder):
    options = ("bounds=5", "explainer_stability=2", "metric=core", "truth=[signed]", "n_explain=30")
    results = compute(toy, folder, "model=forest", *options, *FEWER_SAMPLES)
    record, statistics = results.record, results.statistics
    assert list(record.explainers) == ["random", "omission", "lime", "anchor", "decision_boundary"]
    assert "sum of effects" in record.explainers_absent["lr"] and set(record.metrics_absent) == {"recall", "hit"}
    assert statistics.correlations.empty and not record.truths and "has no ground truth" in record.correlations_absent
    assert not {"model.npz", "truth.parquet"} & set(record.files)
    metrics = statistics.metrics.set_index(["metric", "variant", "explainer"])
    assert metrics.loc["comprehensiveness"].loc["del"]["value"].isna().all()
    assert metrics.loc["comprehensiveness"].loc["del"]["note"].str.contains("embeddings").all()
    assert metrics.loc["comprehensiveness"].loc["marginal"]["value"].notna().all()
    for name in ("validity_soft", "c_soft", "validity", "c", "proximity", "sufficiency", "dfr"):
        assert metrics.loc[name]["value"].notna().any(), name
    assert "No ground truth for this model:" in write_verdict(statistics, record).headline
    page = build.Report(results).render_page({}, [])
    assert "a model without ground truth" in page and "Explainers not applicable" in page


def test_model_with_labels_has_the_metrics_of_labels(toy, folder):
    results = compute(toy, folder, "model=label_forest", *FEWER_SAMPLES[1:])
    assert list(results.record.explainers) == ["random", "anchor", "decision_boundary"]
    assert set(results.record.explainers_absent) == {"omission", "lime", "lr"}
    metrics = results.statistics.metrics
    scored_metrics = set(metrics.loc[metrics["value"].notna(), "metric"])
    assert scored_metrics == {"dfr", "validity", "proximity", "proximity_flips", "c", "coverage"}
    assert results.record.levels == ["label"]
    assert "No ground truth" in build.Report(results).render_page({}, [])
    assert pd.read_parquet(folder / "run" / "instances.parquet")["predicted_probability"].isna().all()


def test_model_of_three_classes(toy, folder):
    settings = [
        "n_explain=15",
        "explainer=[random,omission,lime]",
        *FEWER_SAMPLES[:1],
        "k=2",
        "truth.shapley.budget=500",
    ]
    data = ["dataset=wine", "dataset.candidates=8", f"data_dir={folder / 'data'}", *SMALL_RUN, FEW_METRICS]
    inside.run(folder / "run", *data, *settings, "model=forest", folder=folder / "conf")
    assert len(json.loads((folder / "run" / "dataset.json").read_text())["classes"]) == 3
    assert pd.read_csv(folder / "run" / "metrics.csv").query("metric == 'c_soft'")["value"].notna().all()
    instances = pd.read_parquet(folder / "run" / "instances.parquet")
    assert instances["probability"].isna().all() and set(instances["predicted"]) == {0, 1, 2}
    assert (instances["predicted_probability"] >= 1 / 3).all()
    edits = pd.read_parquet(folder / "run" / "counterfactuals.parquet")
    flips = edits[edits["flipped"]]
    predicted = instances.set_index("instance")["predicted"]
    assert flips["label"].nunique() == 3  # a flip leads to any other class
    assert (flips["label"].to_numpy() != predicted[flips["instance"]].to_numpy()).all()
    assert np.isfinite(edits["distance"]).all()
    with pytest.raises(UserError, match="model=logistic is for two classes, and wine has 3"):
        inside.run(folder / "run", *data, "redo=true", folder=folder / "conf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search=continuous"], "needs gradients in the embeddings, which this model (Probabilities)"),
        (["search=exact"], "needs a logit that is linear in the embeddings"),
        (["distance.space=embedding"], "distance.space=embedding needs embeddings, which this model (Probabilities)"),
        (["explainer.omission.removal=zero"], "explainer.omission: removal=zero: needs embeddings"),
        (["explainer=[lr]"], "no explainer is applicable to this model: lr needs"),
        (["model=label_forest", "search.pick=largest_drop"], "needs probabilities, but this model returns labels only"),
        (["model=label_forest", "metric=[c_soft]"], "no metric to be judged is applicable to this model: c_soft needs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_the_model_cannot_serve_are_refused_before_training(toy, folder, arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        compute(toy, folder, "model=forest", *arguments)
    assert not (folder / "trained").exists() and not (folder / "run" / "run.json").exists()
