from cfeval_cli.report.page.why import cases


def browser(golds):
    one = {"true": 0, "said": 0, "p": 0.9, "at": [], "v": [0, 1], "e": [[0, 1.0]], "c": [[None]]}
    return {
        "kind": "table", "k": 1, "classes": ["no", "yes"], "features": ["a", "b"], "words": ["x", "y"],
        "explainers": ["LIME"], "instances": [one | {"id": i, "gold": {"t": gold}} for i, gold in enumerate(golds)],
    }  # fmt: skip


def test_examples_have_a_reference_and_a_missing_one_is_called_not_computed():
    shown = cases(browser([[], [], [0], [1], [], [0]]), {"t": "contribution"}, told=[1])
    assert [case.title.split(":")[0] for case in shown] == ["Instance 2", "Instance 3", "Instance 5"]
    (case,) = cases(browser([[]]), {"t": "contribution"})
    assert case.golds == [("contribution", "not computed")]
