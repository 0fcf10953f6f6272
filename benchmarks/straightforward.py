"""The evaluation as one would write it with the packages at hand: one instance after the other, in loops.

Definitions are those of cfeval, and so are the seeds, wherever the same random numbers can be drawn in this way.
Data and model are cfeval's own; everything that is put on top of them is here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, product

import numpy as np
import torch
from anchor.anchor_tabular import AnchorTabularExplainer
from anchor.anchor_text import AnchorText
from lime.lime_tabular import LimeTabularExplainer
from lime.lime_text import LimeTextExplainer
from scipy.stats import ConstantInputWarning, rankdata, spearmanr

from cfeval_cli.core import ABSENT
from cfeval_cli.core.client import embed_rows
from cfeval_cli.seeding import draw_seed, make_stream

MASK = "UNKWORDZ"  # for the packages that mask words in strings; no word of the vocabulary


@dataclass
class LoopProblem:
    """Instances, and the model in the forms that the packages need."""

    dataset: object
    model: object
    instances: object
    labels: np.ndarray  # predicted
    seed: int = 0

    def rows(self):
        return enumerate(zip(self.instances.codes, self.labels.tolist(), strict=True))

    def rng(self, component, i):
        return make_stream(self.seed, component, int(self.instances.ids[i]))

    def probability(self, row, label):
        """Of a label, for one row."""
        positive = float(self.model.predict_positive(row[None])[0])
        return positive if label == 1 else 1.0 - positive

    def label(self, row):
        return int(self.predict_labels(row[None])[0])

    def predict_labels(self, rows):
        return (self.model.predict_positive(rows) > 0.5).astype(int)

    def predict_both(self, rows):
        """Probabilities of both classes, from codes or from sentences."""
        positive = self.model.predict_positive(self.encode(rows))
        return np.column_stack([1 - positive, positive])

    def encode(self, rows):
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "if":
            return rows.astype(np.int32)
        codes = np.full((len(rows), self.dataset.n_features), ABSENT, dtype=np.int32)
        for i, sentence in enumerate(rows):
            words = sentence.split()
            codes[i, : len(words)] = [self.words.get(word, self.dataset.mask_code) for word in words]
        return codes

    @cached_property
    def words(self):
        return {word: code for code, word in enumerate(self.dataset.features[0].values)}

    @cached_property
    def effects(self):
        """w_j · e_j(v) of every value of every feature."""
        return [table @ weights for table, weights in zip(self.model.tables, self.model.weights, strict=True)]


class TorchModel:
    """The white box as its training has it: a torch module, without tables of effects made beforehand."""

    def __init__(self, model):
        sizes = [len(table) for table in model.tables]
        self.starts = torch.tensor(np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        self.table = torch.tensor(np.concatenate(model.tables))
        self.weights, self.bias = torch.tensor(model.weights), model.bias
        self.tables = model.tables  # to measure distances

    @torch.no_grad()
    def predict_positive(self, codes):
        vectors = torch.nn.functional.embedding(torch.as_tensor(codes) + self.starts, self.table)
        return torch.sigmoid((vectors * self.weights).sum(dim=(1, 2)) + self.bias).numpy()


# Explainers: for each instance a list of (feature, score), most important first.


def explain_at_random(problem):
    explanations = []
    for i, (row, _) in problem.rows():
        scores = problem.rng("explainer.random", i).random(len(row))
        explanations.append(sort_scores({j: scores[j] for j in list_present(row)}))
    return explanations


def explain_by_omission(problem):
    """The drop in p(ŷ) without a feature: averaged over its training distribution, or with the word masked."""
    dataset = problem.dataset
    explanations = []
    for _, (row, label) in problem.rows():
        original = problem.probability(row, label)
        drops = {}
        for j in list_present(row):
            if dataset.kind == "text":
                values, shares = np.array([dataset.mask_code]), np.ones(1)
            else:
                values = np.flatnonzero(dataset.frequencies[j])
                shares = dataset.frequencies[j][values]
            edited_rows = np.tile(row, (len(values), 1))
            edited_rows[:, j] = values
            drops[j] = original - float(shares @ problem.predict_both(edited_rows)[:, label])
        explanations.append(sort_scores(drops))
    return explanations


def explain_by_lime(problem):
    width, text = problem.dataset.n_features, problem.dataset.kind == "text"
    if text:
        package = LimeTextExplainer(bow=False, split_expression=r"\s+", feature_selection="none", mask_string=MASK)
    else:
        train = problem.dataset.train.codes.astype(float)
        package = LimeTabularExplainer(train, categorical_features=list(range(width)), feature_selection="none")
    explanations = []
    for i, (row, label) in problem.rows():
        seed = draw_seed(problem.rng("explainer.lime", i))
        package.random_state = package.base.random_state = np.random.RandomState(seed)
        instance = problem.instances.texts[i] if text else row.astype(float)
        explanation = package.explain_instance(
            instance, problem.predict_both, labels=(label,), num_features=width, num_samples=5000
        )
        explanations.append([(int(j), score) for j, score in explanation.local_exp[label]])
    return explanations


def compute_shap_values(problem, kernel, background):
    """The package's permutations, or its regression, one instance after the other: (n, M)."""
    import shap

    masker = shap.maskers.Independent(background, max_samples=len(background))
    explanations = []
    for i, (row, label) in problem.rows():

        def predict_label(rows, label=label):
            positive = problem.model.predict_positive(rows.astype(np.int32, copy=False))
            return positive if label == 1 else 1.0 - positive

        seed = draw_seed(problem.rng("explainer.shap_kernel" if kernel else "explainer.shap", i))
        if kernel:
            np.random.seed(seed)
            explanations.append(
                shap.KernelExplainer(predict_label, background).shap_values(row[None], l1_reg=0, silent=True)[0]
            )
            continue
        vary = int((background != row).any(axis=0).sum())
        package = shap.PermutationExplainer(predict_label, masker, seed=seed)
        explanations.append(package(row[None], max_evals=10 * (2 * vary + 1), silent=True).values[0])
    return np.array(explanations)


