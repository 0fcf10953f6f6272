import csv
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT
from cfeval_cli.dataset.glove import Glove
from cfeval_cli.dataset.sources import DataFile
from cfeval_cli.dataset.text import Lines, Text, TextTable, _encode_words, _split_words
from cfeval_cli.errors import UserError

WORDS = ["a", "good", "bad", "film", "is", "it's", "--", "don't", ",", ".", "plot", "n't", "great", "dull"]
SENTENCES = [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 3 + i % 5)) for i in range(40)]


def write_corpus(folder, negative=None, positive=None):
    (folder / "neg").write_bytes("\n".join(negative or SENTENCES[:20]).encode() + b"\n")
    (folder / "pos").write_bytes("\n".join(positive or SENTENCES[20:]).encode() + b"\n")
    (folder / "glove.txt").write_text("".join(f"{w} {i}.5 {-i} 0.25\n" for i, w in enumerate(WORDS[:-2])))


def make_text_dataset(folder, **changes):
    settings = {
        "name": "toy",
        "corpora": [
            Lines(DataFile("neg"), DataFile("pos"), 40),
            TextTable(DataFile("all.csv"), "mine", 30, latin=True),
        ],
        "embedding": Glove(DataFile("t.npy"), DataFile("i.parquet"), "small", str(folder / "glove.txt")),
        "classes": ["negative", "positive"],
    }
    return Text(**{**settings, **changes})


def test_sentences_are_encoded_and_padded_to_the_longest(tmp_path):
    write_corpus(tmp_path)
    data = make_text_dataset(tmp_path).load(tmp_path, 0)
    assert data.kind == "text" and data.n_features == max(len(s.split()) for s in SENTENCES)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [32, 4, 4]
    words = data.features[0].values
    assert all(feature.values is words for feature in data.features) and words[data.mask] == "<unk>"
    training = {word for i in data.train.ids for word in SENTENCES[i].split()}
    assert set(words) == training | {"<unk>"}
    for split in (data.train, data.validation, data.test):
        for i, codes, text, label in zip(split.ids, split.codes, split.texts, split.labels, strict=True):
            tokens = SENTENCES[i].split()
            assert text == SENTENCES[i] and label == int(i >= 20)
            assert [words[c] for c in codes[: len(tokens)]] == [t if t in training else "<unk>" for t in tokens]
            assert (codes[len(tokens) :] == ABSENT).all()


def test_vocabulary_is_sorted_by_frequency_and_candidates_are_the_most_frequent(tmp_path):
    write_corpus(tmp_path)
    data = make_text_dataset(tmp_path, search_words=3).load(tmp_path, 0)
    tokens = [word for i in data.train.ids for word in SENTENCES[i].split()]
    counts = [tokens.count(word) for word in data.features[0].values[:-1]]
    assert counts == sorted(counts, reverse=True)
    assert data.frequencies[0] == pytest.approx(np.array([*counts, 0]) / len(tokens))
    assert data.candidates[0].tolist() == [0, 1, 2]
    assert len(make_text_dataset(tmp_path).load(tmp_path, 0).candidates[0]) == len(counts)  # never the mask


def test_word_vectors_come_from_the_file_and_unknown_words_get_their_mean(tmp_path):
    write_corpus(tmp_path)
    data = make_text_dataset(tmp_path).load(tmp_path, 0)
    mean = np.mean([[i + 0.5, -i, 0.25] for i in range(len(WORDS) - 2)], axis=0)
    for word, vector in zip(data.features[0].values, data.pretrained, strict=True):
        i = WORDS.index(word) if word in WORDS else 99
        assert vector == pytest.approx([i + 0.5, -i, 0.25] if i < len(WORDS) - 2 else mean)


