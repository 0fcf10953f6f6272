"""benchmarks/policy.py: how often the answer about the best explainer is wrong on simulated scores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
N_SAMPLES = 150
MAX_CHANCE = 1e-4  # that a policy at its limit fails a test


policy = load_script("policy")


def find_broken_limits(results):
    """Return the results that exceed a limit by more than chance."""
    return [
        (result.case, result.size, result.n_noise)
        for result in results
        for count, limit in ((result.n_excluded, result.limit), (result.n_wrong_claims or 0, policy.MAX_WRONG_CLAIMS))
        if binom.sf(count - 1, result.n_samples, limit) < MAX_CHANCE
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size", policy.SIZES)
def test_policy_is_within_its_limits(size):
    results = policy.simulate(size, N_SAMPLES, first_seed=50_000)
    assert len(results) == len(policy.CASES) * len(policy.N_NOISE) and find_broken_limits(results) == []
    by_case = {(result.case, result.n_noise): result for result in results}
    # The limits alone are met by an answer that is never conclusive.
    assert by_case["clear winner", 0].n_conclusive > N_SAMPLES * (0.3 if size == 30 else 0.9)
    for case in policy.CASES:
        without_noise, with_noise = (by_case[case, n_noise].n_conclusive for n_noise in (0, max(policy.N_NOISE)))
        assert abs(with_noise - without_noise) <= 0.08 * N_SAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("size", policy.SIZES)
def test_broken_policies_exceed_the_limits(size):
    """An answer that names the observed best alone, and one that takes non-significance for equivalence."""

    def simulate(decide):
        decisions = {}
        for seed in range(N_SAMPLES):
            scores, columns, _ = policy.draw_sample(size, 60_000 + seed)
            for case, of_case in columns.items():
                decisions.setdefault(case, []).append(decide(scores[:, of_case]))
        return [policy.summarise(case, size, 0, rows) for case, rows in decisions.items()]

    def name_best(scores):
        is_best = np.arange(scores.shape[1]) == scores.mean(axis=0).argmax()
        return policy.Decision(is_best.tolist(), is_best.tolist())

    def take_equal_if_not_significant(scores):
        differences = scores - scores[:, [int(scores.mean(axis=0).argmax())]]
        errors = differences.std(axis=0, ddof=1) / np.sqrt(size)
        is_equal = differences.mean(axis=0) >= -1.96 * errors
        return policy.Decision(is_equal.tolist(), is_equal.tolist())

    assert {case for case, _, _ in find_broken_limits(simulate(name_best))} >= {"4 exact ties", "8 exact ties"}
    broken = {case for case, _, _ in find_broken_limits(simulate(take_equal_if_not_significant))}
    assert "second explainer exactly at −margin" in broken


def test_summary_counts_any_excluded_best_and_any_wrong_claim():
    decisions = [
        policy.Decision([True, True, True, True, False], [True, False, False, False, False]),
        policy.Decision([False, True, True, True, False], [False, True, False, False, False]),
        policy.Decision([True, False, False, False, False], [True, False, False, False, True]),
    ]
    result = policy.summarise("4 exact ties", 30, 1, decisions)
    assert (result.n_excluded, result.n_wrong_claims, result.n_conclusive) == (2, 1, 1)
    assert result.set_size == pytest.approx(8 / 3) and result.limit == 0.1
    at_margin = policy.summarise(
        "second explainer exactly at −margin", 30, 0, [replace(row, members=row.members[:4],
        non_inferior=row.non_inferior[:4]) for row in decisions],
    )  # fmt: skip
    assert (at_margin.n_excluded, at_margin.n_wrong_claims, at_margin.limit) == (1, 1, 0.05)
    assert policy.merge([result, result]) == replace(
        result, n_samples=6, n_excluded=4, n_wrong_claims=2, n_conclusive=2
    )


def test_simulated_scores_have_the_stated_means():
    scores, columns, noise = policy.draw_sample(20_000, 0)
    for case, means in policy.CASES.items():
        assert scores[:, columns[case]].mean(axis=0) == pytest.approx(means, abs=0.015)
        assert 0.2 < np.corrcoef(scores[:, columns[case][:2]].T)[0, 1] < 0.4
    assert scores[:, noise].mean(axis=0) == pytest.approx(policy.NOISE_MEAN, abs=0.015)


def read_page(*parts):
    return " ".join(ROOT.joinpath(*parts).read_text(encoding="utf-8").split())


def read_rows(page):
    """Return the rows of the tables of a page of benchmarks/."""
    text = (ROOT / "benchmarks" / page).read_text(encoding="utf-8")
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:2] == "| "]


def test_published_simulation_is_within_the_limits_and_its_summary_follows_from_its_table():
    rows = read_rows("policy.md")[2:]
    assert len(rows) == len(policy.CASES) * len(policy.SIZES) * len(policy.N_NOISE)
    excluded = {True: [], False: []}
    for row in rows:
        excluded["exact ties" in row[0]].append(float(row[3].removesuffix(" %")))
    claims = [float(row[4].removesuffix(" %")) for row in rows if row[4] != "–"]
    assert max(excluded[True]) <= 10 and max(excluded[False]) <= 5 and max(claims) <= 6
    for page in (read_page("benchmarks", "policy.md"), read_page("docs", "statistics.md")):
        assert f"at most {max(excluded[True])} % of samples with exact ties" in page
        assert f"{max(excluded[False])} % otherwise" in page and f"wrongly in at most {max(claims)} %" in page
