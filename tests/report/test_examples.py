"""The instances that a page shows as examples: which ones, and how they are described."""

from dataclasses import replace

from cfeval_cli.report.page.examples import select_examples
from cfeval_cli.report.page.instance_browser import (
    InstanceBrowser,
    ShownCounterfactual,
    ShownExplanation,
    ShownInstance,
)

INSTANCE = ShownInstance(
    id=0, label=0, predicted=0, probability=0.9, features=[], values=[0, 1], unknown=[], reference={},
    explanations=[ShownExplanation([0], [1.0])], counterfactuals=[[None]],
)  # fmt: skip
QUESTIONS = {"shapley": "contribution"}


def make_browser(references):
    """Return the browser of one explainer and of instances with these reference features."""
    instances = [replace(INSTANCE, id=i, reference={"shapley": features}) for i, features in enumerate(references)]
    return InstanceBrowser(
        kind="table", classes=["no", "yes"], features=["a", "b"], value_names=["x", "y"], explainers=["LIME"],
        has_effects=[True], n_hidden_explainers=0, access_levels=["label"], truths=["shapley"], k=1,
        n_instances=len(references), moves_embeddings=False, instances=instances,
    )  # fmt: skip


def test_instances_with_reference_features_come_first_and_missing_ones_are_not_computed():
    examples = select_examples(make_browser([[], [], [0], [1], [], [0]]), QUESTIONS, preferred=[1]).examples
    assert [example.title.split(":")[0] for example in examples] == ["Instance 2", "Instance 3", "Instance 5"]
    (example,) = select_examples(make_browser([[]]), QUESTIONS).examples
    assert example.reference == [("contribution", "not computed")]
    assert [row.agrees_with for row in example.rows] == ["not computed"]


def test_preferred_instances_come_before_others():
    examples = select_examples(make_browser([[0]] * 5), QUESTIONS, preferred=[4, 2]).examples
    assert [example.title.split(":")[0] for example in examples] == ["Instance 4", "Instance 2", "Instance 0"]


def test_note_states_which_instances_are_selected_from():
    def note(browser):
        return select_examples(browser, QUESTIONS).note

    start = "The instances on which the explainers disagree most"
    assert note(make_browser([[0], [1], [0], [1]])) == f"{start}. All others are below."
    assert note(make_browser([[], [], []])).startswith(f"{start}. ")
    assert note(make_browser([[], [0], [1], [], [0]])).startswith(f"{start}, among those with a computed ground truth.")
    assert note(make_browser([[], [0], [1], [], []])).startswith(f"{start}, those with a computed ground truth first.")
    restricted = replace(make_browser([[0], [1], [0]]), n_instances=400)
    assert note(restricted).startswith(f"{start}, among the 3 on this page.")


def test_uncomputed_truth_differs_from_a_missed_feature():
    browser = make_browser([[0], [1], []])
    pairs = zip(browser.instances, ([1], [], [0]), strict=True)
    instances = [
        replace(instance, reference={**instance.reference, "contrast": features}) for instance, features in pairs
    ]
    questions = {**QUESTIONS, "contrast": "change"}
    examples = select_examples(replace(browser, instances=instances), questions).examples
    assert {example.title.split(":")[0]: example.rows[0].agrees_with for example in examples} == {
        "Instance 0": "contribution",
        "Instance 1": "–; change not computed",
        "Instance 2": "change; contribution not computed",
    }


def test_edit_and_outcome_are_described():
    edit = ShownCounterfactual([0, 1], [1, None], label=1, probability=0.25, distance=1.5, converged=None)
    instance = replace(INSTANCE, reference={"shapley": [0]}, counterfactuals=[[edit]])
    (example,) = select_examples(replace(make_browser([[0]]), instances=[instance]), QUESTIONS).examples
    (row,) = example.rows
    assert example.title == "Instance 0: predicted class no (P = 0.90), true class no"
    assert (row.selected, row.edit) == ("a = x", "a = x → y, b = y → removed")
    assert row.flips and row.outcome == "flips: P(ŷ) 0.90 → 0.25"


def test_the_same_value_is_no_edit_and_a_missing_counterfactual_has_no_outcome():
    edit = ShownCounterfactual([0], [0], label=0, probability=None, distance=0, converged=None)
    without = replace(INSTANCE, id=1, explanations=[ShownExplanation(missing_reason="it failed")])
    instances = [replace(INSTANCE, counterfactuals=[[edit]]), without]
    first, second = select_examples(replace(make_browser([[], []]), instances=instances), {}).examples
    assert (first.rows[0].edit, first.rows[0].outcome, first.rows[0].flips) == ("nothing", "stays", False)
    assert (second.rows[0].selected, second.rows[0].outcome) == ("nothing", "")
