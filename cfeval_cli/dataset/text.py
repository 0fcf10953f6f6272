"""Texts: encode sentences as rows of words, with one feature for each position."""

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
from cfeval_cli.dataset.cells import Layout, make_matcher
from cfeval_cli.dataset.glove import Glove
from cfeval_cli.dataset.sources import DataFile, VerifiedFile, find_files
from cfeval_cli.dataset.split import check_shares, split_by_shares
from cfeval_cli.errors import UserError, check_int, check_option, shorten
from cfeval_cli.seeding import make_stream

log = logging.getLogger(__name__)

_MAX_WORDS = 10_000  # of a sentence; each position is a feature of every row
_MAX_CELL_CHARACTERS = 1 << 24
UNKNOWN = "<unk>"  # for unknown words and for the mask


class Corpus(Protocol):
    """Files with sentences of all classes."""

    rows: int | None  # of the complete corpus, if known

    def list_files(self) -> list[DataFile]:
        """Return the files of the corpus."""
        ...

    def read_sentences(self, files: Sequence[VerifiedFile]) -> Iterator[tuple[int, str | None]]:
        """Yield class and sentence of every row, in the order of the files; None for a row that cannot be read."""
        ...


@dataclass(frozen=True)
class Lines:
    """One file for each class with one sentence a line; empty lines and lines that are not UTF-8 are left out."""

    negative: DataFile
    positive: DataFile
    rows: int

    def list_files(self) -> list[DataFile]:
        """Return both files."""
        return [self.negative, self.positive]

    def read_sentences(self, files: Sequence[VerifiedFile]) -> Iterator[tuple[int, str | None]]:
        """Yield the sentences, the negative ones first."""
        for label, file in enumerate(files):
            # line feeds only: other separators of str.splitlines() occur inside sentences
            body = file.path.read_bytes().removeprefix(codecs.BOM_UTF8)
            for line in body.removesuffix(b"\n").split(b"\n"):
                yield label, _decode_utf8(line.removesuffix(b"\r"))


@dataclass(frozen=True)
class TextTable:
    """A CSV, TSV or Parquet file with a column of texts and a column of labels."""

    file: DataFile
    source: str | None = None  # value of the column `source` in the rows to read; None: all rows
    rows: int | None = None  # of the complete file; None: as many as there are
    text: str = "text"  # name of the column of texts
    label: str = "label"  # name of the column of labels
    labels: Sequence[Any] = (0, 1)  # values of the label, in the order of the classes
    columns: Sequence[str] | None = None  # names, for a file without a header
    delimiter: str | None = None  # None: detect
    latin: bool = False  # whether the UTF-8 texts were decoded as Latin-1 when the file was made

    def list_files(self) -> list[DataFile]:
        """Return the only file."""
        return [self.file]

    def read_sentences(self, files: Sequence[VerifiedFile]) -> Iterator[tuple[int, str | None]]:
        """Yield the rows of the source, in order; if `latin`, None for those that were not UTF-8 in the original."""
        layout = _make_text_layout(self.columns, self.delimiter)
        table = layout.read(files[0].path, [self.text, self.label, *([] if self.source is None else ["source"])])
        match = make_matcher(self.labels)
        for row, (text, label) in enumerate(zip(table.cells[self.text], table.cells[self.label], strict=True)):
            if self.source is not None and table.cells["source"][row].strip() != self.source:
                continue
            class_index = match(label.strip())
            if class_index is None:
                options = " or ".join(map(str, self.labels))
                position = table.describe_position(row)
                raise UserError(f"{position}: expected a label of {options}, not {shorten(label, 20)}.")
            yield class_index, _decode_utf8(text.encode("latin-1", "replace")) if self.latin else text


def _make_text_layout(columns: Sequence[str] | None, delimiter: str | None) -> Layout:
    return Layout(columns, columns is None, delimiter, max_cell_characters=_MAX_CELL_CHARACTERS, strip_cells=False)


