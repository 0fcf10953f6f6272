"""Entries of run.json that are built from what a run computed."""

import numpy as np
import pytest

from cfeval_cli.core import TruthEstimate
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.results.entries import build_entries, complete_truth_entries, explain_missing_correlations
from cfeval_cli.results.record import MetricEntry, TruthEntry
from tests.records import make_record

METRIC = {"title": "", "better": "higher", "block": "", "details": []}


@pytest.mark.parametrize(
    ("explainers", "roles", "reason"),
    [
        (["a"], ["truth", "judged"], "a ranking needs two explainers, and this run has one"),
        (["a", "b"], ["judged"], "neither ground truth (recall, hit) is among the metrics"),
        (["a", "b"], ["truth", "fact"], "no metric to be judged is among the metrics"),
        (["a", "b"], ["truth", "judged"], ""),
    ],
)
def test_missing_correlations_are_explained(explainers, roles, reason):
    record = make_record(
        explainers={name: name for name in explainers},
        metrics={role: METRIC | {"role": role} for role in roles},
        truths={"shapley": {}}, truths_absent={},
    )  # fmt: skip
    assert explain_missing_correlations(record) == reason


def test_invalid_declaration_of_a_component_is_named():
    class MisdeclaredMetric:
        role = "judge"

    def build(name, component):
        return MetricEntry.model_validate(METRIC | {"role": component.role})

    with pytest.raises(
        ValueError, match=r"run\.json: metrics\.own\.role must be one of judged, truth, fact, not 'judge'"
    ):
        build_entries("metrics", {"own": MisdeclaredMetric()}, build)


def test_truth_entries_have_method_size_and_errors():
    importance = np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, 2.0]])
    estimate = TruthEstimate(importance, np.array([0.1, np.nan, 0.3]), "sampled")
    entry = complete_truth_entries({"shapley": TruthEntry(question="change")}, {"shapley": estimate}, Scratch())
    assert entry["shapley"].model_dump(exclude_unset=True) == {
        "question": "change", "exact": False, "method": "sampled", "instances": 2,
        "error": pytest.approx(0.2), "largest_error": 0.3,
    }  # fmt: skip
