"""The bar has all of the time, each kind of stage once, in their order, and nothing that is too short to be seen."""

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.page.stages import MODEL_STAGE, OTHER_STAGE, compute_stage_bar
from cfeval_cli.results.record import StageEntry

NOTHING = pd.DataFrame({"part": [], "seconds": [], "model_seconds": []})

NAMES = [
    ("data", ""), ("train", ""), ("explain", "lime"), ("explain", "lr"), ("search", "lime"), ("search", "lr"),
    ("score", ""), ("conclude", ""),
]  # fmt: skip


def entries(took):
    """Return the stages of a run that took so many seconds."""
    return [
        StageEntry(stage=stage, component=component, seconds=seconds) for (stage, component), seconds in took.items()
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_bar_is_the_whole_run(seed):
    rng = np.random.default_rng(seed)
    took = dict(zip(NAMES, (rng.random(len(NAMES)) ** 4 * 10).tolist(), strict=True))
    total = sum(took.values()) + float(rng.random())
    made = compute_stage_bar(total, entries(took), NOTHING)
    assert sum(one.seconds for one in made) == pytest.approx(total)
    assert sum(one.width for one in made) == pytest.approx(100)
    ends = [one.start + one.width for one in made]
    assert [one.start for one in made] == pytest.approx([0.0, *ends[:-1]])
    both = took["explain", "lime"] + took["explain", "lr"]
    told = {one.name: one.seconds for one in made}
    assert told.get("explain", both) == pytest.approx(both) and ("explain" in told) == (both >= 0.01 * total)
    assert [name for name in told if name != OTHER_STAGE] == [
        name for name in ("data", "train", "explain", "search", "score", "conclude") if name in told
    ]
    assert all(one.width >= 1 for one in made[:-1])


def test_a_run_that_tells_no_time_has_no_bar():
    assert compute_stage_bar(0.0, [], NOTHING) == []
    assert [(one.name, one.width) for one in compute_stage_bar(3.0, [], NOTHING)] == [(OTHER_STAGE, 100.0)]


def test_the_models_answers_stand_apart():
    costs = pd.DataFrame(
        {"part": ["explainer", "explainer", "search", "explainer_stability"], "seconds": [6.0, 2.0, 1.0, 5.0],
         "model_seconds": [4.0, 0.0, 0.5, 5.0]}
    )  # fmt: skip
    took = entries({("train", ""): 1.0, ("explain", "a"): 3.0, ("explain", "b"): 1.0, ("search", "a"): 2.0})
    told = {one.name: one.seconds for one in compute_stage_bar(10.0, took, costs)}
    assert told == pytest.approx({"train": 1.0, "explain": 2.0, "search": 1.0, MODEL_STAGE: 3.0, OTHER_STAGE: 3.0})
    older = {one.name: one.seconds for one in compute_stage_bar(10.0, took, costs.drop(columns="model_seconds"))}
    assert older == pytest.approx({"train": 1.0, "explain": 4.0, "search": 2.0, OTHER_STAGE: 3.0})
