"""Checks of the method's own words: definitions, listings and references against each other, and against the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfeval_cli.study.paper.finding import Finding, Result, listed
from cfeval_cli.study.paper.published import EXPLAINERS, Published

_LABEL = (("validity", "label"), ("proximity", "label"), ("c", "label"))
_ADULTS = ("1", "adults")
_BOUNDARY = "hase2020evaluating"  # as the paper itself calls the work that has the method
_WORKS = {"jacovi2020towards": "Jacovi and Goldberg (2020)", _BOUNDARY: "Hase and Bansal (2020)"}


def symbols(latex: str) -> list[str]:
    """What stands between dollars, part by part, without what only changes its look: x_i^cf for the bold one."""
    parts = [part for formula in re.findall(r"\$([^$]*)\$", latex) for part in formula.split(",")]
    return [re.sub(r"\\(mathbf|mathrm|mathcal|hat)|[{}\s]", "", part) for part in parts]


def _finding(name: str, row: str, printed: str, recomputed: str, meaning: str) -> Finding:
    return Finding(f"method.{name}", "method", "text", "", row, "", printed, recomputed, meaning)


def _parts(paper: Published) -> dict[str, tuple[float, float, float]]:
    """Validity, distance and C of the label search on Adults, by explainer."""
    series = [paper.find(_ADULTS, pair) for pair in _LABEL]
    found = [one for one in series if one is not None]
    if len(found) < len(_LABEL):
        return {}
    validity, proximity, c = found
    return {
        name: (validity.figures[name].value, proximity.figures[name].value, c.figures[name].value)
        for name in validity.figures
    }  # fmt: skip


def _range(values: list[float]) -> str:
    ends = [f"{value:.4f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def last_return(paper: Published) -> Iterator[Result]:
    """Algorithm 1 ends by returning what its head says."""
    head, end = (paper.quotes.get(("algorithm1", name)) for name in ("output", "end"))
    if head is None or end is None:
        return
    wanted, given = symbols(head)[0], symbols(end)[0]
    if wanted == given:
        yield None
        return
    parts = _parts(paper)
    # x is at no distance from itself, so that only flips would add to the sum of distances
    numbers = f"; else Proximity {_range([v * d for v, d, _ in parts.values()])}" if parts else ""
    yield _finding(
        "return", "Algorithm 1, last line", f"returns {given}", f"{wanted}{numbers}",
        "Where nothing flips, the listing hands back the input itself, not what its head says: at distance 0, so that "
        "C would be the same for all. Table 1 has one distance for all, so it was not made by this listing.",
    )  # fmt: skip


def never_assigned(paper: Published) -> Iterator[Result]:
    """What the loop of Algorithm 1 returns is what it has made."""
    edit, found = (paper.quotes.get(("algorithm1", name)) for name in ("edit", "found"))
    if edit is None or found is None:
        return
    made, given = symbols(edit)[0], symbols(found)[0]
    yield None if made == given else _finding(
        "assigned", "Algorithm 1, loop", f"returns {given}", f"{made} is what the loop makes",
        "Two names for one thing, or something that has no value when it is returned.",
    )  # fmt: skip


def soft_return(paper: Published) -> Iterator[Result]:
    """For C_soft every return must give a probability, not only the last."""
    soft, found, end = (paper.quotes.get(("algorithm1", name)) for name in ("soft", "found", "end"))
    if soft is None or found is None or end is None:
        return
    amended = re.findall(r"line (\d+)", soft)
    yield None if len(amended) != 1 else _finding(
        "soft", "Algorithm 1, C_soft", f"line {amended[0]} returns a probability", "2 lines return: the loop's as well",
        "Where a flip is found the loop has returned before, a label and the first value that flips: for those "
        "instances the listing gives neither the probability nor the largest drop that Validity_soft needs.",
    )  # fmt: skip


def replaced(paper: Published) -> Iterator[Result]:
    """Algorithm 2 puts the solution into the input."""
    solved, edit = (paper.quotes.get(("algorithm2", name)) for name in ("solved", "edit"))
    if solved is None or edit is None:
        return
    wanted, given = symbols(solved)[0].removesuffix(r"\leftarrow"), symbols(edit)[0]
    yield None if wanted == given else _finding(
        "replaced", "Algorithm 2", f"replace values of {given} in x_i", f"{wanted} is what was solved for",
        "The listing never uses its solution: as it stands it returns the prediction of the original input.",
    )  # fmt: skip


def parameters(paper: Published) -> Iterator[Result]:
    """As many numbers are optimised as the objective has variables."""
    objective, count = (paper.quotes.get(("continuous", name)) for name in ("objective", "parameters"))
    if objective is None or count is None:
        return
    to = re.search(r"\\sum_\{j=1\}\^\{([^}]*)\}", objective)
    told = symbols(count)[0]
    if to is None or to.group(1)[0] in told:
        yield None
        return
    more = sorted({series.k for series in paper.series if series.k > 1})
    cases = "".join(f", {k}{told} with the {k} features of Table 3" for k in more)
    yield _finding(
        "parameters", "continuous search", told, f"d Σ_i {to.group(1)}{cases}",
        f"Each of the {to.group(1)} explained features of an instance has an embedding to be found: the count is right "
        "for one feature only.",
    )  # fmt: skip


def fallback(paper: Published) -> Iterator[Result]:
    """The pick where nothing flips is in the denominator of C."""
    parts = _parts(paper)
    if paper.quotes.get(("algorithm1", "no_effect")) is None or not parts:
        return
    shares = [1 - v for v, _, _ in parts.values()]
    yield _finding(
        "fallback", "random pick where nothing flips", "no effect on the score",
        f"{min(shares):.0%} to {max(shares):.0%} of all distance; else C "
        f"{_range([1 / d for _, d, _ in parts.values()])}",
        "C divides by the distances of all instances, flipped or not: without those of the random picks C (disc.) of "
        f"Adults would not be {_range([c for _, _, c in parts.values()])}. It is only because one-hot space has one "
        "distance that the random pick does not reorder Adults; wherever distances differ, C depends on it.",
    )  # fmt: skip


def letters(paper: Published) -> Iterator[Result]:
    """A letter has one meaning."""
    models, features = (paper.quotes.get(("symbol", name)) for name in ("models", "features"))
    truth = paper.truth(_ADULTS)
    if models is None or features is None or truth is None:
        return
    first, second = symbols(models)[0], symbols(features)[0]
    sizes = listed(str(k) for k in sorted({series.k for series in paper.series}))
    yield None if first != second else _finding(
        "letters", f"{first}", "models, and features of Random",
        f"{len(truth.figures)} explainers in Table 1; {sizes} features",
        "One letter counts two things; the features of an explanation are L_i elsewhere.",
    )  # fmt: skip


def references(paper: Published) -> Iterator[Result]:
    """What is referred to exists."""
    used, defined = (paper.quotes.get(("reference", name)) for name in ("used", "defined"))
    if used is None or defined is None:
        return
    known = set(defined.split("; "))
    for name in used.split("; "):
        what = "appendix" if "reproducibility" in name else "section"
        told = {
            "sec:reproducibility": "The hyperparameters that are said to be there (embedding size, α, optimiser, "
            "starts) are nowhere, so that no figure can be computed again as it was.",
            "sec: cs_vs_erasure": "That the method generalises erasure is named first among its advantages; the "
            "section that was to show it does not exist, and nothing else shows it.",
        }
        yield None if name in known else _finding(
            f"reference.{name.removeprefix('sec:').strip()}", f"{what} {name}", "referred to", "not in the paper",
            told.get(name, "A reference that leads nowhere."),
        )  # fmt: skip


def citation(paper: Published) -> Iterator[Result]:
    """Decision Boundary is by those who are named for it."""
    quote = paper.quotes.get(("citation", "boundary"))
    named = re.search(r"\\citet\{([^}]*)\}", quote or "")
    if named is None:
        return
    whom = named.group(1)
    yield None if whom == _BOUNDARY else Finding(
        "method.citation", "note", "text", "", EXPLAINERS["decision_boundary"], "", _WORKS.get(whom, whom),
        _WORKS[_BOUNDARY],
        "The work that is named discusses what faithfulness is and has no such method; the other one, cited for the "
        "preprocessing, is where it was proposed. Who follows the reference cannot rebuild the explainer.",
    )  # fmt: skip


CHECKS = (
    last_return, never_assigned, soft_return, replaced, parameters, fallback, letters, references, citation,
)  # fmt: skip
