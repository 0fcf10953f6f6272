"""Resampling against loops that draw and add up one by one."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import (
    Bootstrap,
    compute_percentile_interval,
    compute_resampled_sums,
    compute_standard_deviation,
    divide_halves,
    draw_counts,
)
from cfeval_cli.statistics.resampled_values import ResampledValues, insert_intervals
from cfeval_cli.statistics.scores import Scores
from tests.statistics.tables import EXPLAINERS, build, list_drawn_rows, summarise


def test_every_resample_draws_as_many_instances_as_the_sample_has():
    (counts,) = draw_counts(7, 200, seed=3)
    assert counts.shape == (200, 7) and (counts.sum(axis=1) == 7).all()
    assert len(np.unique(counts, axis=0)) > 100 and counts.mean(axis=0) == pytest.approx(np.ones(7), abs=0.4)
    blocks = list(draw_counts(7, 200, seed=3, max_draws=20))
    assert len(blocks) == 4 and (np.concatenate(blocks) == counts).all()
    (other_counts,) = draw_counts(7, 200, seed=4)
    assert not (other_counts == counts).all()


def test_counts_equal_a_loop_over_draws():
    rng = make_stream(5, "bootstrap")
    draws = rng.integers(0, 6, (9, 6))
    expected = [[(row == i).sum() for i in range(6)] for row in draws]
    assert np.concatenate(list(draw_counts(6, 9, seed=5))).tolist() == expected


@given(st.integers(0, 10_000))
def test_sums_equal_those_of_the_drawn_rows(seed):
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(size=(5, 3)), rng.normal(size=(5, 2))]
    totals = compute_resampled_sums([m.__getitem__ for m in matrices], 5, 8, seed)
    draws = make_stream(seed, "bootstrap").integers(0, 5, (8, 5))
    for matrix, total in zip(matrices, totals, strict=True):
        assert total == pytest.approx(np.array([sum(matrix[i] for i in row) for row in draws]))


@pytest.mark.parametrize("slab", [1, 7, 40, 1000])
def test_sums_do_not_depend_on_slabs_of_instances_and_blocks_of_resamples(slab):
    rng = np.random.default_rng(slab)
    matrices = [rng.integers(-50, 50, size=(101, 3)) / 64, rng.integers(0, 9, size=(101, 2)).astype(float)]  # exact
    draws = make_stream(4, "bootstrap").integers(0, 101, (300, 101))
    readers = [matrix.__getitem__ for matrix in matrices]
    for max_draws in (1, 100 * 101, 1 << 22):
        sums = compute_resampled_sums(readers, 101, 300, 4, max_draws=max_draws, instances_per_slab=slab)
        for matrix, total in zip(matrices, sums, strict=True):
            assert (total == matrix[draws].sum(axis=1)).all()


@given(st.lists(st.one_of(st.floats(-5, 5), st.just(np.nan)), min_size=2, max_size=30), st.floats(0.5, 0.999))
def test_intervals_are_percentiles_without_missing_values(values, confidence):
    column = np.array(values)[:, None]
    low, high = compute_percentile_interval(column, confidence)
    valid_values = column[~np.isnan(column)]
    if len(valid_values):
        expected = np.quantile(valid_values, [(1 - confidence) / 2, (1 + confidence) / 2])
        assert (low[0], high[0]) == pytest.approx(tuple(expected))
    else:
        assert np.isnan(low[0]) and np.isnan(high[0])
    assert compute_standard_deviation(column)[0] == pytest.approx(
        valid_values.std(ddof=1) if len(valid_values) > 1 else np.nan, nan_ok=True
    )


def test_zero_denominator_has_no_ratio():
    assert (
        np.isnan(divide_halves(np.array([3.0, 1.0, 0.0, 2.0]))[0])
        and divide_halves(np.array([3.0, 1.0, 0.0, 2.0]))[1] == 0.5
    )


@given(st.integers(0, 10_000))
def test_resampled_values_are_ratios_of_sums_over_the_same_draws(seed):
    scores, order = build(seed, gaps=True)
    metrics = summarise(scores, order)
    config = Bootstrap(seed, n_resamples=12, confidence=0.8, min_instances=1)
    draws = ResampledValues.compute(Scores.from_frame(scores), metrics, config)
    for number, drawn_rows in enumerate(list_drawn_rows(scores, 12, seed), 1):
        for row, (metric, variant) in enumerate(draws.metrics):
            for column, explainer in enumerate(EXPLAINERS):
                terms = [drawn_rows[i].get((metric, variant, explainer), (0.0, 0.0)) for i in range(len(drawn_rows))]
                above, below = sum(n for n, _ in terms), sum(d for _, d in terms)
                expected = above / below if below else np.nan
                if np.isnan(draws.values[0, row, column]):
                    expected = np.nan
                assert draws.values[number, row, column] == pytest.approx(expected, nan_ok=True)
    table = insert_intervals(metrics, draws, config)
    line = table[(table["metric"] == "c") & (table["explainer"] == "b")].iloc[0]
    terms = draws.values[1:, draws.metrics.index(("c", "label")), 1]
    terms = terms[~np.isnan(terms)]
    assert (line["value_low"], line["value_high"]) == pytest.approx(tuple(np.quantile(terms, [0.1, 0.9])))
    assert line["value_se"] == pytest.approx(terms.std(ddof=1))


def test_values_of_an_explainer_do_not_depend_on_the_others():
    scores, order = build(1, n=200)
    single = scores[scores["explainer"] == "c"], order[order["explainer"] == "c"]
    values = [
        ResampledValues.compute(
            Scores.from_frame(s), summarise(s, o), Bootstrap(0, n_resamples=30, min_instances=1)
        ).values
        for s, o in ((scores, order), single)
    ]
    assert (values[0][..., [2]] == values[1]).all()


def test_scores_do_not_depend_on_order_and_pieces():
    scores, _ = build(2, n=6, gaps=True)
    shuffled = scores.sample(frac=1, random_state=1)
    first, second = (Scores.from_frame(frame) for frame in (scores, shuffled))
    assert first.n_instances == second.n_instances == 6 and first.series.keys() == second.series.keys()
    rows = sorted({row for row, _ in first.series})
    for explainer in EXPLAINERS:
        assert (first.stack_columns(explainer, rows) == second.stack_columns(explainer, rows)).all()
        assert (first.stack_columns(explainer, rows, slice(1, 4)) == first.stack_columns(explainer, rows)[1:4]).all()
    assert np.array_equal(
        first.compute_values(1, 4, rows, EXPLAINERS), second.compute_values(1, 4, rows, EXPLAINERS), equal_nan=True
    )
    frame = scores.set_index(["metric", "variant", "explainer", "instance"])
    for i, (metric, variant) in enumerate(rows):
        for j, explainer in enumerate(EXPLAINERS):
            for instance in range(1, 4):
                totals = first.compute_values(1, 4, rows, EXPLAINERS)[instance - 1, i, j]
                key = (metric, variant, explainer, instance)
                if key in frame.index:
                    assert totals == frame.loc[key, "numerator"] / frame.loc[key, "denominator"]
                else:
                    assert np.isnan(totals)


def test_without_resamples_there_are_no_intervals():
    scores, order = build(1)
    config = Bootstrap(0, n_resamples=0, min_instances=1)
    metrics = summarise(scores, order)
    table = insert_intervals(metrics, ResampledValues.compute(Scores.from_frame(scores), metrics, config), config)
    assert table["value"].notna().all() and table[["value_low", "value_high", "value_se"]].isna().all(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mean", "ratio"])
def test_intervals_cover_a_known_truth_at_the_nominal_rate(kind):
    """400 samples of a population whose value is known: 95 % intervals hold it 95 % of the time, within 3 sigma."""
    rng = np.random.default_rng(2026)
    n_covered, truth, trials, size = 0, 0.0, 400, 300
    for trial in range(trials):
        weight = rng.gamma(2.0, 0.5, size) if kind == "ratio" else np.ones(size)
        numerator = (
            (rng.random(size) < 0.3 + 0.2 * np.minimum(weight, 2)).astype(float)
            if kind == "ratio"
            else (rng.exponential(1.5, size))
        )
        if kind == "mean":
            truth = 1.5
        else:  # E[numerator] / E[weight], by numbers that have nothing to do with the samples
            grid = np.random.default_rng(1).gamma(2.0, 0.5, 2_000_000)
            truth = truth or float((0.3 + 0.2 * np.minimum(grid, 2)).mean() / 1.0)
        frame = pd.DataFrame(
            {
                "instance": np.arange(size), "explainer": "a", "metric": "c", "variant": "label",
                "numerator": numerator, "denominator": weight,
            }
        )  # fmt: skip
        row = {"metric": "c", "variant": "label", "explainer": "a", "quality_level": np.nan, "better": "higher"}
        facts = {
            "role": "judged",
            "access": "label",
            "low": 0.0,
            "high": 1.0,
            "note": "",
            "method": "",
            "remark": "",
            "quantity": None,
            "empty": "",
            "control": False,
            "circular": False,
        }
        order = pd.DataFrame([row | facts])
        config = Bootstrap(trial, n_resamples=1000)
        metrics = summarise(frame, order)
        line = insert_intervals(
            metrics, ResampledValues.compute(Scores.from_frame(frame), metrics, config), config
        ).iloc[0]
        n_covered += line["value_low"] <= truth <= line["value_high"]
    assert abs(n_covered / trials - 0.95) <= 3 * np.sqrt(0.95 * 0.05 / trials), f"{n_covered} of {trials}"
