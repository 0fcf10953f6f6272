"""Texts: sentences of two classes or more become rows of words, one feature a position."""

from __future__ import annotations

import codecs
import logging
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Feature, Ints, Spellings, Split
from cfeval_cli.dataset.cells import Layout, matching
from cfeval_cli.dataset.glove import Glove
from cfeval_cli.dataset.sources import File, Found, find_all
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError, check_int, check_option, shorten
from cfeval_cli.seeding import make_stream

log = logging.getLogger(__name__)

_LONGEST = 10_000  # words of a sentence: each of them is a feature of every row
_LARGEST = 1 << 24  # characters of a text
UNKNOWN = "<unk>"  # stands for unknown words and for "mask"


class Corpus(Protocol):
    """Where sentences of both classes come from."""

    rows: int | None  # that it should have, if that is known

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
                yield label, _utf8(line.removesuffix(b"\r"))


@dataclass(frozen=True)
class Table:
    """A CSV, TSV or Parquet file with a column of texts and one of labels; of several sources one may be wanted."""

    file: File
    source: str | None = None  # that the column `source` has in the rows that are wanted; None: all rows
    rows: int | None = None  # that it should have; None: as many as there are
    text: str = "text"  # columns
    label: str = "label"
    labels: Sequence[Any] = (0, 1)  # what the label is, in the order of the classes
    columns: Sequence[str] | None = None  # names, for a file whose first line has none
    delimiter: str | None = None  # None: look
    latin: bool = False  # whether texts with other characters than ASCII were read wrongly when the file was made

    def files(self) -> list[File]:
        """The one."""
        return [self.file]

    def sentences(self, found: Sequence[Found]) -> Iterator[tuple[int, str | None]]:
        """The rows of the source, in order; if `latin`, None for those that were not UTF-8 in the original."""
        layout = Layout(self.columns, self.columns is None, self.delimiter, longest=_LARGEST, spaces=False)
        sheet = layout.read(found[0].path, [self.text, self.label, *([] if self.source is None else ["source"])])
        match = matching(self.labels)
        for row, (text, label) in enumerate(zip(sheet.cells[self.text], sheet.cells[self.label], strict=True)):
            if self.source is not None and sheet.cells["source"][row].strip() != self.source:
                continue
            place = match(label.strip())
            if place is None:
                told = " or ".join(str(one) for one in self.labels)
                raise UserError(f"{sheet.where(row)}: expected a label of {told}, not {shorten(label, 20)}.")
            yield place, _utf8(text.encode("latin-1", "replace")) if self.latin else text


