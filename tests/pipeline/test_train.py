"""The quality of a model, and how often a distilled model agrees with its teacher."""

import numpy as np
import pytest
from scipy.stats import binomtest

from cfeval_cli.pipeline import train
from cfeval_cli.pipeline.train import measure_fidelity, measure_quality
from tests.problems import make_dataset, make_linear, predict_labels

DATASET = make_dataset([2, 3, 4])
MODEL = make_linear(DATASET)


def test_quality_is_counted_on_each_split():
    quality, _ = measure_quality(MODEL, DATASET)
    for name in ("train", "validation", "test"):
        split = getattr(DATASET, name)
        predicted = predict_labels(MODEL, split.codes)
        assert quality["accuracy"][name] == pytest.approx((predicted == split.labels).mean())
        assert quality["majority"][name] == pytest.approx(max(np.mean(split.labels == c) for c in set(split.labels)))


def test_seconds_of_an_evaluation_exclude_other_work(monkeypatch):
    now = [0.0]

    def take(seconds, compute):
        def call(*arguments):
            now[0] += seconds(*arguments)
            return compute(*arguments)

        return call

    monkeypatch.setattr(train.time, "perf_counter", lambda: now[0])
    predict = take(lambda _model, _dataset, codes: 0.25 * len(codes), train.compute_predictions)
    monkeypatch.setattr(train, "compute_predictions", predict)
    monkeypatch.setattr(train, "compute_auc", take(lambda *_: 1000.0, train.compute_auc))
    assert measure_quality(MODEL, DATASET)[1] == pytest.approx(0.25)


def test_fidelity_has_the_exact_interval():
    fidelity = measure_fidelity(MODEL, DATASET, 0.95)
    agree = int((predict_labels(MODEL, DATASET.test.codes) == DATASET.test.labels).sum())
    interval = binomtest(agree, len(DATASET.test)).proportion_ci(0.95, "exact")
    assert fidelity == pytest.approx(
        {"test": agree / len(DATASET.test), "low": interval.low, "high": interval.high, "rows": len(DATASET.test)}
    )
