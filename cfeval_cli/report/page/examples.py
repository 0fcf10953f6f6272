"""The three instances on which the explainers disagree most, as tables of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.report.page.instance_browser import InstanceBrowser, ShownCounterfactual, ShownInstance

MAX_EXAMPLES = 3


@dataclass(frozen=True)
class ExampleRow:
    """The features that one explainer selects for an instance, and what the search makes of them."""

    explainer: str
    selected: str
    agrees_with: str  # the questions whose reference features are among the selected ones
    edit: str
    outcome: str
    flips: bool


@dataclass(frozen=True)
class Example:
    """One instance: its reference features by question, and a row for each explainer."""

    title: str
    reference: Sequence[tuple[str, str]]  # question and features
    rows: Sequence[ExampleRow]


@dataclass(frozen=True)
class Examples:
    """Instances, and how they were selected."""

    note: str
    examples: Sequence[Example]


def select_examples(browser: InstanceBrowser, questions: Mapping[str, str], preferred: Sequence[int] = ()) -> Examples:
    """Select the instances on which the explainers select the most different features, the first of equal ones.

    Preferred instances come before all others, and instances without reference features last.

    Parameters
    ----------
    questions
        The question of each ground truth that the run leads with.
    preferred
        The instances that the recommendation names.
    """

    def lacks_reference(instance: ShownInstance) -> bool:
        return any(not instance.reference[truth] for truth in questions if truth in instance.reference)

    def count_selections(instance: ShownInstance) -> int:
        explained = [explanation.features for explanation in instance.explanations if not explanation.missing_reason]
        return len({tuple(sorted(features[: browser.k])) for features in explained if features})

    ranks = {instance: rank for rank, instance in enumerate(preferred)}
    order = sorted(
        browser.instances,
        key=lambda i: (lacks_reference(i), ranks.get(i.id, len(ranks)), -count_selections(i), i.id),
    )
    examples, n_available = order[:MAX_EXAMPLES], len(browser.instances)
    n_with_reference = sum(not lacks_reference(instance) for instance in browser.instances)
    if 0 < n_with_reference < n_available:
        scope = "among those with a computed ground truth"
        if any(map(lacks_reference, examples)):
            scope = "those with a computed ground truth first"
    elif n_available < browser.n_instances:
        scope = f"among the {n_available:,} on this page"
    else:
        scope = ""
    note = f"The instances on which the explainers disagree most{', ' * bool(scope)}{scope}. All others are below."
    return Examples(note, [_make_example(instance, browser, questions) for instance in examples])


def _make_example(instance: ShownInstance, browser: InstanceBrowser, questions: Mapping[str, str]) -> Example:
    values = dict(zip(browser.get_features(instance), instance.values, strict=True))

    def get_value(feature: int) -> str:
        return browser.value_names[values[feature]] if feature in values else ""

    def describe_feature(feature: int) -> str:
        if browser.kind == "text":
            return get_value(feature)
        return f"{browser.features[feature]} = {get_value(feature)}"

    def describe_edit(edit: ShownCounterfactual) -> str:
        changes = []
        for feature, number in zip(edit.features, edit.values, strict=False):
            after = "removed" if number is None else browser.value_names[number]
            if after != get_value(feature):
                changes.append(f"{describe_feature(feature)} → {after}")
        return ", ".join(changes) or "nothing"

    reference = {name: instance.reference[truth] for truth, name in questions.items() if truth in instance.reference}
    rows = []
    for title, explanation, edits in zip(
        browser.explainers, instance.explanations, instance.counterfactuals, strict=True
    ):
        features = explanation.features[: browser.k]
        edit = next((edit for edit in reversed(edits) if edit is not None), None)
        rows.append(
            ExampleRow(
                explainer=title,
                selected=", ".join(map(describe_feature, features)) or "nothing",
                agrees_with=_describe_agreement(reference, features),
                edit="nothing" if edit is None else describe_edit(edit),
                outcome="" if edit is None else _describe_outcome(instance, edit),
                flips=edit is not None and edit.label != instance.predicted,
            )
        )
    described = [
        (name, ", ".join(map(describe_feature, features)) or "not computed") for name, features in reference.items()
    ]
    return Example(_describe_instance(instance, browser.classes), described, rows)


def _describe_instance(instance: ShownInstance, classes: Sequence[str]) -> str:
    probability = "" if instance.probability is None else f" (P = {instance.probability:.2f})"
    label = "" if instance.label is None else f", true class {classes[instance.label]}"
    return f"Instance {instance.id}: predicted class {classes[instance.predicted]}{probability}{label}"


def _describe_agreement(reference: Mapping[str, Sequence[int]], features: Sequence[int]) -> str:
    """Return the questions whose reference features are among some features, and those without a reference."""
    hits = [name for name, of_question in reference.items() if set(of_question) & set(features)]
    absent = [name for name, of_question in reference.items() if not of_question]
    if not absent:
        return ", ".join(hits) or "–"
    if len(absent) == len(reference):
        return "not computed"
    return f"{', '.join(hits) or '–'}; {', '.join(absent)} not computed"


def _describe_outcome(instance: ShownInstance, edit: ShownCounterfactual) -> str:
    outcome = "stays" if edit.label == instance.predicted else "flips"
    if instance.probability is None or edit.probability is None:
        return outcome
    return f"{outcome}: P(ŷ) {instance.probability:.2f} → {edit.probability:.2f}"
