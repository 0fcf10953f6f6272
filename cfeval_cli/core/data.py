"""Data: features, splits, encoded datasets, and the rows that all stages pass on.

Comments give the shapes of arrays in brackets. These letters are used unless the class or function defines its own:

- N: all instances of a run or a slab; n: instances, rows or values of this array; m: edits, or rows selected from n
- M: features; k: selected features, or features to edit; K: ranked features of an explanation; d: embedding dimension
- V: values of a feature; C: classes (of a distance matrix: edits); s: joint values that replace removed features
- E: explainers; R: metrics with their variants; J: metrics that are compared with truths; T: truths
- B: resamples; b: resamples of one block; P: pairs of explainers

A slab is a range of consecutive instances that are scored at a time, to bound the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

Codes = NDArray[np.int32]  # each entry is the index of a value in Feature.values, or ABSENT
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# ABSENT and NO_FEATURE are equal, and never interchangeable: the first is a value, the second an index of a feature.
# In codes: the value of an absent feature, which is padding or deleted. Models with embeddings represent it by zero.
ABSENT = -1
# In arrays of features (n, k): an entry without a feature, where an explanation has fewer than k.
NO_FEATURE = -1


Kind = Literal["category", "number", "token"]
AllowedChange = Literal["any", "none", "up", "down"]


@dataclass(frozen=True)
class Feature:
    """A column or token position, and the names of its values."""

    name: str
    values: tuple[str, ...]
    is_ordered: bool = False  # whether categories are declared to be ordered, as bins of numbers are
    kind: Kind = "category"
    numbers: NDArray[Any] | None = field(default=None, compare=False, repr=False)  # the number of each code
    missing_code: int | None = None  # the code of a missing value, the last one; None if no value is missing
    allowed_change: AllowedChange = "any"  # allowed direction of changes by a search

    @property
    def is_ordinal(self) -> bool:
        """Whether larger codes are larger values: for numbers and ordered categories, except for a missing value."""
        return self.is_ordered or self.kind == "number"

    def allows(self, before: Codes, after: Codes) -> Bools:
        """Return whether values may change from `before` to `after`; missing values may not go up or down."""
        if self.allowed_change == "any":
            return np.ones(np.broadcast_shapes(before.shape, after.shape), dtype=bool)
        same = before == after
        if self.allowed_change == "none":
            return np.asarray(same)
        is_present = (before != self.missing_code) & (after != self.missing_code)
        return np.asarray(same | (is_present & ((after > before) if self.allowed_change == "up" else (after < before))))

    @cached_property
    def decoded_values(self) -> NDArray[Any]:
        """The value of each code in the user's table: a number, a text, or NaN for a missing value."""
        if self.numbers is not None:
            return self.numbers
        texts = np.array(self.values, dtype=object)
        if self.missing_code is not None:
            texts[self.missing_code] = np.nan
        return texts

    @cached_property
    def decoded_array(self) -> Any:
        """The decoded values as a pandas array, whose type does not depend on the selected rows."""
        import pandas as pd

        return pd.Series(self.decoded_values).array


@dataclass(frozen=True)
class Split:
    """A part of the data."""

    ids: Ints  # (n,) row numbers in the data as read
    codes: Codes  # (n, M) index of each feature's value, ABSENT for padding
    labels: Ints  # (n,) true classes
    texts: tuple[str, ...] | None = None  # the original strings, for text
    spelling_codes: Codes | None = None  # (n, M) codes that keep the original spelling (Spellings), for text

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, positions: Ints) -> Split:
        """Return the rows at some positions."""
        texts = None if self.texts is None else tuple(self.texts[i] for i in positions)
        spelling_codes = None if self.spelling_codes is None else self.spelling_codes[positions]
        return Split(self.ids[positions], self.codes[positions], self.labels[positions], texts, spelling_codes)


@dataclass(frozen=True)
class Spellings:
    """Codes of original words, with which a model that reads strings receives an unedited text exactly.

    Vocabulary words joined by single spaces do not always reproduce a text. A word that they do not reproduce has a
    code of its own beyond the vocabulary: it differs in case, is not in the vocabulary, or has other separators. The
    code stands for the original word and for the separators before and after it.

    Only the first words of a long text are features. In texts that may be explained, a code also stands for the text
    after these words, which is therefore kept as long as any word with such a code is.
    """

    first: int  # the first of these codes; the codes below belong to the vocabulary and the mask
    words: tuple[str, ...]  # (S,) original words
    vocabulary: Codes  # (S,) code of the same word in the vocabulary, or of the mask
    before: Codes  # (S,) index of the separator before the word; 0 is the default: a space, or nothing at an end
    after: Codes  # (S,) index of the separator after the word
    remainder: Codes  # (S,) index (in `separators`) of the text after the words that are features; 0: none
    separators: tuple[str, ...]  # the default first

    @cached_property
    def _indices(self) -> tuple[Codes, ...]:
        """For each code the indices of the separators before and after it, and of the rest of its text."""
        default = np.zeros(self.first, dtype=np.int32)
        return tuple(np.concatenate([default, index]) for index in (self.before, self.after, self.remainder))

    def join(self, words: NDArray[Any], row: Codes) -> str:
        """Return the string of one row of codes without padding.

        Two words are separated by the separator after the left word, or by that before the right word if the first is
        the default. So a separator is kept as long as one of the two words beside it is original. The text after the
        words that are features is kept as long as any word of the text is original.
        """
        if not len(row) or row.max() < self.first:
            return " ".join(words[row])
        before, after, remainder = (index[row] for index in self._indices)
        pieces = np.empty(2 * len(row) + 1, dtype=object)
        pieces[1::2] = words[row]
        pieces[2:-1:2] = [self.separators[i] for i in np.where(after[:-1] != 0, after[:-1], before[1:])]
        pieces[0] = self.separators[before[0]] if before[0] else ""
        end = remainder.max() or after[-1]
        pieces[-1] = self.separators[end] if end else ""
        return "".join(pieces)


