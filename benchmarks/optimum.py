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


def oracle(alpha, size, length):
    """The lowest value for each instance, by a grid and finer ones around its best."""
    low, high = np.zeros(len(size)), np.full(len(size), alpha**0.5)
    for _ in range(4):
        t = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 2001)
        values = t**2 + alpha / (1 + np.exp(-(size[:, None] - length[:, None] * t)))
        best = t[np.arange(len(t)), values.argmin(axis=1)]
        step = (high - low) / 2000
        low, high = np.maximum(best - step, 0), best + step
    return values.min(axis=1)


def measure(dataset_name, k, kind):
    context = prepared.study(dataset_name, "search=continuous", "explainer=[lr]", f"k={k}")
    made, model = context.plan, context.model
    codes = context.instances.codes
    if kind == "lr":
        features = prepared.reference_features(context, k)
    else:
        rng = np.random.default_rng(0)
        features = np.stack(
            [np.pad(rng.permutation(np.flatnonzero(row >= 0))[:k], (0, k), constant_values=-1)[:k] for row in codes]
        )
    features = np.where((features < 0).any(axis=1)[:, None], -1, features)
    used = find_instances_with_features(features)
    found = prepared.find(context, "bench", features)[Access.GRADIENT]
    named = features[used]
    length = np.sqrt((model.weights[named] ** 2).sum(axis=(1, 2)))
    best = oracle(made.search.alpha, np.abs(model.compute_logits(codes[used])), length)
    reached = found.distance**2 + made.search.alpha * found.probability
    within = (reached <= 1.01 * best).mean()
    below = (reached < best - 1e-9 * made.search.alpha).sum()
    return len(used), within, below, found.converged.mean(), found.flipped.mean()


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
                n, within, below, converged, valid = measure(name, k, kind)
                shares = " | ".join(f"{x:.2%}" for x in (converged, valid))
                row = f"| {name} | {k} | {kind} | {n:,} | {within:.2%} | {below} | {shares} |"
                lines.append(row)
                print(row, flush=True)
    Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/optimum.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
