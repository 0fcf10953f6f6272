"""How often the answer about the best explainer is wrong, on simulated scores whose true means are fixed.

Correlated binary scores of several explainers are drawn, and the policy of a run (cfeval_cli.statistics.best_explainer,
with all resamples) decides. The results of a sample size are stored as soon as they exist, in --state, and are not
computed again. With the package `arch` installed, its model confidence set is compared on some of the samples.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.stats import norm

from cfeval_cli.statistics.best_explainer import SIGNIFICANCE_LEVEL, PairedMeans

FOLDER = Path(__file__).parent
SIZES = (30, 100, 300)
N_NOISE = (0, 1, 5)
MARGIN = 0.05
CORRELATION = 0.5  # of the latent normal scores of two explainers
NOISE_MEAN = 0.15  # recall of a random choice
ROUNDING = 1e-9
MANY_INSTANCES = 10**9  # for which Student's t is normal
CASES = {
    "4 exact ties": (0.6,) * 4,
    "8 exact ties": (0.6,) * 8,
    "near ties within the margin": (0.7, 0.68, 0.66, 0.5),
    "differences beyond the margin": (0.7, 0.64, 0.63, 0.5),
    "second explainer exactly at −margin": (0.7, 0.65, 0.5, 0.4),
    "clear winner": (0.85, 0.6, 0.5, 0.4),
}
MAX_EXCLUDED = {True: 0.10, False: 0.05}  # of samples that exclude a true best, with and without exact ties
MAX_WRONG_CLAIMS = 0.06  # of samples that claim non-inferiority wrongly
HEADER = (
    "true means", "n", "noise explainers", "true best excluded", "non-inferiority claimed wrongly", "conclusive",
    "mean set size",
)  # fmt: skip
LINK = "https://bashtage.github.io/arch/multiple-comparison/multiple-comparisons.html"


@dataclass(frozen=True)
class Result:
    """How often the answers to the samples of one case are wrong or conclusive."""

    case: str
    size: int
    n_noise: int
    n_samples: int
    n_excluded: int  # samples in which a true best is outside the confidence set
    n_wrong_claims: int | None  # samples in which an inferior explainer is called non-inferior; None: all are ties
    n_conclusive: int
    set_size: float

    @property
    def limit(self) -> float:
        """The largest permitted share of samples that exclude a true best."""
        return MAX_EXCLUDED[has_ties(CASES[self.case])]


@dataclass(frozen=True)
class Decision:
    """The answer to one sample."""

    members: Sequence[bool]  # of the confidence set
    non_inferior: Sequence[bool]


def has_ties(means: Sequence[float]) -> bool:
    """Return whether several explainers are the best."""
    return sum(mean == max(means) for mean in means) > 1


def draw_scores(rng: np.random.Generator, size: int, means: Sequence[float], correlation: float) -> np.ndarray:
    """Return binary scores (n, E) with given means, equally correlated within an instance."""
    shared, own = rng.standard_normal((size, 1)), rng.standard_normal((size, len(means)))
    latent = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    return (latent < norm.ppf(means)).astype(float)


def draw_sample(size: int, seed: int) -> tuple[np.ndarray, dict[str, list[int]], list[int]]:
    """Return scores of all cases side by side, the columns of each case, and those of the noise explainers."""
    rng = np.random.default_rng([size, seed])
    blocks = [draw_scores(rng, size, means, CORRELATION) for means in CASES.values()]
    ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
    columns = {name: list(range(end - len(means), end)) for (name, means), end in zip(CASES.items(), ends, strict=True)}
    noise = draw_scores(rng, size, (NOISE_MEAN,) * max(N_NOISE), 0.0)
    return np.hstack([*blocks, noise]), columns, list(range(ends[-1], ends[-1] + max(N_NOISE)))


def decide(size: int, seed: int) -> Iterator[tuple[str, int, Decision]]:
    """Yield the answer to each case with each number of noise explainers.

    The resamples do not depend on the explainers, so that they are drawn once for all cases.
    """
    scores, columns, noise = draw_sample(size, seed)
    paired = PairedMeans.compute(scores, seed)
    for case, of_case in columns.items():
        for n_noise in N_NOISE:
            compared = paired.select([*of_case, *noise[:n_noise]])
            non_inferior = compared.find_non_inferior(MARGIN)
            yield case, n_noise, Decision(compared.find_confidence_set().tolist(), non_inferior.tolist())


def simulate(size: int, n_samples: int, first_seed: int = 0) -> list[Result]:
    """Return the results of all cases for one number of instances."""
    decisions: dict[tuple[str, int], list[Decision]] = {}
    for seed in range(first_seed, first_seed + n_samples):
        for case, n_noise, decision in decide(size, seed):
            decisions.setdefault((case, n_noise), []).append(decision)
    return [summarise(case, size, n_noise, rows) for (case, n_noise), rows in decisions.items()]


def summarise(case: str, size: int, n_noise: int, decisions: Sequence[Decision]) -> Result:
    """Return how often the answers are wrong or conclusive."""
    means = np.array([*CASES[case], *(NOISE_MEAN,) * n_noise])
    members = np.array([decision.members for decision in decisions])
    claims = np.array([decision.non_inferior for decision in decisions])
    is_best, is_inferior = means == means.max(), means <= means.max() - MARGIN + ROUNDING
    set_sizes = members.sum(axis=1)
    # Without noise explainers, exact ties allow no wrong claim.
    n_wrong_claims = int(claims[:, is_inferior].any(axis=1).sum()) if is_inferior.any() else None
    return Result(
        case, size, n_noise, len(decisions), int((~members[:, is_best]).any(axis=1).sum()), n_wrong_claims,
        int((set_sizes == 1).sum()), float(set_sizes.mean()),
    )  # fmt: skip


def compare_with_arch(size: int, n_samples: int) -> dict[str, int]:
    """Return in how many samples the package `arch` computes the same confidence set; some it cannot compute."""
    from arch.bootstrap import MCS

    counts = {"size": size, "samples": 0, "equal": 0, "smaller": 0, "equal without correction": 0}
    for seed in range(n_samples):
        scores, columns, _ = draw_sample(size, seed)
        for of_case in columns.values():
            paired = PairedMeans.compute(scores[:, of_case], seed)
            # Blocks of one instance are an ordinary bootstrap.
            other = MCS(
                1 - scores[:, of_case], SIGNIFICANCE_LEVEL, reps=10_000, block_size=1, method="R", bootstrap="cbb",
                seed=seed,
            )  # fmt: skip
            other.compute()
            try:
                members = np.isin(np.arange(len(of_case)), other.included)
            except ValueError:  # arch has no order for pairs with exactly equal statistics
                continue
            own = paired.find_confidence_set()
            uncorrected = replace(paired, n_instances=MANY_INSTANCES).find_confidence_set()
            counts["samples"] += 1
            counts["equal"] += bool((members == own).all())
            counts["smaller"] += bool((members <= own).all() and (members != own).any())
            counts["equal without correction"] += bool((members == uncorrected).all())
    return counts


def write_percent(count: int | None, total: int) -> str:
    """Return a share in percent; a dash if there is none."""
    return "–" if count is None else f"{100 * count / total:.1f} %"


def write_page(results: Sequence[Result], comparisons: Sequence[dict[str, int]], command: str) -> str:
    """Return the page."""
    n_samples = results[0].n_samples
    worst = {
        ties: max(result.n_excluded / result.n_samples for result in results if has_ties(CASES[result.case]) == ties)
        for ties in (True, False)
    }
    claims = max(result.n_wrong_claims / result.n_samples for result in results if result.n_wrong_claims is not None)
    largest = max(*worst.values(), claims)
    error = 100 * math.sqrt(largest * (1 - largest) / n_samples)
    lines = [
        "# The answer on simulated scores",
        "",
        f"Made by `{command}`. {n_samples:,} samples for each row: binary scores of several explainers on n instances, "
        f"with the true means of the first column and a correlation of {CORRELATION} between the latent normal scores. "
        f"Noise explainers have independent scores with mean {NOISE_MEAN}. Each sample is answered as by a run: "
        f"10,000 resamples, confidence set at 95 %, margin {MARGIN}. The Monte Carlo error of the largest share "
        f"of errors is {error:.1f} percentage points.",
        "",
        f"- A true best is excluded in at most {100 * worst[True]:.1f} % of samples with exact ties (any of the tied "
        f"explainers; limit {100 * MAX_EXCLUDED[True]:.0f} %) and {100 * worst[False]:.1f} % otherwise (limit "
        f"{100 * MAX_EXCLUDED[False]:.0f} %).",
        f"- Non-inferiority is claimed wrongly in at most {100 * claims:.1f} % of samples "
        f"(limit {100 * MAX_WRONG_CLAIMS:.0f} %): a true mean is at or beyond −margin of the best.",
    ]
    for line in comparisons:
        equal, smaller, uncorrected = (
            write_percent(line[name], line["samples"]) for name in ("equal", "smaller", "equal without correction")
        )
        lines.append(
            f"- n = {line['size']}: the model confidence set of [arch]({LINK}) (range statistic, 10,000 resamples) is "
            f"equal in {equal} of {line['samples']:,} samples and a subset in {smaller}; equal in {uncorrected} "
            "without the correction for estimated standard errors, which arch does not have."
        )
    lines += ["", f"| {' | '.join(HEADER)} |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for result in results:
        cells = (
            f"{result.case}: {write_means(CASES[result.case])}", result.size, result.n_noise,
            write_percent(result.n_excluded, result.n_samples), write_percent(result.n_wrong_claims, result.n_samples),
            write_percent(result.n_conclusive, result.n_samples), f"{result.set_size:.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def write_means(means: Sequence[float]) -> str:
    """Return "8 × 0.6" for equal means, and else their list."""
    return f"{len(means)} × {means[0]}" if len(set(means)) == 1 else ", ".join(map(str, means))


def main() -> None:
    """Simulate what is not stored yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000, help="samples for each case and number of instances")
    parser.add_argument("--block", type=int, default=100, help="samples that are stored together")
    parser.add_argument("--arch", type=int, default=20, help="samples for each n that are compared with `arch`")
    parser.add_argument("--state", type=Path, default=FOLDER.parent / "outputs" / "policy", help="folder of results")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of policy.md")
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    blocks: dict[int, list[list[Result]]] = {size: [] for size in SIZES}
    for start in range(0, options.samples, options.block):
        for size in SIZES:
            file = options.state / f"{size}-{start}-{options.block}.json"
            if not file.exists():
                results = simulate(size, options.block, start)
                file.write_text(json.dumps([asdict(result) for result in results]))
                print(file, flush=True)
            blocks[size].append([Result(**entry) for entry in json.loads(file.read_text())])
    comparisons = []
    for size in SIZES:
        file = options.state / f"arch-{size}.json"
        if not file.exists() and find_spec("arch"):
            file.write_text(json.dumps(compare_with_arch(size, options.arch)))
        if file.exists():
            comparisons.append(json.loads(file.read_text()))
    merged = [merge(parts) for of_size in blocks.values() for parts in zip(*of_size, strict=True)]
    order = list(CASES)
    merged.sort(key=lambda result: (order.index(result.case), result.size, result.n_noise))
    command = f"python benchmarks/policy.py --samples {options.samples}"
    (options.into / "policy.md").write_text(write_page(merged, comparisons, command), encoding="utf-8")


def merge(parts: Sequence[Result]) -> Result:
    """Return the result over several blocks of samples."""
    n_samples = sum(part.n_samples for part in parts)
    wrong = [part.n_wrong_claims for part in parts if part.n_wrong_claims is not None]
    return Result(
        parts[0].case, parts[0].size, parts[0].n_noise, n_samples, sum(part.n_excluded for part in parts),
        sum(wrong) if wrong else None, sum(part.n_conclusive for part in parts),
        sum(part.set_size * part.n_samples for part in parts) / n_samples,
    )  # fmt: skip


if __name__ == "__main__":
    main()
