"""What was right stays as it was: small runs of the paper's experiments, as an earlier version computed them.

`before/` was written by commit 41209dc: `cfeval run dataset=toy n_explain=40 resamples=200 n_jobs=1
explainer.lime.n_samples=300 k=2`, and for text `search=continuous search.steps=200`, on the data of tests/conftest.py.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

BEFORE = Path(__file__).parent / "before"
PAPER = (
    "metric=paper",
    "removal=[zero,mask]",
    "explainer=paper",
    "truth=[signed,shapley,contrast,absolute]",
    "support=own",
)
COMMON_SETTINGS = ("n_explain=40", "resamples=200", "bounds=2000", "explainer.lime.n_samples=300")


@pytest.mark.parametrize(
    ("name", "data", "settings"),
    [("table", "toy", ["k=2"]), ("text", "toy_text", ["search=continuous", "search.steps=200"])],
)
def test_results_with_the_papers_definitions_equal_the_reference(name, data, settings, request, make_run):
    folder = make_run(request.getfixturevalue(data), *PAPER, *COMMON_SETTINGS, *settings)
    for table in ("metrics", "correlations", "differences", "bounds"):
        reference, table_now = pd.read_csv(BEFORE / name / f"{table}.csv"), pd.read_csv(folder / f"{table}.csv")
        if table == "bounds":  # its shares by truth are rows of another table now
            shares = pd.read_csv(folder / "bounds_truth.csv").pivot(
                index=["metric", "variant"], columns="truth", values="share"
            )
            table_now = table_now.merge(shares.add_prefix("truth_"), left_on=["metric", "variant"], right_index=True)
        if "subset" in table_now:  # which came later
            table_now = table_now[table_now["subset"] == "all"].reset_index(drop=True)
        if table == "differences":  # since then, too few instances for an interval give no difference either
            reference.loc[reference["low"].isna(), ["difference", "same"]] = np.nan, False
        pd.testing.assert_frame_equal(table_now[list(reference)], reference, check_dtype=False, rtol=1e-6, atol=1e-9)
    keys = ["instance", "explainer", "metric", "variant"]
    reference, table_now = (
        pd.read_parquet(place / "scores.parquet").set_index(keys) for place in (BEFORE / name, folder)
    )
    pd.testing.assert_frame_equal(table_now[list(reference)], reference, check_exact=False, rtol=1e-6, atol=1e-9)
    reference, table_now = (pd.read_parquet(place / "explanations.parquet") for place in (BEFORE / name, folder))
    assert [list(row) for row in table_now["features"]] == [list(row) for row in reference["features"]]
    for actual, expected in zip(table_now["scores"], reference["scores"], strict=True):
        assert np.asarray(actual) == pytest.approx(np.asarray(expected), rel=1e-6, abs=1e-9)
