"""Explainers on texts: positions do not shift, and results equal those of the packages."""

from dataclasses import replace

import numpy as np
import pytest
from anchor.anchor_text import AnchorText
from lime.lime_text import LimeTextExplainer

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Batch, Dataset, Feature, Split
from cfeval_cli.core.client import apply_edits
from cfeval_cli.explainer.anchor import Anchor
from cfeval_cli.explainer.decision_boundary import DecisionBoundary
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.lr import Lr
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.explainer.random import Random
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.seeding import draw_seed, make_stream
from tests.problems import REMOVALS, TRUTHS, make_batch, open_client, predict_labels

WORDS = ("good", "n't", "--", "don't", "film", ".", ",", "bad", "it's", "the")
MASK = len(WORDS)
SENTENCES = [
    "the film is n't good .".replace("is", "the"),
    "good -- good , bad film",
    "don't , don't , the film",
    "it's the film",
    "bad",
]


def sentence_codes(width=8):
    codes = np.full((len(SENTENCES), width), ABSENT, dtype=np.int32)
    for i, sentence in enumerate(SENTENCES):
        codes[i, : len(sentence.split())] = [WORDS.index(w) for w in sentence.split()]
    return codes


def make_problem():
    rng = np.random.default_rng(0)
    codes = sentence_codes()
    split = Split(np.arange(len(codes)), codes, np.zeros(len(codes), int), tuple(SENTENCES))
    counts = np.bincount(codes[codes != ABSENT], minlength=MASK + 1).astype(float)
    width = codes.shape[1]
    table = rng.normal(size=(MASK + 1, 3))
    dataset = Dataset(
        name="toy",
        kind="text",
        features=tuple(Feature(f"token {j}", (*WORDS, "<unk>")) for j in range(width)),
        classes=("no", "yes"),
        train=split,
        validation=split,
        test=split,
        frequencies=(counts / counts.sum(),) * width,
        candidates=(np.arange(MASK, dtype=np.int32),) * width,
        mask_code=MASK,
    )
    weights = rng.normal(size=(width, 3))
    return dataset, LinearModel(0.1, weights, (table,) * width, np.zeros_like(weights))


DATASET, MODEL = make_problem()
ALL = [
    Random(),
    Omission(REMOVALS),
    Omission(REMOVALS, "zero"),
    Omission(REMOVALS, "marginal"),
    Lime(n_samples=200),
    Anchor(),
    DecisionBoundary(),
    Lr(TRUTHS["signed"]),
]


def batch(seed=3):
    return make_batch(DATASET, MODEL, seed, "explainer.x")


def from_strings(texts):
    """The model for a package that reads only strings."""
    codes = np.full((len(texts), 8), ABSENT, dtype=np.int32)
    for i, text in enumerate(texts):
        tokens = text.split()
        codes[i, : len(tokens)] = [WORDS.index(t) if t in WORDS else MASK for t in tokens]
    return codes


@pytest.mark.parametrize("explainer", ALL, ids=str)
def test_repeated_words_are_separate_features(explainer):
    explanation = explainer.fit(DATASET, open_client(MODEL, explainer.access))(batch())
    for selected, row in zip(explanation.features, DATASET.test.codes, strict=True):
        selected = selected[selected != NO_FEATURE]
        assert len(set(selected)) == len(selected) and (row[selected] != ABSENT).all()
    if not isinstance(explainer, Anchor | DecisionBoundary):
        assert set(explanation.features[1][explanation.features[1] != NO_FEATURE]) == set(range(6))  # "good" twice


@pytest.mark.parametrize("explainer", ALL, ids=str)
def test_removed_words_do_not_shift_the_others(explainer):
    """Every row that an explainer evaluates has a word or the mask at each token, and the original padding."""
    received_codes = []

    class RowRecordingModel(LinearModel):
        def predict_positive(self, codes):
            received_codes.append(codes)
            return super().predict_positive(codes)

        def predict_edited(self, codes, features, rows, values):
            received_codes.append(apply_edits(codes, features, rows, values))
            return super().predict_edited(codes, features, rows, values)

    spy = RowRecordingModel(MODEL.bias, MODEL.weights, MODEL.tables, MODEL.means)
    function = explainer.fit(DATASET, open_client(spy, explainer.access))
    for i in range(len(SENTENCES)):
        received_codes.clear()
        first = batch()
        function(make_batch(DATASET, MODEL, 3, "explainer.x", slice(i, i + 1)))
        assert received_codes or isinstance(explainer, Random | Lr)
        for rows in received_codes:
            assert ((rows == ABSENT) >= (first.codes[i] == ABSENT)).all()
            if not isinstance(explainer, Omission):
                assert ((rows == ABSENT) == (first.codes[i] == ABSENT)).all()
            if isinstance(explainer, Lime | Anchor):
                assert ((rows == first.codes[i]) | (rows == MASK)).all()


