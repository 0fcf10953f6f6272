"""Three instances on which explainers select the most different features, and what each selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MANY = 3


@dataclass(frozen=True)
class Line:
    """What one explainer said of an instance, and where the search went with it."""

    explainer: str
    named: str
    gold: str  # the questions whose reference features it selected
    edit: str
    outcome: str
    flips: bool


@dataclass(frozen=True)
class ExampleInstance:
    """An instance."""

    title: str
    golds: Sequence[tuple[str, str]]  # question and features
    lines: Sequence[Line]


@dataclass(frozen=True)
class Examples:
    """Instances, and how they were chosen."""

    note: str
    cases: Sequence[ExampleInstance]


def select_examples(browser: Mapping[str, Any], questions: Mapping[str, str], told: Sequence[int] = ()) -> Examples:
    """Choose the instances of a browser about which the explainers disagree most, of equals the first.

    `questions` are the golds that the run leads with, by what they ask; `told` are instances that the recommendation
    names, which come before all others. Instances without a reference come last.
    """
    k = browser["k"]

    def named(one: Mapping[str, Any]) -> set[tuple[int, ...]]:
        return {tuple(sorted(_features(told, k))) for told in one["e"] if len(told) > 1}

    def lacks_reference(one: Mapping[str, Any]) -> bool:
        return any(not one["gold"][gold] for gold in questions if gold in one["gold"])

    first = {instance: place for place, instance in enumerate(told)}
    order = sorted(
        browser["instances"],
        key=lambda one: (lacks_reference(one), first.get(one["id"], len(first)), -len(named(one)), one["id"]),
    )
    shown, total = order[:MANY], browser["total"]
    known = [one for one in browser["instances"] if not lacks_reference(one)]
    among = ""
    if known and len(known) < len(browser["instances"]):
        among = "Of the instances with a computed truth, those"
        if any(map(lacks_reference, shown)):
            among = "The instances with a computed truth first, then those"
    elif len(browser["instances"]) < total:
        among = f"Of the {len(browser['instances']):,} instances on this page, those"
    note = f"{among or 'The instances'} about which the explainers disagree most. Below them, all others can be seen."
    return Examples(note, [_case(one, browser, questions) for one in shown])


def _features(told: Sequence[Any], k: int) -> list[int]:
    """The k features that were named; none if there is a reason instead."""
    return list(told[: 2 * k : 2]) if len(told) > 1 else []


def _case(one: Mapping[str, Any], browser: Mapping[str, Any], questions: Mapping[str, str]) -> ExampleInstance:
    classes, words = browser["classes"], browser["words"]
    place = {feature: i for i, feature in enumerate(one["at"] or range(len(one["v"])))}

    def value(feature: int) -> str:
        return str(words[one["v"][place[feature]]]) if feature in place else ""

    def shown(feature: int) -> str:
        return value(feature) if browser["kind"] == "text" else f"{browser['features'][feature]} = {value(feature)}"

    golds = {name: one["gold"][gold] for gold, name in questions.items() if gold in one["gold"]}
    lines = []
    for title, told, edits in zip(browser["explainers"], one["e"], one["c"], strict=True):
        features = _features(told, browser["k"])
        found = next((edit for edit in reversed(edits) if edit is not None), None)
        changed = []
        if found is not None:
            for feature, word in zip(found[0], found[1], strict=False):
                after = "nothing" if word < 0 else str(words[word])
                if after != value(feature):
                    changed.append(f"{shown(feature)} → {after}")
        flips = found is not None and found[2] != one["said"]
        outcome = "" if found is None else f"{'flips' if flips else 'stays'}{_falls(one['p'], found[3])}"
        lines.append(
            Line(
                title,
                ", ".join(map(shown, features)) or "nothing",
                _true_of(golds, features),
                ", ".join(changed) or "nothing",
                outcome,
                flips,
            )
        )
    said = f"Instance {one['id']}: the model says {classes[one['said']]}"
    sure = "" if one["p"] is None else f" (P = {one['p']:.2f})"
    right = "" if one["true"] is None else f", the data say {classes[one['true']]}"
    named = [(name, ", ".join(shown(int(j)) for j in mine) or "not computed") for name, mine in golds.items()]
    return ExampleInstance(f"{said}{sure}{right}", named, lines)


def _true_of(golds: Mapping[str, Sequence[int]], features: Sequence[int]) -> str:
    """Return the questions whose reference features are among some features, and those that have no reference."""
    hits = [name for name, reference in golds.items() if set(reference) & set(features)]
    absent = [name for name, reference in golds.items() if not reference]
    if not absent:
        return ", ".join(hits) or "–"
    if len(absent) == len(golds):
        return "not computed"
    return f"{', '.join(hits) or '–'}; {', '.join(absent)} not computed"


def _falls(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f": P(ŷ) {before:.2f} → {after:.2f}"
