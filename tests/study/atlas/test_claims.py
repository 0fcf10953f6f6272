"""Claims are tested on atlases in which they are known to be true, or false."""

import numpy as np
import pytest

from cfeval_cli.study.atlas.claims import FAILS, HOLDS, INCONCLUSIVE, check_claims, load_claims
from cfeval_cli.study.atlas.summary import AtlasSummary
from tests.study.atlas.synthetic import METRICS, make_atlas, summarise_default


def check_by_name(summary):
    return {claim.definition.name: claim for claim in check_claims(summary)}


@pytest.fixture(scope="module")
def claims():
    return check_by_name(summarise_default())


def test_claims_have_unique_names_texts_and_sources():
    definitions = load_claims()
    assert len({definition.name for definition in definitions}) == len(definitions) == 13
    assert len({definition.source for definition in definitions}) >= 6
    assert all(definition.text for definition in definitions)


def test_interaction_of_family_and_question_is_detected(claims):
    claim = claims["two questions"]
    assert claim.verdict == HOLDS
    # erasure leads by (0.8 + 0.6 + 0.4) / 3 + 0.6 / 4 for contribution, and by 0.2 / 3 - 2.15 / 4 for change
    assert claim.estimate.quantity == pytest.approx(0.6 + 0.15 - (0.2 / 3 - 2.15 / 4), abs=0.03)
    assert claims["counterfactuals, contribution"].verdict == FAILS
    assert claims["counterfactuals, change"].verdict == HOLDS
    # without circular rows comprehensiveness is absent for contribution, and all other values are halved
    estimate = claims["two questions, without circular metrics"].estimate
    assert estimate.quantity == pytest.approx((0.5 + 0.15) / 2 - (0.2 / 3 - 2.15 / 4) / 2, abs=0.03)


@pytest.mark.parametrize(
    ("name", "verdict", "quantity"),
    [
        ("normalisation, contribution", HOLDS, 0.4),
        ("normalisation, change", None, 0.12),
        ("no metric is reliable, contribution", FAILS, 0.8),
        ("most diagnostic, change", FAILS, 0.55 - 0.925),  # validity_soft is more diagnostic
        ("soft beats hard, counterfactuals", HOLDS, (0.2 + 0.45 + 0.2 + 0.3) / 4),
        ("soft beats hard, erasure", HOLDS, (0.4 + 0.1) / 2),
    ],
)
def test_claims_of_the_literature_are_decided(claims, name, verdict, quantity):
    assert claims[name].estimate.quantity == pytest.approx(quantity, abs=0.03)
    assert verdict is None or claims[name].verdict == verdict


def test_share_of_opposite_signs_equals_that_of_a_loop(claims):
    rows = summarise_default().rows
    rows = rows[~rows["arbitrary"]]
    shares = []
    for _, part in rows.groupby(["data", "judge", "truth", "seed", "k"]):
        signs = np.sign(part["tau_without_controls"].to_numpy())
        products = [a * b for i, a in enumerate(signs) for b in signs[:i] if a * b]
        shares.append(np.mean([product < 0 for product in products]))
    assert claims["metrics contradict each other"].estimate.quantity == pytest.approx(np.mean(shares))


def test_equal_metrics_and_few_data_sets_are_inconclusive():
    equal_metrics = {pair: (block, 0.2, 0.2) for pair, (block, *_) in METRICS.items()}
    claims = check_by_name(AtlasSummary(make_atlas(0.02, metrics=equal_metrics)))
    assert claims["two questions"].verdict == INCONCLUSIVE
    assert claims["no metric is reliable, change"].verdict == HOLDS
    claims_of_few_data_sets = check_claims(AtlasSummary(make_atlas(sets=("pima", "heloc"))))
    assert {claim.verdict for claim in claims_of_few_data_sets} == {INCONCLUSIVE}
