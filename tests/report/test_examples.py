from cfeval_cli.report.page.examples import select_examples


def browser(golds):
    one = {"true": 0, "said": 0, "p": 0.9, "at": [], "v": [0, 1], "e": [[0, 1.0]], "c": [[None]]}
    return {
        "kind": "table", "k": 1, "classes": ["no", "yes"], "features": ["a", "b"], "words": ["x", "y"],
        "explainers": ["LIME"], "total": len(golds),
        "instances": [one | {"id": i, "gold": {"t": gold}} for i, gold in enumerate(golds)],
    }  # fmt: skip


def test_examples_have_a_reference_and_a_missing_one_is_called_not_computed():
    shown = select_examples(browser([[], [], [0], [1], [], [0]]), {"t": "contribution"}, told=[1]).cases
    assert [case.title.split(":")[0] for case in shown] == ["Instance 2", "Instance 3", "Instance 5"]
    (case,) = select_examples(browser([[]]), {"t": "contribution"}).cases
    assert case.golds == [("contribution", "not computed")]
    assert [line.gold for line in case.lines] == ["not computed"]


def test_the_note_says_among_which_instances_the_explainers_disagree_most():
    start = "The instances about which the explainers disagree most."
    assert select_examples(browser([[0], [1], [0], [1]]), {"t": "contribution"}).note.startswith(start)
    assert select_examples(browser([[], [], []]), {"t": "contribution"}).note.startswith(start)
    few = select_examples(browser([[], [0], [1], [], [0]]), {"t": "contribution"}).note
    assert few.startswith("Of the instances with a computed truth, those about which the explainers disagree most.")
    fewer = select_examples(browser([[], [0], [1], [], []]), {"t": "contribution"}).note
    assert fewer.startswith("The instances with a computed truth first, then those about which")
    some = browser([[0], [1], [0]]) | {"total": 400}
    assert select_examples(some, {"t": "contribution"}).note.startswith(
        "Of the 3 instances on this page, those about which"
    )


def test_a_truth_that_was_not_computed_is_not_a_feature_that_was_missed():
    both = browser([[0], [1], []])
    for one, other in zip(both["instances"], ([1], [], [0]), strict=True):
        one["gold"]["c"] = other
    shown = select_examples(both, {"t": "contribution", "c": "change"}).cases
    told = {case.title.split(":")[0]: case.lines[0].gold for case in shown}
    assert told == {
        "Instance 0": "contribution",
        "Instance 1": "–; change not computed",
        "Instance 2": "change; contribution not computed",
    }