@dataclass(frozen=True)
class Text:
    """Sentences as rows of tokens, padded to the longest."""

    name: str
    corpora: Sequence[Corpus]  # the first available one is used
    classes: Sequence[str]
    embedding: Glove | None = None  # initial word vectors; None: random ones
    tokens: str = "space"  # space: what white space separates; words: in lower case, punctuation separate
    max_tokens: int | None = None  # words of a text that are features; None: all
    sample: int | None = None  # number of texts, drawn by the seed; None: all
    search_words: int | None = None  # number of frequent words that a search tries; None: the training vocabulary
    split: Sequence[float] = (0.8, 0.1, 0.1)
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(map(str, self.classes))) < len(self.classes):
            raise ValueError(f"classes must name two classes or more, not {list(self.classes)}")
        check_option("tokens", self.tokens, _SPAN_FINDERS)
        for name in ("max_tokens", "sample"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        if self.search_words is not None:
            check_int("search_words", self.search_words, 2)  # with a single word, nothing could be exchanged
        check_shares(self.split)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read the texts, split them, build the vocabulary on the training part and load its word vectors."""
        corpus, files = self._find_corpus(data_dir)
        labels, sentences, original_texts, n_read = self._read_texts(corpus, files)
        self._check_sentences(", ".join(str(file.path) for file in files), labels, sentences)
        row_ids = np.arange(len(sentences))
        if self.sample is not None and self.sample < len(sentences):
            row_ids = np.sort(make_stream(seed, "dataset.sample").choice(len(sentences), self.sample, replace=False))
        width = max(len(sentences[i]) for i in row_ids)
        parts = split_by_shares(row_ids, self.split, seed)
        if not all(len(part) for part in parts):
            raise UserError(f"{files[0].path}: {len(row_ids)} sentences are too few for a split of {list(self.split)}.")
        counts = Counter(word for i in parts[0] for word in sentences[i])
        # by frequency, ties in alphabetical order: the n most frequent are the first n
        vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
        embedding = None if self.embedding is None else self.embedding.load_vectors(data_dir, vocabulary)
        code_of = {word: i for i, word in enumerate(vocabulary)}
        unknown = len(vocabulary)
        codes = _encode_words(sentences, code_of, unknown, width)
        frequency = np.array([counts[word] for word in vocabulary] + [0], dtype=float)
        values = (*vocabulary, UNKNOWN)
        candidates = np.arange(min(len(vocabulary), self.search_words or len(vocabulary)), dtype=np.int32)
        label_array = np.array(labels, dtype=np.int64)
        spellings, spelled_codes = _encode_spellings(original_texts, row_ids, set(parts[2].tolist()), codes, values)
        if n_cut := sum(original_texts[i].is_cut for i in row_ids):
            log.warning(
                "%s: %s of %s texts have more than max_tokens=%s words. The words after these are never features: no "
                "explainer selects them, and no search edits them. A model that cfeval trains does not see them; a "
                "model trained elsewhere does",
                self.name, f"{n_cut:,}", f"{len(row_ids):,}", self.max_tokens,
            )  # fmt: skip
        train, validation, test = (
            Split(
                part, codes[part], label_array[part], tuple(original_texts[i].text for i in part), spelled_codes[part]
            )
            for part in parts
        )
        file_names = ", ".join(file.path.name for file in files)
        if corpus is not self.corpora[0]:
            log.warning(
                "%s: an incomplete copy, %s of %s sentences; put %s into %s for all of them",
                file_names, f"{n_read:,}", f"{self.corpora[0].rows or n_read:,}",
                " and ".join(file.name for file in self.corpora[0].list_files()), data_dir,
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
            mask_code=unknown,
            pretrained=None if embedding is None else embedding.table,
            spellings=spellings,
            origin={
                "file": file_names,
                "source": ", ".join(dict.fromkeys(file.source for file in files)),
                "sha256": [file.sha256 for file in files],
                "rows_read": n_read,
                "rows_used": len(row_ids),
                "rows_whole": n_read if self.corpora[0].rows is None else self.corpora[0].rows,
                "complete": corpus is self.corpora[0],
                **({} if embedding is None else {"embedding": embedding.origin}),
                "vocabulary": len(vocabulary),
                "search_words": self.search_words,
            },
            reference=dict(self.reference),
        )

    def _read_texts(
        self, corpus: Corpus, files: Sequence[VerifiedFile]
    ) -> tuple[list[int], list[list[str]], list[_OriginalText], int]:
        """Return labels, words and original texts of the sentences that have words, and the number of all rows."""
        labels, sentences, original_texts, n_read = list[int](), list[list[str]](), list[_OriginalText](), 0
        for label, text in corpus.read_sentences(files):
            n_read += 1
            original = _OriginalText(text or "", _SPAN_FINDERS[self.tokens](text or "")).cut(self.max_tokens)
            if original.spans:
                labels.append(label)
                sentences.append([_NORMALIZERS[self.tokens](word) for word in original.words])
                original_texts.append(original)
        return labels, sentences, original_texts, n_read

    def _check_sentences(self, files: str, labels: Sequence[int], sentences: Sequence[Sequence[str]]) -> None:
        """Raise UserError if a class has no sentences, or a sentence has too many words for a table."""
        if max(labels, default=0) >= len(self.classes):
            raise UserError(f"{files}: labels has more values than dataset.classes, {list(self.classes)}.")
        missing = [str(name) for i, name in enumerate(self.classes) if i not in set(labels)]
        if missing:
            quantifier = "both" if len(self.classes) == 2 else "all"
            raise UserError(
                f"{files}: sentences of {quantifier} classes are needed, and there are none of {' or '.join(missing)}."
            )
        longest = max(map(len, sentences))
        if longest > _MAX_WORDS:
            raise UserError(
                f"{files}: a sentence has {longest:,} words, more than {_MAX_WORDS:,}. If that is no mistake in the "
                f"file, set dataset.max_tokens to at most {_MAX_WORDS}."
            )

    def fetch(self, data_dir: Path) -> list[VerifiedFile]:
        """Find the files of the first available corpus and of the word vectors; fetch those that are missing."""
        _, files = self._find_corpus(data_dir)
        return [*files, *find_files([] if self.embedding is None else self.embedding.list_files(), data_dir)]

    def _find_corpus(self, data_dir: Path) -> tuple[Corpus, list[VerifiedFile]]:
        """Return the first corpus in the data folder; if there is none, the first that can be fetched."""
        for corpus in self.corpora:
            # a damaged file is an error, although another corpus may be there
            local_files = [file.find_local(data_dir) for file in corpus.list_files()]
            if None not in local_files:
                return corpus, find_files(corpus.list_files(), data_dir)
        first_error = None
        for corpus in self.corpora:
            try:
                return corpus, find_files(corpus.list_files(), data_dir)
            except UserError as error:
                first_error = first_error or error
        raise first_error or UserError("dataset.corpora is empty. Name at least one corpus.")


def _decode_utf8(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


_LINE_BREAK_TAG = re.compile(r"<br\s*/?>")
_TOKEN = re.compile(r"\S+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")


Span = tuple[int, int]  # start and end of a word in its text


def _find_tokens(text: str) -> list[Span]:
    """Return the spans of what white space separates."""
    return [match.span() for match in _TOKEN.finditer(text)]


def _find_words(text: str) -> list[Span]:
    """Return the spans of words and punctuation marks; a <br> tag is a separator."""
    return [match.span() for match in _WORD.finditer(_LINE_BREAK_TAG.sub(lambda tag: " " * len(tag[0]), text))]


def _split_words(text: str) -> list[str]:
    """Return words in lower case and punctuation marks; a <br> tag is a separator."""
    return [text[start:end].lower() for start, end in _find_words(text)]


@dataclass(frozen=True)
class _OriginalText:
    """A text as the file has it, and the spans of the words that are features."""

    text: str
    spans: Sequence[Span]
    is_cut: bool = False  # whether more words follow

    @property
    def words(self) -> list[str]:
        """The original words."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def separators(self) -> list[str]:
        """The text before the first word, between words, and after the last word."""
        ends = [0, *(end for _, end in self.spans)]
        starts = [*(start for start, _ in self.spans), len(self.text)]
        return [self.text[end:start] for end, start in zip(ends, starts, strict=True)]

    def cut(self, max_words: int | None) -> _OriginalText:
        """Return the text with at most `max_words` words as features."""
        if max_words is None or len(self.spans) <= max_words:
            return self
        return _OriginalText(self.text, self.spans[:max_words], is_cut=True)


def _encode_spellings(
    original_texts: Sequence[_OriginalText],
    rows: Ints,
    editable_rows: Container[int],
    codes: Codes,
    values: Sequence[str],
) -> tuple[Spellings, Codes]:
    """Return codes for the distinct original words that differ from the vocabulary, and all texts in these codes.

    In a cut text the last word also carries the rest of the text. If the text may be explained, and edited, each word
    does.
    """
    spelled_codes = codes.copy()
    unknown, spelling_codes = len(values) - 1, dict[tuple[str, int, int, int], int]()
    vocabulary_codes, separators = list[int](), dict[str | None, int]({None: 0})  # None: the default separator
    for i in rows.tolist():
        words = original_texts[i].words
        plain = [values[code] for code in codes[i, : len(words)]]
        if original_texts[i].text == " ".join(plain) and unknown not in codes[i, : len(words)]:
            continue
        last = len(words)
        between = [
            0 if text == ("" if j in (0, last) else " ") else separators.setdefault(text, len(separators))
            for j, text in enumerate(original_texts[i].separators)
        ]
        remaining = 0
        if original_texts[i].is_cut and i in editable_rows:
            remaining, between[last] = between[last], 0
        for j, word in enumerate(words):
            around = (between[j], between[j + 1], remaining)
            if around == (0, 0, 0) and word == plain[j] and codes[i, j] != unknown:
                continue
            key = (word, *around)
            if key not in spelling_codes:
                spelling_codes[key] = len(values) + len(spelling_codes)
                vocabulary_codes.append(int(codes[i, j]))
            spelled_codes[i, j] = spelling_codes[key]
    before, after, remainder = (np.array([key[k] for key in spelling_codes], dtype=np.int32) for k in (1, 2, 3))
    return Spellings(
        first=len(values),
        words=tuple(key[0] for key in spelling_codes),
        vocabulary=np.array(vocabulary_codes, dtype=np.int32),
        before=before,
        after=after,
        remainder=remainder,
        separators=(" ", *(text for text in separators if text is not None)),
    ), spelled_codes


def count_longest_text(path: Path, text: str, columns: Sequence[str] | None, delimiter: str | None) -> int:
    """Return the number of words of the longest text in a column of a file."""
    table = _make_text_layout(columns, delimiter).read(path, [text])
    return max(len(_split_words(cell)) for cell in table.cells[text])


_SPAN_FINDERS: Mapping[str, Callable[[str], list[Span]]] = {"space": _find_tokens, "words": _find_words}
_NORMALIZERS: Mapping[str, Callable[[str], str]] = {"space": str, "words": str.lower}


def _encode_words(sentences: Sequence[list[str]], code_of: Mapping[str, int], unknown: int, width: int) -> Codes:
    """Return codes (n, width), ABSENT after the end of a sentence."""
    codes = np.full((len(sentences), width), ABSENT, dtype=np.int32)
    for i, words in enumerate(sentences):
        codes[i, : len(words)] = [code_of.get(word, unknown) for word in words[:width]]
    return codes
