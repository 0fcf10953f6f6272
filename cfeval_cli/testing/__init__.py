"""Contract suites: whether a component of your own keeps the promises of its kind.

    from cfeval_cli.testing import check_metric

    check_metric(MyMetric())

Each check runs the component on small problems that are built here, or on `problems` of your own, and raises an
AssertionError that states what is wrong. A component that applies to none of the problems fails.
"""

from cfeval_cli.testing.dataset import check_dataset
from cfeval_cli.testing.distance import check_distance
from cfeval_cli.testing.explainer import check_explainer
from cfeval_cli.testing.infrastructure import check_cache, check_executor, check_judge
from cfeval_cli.testing.metric import check_metric
from cfeval_cli.testing.model import check_model
from cfeval_cli.testing.problems import Problem, make_problems
from cfeval_cli.testing.removal import check_removal
from cfeval_cli.testing.search import check_search
from cfeval_cli.testing.truth import check_truth

__all__ = [
    "Problem", "check_cache", "check_dataset", "check_distance", "check_executor", "check_explainer", "check_judge",
    "check_metric", "check_model", "check_removal", "check_search", "check_truth", "make_problems",
]  # fmt: skip
