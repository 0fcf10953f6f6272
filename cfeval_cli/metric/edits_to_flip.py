"""How far down an explainer's list one must go until what it names can flip the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Explanation, Floats, Metric, MetricInput, Score
from cfeval_cli.core.single import alone, tried
from cfeval_cli.errors import check_int
from cfeval_cli.metric.erasure import SETS


@dataclass(frozen=True)
class EditsToFlip(Metric):
    """The smallest i for which a search over the first i features flips; K + 1 if none up to K does.

    The search takes one feature after the other and gives each the value that leaves least of p(ŷ). Where the logit is
    a sum of effects that is the best edit of the first i features: the best value of one does not depend on the others.
    """

    longest: int = 10  # K, features at most
    values: int = 1000  # of one feature that are tried, the most frequent ones if there are more

    name = "edits_to_flip"
    title = "Edits to flip"
    better = "lower"
    range = (1.0, float("inf"))
    access = Access.PROBABILITY
    needs = "order"
    block = "order"
    place = 36

    def __post_init__(self) -> None:
        check_int("longest", self.longest, 1)
        check_int("values", self.values, 1)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """By a search that goes down the list."""
        if inputs.explanation is None:
            yield AbsentScore("greedy", SETS)
            return
        most = min(self.longest, inputs.dataset.width)
        edits = self._edits(inputs, inputs.explanation, most)
        never = int((edits > most).sum())
        told = f"nothing flips within {most} features for {{never}} of {{all}} instances, which count {most + 1}"
        counts = {"never": never, "all": len(inputs)}
        yield Score("greedy", edits, np.ones(len(inputs)), remark=told if never else "", counts=counts)

    def _edits(self, inputs: MetricInput, explanation: Explanation, most: int) -> Floats:
        """How many features it takes (n,)."""
        edits, codes = np.full(len(inputs), most + 1.0), inputs.codes.copy()
        left = np.array(inputs.probability)
        waiting = np.arange(len(inputs))
        for step, features in enumerate(explanation.top(most).T):
            waiting = waiting[features[waiting] != NO_FEATURE]  # who names no more has none that flips
            mine = features[waiting]
            if step:
                own = inputs.codes[waiting, mine]
                told = tried(
                    inputs.dataset, inputs.model, codes[waiting], inputs.labels[waiting], own, mine, self.values
                )
            else:
                told = alone(inputs, waiting, mine, self.values)
            edits[waiting[told.flips]] = step + 1
            better = told.left < left[waiting]
            codes[waiting[better], mine[better]], left[waiting[better]] = told.value[better], told.left[better]
            waiting = waiting[~told.flips]
        return edits
