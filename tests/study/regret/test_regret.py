"""The regret of each strategy, compared with loops over the tables of a run."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.results.validation import read_verified_record
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.recommendation import (
    Alternative,
    Answer,
    Check,
    Difference,
    ExplainerFacts,
    Recommendation,
    ReferenceSample,
    ReferenceScore,
)
from cfeval_cli.study.regret.regret import (
    N_SPLITS,
    STRATEGIES,
    choose_explainers,
    compute_regrets,
    summarise_regrets,
)
from cfeval_cli.study.regret.sample import StoredQuestion, read_questions

STORED_RUN = (
    "explainer=[random,omission,lime,decision_boundary]", "model=tree", "n_explain=80", "k=2", "metric=[sufficiency]",
    "removal=[marginal]", "explainer_stability=20", "incomplete=keep", "+dataset.split=[0.6,0.2,0.2]",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(toy, make_run):
    folder = make_run(toy, *STORED_RUN)
    return folder, read_verified_record(folder)


def test_answer_of_run_follows_from_its_stored_tables(run):
    questions = read_questions(*run)
    assert [question.question for question in questions] == ["contribution", "change"]
    for question in questions:
        answer = question.answer_again(question.sample)
        assert answer.confidence_set == question.stored.confidence_set
        assert answer.alternative == question.stored.alternative
        assert list(answer.scores) == list(question.stored.scores)
        assert list(answer.differences) == list(question.stored.differences) != []


def compute_recall(importance, features, k):
    """Return the expected share of the k most important features, over the orders of tied ones."""
    order = sorted(importance, reverse=True)
    certain = {j for j, value in enumerate(importance) if value > order[k - 1]}
    tied = {j for j, value in enumerate(importance) if value == order[k - 1]}
    selected = set(features[:k])
    return (len(certain & selected) + len(tied & selected) * (k - len(certain)) / len(tied)) / k


def test_regret_is_that_of_other_half(run):
    folder, record = run
    truths, explanations = (pd.read_parquet(folder / f"{name}.parquet") for name in ("truth", "explanations"))
    names = ["omission", "lime", "decision_boundary"]
    for question in read_questions(*run):
        importance = truths[truths["truth"] == question.stored.truth]["importance"].tolist()
        scores = np.array(
            [
                [
                    compute_recall(values.tolist(), features.tolist(), 2)
                    for values, features in zip(
                        importance, explanations[explanations["explainer"] == name]["features"], strict=True
                    )
                ]
                for name in names
            ]
        )
        regrets = {"lowest": [], "highest": [], "chance": [], "first": []}
        for split in range(N_SPLITS):
            order = make_stream(record.settings.seed, "regret", split).permutation(80)
            decided, scored = scores[:, order[:40]].mean(axis=1), scores[:, order[40:]].mean(axis=1)
            of_best = scored.max() - scored[np.abs(decided - decided.max()) < 1e-9]  # captured mass breaks ties
            of_split = {"lowest": of_best.min(), "highest": of_best.max(), "first": scored.max() - scored[0]}
            for name, regret in (of_split | {"chance": scored.max() - scored.mean()}).items():
                regrets[name].append(regret)
        rows = compute_regrets(record, question)
        by_strategy = rows.set_index("strategy")
        means = {name: np.mean(values) for name, values in regrets.items()}
        assert means["lowest"] - 1e-9 <= by_strategy.loc["best", "regret"] <= means["highest"] + 1e-9 < means["chance"]
        assert by_strategy.loc[["first", "chance"], "regret"].tolist() == pytest.approx(
            [means["first"], means["chance"]]
        )
        assert (by_strategy["instances"] == 80).all() and (by_strategy["explainers"] == 3).all()
        assert (rows["regret"] >= -1e-12).all() and set(by_strategy.index) == set(STRATEGIES)


def test_few_instances_have_no_regret(run):
    question = read_questions(*run)[0]
    small_question = StoredQuestion(
        "change", question.stored, question.recommendation, question.sample.take(np.arange(59)), 0
    )
    assert compute_regrets(run[1], small_question).empty


def make_question(checks=(), **evaluations):
    facts = {name: ExplainerFacts(name, evaluations=cost) for name, cost in evaluations.items()}
    facts["control"] = ExplainerFacts("control", is_control=True)
    scores = [ReferenceScore(name, (1.0,), (1.0,)) for name in ("b", "a", "c")]
    differences = [Difference("b", "a", 0.1, -0.1, 0.3, 0.2), Difference("b", "c", 0.4, 0.2, 0.6, 0.01)]
    answer = Answer(
        "shapley", n_instances=100, scores=scores, confidence_set=["b", "a"], differences=differences, checks=checks
    )
    sample = ReferenceSample(np.zeros((0, 3)), {}, np.zeros(0), np.zeros(0, dtype=np.int64))
    return StoredQuestion("contribution", answer, Recommendation(1, 0.05, 0.95, facts, {}), sample, 0)


def test_each_strategy_chooses_by_its_rule():
    question = make_question([Check("metric", "sufficiency", first=["c"])], a=10.0, b=100.0, c=1.0)
    assert choose_explainers(question.stored, question) == {
        "best": ["b"], "alternative": ["b"], "not worse": ["a"], "metric": ["c"], "first": ["a"],
        "chance": ["a", "b", "c"],
    }  # fmt: skip
    for is_proven in (True, False):
        proven = Answer(**vars(question.stored) | {"alternative": Alternative("a", 0.1, is_non_inferior=is_proven)})
        assert choose_explainers(proven, question)["alternative"] == ["a" if is_proven else "b"]


def test_unknown_costs_and_missing_metrics_are_left_out():
    question = make_question(a=None, b=None, c=None)
    selections = choose_explainers(question.stored, question)
    assert selections["not worse"] == ["b"] and "metric" not in selections
    question = make_question(a=None, b=100.0, c=1.0)
    assert choose_explainers(question.stored, question)["not worse"] == ["b"]  # c is significantly worse


def draw_regrets(seed=0):
    """Return regrets of three data sets with two seeds and models each."""
    rng = np.random.default_rng(seed)
    keys = [
        {"data": data, "model": model, "seed": split, "k": 3, "question": "change"}
        for data in "def" for model in ("tree", "forest") for split in (0, 1)
    ]  # fmt: skip
    facts = {"explainers": 3, "instances": 100, "conclusive": 0.5}
    return pd.DataFrame(
        [key | facts | {"strategy": name, "regret": rng.random()} for key in keys for name in STRATEGIES]
    )


def test_mean_and_t_interval_are_over_data_sets():
    regrets = draw_regrets()
    summary = summarise_regrets(regrets).set_index("strategy")
    best = regrets[regrets["strategy"] == "best"].groupby("data")["regret"].mean()
    for name, line in summary.iterrows():
        means = regrets[regrets["strategy"] == name].groupby("data")["regret"].mean()
        assert line["regret"] == pytest.approx(means.mean())
        assert (line["low"], line["high"]) == pytest.approx(tuple(ttest_1samp(means, 0.0).confidence_interval(0.95)))
        assert line["more"] == pytest.approx((means - best).mean())
        assert (line["runs"], line["data"], line["seeds"]) == (12, 3, 2) and line["conclusive"] == 0.5
    # the difference is paired: what both strategies vary in does not widen its interval
    shifted = regrets[regrets["strategy"] == "best"].assign(strategy="chance", regret=lambda rows: rows["regret"] + 3.0)
    paired = summarise_regrets(pd.concat([regrets[regrets["strategy"] == "best"], shifted])).set_index("strategy")
    assert paired.loc["chance", "more_low"] == pytest.approx(3.0) == paired.loc["chance", "more_high"]