def explain_by_anchor(problem, shift=0):
    """Explain by Anchor; `shift` selects other random numbers."""
    dataset, text = problem.dataset, problem.dataset.kind == "text"
    classes = list(dataset.classes)
    if text:
        package = AnchorText(split_words, classes, use_unk_distribution=True, mask_string=MASK)
    else:
        names = {j: list(feature.values) for j, feature in enumerate(dataset.features)}
        columns = [feature.name for feature in dataset.features]
        package = AnchorTabularExplainer(classes, columns, dataset.train.codes, names)
    explanations = []
    for i, (row, _) in problem.rows():
        np.random.seed((draw_seed(problem.rng("explainer.anchor", i)) + shift) % 2**32)
        rule = package.explain_instance(
            problem.instances.texts[i] if text else row,
            lambda rows: problem.predict_labels(problem.encode(rows)),
            threshold=0.95,
            delta=0.1,
            tau=0.15,
            batch_size=100,
        )
        explanations.append([(int(j), p) for j, p in zip(rule.features(), rule.exp_map["precision"], strict=False)])
    return explanations


@dataclass
class WordToken:
    text: str
    idx: int


def split_words(text):
    """By white space, in the form that AnchorText expects of a language package."""
    tokens, at = [], 0
    for word in text.split():
        tokens.append(WordToken(word, at))
        at += len(word) + 1
    return tokens


def explain_by_decision_boundary(problem, n_samples=1000, n_neighbours=15):
    """Sample edits one by one, and explain by the flip with the fewest edited features."""
    model, alternatives = problem.model, make_value_lists(problem, n_neighbours)
    explanations = []
    for i, (row, label) in problem.rows():
        rng = problem.rng("explainer.decision_boundary", i)
        features = list_present(row)
        choices = {j: alternatives(j, int(row[j])) for j in features}
        samples = []
        for _ in range(n_samples):
            sample = row.copy()
            for j in rng.choice(features, rng.integers(1, len(features) + 1), replace=False):
                values, cumulative = choices[j]
                sample[j] = values[np.searchsorted(cumulative, rng.random(), side="right")]
            samples.append(sample)
        samples = np.array(samples)
        flips = [
            sample
            for sample, label_after in zip(samples, problem.predict_labels(samples), strict=True)
            if label_after != label
        ]
        if not flips:
            explanations.append([])
            continue
        fewest = min((flip != row).sum() for flip in flips)
        nearest = [flip for flip in flips if (flip != row).sum() == fewest]
        best = min(nearest, key=lambda flip: compute_distance(model, row, flip))
        original = problem.probability(row, label)
        drops = {}
        for j in np.flatnonzero(best != row).tolist():
            single_edit = row.copy()
            single_edit[j] = best[j]
            drops[j] = original - problem.probability(single_edit, label)
        explanations.append(sort_scores(drops))
    return explanations


def make_value_lists(problem, n_neighbours):
    """Return a function of feature and value that lists other values with their cumulative shares."""
    dataset, model = problem.dataset, problem.model

    def list_by_share(j, code):
        shares = dataset.frequencies[j].copy()
        shares[code] = 0.0
        values = np.flatnonzero(shares)
        cumulative = np.cumsum(shares[values])
        return values, cumulative / cumulative[-1]

    if dataset.kind != "text":
        return list_by_share
    words = np.array([code for code in range(len(model.tables[0])) if code != dataset.mask_code])
    vectors = model.tables[0][words]

    @cache
    def find_nearest(code):
        gaps = np.linalg.norm(vectors - model.tables[0][code], axis=1)
        gaps[words == code] = np.inf
        return words[np.argsort(gaps)[:n_neighbours]]

    def list_nearest(j, code):
        neighbours = find_nearest(code)
        return neighbours, np.arange(1, len(neighbours) + 1) / len(neighbours)

    return list_nearest


