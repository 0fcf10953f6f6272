"""The confidence set, non-inferiority and pairwise differences of explainers, from paired resamples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from cfeval_cli.statistics import best_explainer
from cfeval_cli.statistics.best_explainer import PairedMeans


def draw_scores(seed, size=60, probabilities=(0.7, 0.6, 0.5, 0.4), correlation=0.5):
    """Return correlated binary scores (n, E)."""
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal((size, 1)), rng.standard_normal((size, len(probabilities)))
    latent = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    return (latent < norm.ppf(probabilities)).astype(float)


def compute_confidence_set(size, means, resampled, level):
    """Return the model confidence set, written out for one pair and one resample at a time."""
    remaining = set(range(len(means)))
    errors = {(i, j): np.std(resampled[:, i] - resampled[:, j], ddof=1) for i in remaining for j in remaining}

    def get_t(i, j):
        difference = means[i] - means[j]
        if abs(difference) < 1e-12:
            return 0.0
        if errors[i, j] <= 1e-12:
            return np.copysign(np.inf, difference)
        ratio = abs(difference) / (errors[i, j] * np.sqrt(size / (size - 1)))
        return np.copysign(norm.isf(student.sf(ratio, size - 1)), difference)

    while len(remaining) > 1:
        pairs = [(i, j) for i in remaining for j in remaining if i < j]
        statistic = max(abs(get_t(i, j)) for i, j in pairs)
        n_beyond = 0
        for row in resampled:
            largest = max(
                abs(row[i] - row[j] - means[i] + means[j]) / errors[i, j] if errors[i, j] > 1e-12 else 0.0
                for i, j in pairs
            )
            n_beyond += largest >= statistic - 1e-12
        if (1 + n_beyond) / (1 + len(resampled)) >= level:
            break
        remaining.remove(min(remaining, key=lambda j: (-max(get_t(i, j) for i in remaining if i != j), j)))
    return [i in remaining for i in range(len(means))]


@given(st.integers(0, 10_000))
def test_confidence_set_equals_the_algorithm_written_out(seed):
    scores = draw_scores(seed, size=20 + seed % 40, probabilities=(0.9, 0.6, 0.6, 0.3)[: 2 + seed % 3])
    if seed % 4 == 0:
        scores[:, 1] = scores[:, 0]
    paired = PairedMeans.compute(scores, seed)
    subset = PairedMeans(len(scores), paired.means, paired.resampled[:300])
    assert subset.find_confidence_set().tolist() == compute_confidence_set(
        len(scores), subset.means, subset.resampled, 0.05
    )


@given(st.integers(0, 10_000))
def test_resampled_means_are_those_of_a_weighted_bootstrap_within_strata(seed):
    rng = np.random.default_rng(seed)
    strata = rng.integers(0, 2, 40)
    weights = np.where(strata == 0, 0.25, 2.0)
    scores = draw_scores(seed, size=40)
    paired = PairedMeans.compute(scores, seed, weights, strata)
    assert paired.means == pytest.approx(np.average(scores, axis=0, weights=weights))
    # Within strata of equal weights, the variance of a mean has a closed form.
    share = np.array([weights[strata == s].sum() for s in (0, 1)]) / weights.sum()
    variance = sum(
        share[s] ** 2 * scores[strata == s].var(axis=0) / (strata == s).sum() for s in (0, 1) if (strata == s).any()
    )
    assert paired.resampled.std(axis=0) == pytest.approx(np.sqrt(variance), rel=0.06, abs=1e-9)


@given(st.integers(0, 10_000))
def test_interval_excludes_zero_exactly_where_p_is_below_the_level(seed):
    paired = PairedMeans.compute(draw_scores(seed, size=25 + seed % 100), seed)
    half_width, p = paired.compare_pairs(0.95)
    for i in range(4):
        for j in range(4):
            if i != j:
                assert (abs(paired.differences[i, j]) > half_width[i, j]) == (p[i, j] < 0.05)
    assert p.min() >= 1 / (best_explainer.N_RESAMPLES + 1)


def test_identical_scores_are_all_in_the_confidence_set():
    scores = np.repeat(draw_scores(0, probabilities=(0.6,)), 3, axis=1)
    paired = PairedMeans.compute(scores, 0)
    half_width, p = paired.compare_pairs(0.95)
    assert paired.find_confidence_set().all() and (p == 1).all() and (half_width == 0).all()
    assert paired.compute_size_to_separate(0, 1) is None and paired.find_non_inferior(0.05).all()


def test_difference_without_error_is_conclusive():
    paired = PairedMeans.compute(np.tile([1.0, 0.5], (30, 1)), 0)
    assert paired.find_confidence_set().tolist() == [True, False]
    assert paired.find_non_inferior(0.05).tolist() == [True, False]


@pytest.mark.parametrize("n_noise", [1, 5])
def test_noise_explainers_change_neither_resamples_nor_the_confidence_set(n_noise):
    scores = draw_scores(3, size=100, probabilities=(0.8, 0.78, 0.75))
    noise = draw_scores(4, size=100, probabilities=(0.1,) * n_noise, correlation=0.0)
    alone, beside = (PairedMeans.compute(columns, 0) for columns in (scores, np.hstack([scores, noise])))
    assert beside.resampled[:, :3] == pytest.approx(alone.resampled, abs=1e-12)
    assert beside.find_confidence_set().tolist() == [*alone.find_confidence_set().tolist(), *[False] * n_noise]


@given(st.integers(0, 10_000))
def test_non_inferiority_is_that_of_the_lower_bounds(seed):
    paired = PairedMeans.compute(draw_scores(seed, probabilities=(0.7, 0.69, 0.5)), seed)
    expected = [
        all(np.sort(paired.resampled[:, i] - paired.resampled[:, j])[499:501].mean() > -0.2 for j in range(3) if j != i)
        for i in range(3)
    ]
    close = [
        any(abs(np.quantile(paired.resampled[:, i] - paired.resampled[:, j], 0.05) + 0.2) < 0.02 for j in range(3))
        for i in range(3)
    ]
    result = paired.find_non_inferior(0.2)
    assert all(result[i] == expected[i] for i in range(3) if not close[i])


def test_required_sample_size_has_the_stated_power():
    """With the required number of instances, four of five samples show the difference."""
    rng = np.random.default_rng(0)
    pilot = draw_scores(0, size=20_000, probabilities=(0.7, 0.6))
    needed = PairedMeans.compute(pilot[:2000], 0).compute_size_to_separate(0, 1)
    differences = pilot[:, 0] - pilot[:, 1]
    drawn = rng.choice(differences, (4000, needed))
    t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / np.sqrt(needed))
    assert 0.7 < (np.abs(t) > 1.96).mean() < 0.9


def test_required_sample_size_for_non_inferiority_has_the_stated_power():
    pilot = draw_scores(1, size=20_000, probabilities=(0.7, 0.7))
    needed = PairedMeans.compute(pilot[:2000], 0).compute_size_for_non_inferiority(1, 0.05)
    difference = pilot[:2000, 1].mean() - pilot[:2000, 0].mean()
    error = (pilot[:2000, 1] - pilot[:2000, 0]).std()
    power = norm.cdf((0.05 + difference) / (error / np.sqrt(needed)) - norm.ppf(0.95))
    assert power == pytest.approx(0.8, abs=0.02)
    assert PairedMeans.compute(draw_scores(1, 100, (0.9, 0.3)), 0).compute_size_for_non_inferiority(1, 0.05) is None


@pytest.mark.slow
@pytest.mark.parametrize("n_explainers", [4, 8])
@pytest.mark.parametrize("size", [30, 100])
def test_true_best_is_rarely_outside_the_confidence_set(n_explainers, size):
    """Of exactly tied explainers, at most one in ten samples excludes any."""
    outside = [
        not PairedMeans.compute(draw_scores(seed, size, (0.7,) * n_explainers), seed).find_confidence_set().all()
        for seed in range(200)
    ]
    assert np.mean(outside) <= 0.1
