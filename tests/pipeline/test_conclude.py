"""The number of resamples of a run."""

from dataclasses import replace

import pandas as pd
import pytest

from cfeval_cli.pipeline.conclude import create_bootstrap
from cfeval_cli.statistics.bootstrap import DEFAULT_RESAMPLES, choose_n_resamples
from tests.inside import make_plan

METRICS = 12
SUMMARY = pd.DataFrame(
    {
        "metric": [f"m{i}" for i in range(METRICS)] + ["recall", "absent"],
        "variant": "",
        "role": ["judged"] * METRICS + ["truth", "judged"],
        "note": [""] * (METRICS + 1) + ["needs gradient access"],
    }
)


@pytest.mark.parametrize("resamples", [0, 700])
def test_a_number_of_resamples_in_the_settings_is_used(resamples):
    plan = make_plan(f"resamples={resamples}", "confidence=0.9", "seed=3")
    bootstrap = create_bootstrap(plan, range(500), SUMMARY)
    assert (bootstrap.n_resamples, bootstrap.confidence, bootstrap.seed) == (resamples, 0.9, 3)


def test_by_default_the_number_of_resamples_depends_on_how_many_metrics_are_compared():
    plan = make_plan("resamples=auto")
    bootstrap = create_bootstrap(plan, range(500), SUMMARY)
    assert bootstrap.n_resamples == choose_n_resamples(METRICS, 500, len(SUMMARY)) > DEFAULT_RESAMPLES
    assert bootstrap == replace(bootstrap, max_interval_resamples=DEFAULT_RESAMPLES)