def explain_by_weights(problem):
    explanations = []
    for _, (row, label) in problem.rows():
        sign = 1.0 if label == 1 else -1.0
        explanations.append(sort_scores({j: sign * problem.effects[j][row[j]] for j in list_present(row)}))
    return explanations


def find_references(problem):
    """Return the reference attributions of each instance, by truth."""
    means = (problem.model.means * problem.model.weights).sum(axis=1)
    references = []
    for _, (row, label) in problem.rows():
        sign = 1.0 if label == 1 else -1.0
        reference = {"signed": {}, "shapley": {}, "contrast": {}, "absolute": {}}
        for j in list_present(row):
            effects = sign * problem.effects[j]
            effect = effects[row[j]]
            is_alternative = np.ones(len(effects), dtype=bool)
            is_alternative[row[j]] = False
            if problem.dataset.mask_code is not None:
                is_alternative[problem.dataset.mask_code] = False
            reference["signed"][j] = effect
            reference["shapley"][j] = effect - sign * means[j]
            reference["contrast"][j] = effect - effects[is_alternative].min()
            reference["absolute"][j] = abs(effect)
        references.append(reference)
    return references


# Searches: a counterfactual of one instance.


@dataclass
class Counterfactual:
    label: int
    distance: float
    probability: float | None = None  # of the label before; None with label access
    codes: np.ndarray | None = None


def find_largest_drop(problem, i, features):
    """Algorithm 1 with probabilities: one call of the model for each candidate."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    codes = tuple(row[features].tolist())
    lowest, best = None, None
    for values in product(*(problem.dataset.candidates[j].tolist() for j in features)):
        if values == codes:
            continue
        edited_row = row.copy()
        edited_row[features] = values
        key = problem.probability(edited_row, label), count_changes(values, codes)
        if lowest is None or key < lowest:
            lowest, best = key, edited_row
    return Counterfactual(problem.label(best), compute_distance(problem.model, row, best), lowest[0], best)


def find_first_flip(problem, i, features):
    """Algorithm 1 with labels: fewest changes first; a random candidate if none flips."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    codes = tuple(row[features].tolist())
    values = product(*(problem.dataset.candidates[j].tolist() for j in features))
    candidates = sorted((v for v in values if v != codes), key=lambda v: count_changes(v, codes))
    edited_row = row.copy()
    for candidate in candidates:
        edited_row[features] = candidate
        if problem.label(edited_row) != label:
            break
    else:
        edited_row[features] = candidates[problem.rng("search.label", i).integers(len(candidates))]
    return Counterfactual(problem.label(edited_row), (2.0 * (edited_row != row).sum()) ** 0.5, None, edited_row)


def minimise_objective(problem, search, i, features):
    """Algorithm 2 for one instance: all its starts in one small batch, gradients by torch."""
    model, label = problem.model, int(problem.labels[i])
    start = torch.tensor(embed_rows(model, problem.instances.codes[i : i + 1])[:, features])
    weights = torch.tensor(model.weights[features])
    constant = float(model.compute_logits(problem.instances.codes[i : i + 1])[0]) - float((start * weights).sum())

    def predict_label(vectors):
        positive = torch.sigmoid((vectors * weights).sum(dim=(1, 2)) + constant)
        return positive if label == 1 else 1.0 - positive

    def objective(vectors):
        return ((vectors - start) ** 2).sum(dim=(1, 2)) + search.alpha * predict_label(vectors)

    noise = problem.rng("search.gradient", i).normal(size=(search.restarts, *start.shape[1:]))
    vectors = start + search.start * search.alpha**0.5 * torch.tensor(noise)
    step = torch.full((search.restarts,), 0.25, dtype=torch.float64)
    for _ in range(search.steps):
        variable = vectors.clone().requires_grad_()
        value = objective(variable)
        (gradient,) = torch.autograd.grad(value.sum(), variable)
        squared_norm = (gradient**2).sum(dim=(1, 2))
        going = squared_norm.sqrt() > search.tolerance * search.alpha**0.5
        if not going.any():
            break
        with torch.no_grad():
            trial = vectors - step[:, None, None] * gradient
            lower = objective(trial) <= value - 0.1 * step * squared_norm
            vectors = torch.where((lower & going)[:, None, None], trial, vectors)
            step = torch.where(going, step * torch.where(lower, 1.5, 0.5), step)
    with torch.no_grad():
        best = objective(vectors).argmin()
        probability = float(predict_label(vectors)[best])
        gap = float(((vectors[best] - start[0]) ** 2).sum().sqrt())
    return Counterfactual(label if probability > 0.5 else 1 - label, gap, probability)


