"""The nouns of a run and the protocols of its components."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.seeding import stream

if TYPE_CHECKING:
    from pathlib import Path

    import torch

Codes = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# The code of a feature that is not there (padding, or deleted by an erasure): it embeds to zero.
ABSENT = -1
# What stands in an explanation where no feature is named.
NONE = -1


class Access(IntEnum):
    """How much of a model a component may see; each level includes those below."""

    NOTHING = 0
    LABEL = 1
    PROBABILITY = 2
    GRADIENT = 3  # embeddings and gradients
    WHITE_BOX = 4


@dataclass(frozen=True)
class Feature:
    """A column or token position, and the names of its values."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """A part of the data."""

    ids: Ints  # (n,) row numbers in the data as read
    codes: Codes  # (n, M) index of each feature's value, ABSENT for padding
    labels: Ints  # (n,) 0 or 1
    texts: tuple[str, ...] | None = None  # the sentences as they were, for text

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> Split:
        """The given rows."""
        texts = None if self.texts is None else tuple(self.texts[row] for row in rows)
        return Split(self.ids[rows], self.codes[rows], self.labels[rows], texts)


@dataclass(frozen=True)
class Dataset:
    """Encoded data; tables and texts look the same from here on."""

    name: str
    kind: Literal["tabular", "text"]
    features: tuple[Feature, ...]
    classes: tuple[str, str]
    train: Split
    validation: Split
    test: Split
    frequencies: tuple[Floats, ...]  # for each feature, the training share of each value
    candidates: tuple[Codes, ...]  # for each feature, the values that a search may try
    unknown: int | None = None  # the code that stands for "mask", where there is one
    pretrained: Floats | None = None  # embeddings (V, d) to start from, shared by all features
    origin: Mapping[str, Any] = field(default_factory=dict)  # file, source, sha256, rows
    fitted: Mapping[str, Any] = field(default_factory=dict)  # bins, medians, groups
    reference: Mapping[str, Any] = field(default_factory=dict)  # the paper's figures for it

    @property
    def width(self) -> int:
        """The number of features, M."""
        return len(self.features)

    def values(self, feature: int) -> Codes:
        """Every value that a feature can have; the mask is none of them."""
        codes = np.arange(len(self.features[feature].values), dtype=np.int32)
        return codes if self.unknown is None else codes[codes != self.unknown]

    @cached_property
    def candidate_table(self) -> tuple[Codes, Ints, Ints]:
        """The candidates of all features in one array, where each feature's begin, and how many (M,) it has."""
        shared = {id(values): values for values in self.candidates}  # texts share one vocabulary
        ends = dict(zip(shared, np.cumsum([len(values) for values in shared.values()]).tolist(), strict=True))
        sizes = np.array([len(values) for values in self.candidates])
        return np.concatenate(list(shared.values())), np.array([ends[id(v)] for v in self.candidates]) - sizes, sizes

    @property
    def mask(self) -> int:
        """The code of the mask token, of data that has one."""
        if self.unknown is None:
            raise ValueError(f"{self.name} has no mask token")
        return self.unknown

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that the model and the explainers are given."""
        from hashlib import sha256

        values = dict.fromkeys(feature.values for feature in self.features)  # texts share one vocabulary
        names = [(feature.name, list(values).index(feature.values)) for feature in self.features]
        digest = sha256(repr((self.name, self.kind, list(values), names, self.classes, self.unknown)).encode())
        splits = (self.train, self.validation, self.test)
        arrays = [array for split in splits for array in (split.ids, split.codes, split.labels)]
        shared = {id(frequency): frequency for frequency in self.frequencies}.values()
        for array in (*arrays, *self.candidate_table, *shared, *([] if self.pretrained is None else [self.pretrained])):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr([split.texts for split in splits]).encode())
        return digest.hexdigest()


class Model(Protocol):
    """A binary classifier; `access` says which of the methods below it really has."""

    access: Access

    def labels(self, codes: Codes) -> Ints:
        """Predicted classes of (n, M) codes: 1 exactly where P(1|x) > 0.5."""
        ...

    def proba(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""
        ...

    def vectors(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature."""
        ...

    def embed(self, codes: Codes) -> Floats:
        """Embeddings (n, M, d) of whole rows."""
        ...

    def proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """P(1|x) of embeddings (n, M, d), differentiable."""
        ...


