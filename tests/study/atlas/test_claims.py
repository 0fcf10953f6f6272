"""Claims are tests that were fixed; worlds in which they are true, or false, are told so."""

import numpy as np
import pytest

from cfeval_cli.study.atlas.claims import FAILS, HOLDS, OPEN, answered, fixed
from cfeval_cli.study.atlas.summary import Summary
from tests.study.atlas.worlds import METRICS, usual, world


@pytest.fixture(scope="module")
def told():
    return {one.name: one for one in answered(usual())}


def test_each_claim_has_words_a_source_and_a_test():
    assert len({one["name"] for one in fixed()}) == len(fixed()) >= 6
    sources = {one["of"] for one in fixed()}
    assert len(sources) >= 6 and all(one["text"] and isinstance(one["limit"], float) for one in fixed())


def test_a_world_with_two_questions_is_told_so(told):
    assert told["two questions"].verdict == HOLDS
    # erasure leads by (0.8 + 0.6 + 0.4) / 3 + 0.6 / 4 for contribution, and by 0.2 / 3 - 2.15 / 4 for change
    assert told["two questions"].figure.shown == pytest.approx(0.6 + 0.15 - (0.2 / 3 - 2.15 / 4), abs=0.03)
    assert told["counterfactuals, contribution"].verdict == FAILS and told["counterfactuals, change"].verdict == HOLDS
    clean = told["two questions, nothing by construction"].figure
    # comprehensiveness is gone for contribution, and all else counts half
    assert clean.shown == pytest.approx((0.5 + 0.15) / 2 - (0.2 / 3 - 2.15 / 4) / 2, abs=0.03)


def test_the_claims_of_the_field_are_answered(told):
    assert told["normalisation, contribution"].verdict == HOLDS  # 0.4 apart
    assert told["normalisation, change"].figure.shown == pytest.approx(0.12, abs=0.03)
    assert told["no metric is reliable, contribution"].verdict == FAILS
    assert told["no metric is reliable, contribution"].figure.shown == pytest.approx(0.8, abs=0.02)
    assert told["most diagnostic, change"].verdict == FAILS  # validity_soft is
    assert told["most diagnostic, change"].figure.shown == pytest.approx(0.55 - 0.925, abs=0.02)
    assert told["soft beats hard, counterfactuals"].verdict == HOLDS
    assert told["soft beats hard, erasure"].figure.shown == pytest.approx((0.4 + 0.1) / 2, abs=0.02)


def test_how_often_metrics_lean_to_opposite_sides_is_counted_pair_by_pair(told):
    rows = usual().rows
    rows = rows[~rows["arbitrary"]]
    shares = []
    for _, part in rows.groupby(["data", "judge", "truth", "seed", "k"]):
        signs = np.sign(part["tau_without_controls"].to_numpy())
        pairs = [a * b for i, a in enumerate(signs) for b in signs[:i] if a * b]
        shares.append(np.mean([one < 0 for one in pairs]))
    assert told["metrics contradict each other"].figure.shown == pytest.approx(np.mean(shares))


def test_noise_and_few_data_sets_leave_all_open():
    noise = {pair: (block, 0.2, 0.2) for pair, (block, *_) in METRICS.items()}
    flat = {one.name: one for one in answered(Summary(world(0.02, metrics=noise)))}
    assert flat["two questions"].verdict == OPEN and flat["no metric is reliable, change"].verdict == HOLDS
    few = answered(Summary(world(sets=("pima", "heloc"))))
    assert {one.verdict for one in few} == {OPEN}
