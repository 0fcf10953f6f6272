"""Shares of variance: against every order of the factors, and closed forms of balanced tables."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.statistics.variance_decomposition import (
    compute_interaction_share,
    compute_r_squared,
    decompose_variance,
)


def fit_r_squared(rows, names):
    """Return R² of least squares on an indicator of each value."""
    columns = [np.ones(len(rows))]
    for name in names:
        columns += [(rows[name] == value).to_numpy(float) for value in sorted(set(rows[name]))]
    design, y = np.stack(columns, axis=1), rows["y"].to_numpy(float)
    residuals = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return 1 - (residuals**2).sum() / ((y - y.mean()) ** 2).sum()


def make_rows(seed, share=0.6):
    rng = np.random.default_rng(seed)
    lines = [(a, f"b{b}", c) for a, b, c in product(range(3), range(2), range(4)) if rng.random() < share]
    rows = pd.DataFrame(lines * 2, columns=["a", "b", "c"])
    return rows.assign(y=rows["a"] * 0.5 + (rows["b"] == "b1") + rng.normal(0, 0.4, len(rows)))


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_mean_gains_over_all_orders_and_sum_to_r_squared(seed):
    rows, names = make_rows(seed), ["a", "b", "c"]
    expected = dict.fromkeys(names, 0.0)
    for order in permutations(names):
        for i, name in enumerate(order):
            expected[name] += (fit_r_squared(rows, order[: i + 1]) - fit_r_squared(rows, order[:i])) / 6
    shares = decompose_variance(rows, "y", names)
    assert shares == pytest.approx(expected, abs=1e-9)
    assert sum(shares.values()) == pytest.approx(fit_r_squared(rows, names))
    both = rows.assign(ab=rows["a"].astype(str) + rows["b"])
    assert compute_interaction_share(rows, "y", names, ("a", "b")) == pytest.approx(
        fit_r_squared(both, [*names, "ab"]) - fit_r_squared(rows, names)
    )


def test_shares_of_a_balanced_design_are_those_between_the_means():
    rows = make_rows(1, share=1.0)
    total = ((rows["y"] - rows["y"].mean()) ** 2).sum()
    for name, share in decompose_variance(rows, "y", ["a", "b", "c"]).items():
        means = rows.groupby(name)["y"].transform("mean")
        assert share == pytest.approx(((means - rows["y"].mean()) ** 2).sum() / total)


def test_without_variance_all_shares_are_zero():
    rows = make_rows(0).assign(y=1.0)
    assert (
        decompose_variance(rows, "y", ["a", "b"]) == {"a": 0.0, "b": 0.0}
        and compute_r_squared(np.ones(3), [np.eye(3)]) == 0.0
    )