def test_empty_and_undecodable_lines_are_left_out(tmp_path):
    write_corpus(tmp_path)
    odd = [b"caf\xe9 bad", b"", b"  ", b"dull", "naïve film".encode(), "next\x85line".encode("latin-1")]
    (tmp_path / "neg").write_bytes(b"\n".join([*odd, *(s.encode() for s in SENTENCES[:20])]) + b"\n")
    data = make_text_dataset(tmp_path).load(tmp_path, 0)
    texts = [t for split in (data.train, data.validation, data.test) for t in split.texts]
    assert len(texts) == 42 and "dull" in texts and "naïve film" in texts
    assert (data.origin["rows_read"], data.origin["rows_used"]) == (46, 42) and data.origin["complete"]


def test_partial_corpus_is_used_with_a_warning_if_no_complete_one_is_available(tmp_path, caplog):
    write_corpus(tmp_path)
    with (tmp_path / "all.csv").open("w", newline="") as output_path:
        table = csv.writer(output_path)
        table.writerow(["text", "label", "source"])
        for i, sentence in enumerate(SENTENCES[5:35]):
            table.writerow([f" {sentence} ", int(i >= 15), "mine"])
            table.writerow(["something else", 1, "other"])
        table.writerow(["caf\xe9", 1, "mine"])  # was not UTF-8 in the original
    assert make_text_dataset(tmp_path).load(tmp_path, 0).origin["complete"]
    (tmp_path / "neg").unlink()
    data = make_text_dataset(tmp_path).load(tmp_path, 0)
    assert not data.origin["complete"]
    assert (data.origin["rows_used"], data.origin["rows_read"], data.origin["rows_whole"]) == (30, 31, 40)
    assert "an incomplete copy, 31 of 40 sentences; put neg and pos into" in caplog.text
    assert [f.path.name for f in make_text_dataset(tmp_path).fetch(tmp_path)] == ["all.csv"]
    (tmp_path / "all.csv").unlink()
    with pytest.raises(UserError, match="neg is not in the data folder"):
        make_text_dataset(tmp_path).load(tmp_path, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 1 2\n", r"glove\.txt, line 2: expected a word and 3 numbers"),
        ("a 1 2 3\nb 1 x 3\n", "line 2"),
        ("a 1 2 3\nb 1 nan 3\n", "line 2"),
        ("a 1 2 3\n\n", "line 2"),
        ("justaword\n", "line 1"),
        ("400000 3\na 1 2 3\n", "line 1: .*without a header"),
        ("a 1 2 3\ngood 1 2 3 4\n", "line 2: expected a word and 3 numbers"),
        ("a 1 2 3\nb 1 1e200 3\n", "line 2"),
        ("a\t1\t2\n", "separated by single spaces"),
        ("nothing 1 2\nof 1 2\nours 1 2\n", "has none of the"),
        ("", "has no vectors"),
        (b"a 1 2\n\xff 1 2\n", "not UTF-8"),
    ],
)
def test_invalid_line_of_a_vector_file_is_reported(tmp_path, text, message):
    write_corpus(tmp_path)
    (tmp_path / "glove.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        make_text_dataset(tmp_path).load(tmp_path, 0)


def test_words_of_vector_files_may_contain_spaces_or_be_numbers(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "glove.txt").write_text("a 1 2 3\n. . . 4 5 6\n1984 7 8 9\n")
    data = make_text_dataset(tmp_path).load(tmp_path, 0)
    assert data.pretrained[-1] == pytest.approx([4, 5, 6])
    assert data.origin["embedding"]["words"] == 1 and data.origin["embedding"]["dim"] == 3
    assert len(data.origin["embedding"]["sha256"]) == 64


def test_damaged_file_is_reported_although_another_corpus_is_available(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "all.csv").write_text("text,label,source\n")
    damaged = [Lines(DataFile("neg", "0" * 64), DataFile("pos"), 40), TextTable(DataFile("all.csv"), "mine", 30)]
    with pytest.raises(UserError, match="neg is partial, damaged or changed"):
        make_text_dataset(tmp_path, corpora=damaged).load(tmp_path, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"text,source\na,mine\n", "has no column label"),
        (b"text,label,source\na,2,mine\n", "line 2: expected a label of 0 or 1, not '2'"),
        (b"text,label,source\n\xff,1,mine\n", "not UTF-8"),
        (b'text,label,source\n"a,1,mine\n', r"line \d"),
    ],
)
def test_invalid_table_of_sentences_is_reported(tmp_path, body, message):
    write_corpus(tmp_path)
    (tmp_path / "all.csv").write_bytes(body)
    with pytest.raises(UserError, match=message):
        make_text_dataset(tmp_path, corpora=[TextTable(DataFile("all.csv"), "mine", 1)]).load(tmp_path, 0)


