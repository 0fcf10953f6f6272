"""Passages on the method that are inconsistent or incomplete; `published.csv` has them word for word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cfeval_cli.study.paper.finding import Finding, Result
from cfeval_cli.study.paper.published import Pair, Published


@dataclass(frozen=True)
class Passage:
    """What a passage states, what the rest of the paper requires, and the consequence."""

    id: str
    quote: Pair
    place: str
    stated: str
    required: str
    meaning: str


PASSAGES = (
    Passage("return", ("algorithm1", "end"), "Algorithm 1, last line", "returns x_i", "returns x_i^cf",
            "Without a flip, the listing returns the input itself, at distance 0."),
    Passage("assignment", ("algorithm1", "edit"), "Algorithm 1, loop", "assigns x_cf", "assigns x_i^cf",
            "The loop returns x_i^cf, which it does not assign."),
    Passage("soft", ("algorithm1", "soft"), "Algorithm 1, C_soft", "line 15 returns a probability", "both returns do",
            "With a flip, the loop returns a label and the first edit that flips. C_soft needs the largest drop."),
    Passage("replacement", ("algorithm2", "edit"), "Algorithm 2", "inserts w_i into x_i", "inserts w_i^cf into x_i",
            "The solution of the optimisation is not used."),
    Passage("parameters", ("continuous", "parameters"), "continuous search", "N d parameters", "d times the sum of L_i",
            "Each of the L_i features of an explanation has an embedding. N d holds for one feature only."),
    Passage("hyperparameters", ("reference", "reproducibility"), "hyperparameters", "in an appendix",
            "no such appendix",
            "Embedding size, α, optimiser and number of starts are not given. No figure can be recomputed exactly."),
    Passage("generalisation", ("reference", "erasure"), "relation to erasure", "in a section", "no such section",
            "The paper does not show how the method relates to erasure-based criteria."),
    Passage("citation", ("citation", "boundary"), "Decision Boundary", "Jacovi and Goldberg (2020)",
            "Hase and Bansal (2020)", "The cited work does not propose the method."),
)  # fmt: skip


def check_passages(paper: Published) -> Iterator[Result]:
    """List the passages that the paper contains."""
    for passage in PASSAGES:
        yield None if passage.quote not in paper.quotes else Finding(
            f"method.{passage.id}", "method", "text", "", passage.place, "", passage.stated, passage.required,
            passage.meaning,
        )  # fmt: skip


CHECKS = (check_passages,)
