"""The verdict within instances: which metric prefers the more faithful of two explanations."""

from types import SimpleNamespace

import pandas as pd
import pytest

from cfeval_cli.report.instance_verdict import write_instance_verdict
from tests.records import make_metric, make_record

TRUTHS = {
    "shapley": {"question": "contribution", "method": "exact", "arbitrary": False},
    "contrast": {"question": "change", "method": "exact", "arbitrary": False},
}
RECORD = make_record(
    metrics={"comp": make_metric("Comp.", block="erasure"), "c_soft": make_metric("C_soft")},
    settings={"truth": ["shapley", "contrast"], "agreement": "recall", "confidence": 0.95},
    truths=TRUTHS,
    removals={"zero": {"name": "zero", "title": "del.", "arbitrary": True}},
)
COLUMNS = ["metric", "variant", "truth", "agreement", "subset", "pairs", "d", "d_low", "d_high"]
LINES = [
    ("comp", "marginal", "shapley", "recall", "without_controls", 3945, 0.8, 0.78, 0.82),
    ("comp", "zero", "shapley", "recall", "without_controls", 3945, 0.9, 0.88, 0.92),
    ("c_soft", "probability", "shapley", "recall", "without_controls", 3945, 0.02, -0.01, 0.05),
    ("comp", "marginal", "shapley", "recall", "all", 9000, 0.95, 0.9, 1.0),
    ("comp", "marginal", "shapley", "hit", "without_controls", 3945, 0.99, 0.9, 1.0),
    ("c_soft", "probability", "contrast", "recall", "without_controls", 2000, 0.38, 0.3, 0.4),
    ("comp", "marginal", "contrast", "recall", "without_controls", 2000, 0.04, 0.0, 0.1),
]


def make_statistics(lines=LINES, circular=()):
    table = pd.DataFrame(lines, columns=COLUMNS)
    correlations = table[["metric", "variant", "truth", "agreement"]].drop_duplicates()
    is_circular = [metric in circular for metric in correlations["metric"]]
    return SimpleNamespace(instance_agreement=table, correlations=correlations.assign(circular=is_circular))


def test_best_metric_is_compared_with_the_best_of_the_other_family():
    assert write_instance_verdict(make_statistics(), RECORD) == [
        "Contribution: Comp. (marginal) prefers the more faithful of two explanations of an instance in 90 % of 3,945 "
        "pairs (95 % CI [89, 91]); C_soft (probability) in 51 % (chance: 50 %)",
        "Change: C_soft (probability) prefers the more faithful of two explanations of an instance in 69 % of 2,000 "
        "pairs (95 % CI [65, 70]); Comp. (marginal) in 52 % (chance: 50 %)",
    ]


def test_interval_and_chance_share_brackets_without_another_family():
    (sentence,) = write_instance_verdict(make_statistics([LINES[0]]), RECORD)
    assert sentence.endswith("in 90 % of 3,945 pairs (95 % CI [89, 91]; chance: 50 %)")


def test_circular_metric_leads_only_if_every_metric_is_circular():
    sentence = write_instance_verdict(make_statistics(circular=("comp",)), RECORD)[0]
    assert sentence.startswith("Contribution: inconclusive; C_soft (probability) prefers") and "Comp." not in sentence
    sentence = write_instance_verdict(make_statistics(circular=("comp", "c_soft")), RECORD)[0]
    assert "3,945 pairs (95 % CI [89, 91]), circular; C_soft" in sentence


def test_metric_computed_for_a_sample_does_not_lead():
    sample = ("naopc", "marginal", "shapley", "recall", "without_controls", 152, 0.9, 0.8, 1.0)
    assert write_instance_verdict(make_statistics([*LINES, sample]), RECORD)[0].startswith(
        "Contribution: Comp. (marginal)"
    )


def test_missing_interval_and_family_are_left_out():
    (sentence,) = write_instance_verdict(make_statistics([(*LINES[0][:-2], float("nan"), float("nan"))]), RECORD)
    assert sentence.endswith("in 90 % of 3,945 pairs (chance: 50 %)")


@pytest.mark.parametrize("lines", [[], [(*LINES[0][:4], "all", *LINES[0][5:])], [(*LINES[0][:5], 0, *LINES[0][6:])]])
def test_without_pairs_of_explainers_that_are_no_controls_there_is_no_sentence(lines):
    assert write_instance_verdict(make_statistics(lines), RECORD) == []
