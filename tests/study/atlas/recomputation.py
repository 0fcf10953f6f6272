"""Recompute the rows and means of an atlas from run folders, by loops and without any code of cfeval.

python tests/study/atlas/recomputation.py ATLAS.parquet RUNS…
"""

import json
import math
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pandas as pd

TEXT_COLUMNS = [
    "metric", "variant", "explainer", "better", "role", "note", "truth", "agreement", "family", "method", "remark",
    "access",
]  # fmt: skip


def rank(values):
    """Return the rank of each value, the lowest first; neighbours that differ by rounding errors only share a rank."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks, current = [0] * len(values), 0
    for low, high in pairwise(order):
        current += values[high] - values[low] > 1e-12 * max(abs(values[high]), 1e-3)
        ranks[high] = current
    return ranks


def sign(first, second):
    """Return 1, -1 or 0 if the first value is larger, smaller or equal."""
    return (first > second) - (first < second)


def compute_tau(values, truth):
    """Return Kendall's τ of two lists; a tied pair counts 0."""
    pairs = [(i, j) for i in range(len(values)) for j in range(i)]
    if not pairs:
        return math.nan
    values, truth = rank(values), rank(truth)
    return sum(sign(values[i], values[j]) * sign(truth[i], truth[j]) for i, j in pairs) / len(pairs)


def compute_median(values):
    """Return the middle value, or the mean of the two in the middle."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def recompute_run(folder):
    """Return the rows of one run by key: the four τ, and the diagnosticity from the scores of single instances."""
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    metrics = pd.read_csv(
        folder / "metrics.csv",
        dtype=dict.fromkeys(TEXT_COLUMNS, str),
        keep_default_na=False,
        na_values={"value": [""], "quality_level": [""]},
    )
    values, controls, circular = defaultdict(dict), {}, defaultdict(dict)
    better, role = {}, {}
    for line in metrics.to_dict("records"):
        if math.isnan(line["quality_level"]):
            pair = line["metric"], line["variant"]
            controls[line["explainer"]] = bool(line["control"])
            better[pair], role[pair] = line["better"], line["role"]
            if not math.isnan(line["value"]):
                values[pair][line["explainer"]] = line["value"] * (-1 if line["better"] == "lower" else 1)
                circular[pair][line["explainer"]] = bool(line["circular"])
    scores_by_instance = read_instance_scores(folder)
    rows = {}
    settings = record["settings"]
    for definition in record["truths"]:
        truth = settings["agreement"], definition
        for pair in [pair for pair in values if role[pair] == "judged"]:
            explainers = [name for name in values[pair] if name in values[truth]]
            contenders = [name for name in explainers if not controls[name]]
            if len(contenders) < 2:
                continue
            not_circular = [name for name in contenders if not circular[pair][name] and not circular[truth][name]]
            median = compute_median([values[truth][name] for name in contenders])
            strong = [name for name in contenders if values[truth][name] >= median]
            taus = [
                compute_tau([values[pair][name] for name in names], [values[truth][name] for name in names])
                for names in (explainers, contenders, not_circular, strong)
            ]
            key = record["data"]["name"], record["model"]["name"], definition, settings["seed"], settings["k"], *pair
            diagnosticity = compute_diagnosticity(
                scores_by_instance[pair], scores_by_instance[truth], contenders, better[pair]
            )
            rows[key] = [*taus, diagnosticity]
    return rows


def read_instance_scores(folder):
    """Return the score of each explainer, by metric and variant and by instance."""
    by_instance = defaultdict(lambda: defaultdict(dict))
    scores = pd.read_parquet(folder / "scores.parquet")
    scores = scores[scores["common"]]
    columns = ("instance", "explainer", "metric", "variant", "numerator", "denominator")
    for instance, explainer, metric, variant, numerator, denominator in zip(
        *(scores[name] for name in columns), strict=True
    ):
        if denominator:
            by_instance[str(metric), str(variant)][instance][str(explainer)] = numerator / denominator
    return by_instance


def compute_diagnosticity(scores, truth, names, better):
    """Return how often the more faithful of two explanations of an instance is preferred; ties count half."""
    n_preferred = n_ordered = 0
    direction = -1 if better == "lower" else 1
    for instance, by_explainer in scores.items():
        common = [name for name in names if name in by_explainer and name in truth.get(instance, {})]
        ranks = rank([by_explainer[name] for name in common])
        true_ranks = rank([truth[instance][name] for name in common])
        for i in range(len(common)):
            for j in range(i):
                true_sign = sign(true_ranks[i], true_ranks[j])
                if true_sign:
                    n_ordered += 1
                    n_preferred += (1 + true_sign * direction * sign(ranks[i], ranks[j])) / 2
    return n_preferred / n_ordered if n_ordered else math.nan


def compute_nested_mean(rows, depth=0):
    """Return the mean over data sets of means over judges, over truths, over seeds, of (key, value) pairs."""
    if depth == 4:
        return sum(value for _, value in rows) / len(rows)
    groups = defaultdict(list)
    for key, value in rows:
        groups[key[depth]].append((key, value))
    return sum(compute_nested_mean(group, depth + 1) for group in groups.values()) / len(groups)


def compare(atlas, folders):
    """Return the differences between the file and the folders, in words, and the means by question and metric."""
    rows = {}
    for folder in folders:
        rows |= recompute_run(folder)
    differences, groups = [], defaultdict(list)
    names = ["tau", "tau_without_controls", "tau_without_circular", "tau_without_weak", "diagnosticity"]
    for line in pd.read_parquet(atlas).to_dict("records"):
        key = tuple(line[name] for name in ("data", "judge", "truth", "seed", "k", "metric", "variant"))
        values = rows.pop(key, None)
        if values is None:
            differences.append(f"{key} is in no folder")
            continue
        for name, value in zip(names, values, strict=True):
            tolerance = 1e-4 if name == "diagnosticity" else 1e-6
            if not (abs(line[name] - value) <= tolerance or (math.isnan(value) and math.isnan(line[name]))):
                differences.append(f"{key}: {name} is {line[name]}, and should be {value}")
        groups[line["question"], line["metric"], line["variant"]].append((key[:4], line["tau_without_controls"]))
    differences += [f"{key} is not in the file" for key in rows]
    return differences, {key: compute_nested_mean(group) for key, group in groups.items()}


if __name__ == "__main__":
    differences, means = compare(
        sys.argv[1], sorted(path.parent for folder in sys.argv[2:] for path in Path(folder).rglob("run.json"))
    )
    for (question, metric, variant), value in sorted(means.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{question:13} {value:7.4f}  {metric} {variant}")  # noqa: T201
    sys.exit("\n".join(differences) or None)
