"""How near the continuous search comes to the global optimum of its objective, on every test instance.

On a linear model the optimum of Σ ‖e - e_cf‖² + α·p(ŷ|x_cf) lies on the line along w, so the oracle is a problem in one
dimension: min over t of t² + α·σ(|logit| - ‖w‖·t).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import prepared

from cfeval_cli.core import Access
from cfeval_cli.pipeline.search import find_instances_with_features


def compute_optimum(alpha, size, length):
    """Return the lowest value for each instance, by a grid that is refined around its best."""
    low, high = np.zeros(len(size)), np.full(len(size), alpha**0.5)
    for _ in range(4):
        t = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 2001)
        values = t**2 + alpha / (1 + np.exp(-(size[:, None] - length[:, None] * t)))
        best = t[np.arange(len(t)), values.argmin(axis=1)]
        step = (high - low) / 2000
        low, high = np.maximum(best - step, 0), best + step
    return values.min(axis=1)


def measure(dataset_name, k, kind):
    context = prepared.create_study(dataset_name, "search=continuous", "explainer=[lr]", f"k={k}")
    plan, model = context.plan, context.model
    codes = context.instances.codes
    if kind == "lr":
        features = prepared.select_reference_features(context, k)
    else:
        rng = np.random.default_rng(0)
        features = np.stack(
            [np.pad(rng.permutation(np.flatnonzero(row >= 0))[:k], (0, k), constant_values=-1)[:k] for row in codes]
        )
    features = np.where((features < 0).any(axis=1)[:, None], -1, features)
    rows = find_instances_with_features(features)
    counterfactuals = prepared.find_counterfactuals(context, "bench", features)[Access.GRADIENT]
    selected_features = features[rows]
    length = np.sqrt((model.weights[selected_features] ** 2).sum(axis=(1, 2)))
    best = compute_optimum(plan.search.alpha, np.abs(model.compute_logits(codes[rows])), length)
    objective = counterfactuals.distance**2 + plan.search.alpha * counterfactuals.probability
    share_within = (objective <= 1.01 * best).mean()
    n_below = (objective < best - 1e-9 * plan.search.alpha).sum()
    return len(rows), share_within, n_below, counterfactuals.converged.mean(), counterfactuals.flipped.mean()


def main():
    lines = [
        "# Continuous search and global optimum",
        "",
        "Made by `python benchmarks/optimum.py`: all test instances, the features of LR or random ones.",
        "",
        "| data | k | explained | instances | within 1 % of the optimum | below it | converged | valid |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in ("adults", "movie_reviews"):
        for k in (1, 2):
            for kind in ("lr", "random"):
                n, share_within, n_below, converged, valid = measure(name, k, kind)
                shares = " | ".join(f"{x:.2%}" for x in (converged, valid))
                row = f"| {name} | {k} | {kind} | {n:,} | {share_within:.2%} | {n_below} | {shares} |"
                lines.append(row)
                print(row, flush=True)
    Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/optimum.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
