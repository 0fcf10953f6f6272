"""recommendation.json: which explainer to use on a model."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from cfeval_cli.statistics.recommendation import Recommendation

RECOMMENDATION_FILE = "recommendation.json"
_ADAPTER = TypeAdapter(Recommendation)


def dump_recommendation(recommendation: Recommendation) -> dict[str, Any]:
    """Return the content of recommendation.json."""
    content: dict[str, Any] = _ADAPTER.dump_python(recommendation, mode="json")
    return content


def parse_recommendation(content: object) -> Recommendation:
    """Return a recommendation; ValueError names the first entry that no run writes."""
    try:
        recommendation = _ADAPTER.validate_python(content)
    except ValidationError as error:
        problem = error.errors()[0]
        entry = ".".join(map(str, problem["loc"])) or "the content"
        raise ValueError(f"{RECOMMENDATION_FILE}: {entry}: {problem['msg']}") from error
    recommendation.check()
    return recommendation
