"""Texts: sentences of two classes become rows of words, one feature a position."""

from __future__ import annotations

import codecs
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cfeval_cli.dataset.cells import rows
from cfeval_cli.dataset.glove import Glove
from cfeval_cli.dataset.sources import File, Found, find_all
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError, short, whole
from cfeval_cli.types import ABSENT, Codes, Dataset, Feature, Split

log = logging.getLogger(__name__)

_LONGEST = 10_000  # words of a sentence: each of them is a feature of every row
_LARGEST = 1 << 24  # characters of a text
UNKNOWN = "<unk>"  # stands for unknown words and for "mask"


class Corpus(Protocol):
    """Where sentences of both classes come from."""

    rows: int  # that it should have

    def files(self) -> list[File]:
        """The files that it is read from."""
        ...

    def sentences(self, found: Sequence[Found]) -> Iterator[tuple[int, str | None]]:
        """Class and sentence of every row, in the order of the files; None for a row that cannot be read."""
        ...


@dataclass(frozen=True)
class Lines:
    """One file for each class, a sentence a line; lines that are not UTF-8 and empty lines are left out."""

    negative: File
    positive: File
    rows: int

    def files(self) -> list[File]:
        """Both."""
        return [self.negative, self.positive]

    def sentences(self, found: Sequence[Found]) -> Iterator[tuple[int, str | None]]:
        """The negative ones first."""
        for label, file in enumerate(found):
            # by line feeds only: other separators that str.splitlines() knows occur inside sentences
            body = file.path.read_bytes().removeprefix(codecs.BOM_UTF8)
            for line in body.removesuffix(b"\n").split(b"\n"):
                yield label, _utf8(line)


@dataclass(frozen=True)
class Table:
    """A CSV file with texts and labels of several sources, of which one is wanted."""

    file: File
    source: str
    rows: int

    def files(self) -> list[File]:
        """The one."""
        return [self.file]

    def sentences(self, found: Sequence[Found]) -> Iterator[tuple[int, str | None]]:
        """The rows of the source, in order. What shows that it was not UTF-8 in the original is None as there."""
        path = found[0].path
        lines = rows(path, longest=_LARGEST, spaces=False)
        _, names = next(lines, (1, []))
        missing = {"text", "label", "source"} - set(names)
        if missing:
            raise UserError(f"{path} has no column {', '.join(sorted(missing))}.")
        for line, cells in lines:
            if len(cells) != len(names):
                raise UserError(f"{path}, line {line}: {len(cells)} fields where the first line names {len(names)}.")
            row = dict(zip(names, cells, strict=True))
            if row["source"] != self.source:
                continue
            if row["label"] not in ("0", "1"):
                raise UserError(f"{path}, line {line}: expected a label of 0 or 1, not {short(row['label'])}.")
            yield int(row["label"]), _utf8(row["text"].encode("latin-1", "replace"))