class WhiteBox(Model, Protocol):
    """A model whose logit is a sum of one effect for each feature."""

    def effects(self, codes: Codes) -> Floats:
        """Effects (n, M) of the values on the logit."""
        ...

    def value_effects(self, feature: int) -> Floats:
        """Effects of every value of one feature."""
        ...

    def mean_effects(self) -> Floats:
        """Mean effect (M,) of each feature over the training set."""
        ...


class Line(WhiteBox, Protocol):
    """A white box whose logit is linear in the embeddings."""

    def logits(self, codes: Codes) -> Floats:
        """log P(1|x) - log P(0|x)."""
        ...

    def slopes(self) -> Floats:
        """∂ logit / ∂ embedding (M, d)."""
        ...


class Trainable(Protocol):
    """A model's settings, before training."""

    def fit(self, dataset: Dataset, seed: int) -> Any:
        """Train, and return a Model that can also be saved."""
        ...


@dataclass(frozen=True)
class Batch:
    """Instances to be explained."""

    codes: Codes  # (n, M)
    labels: Ints  # (n,) predicted
    ids: Ints  # (n,)
    seed: int
    component: str

    def __len__(self) -> int:
        return len(self.ids)

    def rng(self, row: int) -> np.random.Generator:
        """The random stream of one instance."""
        return stream(self.seed, self.component, int(self.ids[row]))


@dataclass(frozen=True)
class Explanation:
    """For each instance the named features, most important first."""

    features: Ints  # (n, K), NONE where there are fewer
    scores: Floats  # (n, K), NaN where there are fewer

    def __len__(self) -> int:
        return len(self.features)

    def top(self, k: int) -> Ints:
        """The first k features (n, k), NONE where there are fewer."""
        missing = max(0, k - self.features.shape[1])
        return np.pad(self.features, ((0, 0), (0, missing)), constant_values=NONE)[:, :k]

    @staticmethod
    def ranked(scores: Floats, present: Bools) -> Explanation:
        """All present features by falling score, equal ones in the order of the features."""
        scores = np.where(present, scores, -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=1)
        there = np.take_along_axis(present, order, axis=1)
        return Explanation(np.where(there, order, NONE), np.where(there, ordered, np.nan))

    @staticmethod
    def ragged(rows: Sequence[Sequence[tuple[int, float]]]) -> Explanation:
        """From a list of (feature, score) for each instance."""
        width = max((len(row) for row in rows), default=0)
        features = np.full((len(rows), width), NONE, dtype=np.int64)
        scores = np.full((len(rows), width), np.nan)
        for i, row in enumerate(rows):
            for place, (feature, score) in enumerate(row):
                features[i, place], scores[i, place] = feature, score
        return Explanation(features, scores)


class Cache(Protocol):
    """What was computed before."""

    def known(self, section: str, label: str, items: Sequence[bytes]) -> dict[bytes, bytes]:
        """What there is of the items in a section, which `label` describes to people."""
        ...

    def keep(self, section: str, label: str, values: Mapping[bytes, bytes]) -> None:
        """Add to a section."""
        ...


class Executor(Protocol):
    """Who does the work on instances."""

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterable[Any]:
        """work(shared, item) for each item, in order; the results do not depend on who does it."""
        ...


