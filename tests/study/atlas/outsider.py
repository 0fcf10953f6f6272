"""Recomputes the rows and means of an atlas from run folders, by loops and without any code of cfeval.

python tests/atlas/outsider.py ATLAS.parquet RUNS…
"""

import json
import math
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pandas as pd

TEXT = {
    "metric",
    "variant",
    "explainer",
    "better",
    "role",
    "note",
    "truth",
    "agreement",
    "family",
    "method",
    "remark",
    "access",
}


def places(values):
    """The place of each value, from below; neighbours that no more than the noise of a sum lies between share one."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found, place = [0] * len(values), 0
    for low, high in pairwise(order):
        place += values[high] - values[low] > 1e-12 * max(abs(values[high]), 1e-3)
        found[high] = place
    return found


def sign(one, two):
    """Which is larger."""
    return (one > two) - (one < two)


def tau(ours, true):
    """Kendall's τ of two lists: a tied pair is neither."""
    pairs = [(i, j) for i in range(len(ours)) for j in range(i)]
    if not pairs:
        return math.nan
    ours, true = places(ours), places(true)
    return sum(sign(ours[i], ours[j]) * sign(true[i], true[j]) for i, j in pairs) / len(pairs)


def median(values):
    """The middle, or the mean of the two in the middle."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def of_run(folder):
    """Rows of one run by key: the four τ, and the diagnosticity from the scores of single instances."""
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    metrics = pd.read_csv(
        folder / "metrics.csv",
        dtype=dict.fromkeys(TEXT, str),
        keep_default_na=False,
        na_values={"value": [""], "rung": [""]},
    )
    cells, controls, made = defaultdict(dict), {}, defaultdict(dict)
    better, role = {}, {}
    for line in metrics.to_dict("records"):
        if math.isnan(line["rung"]):
            pair = line["metric"], line["variant"]
            controls[line["explainer"]] = bool(line["control"])
            better[pair], role[pair] = line["better"], line["role"]
            if not math.isnan(line["value"]):
                cells[pair][line["explainer"]] = line["value"] * (-1 if line["better"] == "lower" else 1)
                made[pair][line["explainer"]] = bool(line["circular"])
    singles = defaultdict(lambda: defaultdict(dict))
    scores = pd.read_parquet(folder / "scores.parquet")
    scores = scores[scores["common"]]
    for line in zip(
        *(scores[name] for name in ("instance", "explainer", "metric", "variant", "numerator", "denominator")),
        strict=True,
    ):
        if line[5]:
            singles[str(line[2]), str(line[3])][line[0]][str(line[1])] = line[4] / line[5]
    found = {}
    settings = record["settings"]
    for reference in record["truths"]:
        truth = settings["agreement"], reference
        for pair in [pair for pair in cells if role[pair] == "judged"]:
            there = [name for name in cells[pair] if name in cells[truth]]
            rest = [name for name in there if not controls[name]]
            if len(rest) < 2:
                continue
            clean = [name for name in rest if not made[pair][name] and not made[truth][name]]
            middle = median([cells[truth][name] for name in rest])
            strong = [name for name in rest if cells[truth][name] >= middle]
            four = [
                tau([cells[pair][name] for name in some], [cells[truth][name] for name in some])
                for some in (there, rest, clean, strong)
            ]
            key = record["data"]["name"], record["model"]["name"], reference, settings["seed"], settings["k"], *pair
            found[key] = [*four, prefers(singles[pair], singles[truth], rest, better[pair])]
    return found


def prefers(ours, true, names, better):
    """How often the truer of two explanations of one instance is preferred, ties by half."""
    right = ordered = 0
    turn = -1 if better == "lower" else 1
    for instance, scores in ours.items():
        known = [name for name in names if name in scores and name in true.get(instance, {})]
        mine, theirs = places([scores[name] for name in known]), places([true[instance][name] for name in known])
        for i in range(len(known)):
            for j in range(i):
                wanted = sign(theirs[i], theirs[j])
                if wanted:
                    ordered += 1
                    right += (1 + wanted * turn * sign(mine[i], mine[j])) / 2
    return right / ordered if ordered else math.nan


def mean(rows, depth=0):
    """The mean over data sets of means over judges, of means over truths, of means over seeds; (key, value) each."""
    if depth == 4:
        return sum(value for _, value in rows) / len(rows)
    groups = defaultdict(list)
    for key, value in rows:
        groups[key[depth]].append((key, value))
    return sum(mean(group, depth + 1) for group in groups.values()) / len(groups)


def compare(atlas, folders):
    """What differs between the file and what the folders give, in words; and the means by question and metric."""
    told = pd.read_parquet(atlas)
    rows = {}
    for folder in folders:
        rows |= of_run(folder)
    wrong, groups = [], defaultdict(list)
    names = ["tau", "tau_without_controls", "tau_without_circular", "tau_without_weak", "diagnosticity"]
    for line in told.to_dict("records"):
        key = tuple(line[name] for name in ("data", "judge", "truth", "seed", "k", "metric", "variant"))
        mine = rows.pop(key, None)
        if mine is None:
            wrong.append(f"{key} is in no folder")
            continue
        for name, value in zip(names, mine, strict=True):
            near = 1e-4 if name == "diagnosticity" else 1e-6
            if not (abs(line[name] - value) <= near or (math.isnan(value) and math.isnan(line[name]))):
                wrong.append(f"{key}: {name} is {line[name]}, and should be {value}")
        groups[line["question"], line["metric"], line["variant"]].append((key[:4], line["tau_without_controls"]))
    wrong += [f"{key} is not in the file" for key in rows]
    return wrong, {key: mean(group) for key, group in groups.items()}


if __name__ == "__main__":
    wrong, means = compare(
        sys.argv[1], sorted(path.parent for place in sys.argv[2:] for path in Path(place).rglob("run.json"))
    )
    for (question, metric, variant), value in sorted(means.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{question:13} {value:7.4f}  {metric} {variant}")  # noqa: T201
    sys.exit("\n".join(wrong) or None)
