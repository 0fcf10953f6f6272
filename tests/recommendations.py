"""A recommendation as a run has it, with changes."""

from dataclasses import replace

from cfeval_cli.statistics.recommendation import (
    Alternative,
    Answer,
    Check,
    Difference,
    Disagreement,
    ExplainerFacts,
    GroupScores,
    Recommendation,
    ReferenceScore,
)

FACTS = {
    "random": ExplainerFacts("Random", is_control=True, evaluations=0.0, stability=0.2, n_repeated=38),
    "omission": ExplainerFacts("Omission", evaluations=36.0, stability=1.0, n_repeated=38, coverage=1.0),
    "lime": ExplainerFacts("LIME", evaluations=5000.0, stability=0.6, n_repeated=38, coverage=1.0),
    "shap": ExplainerFacts("SHAP", evaluations=1000.0, stability=0.9, n_repeated=38, coverage=1.0),
}
SCORES = [
    ReferenceScore("shap", (0.7, 0.75, 0.8, 0.85, 0.9), (0.8, 0.82, 0.84, 0.86, 0.88), 0.57, 0.83),
    ReferenceScore("omission", (0.575, 0.6, 0.65, 0.7, 0.75), (0.7, 0.72, 0.74, 0.76, 0.78), 0.43, 0.73),
    ReferenceScore("lime", (0.3, 0.35, 0.4, 0.45, 0.5), (0.5, 0.52, 0.54, 0.56, 0.58), 0.18, 0.45),
    ReferenceScore("random", (0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.3, 0.4, 0.5, None), 0.03, 0.2),
]
ANSWER = Answer(
    truth="shapley", n_instances=40, scores=SCORES, confidence_set=["shap", "omission"], n_to_separate=150,
    differences=[
        Difference("shap", "omission", 0.125, -0.06, 0.31, 0.3), Difference("shap", "lime", 0.4, 0.2, 0.6, 0.0001),
        Difference("omission", "lime", 0.275, 0.1, 0.45, 0.002),
    ],
    smallest_p=0.0001,
    groups=[GroupScores("predicted", "yes", 12, dict.fromkeys(FACTS, 0.5), {}, {})],
    checks=[Check("metric", "aopc", "marginal", ["lime"], agrees=False)],
)  # fmt: skip


def make_recommendation(k=1, change=None, **changes):
    """Return a recommendation; `changes` are those of the answer on contribution."""
    answers = {
        "contribution": replace(ANSWER, **changes),
        "change": change or Answer(reason="truth.contrast needs probabilities, which this model does not return"),
    }
    return Recommendation(k, 0.05, 0.95, FACTS, answers, [Disagreement(3, {"shap": [0], "lime": [1]})])


def make_alternative(*, is_non_inferior, n_required=None):
    """Return Omission as the alternative."""
    return Alternative("omission", 0.036, is_non_inferior, n_required)
