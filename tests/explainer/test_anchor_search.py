"""The search for anchors returns the rules of the package anchor-exp on the same samples."""

import numpy as np
import pytest
from anchor.anchor_base import AnchorBaseBeam
from hypothesis import example, given
from hypothesis import strategies as st

from cfeval_cli.explainer.anchor_search import AnchorSearch, compute_lower_bound, compute_upper_bound


class Samples:
    """Samples on which parts hold at random, and hits whose probability depends on these parts."""

    def __init__(self, seed, n_parts, hit_rates):
        self.random, self.n_parts, self.hit_rates = np.random.RandomState(seed), n_parts, hit_rates
        self.requests = []

    def draw(self, parts, size):
        self.requests.append((tuple(parts), size))
        holds = self.random.random_sample((size, self.n_parts)) < 0.5
        holds[:, parts] = True
        return holds, self.random.random_sample(size) < self.hit_rates(holds)

    def draw_for_package(self, parts, size, compute_labels=True):
        holds, hits = self.draw(parts, size)
        return np.zeros((size, 1), np.int8), holds.astype(np.int8), hits if compute_labels else None


def make_hit_rates(rng, n_parts, kind):
    """A share of the parts decides (so that many rules tie), or each adds to the probability of a hit."""
    if kind == "deciding":
        deciding = rng.permutation(n_parts)[: rng.integers(1, n_parts + 1)]
        return lambda holds: holds[:, deciding].all(axis=1).astype(float)
    weights, constant = rng.normal(0, 2, n_parts), rng.normal(2, 5)
    return lambda holds: 1 / (1 + np.exp(-(holds @ weights) - constant))


@given(
    st.integers(0, 10_000), st.integers(1, 9), st.sampled_from(["deciding", "adding"]),
    st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from([0.05, 0.1, 0.3]), st.sampled_from([0.1, 0.15, 0.4]),
    st.sampled_from([5, 20, 100]), st.booleans(),
)  # fmt: skip
def test_the_rules_and_their_samples_are_the_packages(
    seed, n_parts, kind, threshold, delta, tau, batch_size, stop_on_first
):
    n_coverage = 1 if stop_on_first else 200
    hit_rates = make_hit_rates(np.random.default_rng(seed), n_parts, kind)
    package_values, own_values = (Samples(seed, n_parts, hit_rates) for _ in range(2))
    expected = AnchorBaseBeam.anchor_beam(
        package_values.draw_for_package, delta=delta, epsilon=tau, batch_size=batch_size, desired_confidence=threshold,
        stop_on_first=stop_on_first, coverage_samples=n_coverage,
    )  # fmt: skip
    search = AnchorSearch(threshold, delta, tau, batch_size, stop_on_first)
    coverage, _ = own_values.draw([], n_coverage)
    rule = search.find(own_values.draw, coverage)
    assert rule == list(zip(expected["feature"], expected["precision"], strict=True))
    assert own_values.requests == package_values.requests


def test_these_problems_have_rules_of_several_parts_and_of_none():
    """So that the comparison with the package does not pass for want of rules."""
    sizes = []
    for seed in range(40):
        hit_rates = make_hit_rates(np.random.default_rng(seed), 6, ["deciding", "adding"][seed % 2])
        samples = Samples(seed, 6, hit_rates)
        search = AnchorSearch(0.9, 0.1, 0.15, 100)
        sizes.append(len(search.find(samples.draw, samples.draw([], 200)[0])))
    assert {0, 1, 2, 3} <= set(sizes)


@given(st.floats(0, 1), st.floats(1e-6, 5))
@example(0.0, 0.02)
@example(1.0, 0.02)
@example(1.0, 1e-6)
def test_the_bounds_are_the_packages(share, level):
    assert compute_upper_bound(share, level) == AnchorBaseBeam.dup_bernoulli(share, level)
    assert compute_lower_bound(share, level) == AnchorBaseBeam.dlow_bernoulli(share, level)


def test_a_constant_prediction_has_an_empty_rule():
    samples = Samples(0, 3, lambda holds: np.ones(len(holds)))
    assert AnchorSearch(0.95, 0.1, 0.15, 100).find(samples.draw, samples.draw([], 10)[0]) == []


def test_without_a_precise_rule_the_most_precise_one_is_returned():
    samples = Samples(0, 4, lambda holds: np.where(holds[:, 2], 0.6, 0.1))
    (first, precision), *_ = AnchorSearch(0.95, 0.1, 0.15, 100).find(samples.draw, samples.draw([], 100)[0])
    assert first == 2 and precision == pytest.approx(0.6, abs=0.1)