@dataclass(frozen=True)
class Text:
    """Sentences, tokenised by white space and padded to the longest."""

    name: str
    corpora: Sequence[Corpus]  # the first that can be had is taken
    embedding: Glove
    classes: Sequence[str]
    search_words: int | None = None  # the n most frequent words that a search may try; None: the training vocabulary
    split: Sequence[float] = (0.8, 0.1, 0.1)
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.classes) != 2:
            raise ValueError(f"classes must name two classes, not {list(self.classes)}")
        if self.search_words is not None:
            whole("search_words", self.search_words, 2)  # with one word there may be nothing to exchange
        check_shares(self.split)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read, split, build the vocabulary on the training part and embed it."""
        corpus, found = self._find(data_dir)
        labels, sentences, read = [], [], 0
        for label, text in corpus.sentences(found):
            read += 1
            if text is not None and (words := text.split()):
                labels.append(label)
                sentences.append(words)
        if len(set(labels)) < 2:
            raise UserError(f"{', '.join(str(f.path) for f in found)}: sentences of both classes are needed.")
        longest = max(map(len, sentences))
        if longest > _LONGEST:
            raise UserError(
                f"{', '.join(str(f.path) for f in found)}: a sentence of {longest:,} words, more than {_LONGEST:,}. "
                "Are its lines what they should be?"
            )
        parts = shuffled(np.arange(len(sentences)), self.split, seed)
        if not all(len(part) for part in parts):
            raise UserError(
                f"{found[0].path}: {len(sentences)} sentences are too few for a split of {list(self.split)}."
            )
        counts = Counter(word for i in parts[0] for word in sentences[i])
        # by frequency, ties by the alphabet: the n most frequent are the first n
        vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
        embedding = self.embedding.vectors(data_dir, vocabulary)
        code = {word: i for i, word in enumerate(vocabulary)}
        unknown = len(vocabulary)
        codes = _encode(sentences, code, unknown)
        frequency = np.array([counts[word] for word in vocabulary] + [0], dtype=float)
        values = (*vocabulary, UNKNOWN)
        candidates = np.arange(min(len(vocabulary), self.search_words or len(vocabulary)), dtype=np.int32)
        width = codes.shape[1]
        label_array = np.array(labels, dtype=np.int64)
        train, validation, test = (
            Split(part, codes[part], label_array[part], tuple(" ".join(sentences[i]) for i in part)) for part in parts
        )
        files = ", ".join(f.path.name for f in found)
        if corpus is not self.corpora[0]:
            log.warning(
                "%s: an incomplete copy, %s of %s sentences; put %s into %s for all of them",
                files, f"{read:,}", f"{self.corpora[0].rows:,}",
                " and ".join(file.name for file in self.corpora[0].files()), data_dir,
            )  # fmt: skip
        return Dataset(
            name=self.name,
            kind="text",
            features=tuple(Feature(f"token {j + 1}", values, kind="token") for j in range(width)),
            classes=(self.classes[0], self.classes[1]),
            train=train,
            validation=validation,
            test=test,
            frequencies=(frequency / frequency.sum(),) * width,
            candidates=(candidates,) * width,
            unknown=unknown,
            pretrained=embedding.table,
            origin={
                "file": files,
                "source": ", ".join(dict.fromkeys(f.source for f in found)),
                "sha256": ", ".join(f.sha256 for f in found),
                "rows_read": read,
                "rows_used": len(sentences),
                "rows_whole": self.corpora[0].rows,
                "complete": corpus is self.corpora[0],
                "embedding": embedding.origin,
                "vocabulary": len(vocabulary),
                "search_words": self.search_words,
            },
            reference=dict(self.reference),
        )

    def fetch(self, data_dir: Path) -> list[Found]:
        """Make sure that the data folder has the sentences, or as many as can be had, and the vectors."""
        _, found = self._find(data_dir)
        return [*found, *find_all(self.embedding.files(), data_dir)]

    def _find(self, data_dir: Path) -> tuple[Corpus, list[Found]]:
        """The first corpus that is in the data folder, or else that can be fetched."""
        for corpus in self.corpora:
            # a damaged file is said, not passed over for another corpus
            here = [file.present(data_dir) for file in corpus.files()]
            if None not in here:
                return corpus, find_all(corpus.files(), data_dir)
        complaint = None
        for corpus in self.corpora:
            try:
                return corpus, find_all(corpus.files(), data_dir)
            except UserError as error:
                complaint = complaint or error
        raise complaint or UserError("dataset.corpora names nothing to read.")


def _utf8(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _encode(sentences: Iterable[list[str]], code: Mapping[str, int], unknown: int) -> Codes:
    """Codes (n, longest), ABSENT behind the end of a sentence."""
    rows = [[code.get(word, unknown) for word in words] for words in sentences]
    codes = np.full((len(rows), max(len(row) for row in rows)), ABSENT, dtype=np.int32)
    for i, row in enumerate(rows):
        codes[i, : len(row)] = row
    return codes