def test_missing_vector_file_is_reported_with_its_key(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "glove.txt").unlink()
    with pytest.raises(UserError, match=r"dataset\.embedding\.path=.*cannot be read"):
        make_text_dataset(tmp_path).load(tmp_path, 0)


def test_packaged_vectors_equal_those_of_a_text_file(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    write_corpus(tmp_path)
    table = np.array([[i + 0.5, -i, 0.25] for i in range(len(WORDS) - 2)], dtype=np.float32)
    np.save(tmp_path / "t.npy", table)
    pa.parquet.write_table(pa.table({"index": WORDS[:-2]}), tmp_path / "i.parquet")
    packaged = Glove(DataFile("t.npy"), DataFile("i.parquet"), "small")
    vectors = make_text_dataset(tmp_path, embedding=packaged).load(tmp_path, 0).pretrained
    assert vectors == pytest.approx(make_text_dataset(tmp_path).load(tmp_path, 0).pretrained)
    (tmp_path / "i.parquet").write_text("not a table")
    with pytest.raises(UserError, match=r"i\.parquet is not a valid index of words"):
        make_text_dataset(tmp_path, embedding=packaged).load(tmp_path, 0)
    pa.parquet.write_table(pa.table({"index": WORDS[:-2]}), tmp_path / "i.parquet")
    np.save(tmp_path / "t.npy", table[:-1])
    with pytest.raises(UserError, match="names 12 words"):
        make_text_dataset(tmp_path, embedding=packaged).load(tmp_path, 0)


@given(st.lists(st.lists(st.sampled_from([*WORDS, "other"]), min_size=1, max_size=6), min_size=1, max_size=8))
def test_sentences_are_encoded_word_by_word(sentences):
    code = {word: i for i, word in enumerate(WORDS)}
    codes = _encode_words(sentences, code, 99, max(map(len, sentences)))
    for row, words in zip(codes.tolist(), sentences, strict=True):
        assert [c for c in row if c != ABSENT] == [code.get(word, 99) for word in words]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"search_words": 0}, "search_words"),
        ({"classes": ["a"]}, "classes"),
        ({"classes": ["a", "a"]}, "classes"),
        ({"split": [1, 0, 0]}, "split"),
        ({"tokens": "letters"}, "tokens must be one of space, words"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"sample": 0}, "sample"),
    ],
)
def test_invalid_settings_are_reported(tmp_path, changes, key):
    with pytest.raises(ValueError, match=key):
        make_text_dataset(tmp_path, **changes)


def test_too_few_sentences_and_missing_classes_are_reported(tmp_path):
    write_corpus(tmp_path, ["a"], ["b"])
    with pytest.raises(UserError, match="too few"):
        make_text_dataset(tmp_path).load(tmp_path, 0)
    write_corpus(tmp_path, SENTENCES, [""])
    with pytest.raises(UserError, match="both classes"):
        make_text_dataset(tmp_path).load(tmp_path, 0)


def write_table(folder, file_format, rows, **names):
    """A file of texts and labels, as pandas writes it."""
    frame = pd.DataFrame(rows, columns=["label", "text"]).rename(columns=names)
    if file_format == "parquet":
        frame.to_parquet(folder / "mine.any")
    else:
        frame.to_csv(folder / "mine.any", sep={"csv": ",", "tsv": "\t", "semicolons": ";"}[file_format], index=False)