@dataclass(frozen=True)
class Text:
    """Sentences, tokenised by white space and padded to the longest."""

    name: str
    corpora: Sequence[Corpus]  # the first that can be had is taken
    classes: Sequence[str]
    embedding: Glove | None = None  # vectors to start from; None: the model starts from nothing
    tokens: str = "space"  # what white space separates; or words: in small letters, signs apart
    max_tokens: int | None = None  # words of a text that are features; None: all
    sample: int | None = None  # so many texts, drawn by the seed; None: all
    search_words: int | None = None  # the n most frequent words that a search may try; None: the training vocabulary
    split: Sequence[float] = (0.8, 0.1, 0.1)
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(map(str, self.classes))) < len(self.classes):
            raise ValueError(f"classes must name two classes or more, not {list(self.classes)}")
        check_option("tokens", self.tokens, _TOKENS)
        for name in ("max_tokens", "sample"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        if self.search_words is not None:
            check_int("search_words", self.search_words, 2)  # with one word there may be nothing to exchange
        check_shares(self.split)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read, split, build the vocabulary on the training part and embed it."""
        corpus, found = self._find(data_dir)
        labels, sentences, originals, read = list[int](), list[list[str]](), list[_Original](), 0
        for label, text in corpus.sentences(found):
            read += 1
            original = _Original(text or "", _TOKENS[self.tokens](text or "")).cut(self.max_tokens)
            if original.spans:
                labels.append(label)
                sentences.append([_FORMS[self.tokens](word) for word in original.words])
                originals.append(original)
        self._check(", ".join(str(f.path) for f in found), labels, sentences)
        chosen = np.arange(len(sentences))
        if self.sample is not None and self.sample < len(sentences):
            chosen = np.sort(make_stream(seed, "dataset.sample").choice(len(sentences), self.sample, replace=False))
        longest = max(len(sentences[i]) for i in chosen)
        parts = shuffled(chosen, self.split, seed)
        if not all(len(part) for part in parts):
            raise UserError(f"{found[0].path}: {len(chosen)} sentences are too few for a split of {list(self.split)}.")
        counts = Counter(word for i in parts[0] for word in sentences[i])
        # by frequency, ties by the alphabet: the n most frequent are the first n
        vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
        embedding = None if self.embedding is None else self.embedding.vectors(data_dir, vocabulary)
        code = {word: i for i, word in enumerate(vocabulary)}
        unknown = len(vocabulary)
        codes = _encode(sentences, code, unknown, longest)
        frequency = np.array([counts[word] for word in vocabulary] + [0], dtype=float)
        values = (*vocabulary, UNKNOWN)
        candidates = np.arange(min(len(vocabulary), self.search_words or len(vocabulary)), dtype=np.int32)
        width = codes.shape[1]
        label_array = np.array(labels, dtype=np.int64)
        spellings, spelled = _spell(originals, chosen, set(parts[2].tolist()), codes, values)
        if many := sum(originals[i].is_cut for i in chosen):
            log.warning(
                "%s: %s of %s texts have more than max_tokens=%s words. The words behind are never features: no "
                "explainer selects them, and no search edits them. A model that cfeval trains does not see them; a "
                "model made elsewhere does",
                self.name, f"{many:,}", f"{len(chosen):,}", self.max_tokens,
            )  # fmt: skip
        train, validation, test = (
            Split(part, codes[part], label_array[part], tuple(originals[i].text for i in part), spelled[part])
            for part in parts
        )
        files = ", ".join(f.path.name for f in found)
        if corpus is not self.corpora[0]:
            log.warning(
                "%s: an incomplete copy, %s of %s sentences; put %s into %s for all of them",
                files, f"{read:,}", f"{self.corpora[0].rows or read:,}",
                " and ".join(file.name for file in self.corpora[0].files()), data_dir,
            )  # fmt: skip
        return Dataset(
            name=self.name,
            kind="text",
            features=tuple(Feature(f"token {j + 1}", values, kind="token") for j in range(width)),
            classes=tuple(str(name) for name in self.classes),
            train=train,
            validation=validation,
            test=test,
            frequencies=(frequency / frequency.sum(),) * width,
            candidates=(candidates,) * width,
            unknown=unknown,
            pretrained=None if embedding is None else embedding.table,
            spellings=spellings,
            origin={
                "file": files,
                "source": ", ".join(dict.fromkeys(f.source for f in found)),
                "sha256": ", ".join(f.sha256 for f in found),
                "rows_read": read,
                "rows_used": len(chosen),
                "rows_whole": read if self.corpora[0].rows is None else self.corpora[0].rows,
                "complete": corpus is self.corpora[0],
                **({} if embedding is None else {"embedding": embedding.origin}),
                "vocabulary": len(vocabulary),
                "search_words": self.search_words,
            },
            reference=dict(self.reference),
        )

    def _check(self, files: str, labels: Sequence[int], sentences: Sequence[Sequence[str]]) -> None:
        """Refuse texts that cannot be told apart, or do not fit into a table."""
        if max(labels, default=0) >= len(self.classes):
            raise UserError(f"{files}: more labels are named than dataset.classes has, {list(self.classes)}.")
        missing = [str(name) for i, name in enumerate(self.classes) if i not in set(labels)]
        if missing:
            both = "both" if len(self.classes) == 2 else "all"
            raise UserError(
                f"{files}: sentences of {both} classes are needed, and there are none of {' or '.join(missing)}."
            )
        longest = max(map(len, sentences))
        if longest > _LONGEST:
            raise UserError(
                f"{files}: a sentence of {longest:,} words, more than {_LONGEST:,}. Are its lines what they should be? "
                "If so, dataset.max_tokens cuts them."
            )

    def fetch(self, data_dir: Path) -> list[Found]:
        """Make sure that the data folder has the sentences, or as many as can be had, and the vectors."""
        _, found = self._find(data_dir)
        return [*found, *find_all([] if self.embedding is None else self.embedding.files(), data_dir)]

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


_BREAK = re.compile(r"<br\s*/?>")
_PIECE = re.compile(r"\S+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")


Span = tuple[int, int]  # start and end of a word in its text


def _find_pieces(text: str) -> list[Span]:
    """Return the spans of what white space separates."""
    return [match.span() for match in _PIECE.finditer(text)]


def _find_words(text: str) -> list[Span]:
    """Return the spans of words and of single signs; a line break of a web page is a separator."""
    return [match.span() for match in _WORD.finditer(_BREAK.sub(lambda tag: " " * len(tag[0]), text))]


def _words(text: str) -> list[str]:
    """Words in small letters, signs apart; what breaks a line on a web page is no word."""
    return [text[start:end].lower() for start, end in _find_words(text)]


@dataclass(frozen=True)
class _Original:
    """A text as the file has it, and where the words are that are used."""

    text: str
    spans: Sequence[Span]
    is_cut: bool = False  # whether it has more words, behind them

    @property
    def words(self) -> list[str]:
        """The original words."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def separators(self) -> list[str]:
        """What is before the first word used, between words, and after the last one."""
        ends = [0, *(end for _, end in self.spans)]
        starts = [*(start for start, _ in self.spans), len(self.text)]
        return [self.text[end:start] for end, start in zip(ends, starts, strict=True)]

    def cut(self, size: int | None) -> _Original:
        """Return the text of which at most `size` words are used."""
        if size is None or len(self.spans) <= size:
            return self
        return _Original(self.text, self.spans[:size], is_cut=True)


def _spell(
    originals: Sequence[_Original], rows: Ints, explained: Container[int], codes: Codes, values: Sequence[str]
) -> tuple[Spellings, Codes]:
    """Return a code for each distinct original word that differs from the vocabulary, and the codes with these.

    The last word of a text that is cut stands for the rest of the text too. In texts that may be explained, and edited,
    each word does.
    """
    spelled = codes.copy()
    unknown, known = len(values) - 1, dict[tuple[str, int, int, int], int]()
    same, separators = list[int](), dict[str | None, int]({None: 0})  # None: the default
    for i in rows.tolist():
        words = originals[i].words
        plain = [values[code] for code in codes[i, : len(words)]]
        if originals[i].text == " ".join(plain) and unknown not in codes[i, : len(words)]:
            continue
        last = len(words)
        between = [
            0 if text == ("" if place in (0, last) else " ") else separators.setdefault(text, len(separators))
            for place, text in enumerate(originals[i].separators)
        ]
        rest = 0
        if originals[i].is_cut and i in explained:
            rest, between[last] = between[last], 0
        for j, word in enumerate(words):
            around = (between[j], between[j + 1], rest)
            if around == (0, 0, 0) and word == plain[j] and codes[i, j] != unknown:
                continue
            key = (word, *around)
            if key not in known:
                known[key] = len(values) + len(known)
                same.append(int(codes[i, j]))
            spelled[i, j] = known[key]
    before, after, rest_of = (np.array([key[place] for key in known], dtype=np.int32) for place in (1, 2, 3))
    return Spellings(
        first=len(values),
        words=tuple(key[0] for key in known),
        vocabulary=np.array(same, dtype=np.int32),
        before=before,
        after=after,
        rest=rest_of,
        separators=(" ", *(text for text in separators if text is not None)),
    ), spelled


def length(path: Path, text: str, columns: Sequence[str] | None, delimiter: str | None) -> int:
    """The number of words of the longest text in a column of a file."""
    layout = Layout(columns, columns is None, delimiter, longest=_LARGEST, spaces=False)
    return max(len(_words(cell)) for cell in layout.read(path, [text]).cells[text])


_TOKENS: Mapping[str, Callable[[str], list[Span]]] = {"space": _find_pieces, "words": _find_words}
_FORMS: Mapping[str, Callable[[str], str]] = {"space": str, "words": str.lower}  # of a word in the vocabulary


def _encode(sentences: Sequence[list[str]], code: Mapping[str, int], unknown: int, longest: int) -> Codes:
    """Codes (n, longest), ABSENT behind the end of a sentence."""
    codes = np.full((len(sentences), longest), ABSENT, dtype=np.int32)
    for i, words in enumerate(sentences):
        codes[i, : len(words)] = [code.get(word, unknown) for word in words[:longest]]
    return codes
