"""The nouns of a run and what its components must be able to do, one file a subject."""

from cfeval_cli.core.client import Gate, Ledger, Question
from cfeval_cli.core.cost import Cost, Workload
from cfeval_cli.core.counterfactual import Counterfactuals, Distance, Measure, Search, Task
from cfeval_cli.core.data import (
    ABSENT,
    NONE,
    Bools,
    Codes,
    Dataset,
    Feature,
    Floats,
    Ints,
    Loadable,
    Rows,
    Spellings,
    Split,
)
from cfeval_cli.core.explanation import Batch, Explained, Explainer, Explanation, NotExplained
from cfeval_cli.core.infrastructure import Cache, Executor, Judging, Section
from cfeval_cli.core.memory import Memory
from cfeval_cli.core.metric import Absent, Case, Metric, Quantity, Removed, Score
from cfeval_cli.core.model import (
    Access,
    Additive,
    Binary,
    BlackBox,
    Blindable,
    Change,
    Classifier,
    Depth,
    Differentiable,
    Editable,
    Embedded,
    Encoded,
    Fingerprinted,
    Foreseen,
    Leaves,
    Linear,
    Logits,
    Model,
    Picking,
    Probabilistic,
    Reading,
    Reparametrisable,
    Restorable,
    Sloped,
    Stored,
    Subject,
    Taught,
    Trainable,
    Tree,
)
from cfeval_cli.core.npy import Arrays
from cfeval_cli.core.removal import Removal, StandIns
from cfeval_cli.core.truth import Known, Truth

__all__ = [
    "ABSENT", "NONE", "Absent", "Access", "Additive", "Arrays", "Batch", "Binary", "BlackBox", "Blindable",
    "Bools", "Cache", "Case", "Change", "Classifier", "Codes", "Cost", "Counterfactuals", "Dataset", "Depth",
    "Differentiable", "Distance", "Editable", "Embedded", "Encoded", "Executor", "Explained", "Explainer",
    "Explanation", "Feature", "Fingerprinted", "Floats", "Foreseen", "Gate", "Ints", "Judging", "Known", "Leaves",
    "Ledger", "Linear", "Loadable", "Logits", "Measure", "Memory", "Metric", "Model", "NotExplained", "Picking", "Plan",
    "Probabilistic", "Quantity", "Question", "Reading", "Removal", "Removed", "Reparametrisable", "Restorable", "Rows",
    "Score", "Search", "Section", "Sloped", "Spellings", "Split", "StandIns", "Stored", "Subject", "Task", "Taught",
    "Trainable", "Tree", "Truth", "Workload",
]  # fmt: skip