@pytest.mark.parametrize("file_format", ["csv", "tsv", "semicolons", "parquet"])
def test_one_file_of_texts_and_labels_suffices_and_accents_are_preserved(tmp_path, file_format):
    moods = ["schön, naïve", "café; très bien", "東京 is good", 'a "bad"\tfilm', "dull"]
    rows = [("good" if i % 2 else "bad", f"{moods[i % 5]} {WORDS[i % 7]}") for i in range(40)]
    write_table(tmp_path, file_format, rows, text="review")
    corpus = TextTable(DataFile("mine.any"), text="review", labels=["bad", "good"])
    data = Text("mine", [corpus], ["negative", "positive"]).load(tmp_path, 0)
    assert data.pretrained is None and data.origin["rows_used"] == data.origin["rows_whole"] == 40
    for split in (data.train, data.validation, data.test):
        assert list(split.texts) == [rows[i][1] for i in split.ids]
        assert split.labels.tolist() == [i % 2 for i in split.ids]
    assert {"schön,", "café;", "東京", "naïve"} <= set(data.features[0].values)
    assert "embedding" not in data.origin and data.features[0].kind == "token"


def test_three_classes_are_read_and_mismatched_labels_reported(tmp_path):
    rows = [(i % 3 + 1, WORDS[i % 9]) for i in range(30)]
    write_table(tmp_path, "csv", rows)
    three = Text("mine", [TextTable(DataFile("mine.any"), labels=["1", 2.0, 3])], ["a", "b", "c"]).load(tmp_path, 0)
    assert three.classes == ("a", "b", "c")
    assert three.train.labels.tolist() == [i % 3 for i in three.train.ids]
    with pytest.raises(UserError, match=r"labels has more values than dataset\.classes"):
        Text("mine", [TextTable(DataFile("mine.any"), labels=[1, 2, 3])], ["a", "b"]).load(tmp_path, 0)
    with pytest.raises(UserError, match="sentences of all classes are needed, and there are none of d"):
        Text("mine", [TextTable(DataFile("mine.any"), labels=[1, 2, 3, 4])], ["a", "b", "c", "d"]).load(tmp_path, 0)
    with pytest.raises(UserError, match=r"mine\.any, line 4: expected a label of 1 or 2, not '3'"):
        Text("mine", [TextTable(DataFile("mine.any"), labels=[1, 2])], ["a", "b"]).load(tmp_path, 0)


@given(st.text(alphabet="aÉz9' ’_-.,!\t\n", max_size=40))
def test_words_are_lower_case_and_punctuation_is_separate(text):
    """Sign by sign, without a pattern."""
    words, last = [], ""
    for i, sign in enumerate(text.lower() + " "):
        following = (text.lower() + " ")[i + 1 : i + 2]
        joins = sign in "'’" and last and following.isalnum()
        if sign.isalnum() or joins:
            last += sign
            continue
        words += [last] if last else []
        words += [] if sign.isspace() else [sign]
        last = ""
    assert _split_words(text) == words


def test_texts_are_cut_and_sampled_by_the_seed(tmp_path):
    write_table(tmp_path, "csv", [(i % 2, f"<br />{'word ' * (i % 7)}No. {i}<br/>") for i in range(60)])
    result_of_all = Text("mine", [TextTable(DataFile("mine.any"))], ["a", "b"], tokens="words")
    part = replace(result_of_all, max_tokens=3, sample=20)
    data, repetition, other = (part.load(tmp_path, seed) for seed in (0, 0, 1))
    ids = np.sort(np.concatenate([split.ids for split in (data.train, data.validation, data.test)]))
    assert (
        len(set(ids)) == 20 and data.n_features == 3 and data.fingerprint == repetition.fingerprint != other.fingerprint
    )
    assert (data.origin["rows_read"], data.origin["rows_used"]) == (60, 20)
    for i, text, words in zip(data.train.ids, data.train.texts, data.split_words(data.train), strict=True):
        assert text == f"<br />{'word ' * (i % 7)}No. {i}<br/>"
        assert words == [*["word"] * (i % 7), "No", ".", str(i)][:3]
    all_texts = result_of_all.load(tmp_path, 0)
    assert all_texts.n_features == 9 and all_texts.origin["rows_used"] == 60


