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
class Problem:
    """Instances to be explained, and the model as the packages want to see it."""

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
        return int(self.labelled(row[None])[0])

    def labelled(self, rows):
        return (self.model.predict_positive(rows) > 0.5).astype(int)

    def both(self, rows):
        """Probabilities of both classes, from codes or from sentences."""
        positive = self.model.predict_positive(self.encoded(rows))
        return np.column_stack([1 - positive, positive])

    def encoded(self, rows):
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


class Module:
    """The white box as its training has it: a torch module, without tables of effects made beforehand."""

    def __init__(self, model):
        sizes = [len(table) for table in model.tables]
        self.starts = torch.tensor(np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        self.table = torch.tensor(np.concatenate(model.tables))
        self.weights, self.bias = torch.tensor(model.weights), model.bias
        self.tables = model.tables  # to measure distances

    @torch.no_grad()
    def positive(self, codes):
        vectors = torch.nn.functional.embedding(torch.as_tensor(codes) + self.starts, self.table)
        return torch.sigmoid((vectors * self.weights).sum(dim=(1, 2)) + self.bias).numpy()


# Explainers: for each instance a list of (feature, score), most important first.


def random(problem):
    told = []
    for i, (row, _) in problem.rows():
        scores = problem.rng("explainer.random", i).random(len(row))
        told.append(ranked({j: scores[j] for j in present(row)}))
    return told


def omission(problem):
    """The drop in p(ŷ) without a feature: averaged over its training distribution, or with the word masked."""
    dataset = problem.dataset
    told = []
    for _, (row, label) in problem.rows():
        before = problem.probability(row, label)
        drops = {}
        for j in present(row):
            if dataset.kind == "text":
                values, shares = np.array([dataset.mask_code]), np.ones(1)
            else:
                values = np.flatnonzero(dataset.frequencies[j])
                shares = dataset.frequencies[j][values]
            without = np.tile(row, (len(values), 1))
            without[:, j] = values
            drops[j] = before - float(shares @ problem.both(without)[:, label])
        told.append(ranked(drops))
    return told


def lime(problem):
    width, text = problem.dataset.n_features, problem.dataset.kind == "text"
    if text:
        package = LimeTextExplainer(bow=False, split_expression=r"\s+", feature_selection="none", mask_string=MASK)
    else:
        train = problem.dataset.train.codes.astype(float)
        package = LimeTabularExplainer(train, categorical_features=list(range(width)), feature_selection="none")
    told = []
    for i, (row, label) in problem.rows():
        seed = draw_seed(problem.rng("explainer.lime", i))
        package.random_state = package.base.random_state = np.random.RandomState(seed)
        instance = problem.instances.texts[i] if text else row.astype(float)
        found = package.explain_instance(instance, problem.both, labels=(label,), num_features=width, num_samples=5000)
        told.append([(int(j), score) for j, score in found.local_exp[label]])
    return told


def shap_values(problem, kernel, background):
    """The package's permutations, or its regression, one instance after the other: (n, M)."""
    import shap

    masker = shap.maskers.Independent(background, max_samples=len(background))
    told = []
    for i, (row, label) in problem.rows():

        def kept(rows, label=label):
            positive = problem.model.predict_positive(rows.astype(np.int32, copy=False))
            return positive if label == 1 else 1.0 - positive

        seed = draw_seed(problem.rng("explainer.shap_kernel" if kernel else "explainer.shap", i))
        if kernel:
            np.random.seed(seed)
            told.append(shap.KernelExplainer(kept, background).shap_values(row[None], l1_reg=0, silent=True)[0])
            continue
        vary = int((background != row).any(axis=0).sum())
        package = shap.PermutationExplainer(kept, masker, seed=seed)
        told.append(package(row[None], max_evals=10 * (2 * vary + 1), silent=True).values[0])
    return np.array(told)


def anchor(problem, shift=0):
    """`shift` gives other random numbers."""
    dataset, text = problem.dataset, problem.dataset.kind == "text"
    classes = list(dataset.classes)
    if text:
        package = AnchorText(split, classes, use_unk_distribution=True, mask_string=MASK)
    else:
        names = {j: list(feature.values) for j, feature in enumerate(dataset.features)}
        columns = [feature.name for feature in dataset.features]
        package = AnchorTabularExplainer(classes, columns, dataset.train.codes, names)
    told = []
    for i, (row, _) in problem.rows():
        np.random.seed((draw_seed(problem.rng("explainer.anchor", i)) + shift) % 2**32)
        rule = package.explain_instance(
            problem.instances.texts[i] if text else row,
            lambda rows: problem.labelled(problem.encoded(rows)),
            threshold=0.95,
            delta=0.1,
            tau=0.15,
            batch_size=100,
        )
        told.append([(int(j), p) for j, p in zip(rule.features(), rule.exp_map["precision"], strict=False)])
    return told


@dataclass
class Token:
    text: str
    idx: int


def split(text):
    """By white space, in the form that AnchorText expects of a language package."""
    tokens, at = [], 0
    for word in text.split():
        tokens.append(Token(word, at))
        at += len(word) + 1
    return tokens


def decision_boundary(problem, n_samples=1000, n_neighbours=15):
    """Sample edits one by one, and explain by the flip with the fewest edited features."""
    model, others = problem.model, other_values(problem, n_neighbours)
    told = []
    for i, (row, label) in problem.rows():
        rng = problem.rng("explainer.decision_boundary", i)
        there = present(row)
        choices = {j: others(j, int(row[j])) for j in there}
        samples = []
        for _ in range(n_samples):
            sample = row.copy()
            for j in rng.choice(there, rng.integers(1, len(there) + 1), replace=False):
                values, cumulative = choices[j]
                sample[j] = values[np.searchsorted(cumulative, rng.random(), side="right")]
            samples.append(sample)
        samples = np.array(samples)
        flips = [sample for sample, new in zip(samples, problem.labelled(samples), strict=True) if new != label]
        if not flips:
            told.append([])
            continue
        fewest = min((flip != row).sum() for flip in flips)
        nearest = [flip for flip in flips if (flip != row).sum() == fewest]
        best = min(nearest, key=lambda flip: distance(model, row, flip))
        before = problem.probability(row, label)
        drops = {}
        for j in np.flatnonzero(best != row).tolist():
            alone = row.copy()
            alone[j] = best[j]
            drops[j] = before - problem.probability(alone, label)
        told.append(ranked(drops))
    return told


def other_values(problem, n_neighbours):
    """A function of feature and value: what it may be exchanged for, and the cumulative shares."""
    dataset, model = problem.dataset, problem.model

    def drawn(j, own):
        shares = dataset.frequencies[j].copy()
        shares[own] = 0.0
        values = np.flatnonzero(shares)
        cumulative = np.cumsum(shares[values])
        return values, cumulative / cumulative[-1]

    if dataset.kind != "text":
        return drawn
    words = np.array([code for code in range(len(model.tables[0])) if code != dataset.mask_code])
    vectors = model.tables[0][words]

    @cache
    def nearest(own):
        gaps = np.linalg.norm(vectors - model.tables[0][own], axis=1)
        gaps[words == own] = np.inf
        return words[np.argsort(gaps)[:n_neighbours]]

    def near(j, own):
        found = nearest(own)
        return found, np.arange(1, len(found) + 1) / len(found)

    return near


def lr(problem):
    told = []
    for _, (row, label) in problem.rows():
        sign = 1.0 if label == 1 else -1.0
        told.append(ranked({j: sign * problem.effects[j][row[j]] for j in present(row)}))
    return told


def find_references(problem):
    """For each instance and definition how much each feature truly matters."""
    means = (problem.model.means * problem.model.weights).sum(axis=1)
    told = []
    for _, (row, label) in problem.rows():
        sign = 1.0 if label == 1 else -1.0
        reference = {"signed": {}, "shapley": {}, "contrast": {}, "absolute": {}}
        for j in present(row):
            effects = sign * problem.effects[j]
            own = effects[row[j]]
            other = np.ones(len(effects), dtype=bool)
            other[row[j]] = False
            if problem.dataset.mask_code is not None:
                other[problem.dataset.mask_code] = False
            reference["signed"][j] = own
            reference["shapley"][j] = own - sign * means[j]
            reference["contrast"][j] = own - effects[other].min()
            reference["absolute"][j] = abs(own)
        told.append(reference)
    return told


# Searches: a counterfactual of one instance.


@dataclass
class Found:
    label: int
    distance: float
    probability: float | None = None  # of the label before; None with label access
    codes: np.ndarray | None = None


def largest_drop(problem, i, features):
    """Algorithm 1 with probabilities: one call of the model for each candidate."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    own = tuple(row[features].tolist())
    lowest, best = None, None
    for values in product(*(problem.dataset.candidates[j].tolist() for j in features)):
        if values == own:
            continue
        edited = row.copy()
        edited[features] = values
        key = problem.probability(edited, label), changes(values, own)
        if lowest is None or key < lowest:
            lowest, best = key, edited
    return Found(problem.label(best), distance(problem.model, row, best), lowest[0], best)


def first_flip(problem, i, features):
    """Algorithm 1 with labels: fewest changes first; a random candidate if none flips."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    own = tuple(row[features].tolist())
    values = product(*(problem.dataset.candidates[j].tolist() for j in features))
    others = sorted((v for v in values if v != own), key=lambda v: changes(v, own))
    edited = row.copy()
    for candidate in others:
        edited[features] = candidate
        if problem.label(edited) != label:
            break
    else:
        edited[features] = others[problem.rng("search.label", i).integers(len(others))]
    return Found(problem.label(edited), (2.0 * (edited != row).sum()) ** 0.5, None, edited)


def descent(problem, search, i, features):
    """Algorithm 2 for one instance: all its starts in one small batch, gradients by torch."""
    model, label = problem.model, int(problem.labels[i])
    own = torch.tensor(embed_rows(model, problem.instances.codes[i : i + 1])[:, features])
    weights = torch.tensor(model.weights[features])
    rest = float(model.compute_logits(problem.instances.codes[i : i + 1])[0]) - float((own * weights).sum())

    def kept(vectors):
        positive = torch.sigmoid((vectors * weights).sum(dim=(1, 2)) + rest)
        return positive if label == 1 else 1.0 - positive

    def objective(vectors):
        return ((vectors - own) ** 2).sum(dim=(1, 2)) + search.alpha * kept(vectors)

    noise = problem.rng("search.gradient", i).normal(size=(search.restarts, *own.shape[1:]))
    vectors = own + search.start * search.alpha**0.5 * torch.tensor(noise)
    step = torch.full((search.restarts,), 0.25, dtype=torch.float64)
    for _ in range(search.steps):
        variable = vectors.clone().requires_grad_()
        value = objective(variable)
        (gradient,) = torch.autograd.grad(value.sum(), variable)
        squared = (gradient**2).sum(dim=(1, 2))
        going = squared.sqrt() > search.tolerance * search.alpha**0.5
        if not going.any():
            break
        with torch.no_grad():
            trial = vectors - step[:, None, None] * gradient
            lower = objective(trial) <= value - 0.1 * step * squared
            vectors = torch.where((lower & going)[:, None, None], trial, vectors)
            step = torch.where(going, step * torch.where(lower, 1.5, 0.5), step)
    with torch.no_grad():
        best = objective(vectors).argmin()
        probability = float(kept(vectors)[best])
        gap = float(((vectors[best] - own[0]) ** 2).sum().sqrt())
    return Found(label if probability > 0.5 else 1 - label, gap, probability)


def counterfactuals(problem, search, i, features):
    """At each level of access that the search has."""
    if search.title == "cont.":
        return {"gradient": descent(problem, search, i, features)}
    return {"label": first_flip(problem, i, features), "probability": largest_drop(problem, i, features)}


# Metrics and correlations.


def scores(problem, i, features, found, reference, k):
    """Numerator and denominator of every metric for one instance."""
    row, label = problem.instances.codes[i], int(problem.labels[i])
    before = problem.probability(row, label)
    rest = [j for j in present(row) if j not in features]
    told = {}
    for how, value in (("del", ABSENT), ("mask", problem.dataset.mask_code)):
        if value is None:
            continue
        without, only = row.copy(), row.copy()
        without[features], only[rest] = value, value
        told["comprehensiveness", how] = before - problem.probability(without, label), 1
        told["sufficiency", how] = before - problem.probability(only, label), 1
        if how == "del":
            told["dfr", how] = problem.label(without) != label, 1
    for level, edit in found.items():
        flipped = edit.label != label
        told["validity", level] = flipped, 1
        told["proximity", level] = edit.distance, 1
        told["c", level] = flipped, edit.distance
        if edit.probability is not None:
            told["validity_soft", level] = before - edit.probability, 1
            told["c_soft", level] = before - edit.probability, edit.distance
    for definition, importance in reference.items():
        best = [j for j, _ in ranked(importance)[:k]]
        shared = len(set(best) & set(features))
        told["recall", definition] = shared / k, 1
        told["hit", definition] = shared > 0, 1
    return told


EXPLAINERS = {
    "random": random,
    "omission": omission,
    "lime": lime,
    "anchor": anchor,
    "decision_boundary": decision_boundary,
    "lr": lr,
}
LOWER = {"sufficiency", "proximity"}
TRUTHS = {"recall", "hit"}


def whole(dataset, model, instances, labels, search, k=1):
    """Tables of a whole run: (metric, variant) → explainer → value, rank; and τ, ρ of each against each truth."""
    problem = Problem(dataset, model, instances, labels)
    reference = find_references(problem)
    values = {}
    for name, explainer in EXPLAINERS.items():
        sums = {}
        for i, told in enumerate(explainer(problem)):
            features = [j for j, _ in told[:k]]
            if len(features) < k:
                continue  # left out of this explainer's averages
            found = counterfactuals(problem, search, i, features)
            for key, (numerator, denominator) in scores(problem, i, features, found, reference[i], k).items():
                before = sums.get(key, (0.0, 0.0))
                sums[key] = before[0] + numerator, before[1] + denominator
        for key, (numerator, denominator) in sums.items():
            values.setdefault(key, {})[name] = numerator / denominator
    ranks = {key: ranking(table, key[0]) for key, table in values.items()}
    agreement = {
        (*key, *truth): correlation(values[key], values[truth], key[0])
        for key, truth in product(values, values)
        if key[0] not in TRUTHS and truth[0] in TRUTHS
    }
    return {"values": values, "ranks": ranks, "agreement": agreement}


def ranking(table, metric):
    sign = 1.0 if metric in LOWER else -1.0
    return dict(zip(table, rankdata([sign * round(value, 12) for value in table.values()]), strict=True))


def correlation(table, truth, metric):
    """τ by its definition, in which a tied pair counts for nothing (SciPy's corrects for ties), and ρ."""
    sign = -1.0 if metric in LOWER else 1.0
    pairs = [(sign * round(table[name], 12), round(truth[name], 12)) for name in table if name in truth]
    signs = [np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for a, b in combinations(pairs, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)  # ρ of a ranking that is all ties is not defined
        return float(np.mean(signs)), float(spearmanr(*zip(*pairs, strict=True)).statistic)


# Small change.


def present(row):
    return [j for j, code in enumerate(row.tolist()) if code != ABSENT]


def ranked(scores):
    """Features by falling score, equal ones in the order of the features."""
    return sorted(scores.items(), key=lambda item: -item[1])


def changes(values, own):
    return sum(a != b for a, b in zip(values, own, strict=True))


def distance(model, row, edited):
    """Euclidean, between embeddings; what did not change adds nothing."""
    gaps = [model.tables[j][edited[j]] - model.tables[j][row[j]] for j in np.flatnonzero(row != edited)]
    return float(np.sqrt(sum((gap**2).sum() for gap in gaps)))
