"""What each way to choose an explainer loses, against loops written out on random tables."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.statistics.recommendation import PreferredMetrics
from cfeval_cli.study.regret.regret import STRATEGIES, Trial, regrets, summary, trials
from tests.records import change_record, make_record
from tests.statistics.tables import tau

RULE = PreferredMetrics("a test", {"contribution": ["aopc", "comprehensiveness"], "change": ["validity_soft"]})
ROWS = [("comprehensiveness", "del"), ("comprehensiveness", "marginal"), ("validity_soft", "probability"),
        ("c_soft", "gradient")]  # fmt: skip


def some(seed, gaps=False):
    """Trials of three judges on three data sets, two seeds each; few different values, so that ties are real."""
    rng = np.random.default_rng(seed)
    found = []
    for data in ("d", "e", "f"):
        for judge in ("tree", "additive", "logistic"):
            for draw in (0, 1):
                for question in ("contribution", "change"):
                    values = rng.integers(0, 4, (len(ROWS), 4)).astype(float)
                    if gaps:
                        values[rng.random(values.shape) < 0.2] = np.nan
                    truth = rng.integers(0, 5, 4) / 4
                    found.append(Trial(data, judge, draw, 1, question, "keep", truth, values, ROWS))
    return found


def looped(trial, everyone):
    """The regret of every strategy, one explainer at a time."""

    def lost(values):
        best = max(v for v in values if not np.isnan(v))
        chosen = [t for t, v in zip(trial.truth, values, strict=True) if abs(v - best) < 1e-12]
        return max(trial.truth) - sum(chosen) / len(chosen)

    def right(others):
        means = []
        for r in range(len(ROWS)):
            taus = []
            for other in others:
                there = [e for e in range(4) if not np.isnan(other.values[r][e])]
                if len(there) >= 2:
                    taus.append(tau([other.values[r][e] for e in there], [other.truth[e] for e in there]))
            means.append(sum(taus) / len(taus) if taus and ROWS[r][1] != "del" else -9)  # which the rule may not use
        return next(r for r in range(len(ROWS)) if means[r] >= max(means) - 1e-12)

    like = [other for other in everyone if other.question == trial.question]
    same = [o for o in like if o.data == trial.data and o.seed == trial.seed and o.judge != trial.judge]
    return {
        "rule": lost(trial.values[1 if trial.question == "contribution" else 2]),
        "same data": lost(trial.values[right(same)]),
        "other data": lost(trial.values[right([o for o in like if o.data != trial.data])]),
        "comprehensiveness": lost(trial.values[1]), "c_soft": lost(trial.values[3]),
        "chance": max(trial.truth) - sum(trial.truth) / 4,
    }  # fmt: skip


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_regrets_are_those_of_a_loop(seed):
    everyone = some(seed)
    lost = regrets(everyone, RULE, {"del"})
    assert list(dict.fromkeys(lost["strategy"])) == list(STRATEGIES)
    keys = ["data", "judge", "seed", "question"]
    known = lost.set_index([*keys, "strategy"])["regret"]
    for trial in everyone:
        mine = known.loc[(trial.data, trial.judge, trial.seed, trial.question)]
        wanted = looped(trial, everyone)
        assert mine[list(wanted)].to_dict() == pytest.approx(wanted)
        places = [
            [sum(v > w for v in row) + (sum(v == w for v in row) + 1) / 2 for w in row]
            for row, (_, variant) in zip(trial.values, ROWS, strict=True) if variant != "del"
        ]  # fmt: skip
        mean = np.round(np.mean(places, axis=0), 9)
        chosen = trial.truth[mean == mean.min()]
        assert mine["mean rank"] == pytest.approx(trial.truth.max() - chosen.mean())


def test_a_metric_without_a_value_chooses_nobody_and_no_regret_is_negative():
    lost = regrets(some(5, gaps=True), RULE, {"del"})
    assert (lost["regret"].dropna() >= 0).all() and lost["regret"].notna().all()
    alone = Trial("d", "tree", 0, 1, "change", "keep", np.array([0.0, 1.0]), np.full((4, 2), np.nan), ROWS)
    told = regrets([alone], RULE, set())
    assert list(told["strategy"]) == ["chance"] and told["regret"].tolist() == [0.5]


def test_the_mean_and_its_t_interval_are_over_data_sets():
    lost = regrets(some(1), RULE, {"del"})
    told = summary(lost)
    for line in told.itertuples():
        mine = lost[(lost["question"] == line.question) & (lost["strategy"] == line.strategy)]
        sets = [group.groupby("seed")["regret"].mean().mean() for _, group in mine.groupby("data")]
        assert line.regret == pytest.approx(np.mean(sets)) and line.low <= line.regret <= line.high
        ends = ttest_1samp(sets, 0.0).confidence_interval(0.95) if np.ptp(sets) > 1e-9 else (line.regret, line.regret)
        assert (line.low, line.high) == pytest.approx(tuple(ends))
        assert (line.runs, line.data, line.seeds) == (len(mine), 3, 2)
        rule = told[(told["question"] == line.question) & (told["strategy"] == "rule")]["regret"].item()
        assert (
            line.more == pytest.approx(line.regret - rule)
            and line.more_low <= line.more + 1e-12 <= line.more_high + 1e-9
        )
    pd.testing.assert_frame_equal(told, summary(lost))
    flat = summary(lost.assign(regret=0.25))
    assert (flat[["regret", "low", "high"]] == 0.25).all().all()
    shifted = summary(lost.assign(regret=np.where(lost["strategy"] == "chance", lost["regret"] + 3, lost["regret"])))
    assert (
        shifted.set_index("strategy").loc["chance", "more_low"] > 1
    ).all()  # paired: what both vary in does not count


def test_a_run_is_tried_by_question_with_and_without_who_is_made_for_the_truth():
    record = make_record(
        settings={"gold": ["shapley"], "agreement": "recall", "seed": 3, "k": 2}, data={"name": "d"},
        model={"name": "Tree"},
        truths={"signed": {"question": "contribution", "arbitrary": True}, "shapley": {"question": "contribution"}},
    )  # fmt: skip
    lines = []
    for name, true, drop in (("a", 0.9, 0.1), ("b", 0.5, 0.2), ("shap", 1.0, 0.3), ("random", 0.2, 0.0)):
        facts = {"explainer": name, "rung": np.nan, "control": name == "random"}
        lines.append(facts | {"metric": "recall", "variant": "shapley", "value": true, "better": "higher",
                              "role": "truth", "circular": name == "shap"})  # fmt: skip
        lines.append(facts | {"metric": "sufficiency", "variant": "del", "value": drop, "better": "lower",
                              "role": "judged", "circular": False})  # fmt: skip
    keep, drop = trials(record, pd.DataFrame(lines))
    assert (keep.circular, drop.circular) == ("keep", "drop") and keep.question == "contribution"
    assert keep.truth.tolist() == [0.9, 0.5, 1.0] and drop.truth.tolist() == [0.9, 0.5]
    assert keep.values.tolist() == [[-0.1, -0.2, -0.3]] and keep.rows == [("sufficiency", "del")]
    assert keep.regret(keep.values[0]) == pytest.approx(0.1) and drop.regret(drop.values[0]) == 0.0
    assert keep.taus.tolist() == pytest.approx([-1 / 3]) and keep.judge == "Tree"


def test_which_features_a_model_reads_answers_both_questions_unless_a_truth_of_the_question_is_there():
    record = make_record(
        settings={"gold": ["used"], "agreement": "recall", "seed": 0, "k": 1}, data={"name": "d"},
        model={"name": "Estimator, blind"}, truths={"used": {"question": "either"}},
    )  # fmt: skip
    lines = [
        {"explainer": name, "rung": np.nan, "control": False, "circular": False, "metric": metric, "variant": variant,
         "value": value, "better": "higher", "role": role}
        for name, value in (("a", 0.9), ("b", 0.5))
        for metric, variant, role in (("recall", "used", "truth"), ("recall", "contrast", "truth"), ("c", "", "judged"))
    ]  # fmt: skip
    both = trials(record, pd.DataFrame(lines))
    assert [one.question for one in both] == ["contribution", "contribution", "change", "change"]
    lines = [line | {"value": 1 - line["value"]} if line["variant"] == "contrast" else line for line in lines]
    record = change_record(record, truths={"used": {"question": "either"}, "contrast": {"question": "change"}})
    told = {one.question: one.truth.tolist() for one in trials(record, pd.DataFrame(lines))}
    assert told == {"contribution": [0.9, 0.5], "change": pytest.approx([0.1, 0.5])}