class Explainer(Protocol):
    """An explanation method; its fields are its settings."""

    access: ClassVar[Access]

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Prepare for a model, and return the function that explains a batch."""
        ...


@dataclass(frozen=True)
class Quest:
    """Instances for which a counterfactual is wanted."""

    dataset: Dataset
    model: Any  # a Gate that lets through `access`
    measure: Measure
    access: Access
    codes: Codes  # (n, M)
    labels: Ints  # (n,) predicted
    features: Ints  # (n, k) that may be edited, NONE where there are fewer
    ids: Ints  # (n,)
    seed: int
    component: str

    def rng(self, row: int) -> np.random.Generator:
        """The random stream of one instance."""
        return stream(self.seed, self.component, int(self.ids[row]))


@dataclass(frozen=True)
class Counterfactuals:
    """What the edits did, one for each instance."""

    features: Ints  # (n, k) that were open to the edit
    labels: Ints  # (n,) predicted after the edit
    flipped: Bools  # (n,) whether that differs from the prediction before
    distance: Floats  # (n,)
    probability: Floats | None = None  # (n,) of the class predicted before; None with label access
    codes: Codes | None = None  # (n, M) the edited input, if values were exchanged
    vectors: Floats | None = None  # (n, k, d) the edited embeddings, if those were moved
    converged: Bools | None = None  # (n,) for searches that iterate
    steps: Ints | None = None  # (n,) that such a search took

    @staticmethod
    def concatenate(parts: Sequence[Counterfactuals]) -> Counterfactuals:
        """The instances of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, list[Any]]
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Counterfactuals)}
        joined: Any = {name: np.concatenate(c) for name, c in columns.items() if c[0] is not None}
        return Counterfactuals(**joined)


class Search(Protocol):
    """A way to look for counterfactuals."""

    title: ClassVar[str]

    @property
    def label(self) -> str:
        """What captions say of it."""
        ...

    @property
    def levels(self) -> tuple[Access, ...]:
        """The levels of access at which it works, each giving its own counterfactuals."""
        ...

    def check(self, dataset: Dataset, k: int) -> None:
        """Refuse what could not be searched, before anything is computed."""
        ...

    def chunk(self, dataset: Dataset, k: int) -> int:
        """How many instances it wants to be given at a time: enough to be fast, few enough for several workers."""
        ...

    def find(self, quest: Quest) -> Counterfactuals:
        """One counterfactual for each instance."""
        ...


class Measure(Protocol):
    """A distance, ready for one dataset and model."""

    def between(self, codes: Codes, edited: Codes) -> Floats:
        """Distances (n,) between rows and their edits."""
        ...

    def matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Distances (n, C) from each row to each of C edits (C, k) of the same k features."""
        ...

    def moved(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Distances (n,) of rows whose features (n, k) have had their embeddings moved to (n, k, d)."""
        ...


class Distance(Protocol):
    """A distance's settings."""

    @property
    def label(self) -> str:
        """What captions say of it."""
        ...

    def fit(self, dataset: Dataset, model: Any, access: Access) -> Measure:
        """The distance as it is used at one level of access."""
        ...


@dataclass(frozen=True)
class Score:
    """A metric's value for each instance; its average is Σ numerator / Σ denominator."""

    variant: str
    numerator: Floats
    denominator: Floats
    everyone: bool = False  # over all instances rather than those with a usable explanation


@dataclass(frozen=True)
class Absent:
    """A variant that a metric does not have in this run."""

    variant: str
    reason: str


@dataclass(frozen=True)
class Case:
    """All that a metric may look at for one explainer: n instances with a usable explanation."""

    dataset: Dataset
    model: Any  # a Gate that lets through the metric's access
    codes: Codes  # (n, M)
    labels: Ints  # (n,) predicted
    probability: Floats | None  # (n,) of the predicted class; None with label access
    features: Ints  # (n, k) explained, NONE where there are fewer
    k: int
    complete: Bools  # (N,) over all instances: did the explainer name k features?
    counterfactuals: Mapping[Access, Counterfactuals]
    gold: Mapping[str, Floats]  # (n, M) how much each feature truly matters, by definition


class Metric(Protocol):
    """A score of explanations that says of itself how it is to be read."""

    name: ClassVar[str]
    title: ClassVar[str]
    better: ClassVar[Literal["higher", "lower", "none"]]
    range: ClassVar[tuple[float, float]]
    access: ClassVar[Access]
    place: ClassVar[int]  # where it stands in the tables

    def score(self, case: Case) -> Iterable[Score | Absent]:
        """One score for each variant of the metric, or the reason why there is none."""
        ...


class Loadable(Protocol):
    """A dataset's settings, before it is read."""

    name: str

    def fetch(self, data_dir: Path) -> list[Any]:
        """Make sure that the data folder has what is needed, and tell what was found."""
        ...

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Find, verify, encode and split the data."""
        ...
