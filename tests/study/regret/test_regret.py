"""The regret of each strategy, compared with loops on random tables."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.statistics.metric_ranking import PreferredMetrics
from cfeval_cli.study.regret.regret import (
    STRATEGIES,
    ExplainerChoice,
    Setup,
    compute_regrets,
    list_choices,
    summarise_regrets,
)
from tests.records import change_record, make_record
from tests.statistics.tables import compute_kendall_tau

RULE = PreferredMetrics("a test", {"contribution": ["aopc", "comprehensiveness"], "change": ["validity_soft"]})
ROWS = [("comprehensiveness", "del"), ("comprehensiveness", "marginal"), ("validity_soft", "probability"),
        ("c_soft", "gradient")]  # fmt: skip


def draw_choices(seed, with_gaps=False):
    """Return choices for three judges on three data sets with two seeds each; values are often tied."""
    rng = np.random.default_rng(seed)
    choices = []
    for data in ("d", "e", "f"):
        for judge in ("tree", "additive", "logistic"):
            for split in (0, 1):
                for question in ("contribution", "change"):
                    values = rng.integers(0, 4, (len(ROWS), 4)).astype(float)
                    if with_gaps:
                        values[rng.random(values.shape) < 0.2] = np.nan
                    truth = rng.integers(0, 5, 4) / 4
                    choices.append(ExplainerChoice(Setup(data, judge, split, 1, question, "keep"), truth, values, ROWS))
    return choices


def compute_regrets_by_loop(choice, choices):
    """Return the regret of every strategy by a loop over explainers."""

    def compute_regret(values):
        best = max(v for v in values if not np.isnan(v))
        chosen_truths = [t for t, v in zip(choice.truth, values, strict=True) if abs(v - best) < 1e-12]
        return max(choice.truth) - sum(chosen_truths) / len(chosen_truths)

    def find_best_metric(other_choices):
        means = []
        for r in range(len(ROWS)):
            taus = []
            for other in other_choices:
                scored = [e for e in range(4) if not np.isnan(other.values[r][e])]
                if len(scored) >= 2:
                    taus.append(
                        compute_kendall_tau([other.values[r][e] for e in scored], [other.truth[e] for e in scored])
                    )
            means.append(sum(taus) / len(taus) if taus and ROWS[r][1] != "del" else -9)  # `del` is not identifiable
        return next(r for r in range(len(ROWS)) if means[r] >= max(means) - 1e-12)

    own = choice.setup
    same_question = [other for other in choices if other.setup.question == own.question]
    same_data = [
        other for other in same_question
        if other.setup.data == own.data and other.setup.seed == own.seed and other.setup.judge != own.judge
    ]  # fmt: skip
    other_data = [other for other in same_question if other.setup.data != own.data]
    return {
        "rule": compute_regret(choice.values[1 if own.question == "contribution" else 2]),
        "same data": compute_regret(choice.values[find_best_metric(same_data)]),
        "other data": compute_regret(choice.values[find_best_metric(other_data)]),
        "comprehensiveness": compute_regret(choice.values[1]), "c_soft": compute_regret(choice.values[3]),
        "chance": max(choice.truth) - sum(choice.truth) / 4,
    }  # fmt: skip


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_regrets_equal_those_of_loop(seed):
    choices = draw_choices(seed)
    regrets = compute_regrets(choices, RULE, {"del"})
    assert list(dict.fromkeys(regrets["strategy"])) == list(STRATEGIES)
    by_strategy = regrets.set_index(["data", "judge", "seed", "question", "strategy"])["regret"].sort_index()
    for choice in choices:
        setup = choice.setup
        computed = by_strategy.loc[(setup.data, setup.judge, setup.seed, setup.question)]
        expected = compute_regrets_by_loop(choice, choices)
        assert computed[list(expected)].to_dict() == pytest.approx(expected)
        ranks = [
            [sum(v > w for v in row) + (sum(v == w for v in row) + 1) / 2 for w in row]
            for row, (_, variant) in zip(choice.values, ROWS, strict=True) if variant != "del"
        ]  # fmt: skip
        mean_rank = np.round(np.mean(ranks, axis=0), 9)
        chosen_truths = choice.truth[mean_rank == mean_rank.min()]
        assert computed["mean rank"] == pytest.approx(choice.truth.max() - chosen_truths.mean())


def test_metric_without_value_is_skipped_and_regret_is_not_negative():
    regrets = compute_regrets(draw_choices(5, with_gaps=True), RULE, {"del"})
    assert (regrets["regret"].dropna() >= 0).all() and regrets["regret"].notna().all()
    setup = Setup("d", "tree", 0, 1, "change", "keep")
    without_values = ExplainerChoice(setup, np.array([0.0, 1.0]), np.full((4, 2), np.nan), ROWS)
    regrets = compute_regrets([without_values], RULE, set())
    assert list(regrets["strategy"]) == ["chance"] and regrets["regret"].tolist() == [0.5]


def test_mean_and_t_interval_are_over_data_sets():
    regrets = compute_regrets(draw_choices(1), RULE, {"del"})
    summary = summarise_regrets(regrets)
    for line in summary.itertuples():
        rows = regrets[(regrets["question"] == line.question) & (regrets["strategy"] == line.strategy)]
        means = [group.groupby("seed")["regret"].mean().mean() for _, group in rows.groupby("data")]
        assert line.regret == pytest.approx(np.mean(means)) and line.low <= line.regret <= line.high
        has_spread = np.ptp(means) > 1e-9
        ends = ttest_1samp(means, 0.0).confidence_interval(0.95) if has_spread else (line.regret, line.regret)
        assert (line.low, line.high) == pytest.approx(tuple(ends))
        assert (line.runs, line.data, line.seeds) == (len(rows), 3, 2)
        is_rule = (summary["question"] == line.question) & (summary["strategy"] == "rule")
        assert line.more == pytest.approx(line.regret - summary[is_rule]["regret"].item())
        assert line.more_low <= line.more + 1e-12 <= line.more_high + 1e-9
    constant = summarise_regrets(regrets.assign(regret=0.25))
    assert (constant[["regret", "low", "high"]] == 0.25).all().all()
    # the difference is paired: what both strategies vary in does not widen its interval
    is_chance = regrets["strategy"] == "chance"
    shifted = summarise_regrets(regrets.assign(regret=regrets["regret"] + 3.0 * is_chance))
    assert (shifted.set_index("strategy").loc["chance", "more_low"] > 1).all()


def test_choices_are_listed_by_question_with_and_without_circular_explainers():
    record = make_record(
        settings={"truth": ["shapley"], "agreement": "recall", "seed": 3, "k": 2}, data={"name": "d"},
        model={"name": "Tree"},
        truths={"signed": {"question": "contribution", "arbitrary": True}, "shapley": {"question": "contribution"}},
    )  # fmt: skip
    lines = []
    for name, true, drop in (("a", 0.9, 0.1), ("b", 0.5, 0.2), ("shap", 1.0, 0.3), ("random", 0.2, 0.0)):
        facts = {"explainer": name, "quality_level": np.nan, "control": name == "random"}
        lines.append(facts | {"metric": "recall", "variant": "shapley", "value": true, "better": "higher",
                              "role": "truth", "circular": name == "shap"})  # fmt: skip
        lines.append(facts | {"metric": "sufficiency", "variant": "del", "value": drop, "better": "lower",
                              "role": "judged", "circular": False})  # fmt: skip
    keep, drop = list_choices(record, pd.DataFrame(lines))
    assert (keep.setup.circular, drop.setup.circular) == ("keep", "drop") and keep.setup.question == "contribution"
    assert keep.truth.tolist() == [0.9, 0.5, 1.0] and drop.truth.tolist() == [0.9, 0.5]
    assert keep.values.tolist() == [[-0.1, -0.2, -0.3]] and keep.rows == [("sufficiency", "del")]
    assert keep.compute_regret(keep.values[0]) == pytest.approx(0.1) and drop.compute_regret(drop.values[0]) == 0.0
    assert keep.compute_taus().tolist() == pytest.approx([-1 / 3]) and keep.setup.judge == "Tree"


def test_truth_for_either_question_is_used_unless_question_has_its_own():
    record = make_record(
        settings={"truth": ["used"], "agreement": "recall", "seed": 0, "k": 1}, data={"name": "d"},
        model={"name": "Estimator, blind"}, truths={"used": {"question": "either"}},
    )  # fmt: skip
    lines = [
        {"explainer": name, "quality_level": np.nan, "control": False, "circular": False, "metric": metric,
        "variant": variant,
         "value": value, "better": "higher", "role": role}
        for name, value in (("a", 0.9), ("b", 0.5))
        for metric, variant, role in (("recall", "used", "truth"), ("recall", "contrast", "truth"), ("c", "", "judged"))
    ]  # fmt: skip
    choices = list_choices(record, pd.DataFrame(lines))
    assert [choice.setup.question for choice in choices] == ["contribution", "contribution", "change", "change"]
    lines = [line | {"value": 1 - line["value"]} if line["variant"] == "contrast" else line for line in lines]
    record = change_record(record, truths={"used": {"question": "either"}, "contrast": {"question": "change"}})
    truths = {choice.setup.question: choice.truth.tolist() for choice in list_choices(record, pd.DataFrame(lines))}
    assert truths == {"contribution": [0.9, 0.5], "change": pytest.approx([0.1, 0.5])}