ORIGINALS = [
    "  Good   film!! It's\ta JOY.",
    "good film , it's a joy .",
    "Dull<br /><br />plot -- (Zyzzyva) naïve ",
    "İstanbul: dull plot",
]


def write_originals(folder):
    rows = [(f"{text} {word}" if i % 3 else text, i % 2) for i, word in enumerate(WORDS) for text in ORIGINALS]
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(folder / "own.csv", index=False)
    return [text for text, _ in rows]


@pytest.mark.parametrize("tokens", ["space", "words"])
def test_with_spellings_decode_restores_every_original_text(tmp_path, tokens):
    texts = write_originals(tmp_path)
    data = make_text_dataset(tmp_path, corpora=[TextTable(DataFile("own.csv"))], embedding=None, tokens=tokens).load(
        tmp_path, 0
    )
    spelled = data.restore_spellings()
    for before, split in zip(
        (data.train, data.validation, data.test), (spelled.train, spelled.validation, spelled.test), strict=True
    ):
        assert list(split.texts) == [texts[i] for i in split.ids]
        assert spelled.decode(split.codes) == list(split.texts)
        for words, text, codes in zip(data.split_words(split), split.texts, before.codes, strict=True):
            assert len(words) == (codes != ABSENT).sum() and all(word in text for word in words)
    # what searches and removals draw from is the vocabulary, as before
    assert spelled.get_values(0).tolist() == data.get_values(0).tolist()
    assert spelled.candidates is data.candidates and spelled.mask == data.mask
    assert np.flatnonzero(spelled.frequencies[0]).tolist() == np.flatnonzero(data.frequencies[0]).tolist()
    assert spelled.restore_spellings() is spelled


def test_edit_preserves_the_rest_of_the_text(tmp_path):
    texts = write_originals(tmp_path)
    data = make_text_dataset(tmp_path, corpora=[TextTable(DataFile("own.csv"))], embedding=None, tokens="words").load(
        tmp_path, 0
    )
    spelled = data.restore_spellings()
    i = next(i for i, row in enumerate(spelled.train.ids) if texts[row] == ORIGINALS[0])
    codes = spelled.train.codes[i].copy()
    words = data.split_words(spelled.train)[i]
    assert words == ["Good", "film", "!", "!", "It's", "a", "JOY", "."]
    for place, text in [
        (1, "  Good   <unk>!! It's\ta JOY."),
        (3, "  Good   film!<unk> It's\ta JOY."),
        (5, "  Good   film!! It's\t<unk> JOY."),
        (6, "  Good   film!! It's\ta <unk>."),
    ]:
        edited = codes.copy()
        edited[place] = spelled.mask
        assert spelled.decode(edited[None]) == [text]


def test_words_after_max_tokens_are_no_features_but_stay_in_the_text(tmp_path, caplog):
    texts = write_originals(tmp_path)
    settings = {"corpora": [TextTable(DataFile("own.csv"))], "embedding": None, "tokens": "words", "max_tokens": 3}
    plain = make_text_dataset(tmp_path, **settings).load(tmp_path, 0)
    (message,) = caplog.messages
    n_cut = sum(len(_split_words(text)) > 3 for text in texts)
    assert f"{n_cut} of {len(texts)} texts have more than max_tokens=3 words" in message and "never features" in message
    data = plain.restore_spellings()
    assert data.n_features == 3
    for split in (data.train, data.validation, data.test):
        assert list(split.texts) == [texts[i] for i in split.ids] == data.decode(split.codes)
    # whichever words are replaced, the rest of an explained text stays
    for codes, text in zip(data.test.codes, data.test.texts, strict=True):
        begins = ("  Good   film!", "good film ,", "Dull<br /><br />plot -", "İstanbul: dull")
        (remainder,) = (text.removeprefix(three) for three in begins if text.startswith(three))
        for edited in product([False, True], repeat=3):
            row = np.where(edited, data.mask, codes)
            (decoded,) = data.decode(row[None])
            assert all(edited) or decoded.endswith(remainder)
            assert decoded.count("<unk>") == sum(edited)