def search_counterfactuals(problem, search, i, features):
    """Search at each level of access."""
    if search.title == "cont.":
        return {"gradient": minimise_objective(problem, search, i, features)}
    return {"label": find_first_flip(problem, i, features), "probability": find_largest_drop(problem, i, features)}


# Metrics and correlations.


def compute_scores(problem, i, features, edits, reference, k):
    """Numerator and denominator of every metric for one instance."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    original = problem.probability(row, label)
    other_features = [j for j in list_present(row) if j not in features]
    results = {}
    for removal, value in (("del", ABSENT), ("mask", problem.dataset.mask_code)):
        if value is None:
            continue
        edited_row, complement_row = row.copy(), row.copy()
        edited_row[features], complement_row[other_features] = value, value
        results["comprehensiveness", removal] = original - problem.probability(edited_row, label), 1
        results["sufficiency", removal] = original - problem.probability(complement_row, label), 1
        if removal == "del":
            results["dfr", removal] = problem.label(edited_row) != label, 1
    for level, edit in edits.items():
        is_flip = edit.label != label
        results["validity", level] = is_flip, 1
        results["proximity", level] = edit.distance, 1
        results["c", level] = is_flip, edit.distance
        if edit.probability is not None:
            results["validity_soft", level] = original - edit.probability, 1
            results["c_soft", level] = original - edit.probability, edit.distance
    for definition, importance in reference.items():
        top_features = [j for j, _ in sort_scores(importance)[:k]]
        n_shared = len(set(top_features) & set(features))
        results["recall", definition] = n_shared / k, 1
        results["hit", definition] = n_shared > 0, 1
    return results


EXPLAINERS = {
    "random": explain_at_random,
    "omission": explain_by_omission,
    "lime": explain_by_lime,
    "anchor": explain_by_anchor,
    "decision_boundary": explain_by_decision_boundary,
    "lr": explain_by_weights,
}
LOWER = {"sufficiency", "proximity"}
TRUTHS = {"recall", "hit"}


def compute_run(dataset, model, instances, labels, search, k=1):
    """Tables of a whole run: (metric, variant) → explainer → value, rank; and τ, ρ of each against each truth."""
    problem = LoopProblem(dataset, model, instances, labels)
    reference = find_references(problem)
    values = {}
    for name, explainer in EXPLAINERS.items():
        sums = {}
        for i, explanation in enumerate(explainer(problem)):
            features = [j for j, _ in explanation[:k]]
            if len(features) < k:
                continue  # left out of this explainer's averages
            edits = search_counterfactuals(problem, search, i, features)
            for key, (numerator, denominator) in compute_scores(problem, i, features, edits, reference[i], k).items():
                sums_before = sums.get(key, (0.0, 0.0))
                sums[key] = sums_before[0] + numerator, sums_before[1] + denominator
        for key, (numerator, denominator) in sums.items():
            values.setdefault(key, {})[name] = numerator / denominator
    ranks = {key: rank_explainers(table, key[0]) for key, table in values.items()}
    agreement = {
        (*key, *truth): correlate(values[key], values[truth], key[0])
        for key, truth in product(values, values)
        if key[0] not in TRUTHS and truth[0] in TRUTHS
    }
    return {"values": values, "ranks": ranks, "agreement": agreement}


def rank_explainers(table, metric):
    sign = 1.0 if metric in LOWER else -1.0
    return dict(zip(table, rankdata([sign * round(value, 12) for value in table.values()]), strict=True))


def correlate(table, truth, metric):
    """τ by its definition, in which a tied pair counts for nothing (SciPy's corrects for ties), and ρ."""
    sign = -1.0 if metric in LOWER else 1.0
    pairs = [(sign * round(table[name], 12), round(truth[name], 12)) for name in table if name in truth]
    signs = [np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for a, b in combinations(pairs, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)  # ρ of a ranking that is all ties is not defined
        return float(np.mean(signs)), float(spearmanr(*zip(*pairs, strict=True)).statistic)


# Helpers.


def list_present(row):
    return [j for j, code in enumerate(row.tolist()) if code != ABSENT]


def sort_scores(scores):
    """Features by falling score, equal ones in the order of the features."""
    return sorted(scores.items(), key=lambda item: -item[1])


def count_changes(values, codes):
    return sum(a != b for a, b in zip(values, codes, strict=True))


def compute_distance(model, row, edited_row):
    """Euclidean, between embeddings; what did not change adds nothing."""
    gaps = [model.tables[j][edited_row[j]] - model.tables[j][row[j]] for j in np.flatnonzero(row != edited_row)]
    return float(np.sqrt(sum((gap**2).sum() for gap in gaps)))
