import numpy as np
import pandas as pd
import pytest

from cfeval_cli.statistics.seeds import over_seeds


def test_mean_spread_and_what_sampling_explains_written_out():
    rows = pd.DataFrame(
        [("b", 1.0, 0.1), ("a", 2.0, 0.5), ("b", 3.0, 0.3), ("a", np.nan, 9.0), ("b", 5.0, 0.2)],
        columns=["name", "value", "error"],
    )
    found = over_seeds(rows, ["name"], "value", "error")
    assert found["name"].tolist() == ["b", "a"] and found["seeds"].tolist() == [3, 1]
    assert found["mean"].tolist() == [3.0, 2.0]
    within = ((0.01 + 0.09 + 0.04) / 3) ** 0.5
    assert found["deviation"][0] == pytest.approx(2.0) and np.isnan(found["deviation"][1])
    assert found["within"].tolist() == pytest.approx([within, 0.5])
    assert found["between"][0] == pytest.approx((4.0 - within**2) ** 0.5)


def test_seeds_that_differ_less_than_sampling_explains_differ_by_nothing():
    rows = pd.DataFrame({"name": "a", "value": [1.0, 1.1], "error": [0.5, 0.5]})
    assert over_seeds(rows, ["name"], "value", "error")["between"].tolist() == [0.0]