@dataclass(frozen=True)
class Dataset:
    """An encoded dataset, the same for tables and texts."""

    name: str
    kind: Literal["tabular", "text"]
    features: tuple[Feature, ...]
    classes: tuple[str, ...]  # two or more
    train: Split
    validation: Split
    test: Split
    frequencies: tuple[Floats, ...]  # for each feature, the training share of each value
    candidates: tuple[Codes, ...]  # for each feature, the values that a search may try, ascending
    mask_code: int | None = None  # of the mask token, if there is one
    pretrained: Floats | None = None  # embeddings (V, d) to start from, shared by all features
    spellings: Spellings | None = None  # original words of texts, for models that read strings
    origin: Mapping[str, Any] = field(default_factory=dict)  # file, source, sha256, rows
    fitted: Mapping[str, Any] = field(default_factory=dict)  # bins, medians, groups
    reference: Mapping[str, Any] = field(default_factory=dict)  # published results of the paper on these data

    @property
    def n_features(self) -> int:
        """The number of features, M."""
        return len(self.features)

    @cached_property
    def test_lengths(self) -> Ints:
        """The number of features of each test row, fewer than `n_features` for short texts."""
        return np.asarray((self.test.codes != ABSENT).sum(axis=1))

    @property
    def padded(self) -> bool:
        """Whether rows may have absent features at the end, as sentences have."""
        return self.kind == "text"

    def get_values(self, feature: int) -> Codes:
        """Return all values of a feature, without the mask."""
        size = len(self.features[feature].values)
        if self.spellings is not None:
            size = min(size, self.spellings.first)
        codes = np.arange(size, dtype=np.int32)
        return codes if self.mask_code is None else codes[codes != self.mask_code]

    def get_alternatives(self, feature: int) -> Codes:
        """Return the values that a feature's value is compared with: all values, or the candidates of a number."""
        return self.candidates[feature] if self.features[feature].kind == "number" else self.get_values(feature)

    def find_allowed(self, feature: int, codes: Codes) -> Bools:
        """Return which alternatives (V,) each value (n,) of a feature may change to: (n, V)."""
        alternatives = self.get_alternatives(feature)
        return np.asarray(
            self.features[feature].allows(codes[:, None], alternatives[None]) & (codes[:, None] != alternatives)
        )

    def find_reachable(self, feature: int, codes: Codes) -> tuple[Ints, Ints]:
        """Return the range of candidates, as start and end (n,), that each value of a feature may change to."""
        column, candidates = self.features[feature], self.candidates[feature]
        first, last = np.zeros(len(codes), dtype=np.int64), np.full(len(codes), len(candidates))
        if column.allowed_change == "any":
            return first, last
        n_present = len(candidates) - (column.missing_code is not None and column.missing_code in candidates)
        if column.allowed_change == "up":
            first, last = np.searchsorted(candidates[:n_present], codes, side="right"), np.full(len(codes), n_present)
        elif column.allowed_change == "down":
            last = np.searchsorted(candidates[:n_present], codes, side="left")
        stays = (codes == column.missing_code) | (column.allowed_change == "none")
        return np.where(stays, 0, first), np.where(stays, 0, last)

    @cached_property
    def is_changeable(self) -> Bools:
        """Whether each feature (M,) may change."""
        return np.array([feature.allowed_change != "none" for feature in self.features])

    @cached_property
    def has_constraints(self) -> bool:
        """Whether changes of some features are restricted."""
        return any(feature.allowed_change != "any" for feature in self.features)

    def decode(self, codes: Codes) -> pd.DataFrame | list[str]:
        """Return rows as the input of a user's model: a table as in the file, or sentences.

        Columns with whole numbers in every row have integers, other numeric columns floats, categories texts. Missing
        values are NaN.
        """
        if self.kind == "text":
            words = self.features[0].decoded_values
            if self.spellings is None:
                return [" ".join(words[row[row != ABSENT]]) for row in codes]
            return [self.spellings.join(words, row[row != ABSENT]) for row in codes]
        import pandas as pd

        pairs = list(zip(self.features, codes.T, strict=True))
        if len({f.decoded_values.dtype for f in self.features}) == 1 and self.features[0].numbers is not None:
            # With columns of one type, a single array is many times faster.
            return pd.DataFrame(np.stack([f.decoded_values[own] for f, own in pairs], axis=1), columns=self._names)
        columns = dict(enumerate(feature.decoded_array.take(own) for feature, own in pairs))
        return pd.DataFrame(columns).set_axis(self._names, axis=1)

    def restore_spellings(self) -> Dataset:
        """Return the dataset for a model that reads strings: `decode` restores the original texts.

        The codes of the vocabulary, the candidates of a search and the training shares stay the same. Models that
        cfeval trains use the vocabulary alone.
        """
        spellings = self.spellings
        if spellings is None or len(self.features[0].values) > spellings.first:
            return self
        values = (*self.features[0].values, *spellings.words)
        shares = np.concatenate([self.frequencies[0], np.zeros(len(spellings.words))])
        same = np.concatenate([np.arange(spellings.first), spellings.vocabulary])
        train, validation, test = (
            split if split.spelling_codes is None else replace(split, codes=split.spelling_codes)
            for split in (self.train, self.validation, self.test)
        )
        return replace(
            self,
            features=tuple(replace(feature, values=values) for feature in self.features),
            frequencies=(shares,) * self.n_features,
            pretrained=None if self.pretrained is None else self.pretrained[same],
            train=train,
            validation=validation,
            test=test,
        )

    def split_words(self, split: Split) -> list[list[str]] | None:
        """Return the original words of each text; None for a table."""
        if self.spellings is None or split.spelling_codes is None:
            return None
        values = self.restore_spellings().features[0].values
        return [[values[code] for code in row if code != ABSENT] for row in split.spelling_codes.tolist()]

    @cached_property
    def _names(self) -> pd.Index[str]:
        """The names of the features as a pandas index."""
        import pandas as pd

        return pd.Index([feature.name for feature in self.features])

    @cached_property
    def candidate_table(self) -> tuple[Codes, Ints, Ints]:
        """The candidates of all features in one array, with the start and the number (M,) for each feature."""
        shared = {id(values): values for values in self.candidates}  # texts share one vocabulary
        ends = dict(zip(shared, np.cumsum([len(values) for values in shared.values()]).tolist(), strict=True))
        sizes = np.array([len(values) for values in self.candidates])
        return np.concatenate(list(shared.values())), np.array([ends[id(v)] for v in self.candidates]) - sizes, sizes

    @property
    def mask(self) -> int:
        """The code of the mask token; a ValueError if there is none."""
        if self.mask_code is None:
            raise ValueError(f"{self.name} has no mask token")
        return self.mask_code

    @cached_property
    def fingerprint(self) -> str:
        """The hash of everything that models and explainers receive."""
        from hashlib import sha256

        values = dict.fromkeys(feature.values for feature in self.features)  # texts share one vocabulary
        numbers = {names: i for i, names in enumerate(values)}
        features = [
            (feature.name, numbers[feature.values], feature.is_ordered, feature.kind, feature.missing_code,
             feature.allowed_change) for feature in self.features
        ]  # fmt: skip
        digest = sha256(repr((self.name, self.kind, list(values), features, self.classes, self.mask_code)).encode())
        splits = (self.train, self.validation, self.test)
        arrays = [array for split in splits for array in (split.ids, split.codes, split.labels)]
        arrays += [feature.numbers for feature in self.features if feature.numbers is not None]
        shared = {id(frequency): frequency for frequency in self.frequencies}.values()
        for array in (*arrays, *self.candidate_table, *shared, *([] if self.pretrained is None else [self.pretrained])):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr([split.texts for split in splits]).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Rows:
    """Instances with the predictions of the model: the input of explainers, searches and metrics."""

    ids: Ints  # (n,)
    codes: Codes  # (n, M)
    predicted_classes: Ints  # (n,) ŷ; the true classes are Split.labels
    probability: Floats | None = None  # (n,) p(ŷ|x); None where only labels are seen

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, positions: Ints | slice) -> Rows:
        """Return some of the instances."""
        probability = None if self.probability is None else self.probability[positions]
        return Rows(self.ids[positions], self.codes[positions], self.predicted_classes[positions], probability)


class Located(Protocol):
    """A data file and its source."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        ...

    @property
    def source(self) -> str:
        """The address or folder that the file comes from."""
        ...

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file."""
        ...


class Loadable(Protocol):
    """The settings of a dataset."""

    name: str

    def fetch(self, data_dir: Path) -> Sequence[Located]:
        """Download missing files into the data folder, and return all files."""
        ...

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Verify, encode and split the data."""
        ...