def test_lime_gives_the_coefficients_of_the_package_on_strings():
    explanation = Lime(n_samples=400, kernel_width=20.0).fit(DATASET, open_client(MODEL))(batch())
    for i, sentence in enumerate(SENTENCES):
        label = int(batch().predicted_classes[i])
        package = LimeTextExplainer(
            bow=False, split_expression=r"\s+", mask_string="UNKWORDZ", feature_selection="none", kernel_width=20.0,
            random_state=draw_seed(make_stream(3, "explainer.x", i)),
        )  # fmt: skip

        def proba(texts):
            return MODEL.predict_proba(from_strings(texts))

        expected = package.explain_instance(sentence, proba, labels=(label,), num_features=99, num_samples=400)
        selected = explanation.features[i][explanation.features[i] != NO_FEATURE]
        own_values = dict(zip(selected.tolist(), explanation.scores[i], strict=False))
        assert own_values == pytest.approx({int(j): w for j, w in expected.local_exp[label]}, abs=1e-8)


class Token:
    def __init__(self, text, idx):
        self.text, self.idx = text, idx


def test_anchor_finds_the_rules_that_the_package_finds_on_strings():
    """The random numbers differ, so the rules are compared as sets over many seeds."""

    def nlp(text):
        tokens, at = [], 0
        for word in text.split():
            tokens.append(Token(word, at))
            at += len(word) + 1
        return tokens

    package = AnchorText(nlp, ["no", "yes"], use_unk_distribution=True, mask_string="UNKWORDZ")
    # the package sets room aside for 10,000 batches each time: small ones
    told_by = [Anchor(batch_size=10).fit(DATASET, open_client(MODEL, Access.LABEL))(batch(seed)) for seed in range(10)]
    for i in (0, 1, 2):
        own_values, package_values = {}, {}
        for seed, explanation in enumerate(told_by):
            rule = frozenset(explanation.features[i][explanation.features[i] != NO_FEATURE].tolist())
            own_values[rule] = own_values.get(rule, 0) + 1
            np.random.seed(seed)  # noqa: NPY002
            result = package.explain_instance(
                SENTENCES[i], lambda t: predict_labels(MODEL, from_strings(t)), batch_size=10
            )
            rule = frozenset(result.features())
            package_values[rule] = package_values.get(rule, 0) + 1
        overlap = sum(min(own_values.get(rule, 0), package_values.get(rule, 0)) for rule in own_values | package_values)
        assert overlap >= 8 and frozenset() not in package_values, (i, own_values, package_values)


def test_decision_boundary_exchanges_words_for_their_nearest_neighbours():
    explainer = DecisionBoundary(n_samples=300, n_neighbours=2)
    received_codes = []

    class SampleRecordingModel(LinearModel):
        def predict_positive(self, codes):
            if len(codes) in (300, 2000):  # the samples
                received_codes.append(codes)
            return super().predict_positive(codes)

    spy = SampleRecordingModel(MODEL.bias, MODEL.weights, MODEL.tables, MODEL.means)
    explainer.fit(DATASET, open_client(spy, explainer.access))(batch())
    table = MODEL.tables[0]
    for row, samples in zip(DATASET.test.codes, received_codes, strict=True):
        for j, own in enumerate(row):
            if own == ABSENT:
                continue
            gaps = [np.inf if w == own else np.linalg.norm(table[w] - table[own]) for w in range(MASK)]
            near = set(np.argsort(gaps)[:2].tolist())
            assert set(samples[:, j].tolist()) - {int(own)} == near
    received_codes.clear()
    all_words = DecisionBoundary(n_samples=2000, n_neighbours=99, max_edits=1)  # more than there are words
    all_words.fit(DATASET, open_client(spy, all_words.access))(batch())
    for row, samples in zip(DATASET.test.codes, received_codes, strict=True):
        assert ((samples != row).sum(axis=1) == 1).all()  # a word is never its own neighbour
        assert set(samples[:, 0].tolist()) | {int(row[0])} == set(range(MASK))


def test_texts_of_unknown_words_or_of_one_word_are_explained():
    codes = np.full((2, 8), ABSENT, dtype=np.int32)
    codes[0, :3], codes[1, 0] = MASK, 2
    joined_pair = Batch(np.arange(2), codes, predict_labels(MODEL, codes), seed=0, component="x")
    for explainer in ALL:
        explanation = explainer.fit(replace(DATASET), open_client(MODEL, explainer.access))(joined_pair)
        assert set(explanation.features[1][explanation.features[1] != NO_FEATURE].tolist()) <= {0}
        assert set(explanation.features[0][explanation.features[0] != NO_FEATURE].tolist()) <= {0, 1, 2}
        if not isinstance(explainer, Anchor | DecisionBoundary):
            assert (explanation.features[0] != NO_FEATURE).sum() == 3
