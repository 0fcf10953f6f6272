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


def fitted(rows, names):
    """R² by least squares on one column a value."""
    columns = [np.ones(len(rows))]
    for name in names:
        columns += [(rows[name] == value).to_numpy(float) for value in sorted(set(rows[name]))]
    design, y = np.stack(columns, axis=1), rows["y"].to_numpy(float)
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return 1 - (rest**2).sum() / ((y - y.mean()) ** 2).sum()


def some_rows(seed, kept=0.6):
    rng = np.random.default_rng(seed)
    lines = [(a, f"b{b}", c) for a, b, c in product(range(3), range(2), range(4)) if rng.random() < kept]
    rows = pd.DataFrame(lines * 2, columns=["a", "b", "c"])
    return rows.assign(y=rows["a"] * 0.5 + (rows["b"] == "b1") + rng.normal(0, 0.4, len(rows)))


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_the_mean_gain_over_all_orders_and_sum_to_what_all_explain(seed):
    rows, names = some_rows(seed), ["a", "b", "c"]
    expected = dict.fromkeys(names, 0.0)
    for order in permutations(names):
        for place, name in enumerate(order):
            expected[name] += (fitted(rows, order[: place + 1]) - fitted(rows, order[:place])) / 6
    found = decompose_variance(rows, "y", names)
    assert found == pytest.approx(expected, abs=1e-9)
    assert sum(found.values()) == pytest.approx(fitted(rows, names))
    both = rows.assign(ab=rows["a"].astype(str) + rows["b"])
    assert compute_interaction_share(rows, "y", names, ("a", "b")) == pytest.approx(
        fitted(both, [*names, "ab"]) - fitted(rows, names)
    )


def test_of_a_balanced_table_each_share_is_that_between_its_means():
    rows = some_rows(1, kept=2.0)
    total = ((rows["y"] - rows["y"].mean()) ** 2).sum()
    for name, share in decompose_variance(rows, "y", ["a", "b", "c"]).items():
        means = rows.groupby(name)["y"].transform("mean")
        assert share == pytest.approx(((means - rows["y"].mean()) ** 2).sum() / total)


def test_without_variance_nothing_is_explained():
    rows = some_rows(0).assign(y=1.0)
    assert (
        decompose_variance(rows, "y", ["a", "b"]) == {"a": 0.0, "b": 0.0}
        and compute_r_squared(np.ones(3), [np.eye(3)]) == 0.0
    )
