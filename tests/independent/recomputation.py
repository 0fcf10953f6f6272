"""Recompute the values of a run folder without code of cfeval: from NumPy, SciPy, pandas and docs/run-folder.md."""

import json
from copy import copy
from functools import cached_property
from hashlib import blake2b
from itertools import combinations, permutations, product
from math import ceil, comb, exp, nan, prod, sqrt

import numpy as np
import pandas as pd
from scipy import stats
from scipy.stats import beta

NEEDS_MODEL = {  # metrics that evaluate the model on inputs without a stored prediction
    "comprehensiveness", "sufficiency", "dfr", "pgi", "pgu", "aopc", "aopc_suff", "naopc", "edits_to_flip", "frozen",
    "faithfulness_correlation", "infidelity", "redundant", "axe", "plausible",
}  # fmt: skip
NEEDS_TRAINING = {"axe", "plausible", "pgi", "pgu"}  # and the removals `marginal` and `mean`


def compute_sigmoid(z):
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


def make_generator(*key):
    """Return the random generator of a key, as the docs describe it."""
    digest = blake2b("\0".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


class Sum:
    """A stored sum of effects for two classes, possibly of embeddings."""

    is_sum = True

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, self.w = float(file["bias"]), file["weights"]
            spans = list(zip(file["starts"].tolist(), file["sizes"].tolist(), strict=True))
            self.e = [file["embeddings"][start : start + size] for start, size in spans]
            self.table_of = [spans.index(span) for span in spans]  # the first feature that has the same table
            self.means = list(file["means"])

    def get_vector(self, j, v):
        """Return the embedding of a code; a changed embedding is returned as it is."""
        return v if isinstance(v, np.ndarray) else self.e[j][v]

    def get_effect(self, j, v):
        """Return what a value adds to the logit; 0 if it is deleted."""
        if isinstance(v, np.ndarray):
            return float(self.w[j] @ v)
        return 0.0 if v is None else self.code_effects[j][v]

    def list_effects(self, j, label):
        """Return what each value adds to the logit of a class."""
        return [(1 if label else -1) * effect for effect in self.code_effects[j][:-1]]

    def get_mean_effect(self, j, label):
        """Return what the values of the training rows add on average."""
        return (1 if label else -1) * float(self.means[j] @ self.w[j])

    def predict_positive(self, row):
        """Return P(1|x); a feature that is None is padding, or deleted."""
        return compute_sigmoid(self.bias + sum(self.get_effect(j, v) for j, v in enumerate(row)))

    def get_probability(self, row, label):
        """Return P(label|x)."""
        return self.predict_positive(row) if label == 1 else 1 - self.predict_positive(row)

    def label(self, row):
        return int(self.predict_positive(row) > 0.5)

    def uses_feature(self, j):
        return self.w[j].any()

    def predict_rows(self, rows):
        """Return probabilities (n, 2) of codes (n, M), -1 where a feature is absent."""
        with np.errstate(over="ignore"):
            p = 1 / (1 + np.exp(-(self.bias + sum(table[rows[:, j]] for j, table in enumerate(self.tables)))))
        return np.stack([1 - p, p], axis=1)

    @cached_property
    def tables(self):
        return [np.append(e @ w, 0.0) for e, w in zip(self.e, self.w, strict=True)]  # -1 is the last

    @cached_property
    def code_effects(self):
        """What each code of each feature adds to the logit, and 0 at the end for an absent feature."""
        return [table.tolist() for table in self.tables]


class RecomputedFunctionModel:
    """A function of rows: probabilities (n, C) of codes (n, M); the label is the first of the likeliest classes."""

    is_sum = False

    def __init__(self, ask):
        self.ask, self.cache = ask, {}

    def predict_rows(self, rows):
        """Return probabilities; each row is evaluated once."""
        rows = [tuple(row) for row in rows.tolist()]
        new_rows = [row for row in dict.fromkeys(rows) if row not in self.cache]
        if new_rows:
            self.cache.update(zip(new_rows, self.ask(np.array(new_rows)), strict=True))
        return np.array([self.cache[row] for row in rows])

    def get_probability(self, row, label):
        return float(self.predict_rows(np.array([row]))[0, label])

    def label(self, row):
        return int(self.predict_rows(np.array([row]))[0].argmax())


def load_tree(path):
    """Load the stored tree: each node goes left or right by the value of its feature."""
    with np.load(path, allow_pickle=False) as file:
        feature, left_child, right_child, tests, probabilities = (
            file[name].tolist() for name in ("feature", "left", "right", "tests", "probabilities")
        )

    def find_leaf(row):
        node = 0
        while feature[node] != -1:
            node = left_child[node] if tests[node][row[feature[node]]] else right_child[node]
        return probabilities[node]

    model = RecomputedFunctionModel(lambda rows: np.array([find_leaf(row) for row in rows.tolist()]))
    model.uses_feature = lambda j: j in feature
    return model


class ClassSums(RecomputedFunctionModel):
    """A stored sum of effects for each of several classes."""

    is_sum = True

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, sizes, self.means = file["bias"], file["sizes"].tolist(), file["means"]
            starts = np.cumsum([0, *sizes])
            self.tables = [file["effects"][start : start + size] for start, size in zip(starts, sizes, strict=False)]

    def predict_rows(self, rows):
        exponentials = np.exp(self.bias + sum(table[rows[:, j]] for j, table in enumerate(self.tables)))
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def list_effects(self, j, label):
        """Return the effects on the logit of a class less the mean of those on the other classes."""
        table = self.tables[j]
        return (table[:, label] - np.delete(table, label, axis=1).mean(axis=1)).tolist()

    def get_mean_effect(self, j, label):
        return float(self.means[j][label] - np.mean(np.delete(self.means[j], label)))


class Run:
    """A run folder, read once; `ask` is the model as a function if it is not in the folder."""

    def __init__(self, folder, ask=None):
        self.folder, self.record, self.files = folder, json.loads((folder / "run.json").read_text()), {}
        description = json.loads((folder / "dataset.json").read_text())
        self.settings, self.k = self.record["settings"], self.record["settings"]["k"]
        self.mask, self.features, self.classes = description["unknown"], description["features"], description["classes"]
        self.names = [description["values"][feature["values"]] for feature in self.features]
        self.text = description["kind"] == "text"
        self.instances = pd.read_parquet(folder / "instances.parquet").set_index("instance")
        self.rows = {i: [None if c == -1 else int(c) for c in codes] for i, codes in self.instances["codes"].items()}
        self.labels, self.original_probabilities = self.instances["predicted"].astype(int).to_dict(), {}
        self.train, self.box = self.read_training(), self.read_model(ask)
        self.embedded = isinstance(self.box, Sum) and "zero" not in self.record["removals_absent"]
        self.removals = {variant: self.make_removal(variant) for variant in self.record["removals"]}
        self.removals = {variant: removal for variant, removal in self.removals.items() if removal is not None}
        self.cache = {}

    def with_model(self, model):
        """Return the run with a reparametrised model, and with the removals that do not use training rows."""
        run = copy(self)
        run.box, run.original_probabilities, run.cache = model, {}, {}
        run.removals = {variant: removal for variant, removal in self.removals.items() if variant in ("del", "mask")}
        return run

    def read_lines(self, name):
        """Return the rows of a Parquet file, read once."""
        if ("lines", name) not in self.files:
            self.files["lines", name] = list(pd.read_parquet(self.folder / f"{name}.parquet").itertuples())
        return self.files["lines", name]

    @cached_property
    def explainers(self):
        """For each explainer whether it is a graded control, and whether it is a control."""
        lines = pd.read_csv(self.folder / "metrics.csv").drop_duplicates("explainer").set_index("explainer")
        return lines["quality_level"].notna().to_dict(), lines["control"].to_dict()

    @cached_property
    def stored_scores(self):
        """scores.parquet, in the form of the recomputed scores."""
        scores = {}
        for row in self.read_lines("scores"):
            key = (row.metric, row.variant, row.explainer)
            scores.setdefault(key, {})[row.instance] = (row.numerator, row.denominator)
        return scores

    @cached_property
    def draws(self):
        """{(metric, variant, explainer): its value, then its values in all resamples (1 + B,)}."""
        ids, scores = list(self.rows), self.stored_scores
        rng = make_generator(self.settings["seed"], "bootstrap", None)
        positions = rng.integers(0, len(ids), (self.record["resampled"], len(ids)))
        times = np.stack([np.bincount(row, minlength=len(ids)) for row in positions]).astype(float)
        times = np.concatenate([np.ones((1, len(ids))), times])
        used_instances, results = find_used_instances(self, scores), {}
        for name, part in scores.items():
            pairs = np.array([part[i] if i in part and i in used_instances[name] else (0.0, 0.0) for i in ids])
            above, below = (times @ pairs).T
            if below[0]:
                with np.errstate(divide="ignore", invalid="ignore"):
                    results[name] = np.where(below != 0, above / below, np.nan)
        return results

    def read_training(self):
        """Return the codes of the training rows (n, M); None if the folder does not have them."""
        path = self.folder / "training.parquet"
        return np.stack(pd.read_parquet(path)["codes"].to_list()) if path.exists() else None

    def read_model(self, ask):
        path = self.folder / "model.npz"
        if ask is not None or not path.exists():
            return None if ask is None else RecomputedFunctionModel(ask)
        with np.load(path, allow_pickle=False) as file:
            kind = (
                Sum if "weights" in file else load_tree if "tests" in file else ClassSums if "effects" in file else None
            )
        return kind(path) if kind else None

    def label(self, i):
        return self.labels[i]

    def get_original_probability(self, i):
        """Return P(ŷ|x), from the model if there is one."""
        if i not in self.original_probabilities:
            has_model = self.box is not None
            self.original_probabilities[i] = (
                self.box.get_probability(self.rows[i], self.label(i))
                if has_model
                else self.instances.at[i, "predicted_probability"]
            )
        return self.original_probabilities[i]

    def list_codes(self, j):
        """List the codes that an edit may give a feature: candidates of a number, and never the mask."""
        codes = self.features[j].get("candidates", range(len(self.names[j])))
        return [code for code in codes if code != self.mask]

    def list_alternatives(self, j, code):
        """List the codes that an edit may give a feature instead of its own code."""
        moves, missing = self.features[j].get("allowed_change", "any"), self.features[j].get("missing")
        sides = {"any": lambda v: True, "none": lambda v: False, "up": lambda v: v > code, "down": lambda v: v < code}
        free = [v for v in self.list_codes(j) if v != code and sides[moves](v)]
        return free if moves == "any" else [v for v in free if missing not in (v, code)]

    def make_removal(self, variant):
        """Return the function that returns replacements of features; None if the folder lacks its inputs."""
        facts = self.record["removals"][variant]
        if facts["name"] in self.record["removals_absent"]:
            return None
        if variant == "del":
            return lambda features: ([[None] * len(features)], [1.0])
        if variant == "mask":
            return lambda features: ([[self.mask] * len(features)], [1.0])
        if self.train is None:
            return None
        if variant == "mean":
            means = [
                np.mean([self.box.e[j][v] for v in self.list_training_codes(j)], axis=0)
                for j in range(len(self.features))
            ]
            return lambda features: ([[means[j] for j in features]], [1.0])
        return self.make_marginal(facts["settings"]["draws"], facts["settings"]["seed"])

    def make_coarse_marginal(self, draws):
        """Return the removal by `marginal` with fewer draws."""
        if ("coarse", draws) not in self.cache:
            settings = self.record["removals"]["marginal"]["settings"]
            self.cache["coarse", draws] = self.make_marginal(min(draws, settings["draws"]), settings["seed"])
        return self.cache["coarse", draws]

    def list_training_codes(self, j):
        """Return the codes of a feature in the training rows; words of all positions are pooled."""
        codes = self.train.ravel() if self.text else self.train[:, j]
        return codes[codes != -1]

    def make_marginal(self, draws, seed):
        """Return the removal by values of training rows: all combinations, or a number of draws."""
        cache = {}

        def draw_values(features):
            if self.text:
                words = self.list_training_codes(0)
                codes, counts = np.unique(words, return_counts=True)
                if len(features) == 1 and len(codes) <= draws:
                    return codes[:, None], counts / len(words)
                shares = np.bincount(words, minlength=len(self.names[0])) / len(words)
                positions = make_generator(seed, "removal.marginal", None).choice(
                    len(shares), (draws, len(features)), p=shares
                )
                return positions, np.full(draws, 1 / draws)
            if len(np.unique(number_combinations(self.train[:1000], features))) <= draws:
                numbers = number_combinations(self.train, features)
                _, first_rows, counts = np.unique(numbers, return_index=True, return_counts=True)
                if len(first_rows) <= draws:
                    return self.train[first_rows][:, features], counts / len(self.train)
            if "rows" not in cache:  # the same for any features
                rows = make_generator(seed, "removal.marginal", None).integers(0, len(self.train), draws)
                cache["rows"] = self.train[rows]
            return cache["rows"][:, features], np.full(draws, 1 / draws)

        def number_combinations(rows, features):
            """Return one number for each combination of values."""
            sizes = [len(self.names[j]) + 1 for j in features]
            number = np.zeros(len(rows), dtype=np.int64 if prod(sizes) < 2**62 else object)
            for j, size in zip(features, sizes, strict=True):
                number = number * size + rows[:, j]
            return number

        def get_values(features):
            if tuple(features) not in cache:
                cache[tuple(features)] = draw_values(features)
            return cache[tuple(features)]

        return get_values

    def predict_without(self, removal, i, features):
        """Return p(ŷ), the share of flips and the mean of |p - p′| without some features of a row."""
        features = tuple(sorted(j for j in features if self.rows[i][j] is not None))
        key = (removal, i, features)
        if key in self.cache:
            return self.cache[key]
        row, label, was = self.rows[i], self.label(i), self.get_original_probability(i)
        if (removal, features) not in self.cache:  # the same for all rows
            values, weights = removal(list(features))
            is_single_row = len(values) == 1 and isinstance(self.box, Sum)  # one row is faster without arrays
            codes = (
                None
                if is_single_row
                else np.array([[-1 if v is None else v for v in value_row] for value_row in values])
            )
            self.cache[removal, features] = values, np.array(weights, dtype=float), codes
        values, weights, codes = self.cache[removal, features]
        if codes is None:
            edited_row = list(row)
            for j, v in zip(features, values[0], strict=True):
                edited_row[j] = v
            p = self.box.get_probability(edited_row, label)
            self.cache[key] = p, float(self.box.label(edited_row) != label), abs(was - p)
        else:
            edited_rows = np.tile([-1 if v is None else v for v in row], (len(values), 1))
            edited_rows[:, list(features)] = codes
            predictions = self.box.predict_rows(edited_rows)
            p, is_flip = predictions[:, label], predictions.argmax(axis=1) != label
            self.cache[key] = float(weights @ p), float(weights[is_flip].sum()), float(weights @ np.abs(was - p))
        return self.cache[key]

    def get_space(self, access):
        """Return the space in which distances are measured."""
        space = self.record["setup"].rpartition("(space: ")[2].partition(")")[0]
        if space != "auto":
            return space
        return "scaled" if not self.embedded else "onehot" if access == "label" else "embedding"

    def compute_distance(self, row, edited_row, access):
        """Return the Euclidean distance."""
        space, total = self.get_space(access), 0.0
        for j, (a, b) in enumerate(zip(row, edited_row, strict=True)):
            if a is b or (not isinstance(b, np.ndarray) and a == b):
                continue
            if space == "onehot":
                total += 2
            elif space == "scaled":
                total += self.compute_squared_gap(j, a, b)
            else:
                total += float(((self.box.e[j][a] - self.box.get_vector(j, b)) ** 2).sum())
        return total**0.5

    def compute_squared_gap(self, j, a, b):
        """Return the squared distance of two values: 2 for categories, by ranks or units of the MAD otherwise."""
        if a == b:
            return 0.0
        feature, missing = self.features[j], self.features[j].get("missing")
        if feature["kind"] != "number" and not feature.get("ordered"):
            return 2.0
        if ("places", j) not in self.cache:
            number = feature["kind"] == "number"
            line = [
                nan if c == missing else float(name) if number else float(c) for c, name in enumerate(self.names[j])
            ]
            values = np.array([line[c] for c in self.train[:, j] if c != missing])
            middle = float(np.median(values))
            unit = (float(np.median(np.abs(values - middle))) or float(np.std(values)) or 1.0) if number else 1.0
            self.cache["places", j] = [((middle if c == missing else v) / unit) for c, v in enumerate(line)]
        places = self.cache["places", j]
        return (places[a] - places[b]) ** 2 + (2.0 if missing in (a, b) else 0.0)

    def compute_squared_distances(self, row, features):
        """Return the squared distance of each training row in some features."""
        total = np.zeros(len(self.train))
        for j in features:
            if (j, row[j]) not in self.cache:
                self.cache[j, row[j]] = np.array(
                    [self.compute_squared_gap(j, row[j], v) for v in range(len(self.names[j]))]
                )
            total += self.cache[j, row[j]][self.train[:, j]]
        return total

    def compute_votes(self, row, features, size):
        """Return the share of each class among the nearest training rows; ties at the last distance share its votes."""
        if "classes" not in self.cache:
            self.cache["classes"] = self.box.predict_rows(self.train).argmax(axis=1)
        distances = self.compute_squared_distances(row, features)
        farthest = np.sort(distances)[min(size, len(distances)) - 1]
        near = distances < farthest - 1e-9 * max(1.0, farthest)
        tied = ~near & (distances <= farthest + 1e-9 * max(1.0, farthest))
        n_remaining, shares = min(size, len(distances)) - near.sum(), []
        for c in range(len(self.classes)):
            members = self.cache["classes"] == c
            shares.append(
                (near[members].sum() + n_remaining * tied[members].sum() / tied.sum()) / min(size, len(distances))
            )
        return shares


def compute_truths(run):
    """Return {(truth, instance): the importance of each feature} for the truths that can be recomputed."""
    results = {}
    for name in run.record["truths"]:
        reference_instances = find_reference_instances(run, name)
        for i, row in run.rows.items():
            if i not in reference_instances:
                results[name, i] = [nan] * len(row)
                continue
            present = [j for j, v in enumerate(row) if v is not None]
            importance = {"shapley": compute_shapley, "responsibility": compute_responsibility}.get(name)
            effects = importance(run, i) if importance else {j: IMPORTANCE[name](run, i, j) for j in present}
            results[name, i] = [effects.get(j, nan) for j in range(len(row))]
    return results


def find_reference_instances(run, name):
    """Return the instances with a truth: all, or the first of a random order that the seed decides."""
    order = make_generator(run.record["settings"]["seed"], "reference", None).permutation(len(run.rows))
    return {list(run.rows)[place] for place in order[: run.record["truths"][name]["instances"]]}


def get_effect(run, i, j, v):
    return run.box.list_effects(j, run.label(i))[v]


def compute_contrast(run, i, j):
    """Return the largest drop by another value: of the logit if it is a sum, else of p(ŷ); 0 without other values."""
    row, label = run.rows[i], run.label(i)
    alternatives = run.list_alternatives(j, row[j])
    if run.box.is_sum:
        effects = run.box.list_effects(j, label)
        return max((effects[row[j]] - effects[v] for v in alternatives), default=0.0)
    return max(
        (
            run.get_original_probability(i) - run.box.get_probability([*row[:j], v, *row[j + 1 :]], label)
            for v in alternatives
        ),
        default=0.0,
    )


def compute_shapley(run, i):
    """Compute exact Shapley values: of the logit if it is a sum, else of p(ŷ) from all subsets of features."""
    if run.box.is_sum:
        label, present = run.label(i), [j for j, v in enumerate(run.rows[i]) if v is not None]
        return {j: get_effect(run, i, j, run.rows[i][j]) - run.box.get_mean_effect(j, label) for j in present}
    row, label, facts = np.array(run.rows[i]), run.label(i), run.record["truths"]["shapley"]["settings"]
    width = len(row)
    if "background" not in run.cache:
        rows = np.arange(len(run.train))
        if not (run.folder / "model.npz").exists():  # a tree takes all
            size = min(facts["background"], len(rows))
            rows = np.sort(make_generator(facts["seed"], "truth.shapley", None).choice(len(rows), size, replace=False))
        run.cache["background"] = run.train[rows]
    worth = {}
    for size in range(width + 1):
        for subset in combinations(range(width), size):
            complement = [j for j in range(width) if j not in subset]
            kinds, counts = np.unique(run.cache["background"][:, complement], axis=0, return_counts=True)
            mixed_rows = np.tile(row, (len(kinds), 1))
            mixed_rows[:, complement] = kinds
            worth[subset] = float(run.box.predict_rows(mixed_rows)[:, label] @ counts / counts.sum())
    attributions = {}
    for j in range(width):
        subsets = [subset for subset in worth if j not in subset]
        steps = (
            (worth[tuple(sorted((*subset_without, j)))] - worth[subset_without], len(subset_without))
            for subset_without in subsets
        )
        attributions[j] = sum(step / (width * comb(width - 1, size)) for step, size in steps)
    return attributions


def compute_responsibility(run, i, max_size=None):
    """Return 1 / the size of the smallest minimal set that contains the feature and can flip the label."""
    row, label = run.rows[i], run.label(i)
    present = [j for j, v in enumerate(row) if v is not None]
    max_size = max_size or (
        len(present) if isinstance(run.box, RecomputedFunctionModel) and (run.folder / "model.npz").exists() else 2
    )
    minimal = []
    for size in range(1, max_size + 1):
        for subset in combinations(present, size):
            if any(set(smaller) <= set(subset) for smaller in minimal):
                continue
            assignments = [
                list(zip(subset, codes, strict=True))
                for codes in product(*(run.list_alternatives(j, row[j]) for j in subset))
            ]
            if any(run.box.label([dict(edit).get(j, v) for j, v in enumerate(row)]) != label for edit in assignments):
                minimal.append(subset)
    return {j: max((1 / len(smaller) for smaller in minimal if j in smaller), default=0.0) for j in present}


IMPORTANCE = {
    "signed": lambda run, i, j: get_effect(run, i, j, run.rows[i][j]),
    "absolute": lambda run, i, j: abs(get_effect(run, i, j, run.rows[i][j])),
    "contrast": compute_contrast,
    "used": lambda run, i, j: float(run.box.uses_feature(j)),
}


def compute_recall_and_hit(importance, selection, k):
    """Return recall and hit of a selection, each the mean over all ways to break ties among the k most important."""
    present = [j for j, v in enumerate(importance) if not np.isnan(v)]
    size = min(k, len(present))
    threshold = sorted((importance[j] for j in present), reverse=True)[size - 1] if size else 0.0
    sure = {j for j in present if importance[j] > threshold}
    tied = [j for j in present if importance[j] == threshold]
    references = [sure | set(ties) for ties in combinations(tied, size - len(sure))]
    overlaps = [len(reference.intersection(selection)) for reference in references]
    return sum(overlaps) / len(overlaps) / k, sum(overlap > 0 for overlap in overlaps) / len(overlaps)


def recompute(folder, ask=None):
    """Return {(metric, variant, explainer): value}, over the instances that the values use."""
    run = Run(folder, ask)
    scores = compute_scores(run)
    return compute_values(scores, find_used_instances(run, scores))


def make_exclusion_test(run):
    """Return a test of whether a metric and its variant cannot be recomputed from the folder and the model."""

    def is_excluded(metric, variant):
        if run.box is None and metric in NEEDS_MODEL:
            return True
        return run.train is None and (metric in NEEDS_TRAINING or variant in ("marginal", "mean"))

    return is_excluded


def compute_scores(run, suffix="", model=None):
    """Return {(metric, variant, explainer): {instance: (numerator, denominator)}}; `suffix` selects the explanations.

    `model` is a reparametrised model: only scores that can change are recomputed.
    """
    run = run if model is None else run.with_model(model)
    record, results, k, metrics = run.record, {}, run.k, run.record["metrics"]

    def add(key, i, numerator, denominator=1.0):
        assert i not in results.setdefault(key, {})
        results[key][i] = (numerator, denominator)

    important = read_importance(run) if model is None else compute_truths(run)
    references = {}
    for line in run.read_lines(f"explanations{suffix}"):
        i, selection, name = line.instance, [int(j) for j in line.features][:k], line.explainer
        add(("coverage", "all", name), i, float(len(selection) == k))
        if len(selection) < k:
            continue
        for definition in record["truths"]:
            key = (definition, i, *selection)
            if key not in references:
                is_known = not np.isnan(important[definition, i]).all()
                references[key] = compute_recall_and_hit(important[definition, i], selection, k) if is_known else None
            if references[key] is None:
                continue
            recall, hit = references[key]
            add(("recall", definition, name), i, recall)
            add(("hit", definition, name), i, hit)
        if any(feature.get("allowed_change") for feature in run.features):
            add(("fixed", "all", name), i, float(not any(run.list_alternatives(j, run.rows[i][j]) for j in selection)))
        if run.box is None:
            continue
        for variant, removal in run.removals.items():
            add_erasure_scores(run, add, (variant, name), removal, line, selection)
        if "marginal" in run.removals:
            for metric, features in (
                ("pgi", selection),
                ("pgu", [j for j in range(len(run.features)) if j not in selection]),
            ):
                add((metric, "marginal", name), i, run.predict_without(run.removals["marginal"], i, features)[2])
        if "edits_to_flip" in metrics and record["ordered"][name]:
            add(("edits_to_flip", "greedy", name), i, count_edits_to_flip(run, i, [int(j) for j in line.features]))
        if "frozen" in metrics:
            other_features = [j for j, v in enumerate(run.rows[i]) if v is not None and j not in selection]
            sets = combinations(other_features, min(k, len(run.features) - k, len(other_features)))
            add(("frozen", "all sets", name), i, float(any(can_flip(run, i, subset) for subset in sets)))
        if "axe" in metrics and run.train is not None and model is None:
            votes = run.compute_votes(run.rows[i], selection, metrics["axe"]["settings"]["neighbours"])
            winners = [c for c, vote in enumerate(votes) if vote >= max(votes) - 1e-9]
            add(("axe", "nearest", name), i, float(run.label(i) in winners) / len(winners))
    for edit in run.read_lines(f"counterfactuals{suffix}"):
        add_counterfactual_scores(run, add, edit, model is None)
    return results


def read_importance(run):
    """Return {(truth, instance): the importance of each feature} as it is stored."""
    lines = run.read_lines("truth") if (run.folder / "truth.parquet").exists() else ()
    return {(line.truth, line.instance): line.importance for line in lines}


def add_erasure_scores(run, add, key, removal, line, selection):
    """Add the scores of metrics that remove features."""
    i, metrics, was = line.instance, run.record["metrics"], run.get_original_probability(line.instance)
    p_without, flip_share, _ = run.predict_without(removal, i, selection)
    add(("comprehensiveness", *key), i, was - p_without)
    add(("dfr", *key), i, flip_share)
    other_features = [j for j in range(len(run.features)) if j not in selection]
    add(("sufficiency", *key), i, was - run.predict_without(removal, i, other_features)[0])
    if not run.record["ordered"][line.explainer]:
        return
    curve = RemovalCurve(run, i, removal, key[0])
    order = [int(j) for j in line.features]
    if {"aopc", "naopc"} & set(metrics):
        aopc = curve.average_drops(order)
        add(("aopc", *key), i, aopc)
    if "aopc_suff" in metrics:
        add(("aopc_suff", *key), i, curve.average_drops(order, keeps_first=True))
    if "naopc" in metrics:
        worst, best = curve.find_extreme_means()
        far = best - worst > 1e-12
        add(("naopc", *key), i, (aopc - worst) / (best - worst) if far else 0.0, float(far))
    if "infidelity" in metrics:
        sums, drops = curve.draw_subset_sums(order, line.scores, metrics["infidelity"]["settings"])
        square = sum(a * a for a in sums)
        slope = sum(a * b for a, b in zip(sums, drops, strict=True)) / square if square else 0.0
        add(("infidelity", *key), i, np.mean([(slope * a - b) ** 2 for a, b in zip(sums, drops, strict=True)]))
        sizes = [np.std(side) / max(1e-300, max(map(abs, side))) for side in (sums, drops)]
        varies = min(sizes) > 1e-12
        alike = np.corrcoef(sums, drops)[0, 1] if varies else 0.0
        add(("faithfulness_correlation", *key), i, alike, float(varies))


def add_counterfactual_scores(run, add, edit, is_first):
    """Add the scores of one counterfactual."""
    i, row, label, metrics = edit.instance, run.rows[edit.instance], run.label(edit.instance), run.record["metrics"]
    edited_row = list(row)
    if edit.codes is None:
        for j, v in zip(edit.features, edit.vectors, strict=True):
            edited_row[j] = np.array(v)
        add(("converged", edit.access, edit.explainer), i, float(edit.converged))
    else:
        for j, v in zip(edit.features, edit.codes, strict=True):
            edited_row[j] = int(v)
    new_label = edit.label if run.box is None else run.box.label(edited_row)
    flip = float(new_label != label)
    far, key = run.compute_distance(row, edited_row, edit.access), (edit.access, edit.explainer)
    add(("validity", *key), i, flip)
    add(("proximity", *key), i, far)
    add(("proximity_flips", *key), i, flip * far, flip)
    add(("c", *key), i, flip, far)
    changed_features = [j for j, v in enumerate(row) if v is not None and is_edited(run.box, j, v, edited_row[j])]
    add(("sparsity", *key), i, flip * len(changed_features), flip)
    if edit.access != "label":
        drop = run.get_original_probability(i) - (
            edit.probability if run.box is None else run.box.get_probability(edited_row, label)
        )
        add(("validity_soft", *key), i, drop)
        add(("c_soft", *key), i, drop, far)
    if run.box is None:
        return
    spare = 0
    for j in changed_features:
        reset = list(edited_row)
        reset[j] = row[j]
        spare += int(run.box.label(reset) != label)
    add(("redundant", *key), i, flip * spare, flip)
    if "plausible" in metrics and is_first and run.train is not None and edit.codes is not None:
        votes = run.compute_votes(edited_row, range(len(row)), metrics["plausible"]["settings"]["neighbours"])
        add(("plausible", *key), i, flip * votes[new_label], flip)


def is_edited(box, j, value, code):
    """Return whether an edit changes a feature."""
    return bool((box.e[j][value] != code).any()) if isinstance(code, np.ndarray) else value != code


def can_flip(run, i, features):
    """Return whether some values of the features change the label."""
    row = run.rows[i]
    key = ("flips", i, tuple(features))
    if key not in run.cache:
        code_combinations = list(product(*({row[j], *run.list_alternatives(j, row[j])} for j in features)))
        edited_rows = np.tile([-1 if v is None else v for v in row], (len(code_combinations), 1))
        edited_rows[:, list(features)] = code_combinations
        run.cache[key] = bool((run.box.predict_rows(edited_rows).argmax(axis=1) != run.label(i)).any())
    return run.cache[key]


def count_edits_to_flip(run, i, features):
    """Count the greedy edits to a flip: each sets the next feature to the value with the lowest p(ŷ)."""
    row, label, max_edits = list(run.rows[i]), run.label(i), min(10, len(run.features))
    lowest_p = run.get_original_probability(i)
    for step, j in enumerate(features[:max_edits]):
        edited_rows = [[*row[:j], v, *row[j + 1 :]] for v in run.list_alternatives(j, run.rows[i][j])]
        if any(run.box.label(edited_row) != label for edited_row in edited_rows):
            return step + 1.0
        best = min(edited_rows, key=lambda edited_row: run.box.get_probability(edited_row, label), default=row)
        if run.box.get_probability(best, label) < lowest_p:
            row, lowest_p = best, run.box.get_probability(best, label)
    return max_edits + 1.0


class RemovalCurve:
    """The removal of the features of one instance, one after the other."""

    def __init__(self, run, i, removal, variant):
        self.run, self.i, self.removal, self.variant = run, i, removal, variant
        self.present = [j for j, v in enumerate(run.rows[i]) if v is not None]
        size = len(self.present)
        shares = (0.01, 0.05, 0.1, 0.2, 0.5)
        self.sizes = [ceil(round(s * size, 9)) for s in shares] if run.text else list(range(1, min(10, size) + 1))

    def drop(self, features):
        """Return p(ŷ) less p(ŷ) without some features."""
        return self.run.get_original_probability(self.i) - self.run.predict_without(self.removal, self.i, features)[0]

    def average_drops(self, order, keeps_first=False):
        """Return the mean drop without the first features, or without all others."""
        firsts = [order[:size] for size in self.sizes]
        features = [[j for j in self.present if j not in prefix] if keeps_first else prefix for prefix in firsts]
        return sum(map(self.drop, features)) / len(features)

    def find_extreme_means(self):
        """Return the means of the worst and the best order, exactly or by beam search.

        They are exact if the logit is a sum and removal has one value, or if all subsets fit the setting `rows`.
        """
        key = ("ends", self.variant, self.i)
        if key not in self.run.cache:
            if self.variant == "marginal" or not self.run.embedded:
                can_enumerate = self.can_try_all_subsets()
                self.run.cache[key] = (
                    self.find_extremes_by_subsets() if can_enumerate else (self.search_beam(-1), self.search_beam(1))
                )
            elif len(self.present) <= 4:
                drops = {
                    subset: self.drop(subset) for size in set(self.sizes) for subset in combinations(self.present, size)
                }
                orders = permutations(self.present)
                sums = [sum(drops[tuple(sorted(order[:size]))] for size in self.sizes) for order in orders]
                self.run.cache[key] = min(sums) / len(self.sizes), max(sums) / len(self.sizes)
            else:
                order = sorted(self.present, key=self.compute_logit_drop)
                self.run.cache[key] = self.average_drops(order), self.average_drops(order[::-1])
        return self.run.cache[key]

    def can_try_all_subsets(self):
        """Return whether all subsets of an instance, each with all draws, are no more than `rows`."""
        width = len(self.run.features)
        longest = ceil(0.5 * width) if self.run.text else min(10, width)
        sets = sum(comb(width, size) for size in range(1, longest + 1))
        draws = len(self.removal(list(range(width)))[0])
        rows = self.run.record["metrics"]["naopc"]["settings"]["rows"]
        return sets * draws <= rows

    def find_extremes_by_subsets(self):
        """Return the worst and the best mean over all orders, by dynamic programming over subsets."""
        extremes = {frozenset(): (0.0, 0.0)}
        for size in range(1, max(self.sizes) + 1):
            larger = {}
            for subset in map(frozenset, combinations(self.present, size)):
                drop = self.sizes.count(size) * self.drop(subset) if size in self.sizes else 0.0
                smaller = [extremes[subset - {j}] for j in subset]
                larger[subset] = min(low for low, _ in smaller) + drop, max(high for _, high in smaller) + drop
            extremes = larger
        worst, best = min(low for low, _ in extremes.values()), max(high for _, high in extremes.values())
        return worst / len(self.sizes), best / len(self.sizes)

    def compute_logit_drop(self, j):
        """Return the drop of the logit of the label without a feature."""
        box, replacement = self.run.box, self.removal([j])[0][0][0]
        sign = 1 if self.run.label(self.i) else -1
        return sign * (box.get_effect(j, self.run.rows[self.i][j]) - box.get_effect(j, replacement))

    def search_beam(self, sign):
        """Find the best order by beam search; orders with the same set of features are one candidate.

        Candidates are compared with few draws; the result uses all draws.
        """
        settings = self.run.record["metrics"]["naopc"]["settings"]
        coarse = self.run.make_coarse_marginal(settings["draws"]) if self.variant == "marginal" else self.removal
        beams, max_size = {(): 0.0}, max(self.sizes)
        for size in range(1, max_size + 1):
            n_sizes, extensions = self.sizes.count(size), {}
            for order, total in beams.items():
                for j in (j for j in self.present if j not in order):
                    drop = sign * (
                        self.run.get_original_probability(self.i)
                        - self.run.predict_without(coarse, self.i, (*order, j))[0]
                    )
                    worth = round(total + max(1, n_sizes) * drop, 12)
                    extension = extensions.get(frozenset((*order, j)))
                    if extension is None or worth > extension[0]:
                        extensions[frozenset((*order, j))] = worth, (*order, j), total + n_sizes * drop
            best = sorted(extensions, key=lambda subset: (-extensions[subset][0], [j in subset for j in self.present]))
            beams = {extensions[subset][1]: extensions[subset][2] for subset in best[: settings["width"]]}
        return self.average_drops(max(beams, key=lambda order: round(beams[order], 12)))

    def draw_subset_sums(self, order, scores, settings):
        """Return the sums of scores of random subsets, and the drops without them."""
        rng = make_generator(settings["seed"], "metric.subsets", self.i)
        size, score_of = max(1, round(settings["share"] * len(self.present))), dict(zip(order, scores, strict=True))
        lines = rng.random((settings["subsets"], len(self.run.features)))
        sets = [sorted(self.present, key=line.__getitem__)[:size] for line in lines]
        return [sum(score_of.get(j, 0.0) for j in subset) for subset in sets], [
            self.drop(set(subset)) for subset in sets
        ]


def compute_explainer_stability(run, first_scores):
    """Return the lines of explainer_stability.csv and those of explainer_stability_metrics.csv, by their keys.

    `first_scores` are the scores of the first explanations.
    """
    record, k, confidence = run.record, run.k, run.settings["confidence"]
    first_lines, second_lines = (
        {(line.explainer, line.instance): line for line in run.read_lines(name)}
        for name in ("explanations", "explanations_again")
    )
    names = {}
    for explainer in dict.fromkeys(name for name, _ in second_lines):
        line_pairs = [(first_lines[key], line) for key, line in second_lines.items() if key[0] == explainer]
        valid_pairs = [(a, b) for a, b in line_pairs if not isinstance(a.fault, str) and not isinstance(b.fault, str)]
        lists = [(list(a.features), list(b.features)) for a, b in valid_pairs]
        lists = [(a, b) for a, b in lists if a or b]
        sets = [(set(a[:k]), set(b[:k])) for a, b in lists]
        n, n_same = len(sets), sum(a == b for a, b in sets)
        rare = (1 - confidence) / 2
        alike = all(list(a.features) == list(b.features) and list(a.scores) == list(b.scores) for a, b in valid_pairs)
        names[explainer] = {
            "n_requested": len(line_pairs),
            "instances": n,
            "same_features": n_same / n if n else nan,
            "low": nan if not n else 0.0 if not n_same else beta.ppf(rare, n_same, n - n_same + 1),
            "high": nan if not n else 1.0 if n_same == n else beta.ppf(1 - rare, n_same + 1, n - n_same),
            "overlap": sum(len(a & b) / max(len(a), len(b)) for a, b in sets) / n if n else nan,
            "same_order": sum(a == b for a, b in lists) / n if n else nan,
            "deterministic": ("yes" if alike else "no") if n else "",
        }
    values = {}
    for key, parts in compute_scores(run, "_again").items():
        if record["metrics"].get(key[0], {"role": "fact"})["role"] == "fact":
            continue
        pairs = [(*first_scores[key][i], *part) for i, part in parts.items() if i in first_scores.get(key, {})]
        if pairs:
            values[key] = compare_two_seeds(np.array(pairs))
    return names, values


def compare_two_seeds(pairs):
    """Return a line of explainer_stability_metrics.csv from numerators and denominators with either seed (n, 4)."""
    size = len(pairs)
    value, value_again = (
        a.sum() / b.sum() if b.sum() else nan for a, b in ((pairs[:, 0], pairs[:, 1]), (pairs[:, 2], pairs[:, 3]))
    )
    row = {
        "instances": size,
        "value": value,
        "value_again": value_again,
        "difference": nan,
        "se": nan,
        "explainer_se": nan,
    }
    if np.isnan([value, value_again]).any():
        return row
    pooled_value, mean = (pairs[:, 0] + pairs[:, 2]).sum() / (pairs[:, 1] + pairs[:, 3]).sum(), pairs[:, [1, 3]].mean()
    around = (pairs[:, 0] - value * pairs[:, 1]) / pairs[:, 1].mean()
    moves = (pairs[:, 0] - pairs[:, 2] - pooled_value * (pairs[:, 1] - pairs[:, 3])) / mean
    row = row | {"difference": value_again - value}
    if size >= 30:
        row |= {"se": around.std() / sqrt(size - 1), "explainer_se": sqrt((moves**2).mean() / 2 / size)}
    return row


def compute_bounds(run):
    """Return {(metric, variant): (instances, worst, best, telling, {truth: (share, share over telling instances)})}.

    Every set of k features is scored. Values that depend on which of several equal edits a search takes are left out.
    """
    return {key: find_extremes(key[0], of) for key, of in score_all_sets(run).items()}


def score_all_sets(run):
    """Return {(metric, variant): {instance: [(score, {truth: share}) of each set of k features]}}."""
    if "bounds" in run.cache:
        return run.cache["bounds"]
    scores, important = {}, read_importance(run)
    for i, row in run.rows.items():
        present = [j for j, v in enumerate(row) if v is not None]
        for selection in combinations(present, run.k) if len(present) >= run.k else ():
            set_scores = score_set(run, i, selection)
            known_truths = [name for name in run.record["truths"] if not np.isnan(important[name, i]).all()]
            shares = {name: compute_recall_and_hit(important[name, i], selection, run.k) for name in known_truths}
            for name, (recall, hit) in shares.items():
                set_scores["recall", name], set_scores["hit", name] = recall, hit
            references = {name: recall for name, (recall, _) in shares.items()}
            for key, value in set_scores.items():
                scores.setdefault(key, {}).setdefault(i, []).append((value, references))
    run.cache["bounds"] = scores
    return scores


def has_unique_best_edit(run):
    """Return whether the edit with the largest drop of p(ŷ) is unique; two features of a tree can be tied."""
    return run.box.is_sum or run.k == 1


def score_set(run, i, selection):
    """Return {(metric, variant): score} of one set of features."""
    row, label, was, record, results = run.rows[i], run.label(i), run.get_original_probability(i), run.record, {}
    other_features = [j for j in range(len(row)) if j not in selection]
    for variant, removal in run.removals.items():
        p_without, flip_share, gap = run.predict_without(removal, i, selection)
        results["comprehensiveness", variant], results["dfr", variant] = was - p_without, flip_share
        p_without, _, other_gap = run.predict_without(removal, i, other_features)
        results["sufficiency", variant] = was - p_without
        if variant == "marginal":
            results["pgi", variant], results["pgu", variant] = gap, other_gap
    if not record["search"].startswith("disc") or run.mask is not None:
        return results
    code_combinations = list(product(*(sorted({row[j], *run.list_alternatives(j, row[j])}) for j in selection)))
    edited_rows = np.tile(row, (len(code_combinations), 1))
    edited_rows[:, list(selection)] = code_combinations
    n_changes = (edited_rows != np.array(row)).sum(axis=1)
    edited_rows = edited_rows[np.argsort(n_changes, kind="stable")][
        (n_changes == 0).sum() :
    ]  # of equal edits the first with fewest
    predictions = run.box.predict_rows(edited_rows)
    flip_share = predictions.argmax(axis=1) != label
    for level in record["levels"]:
        results["validity", level] = float(flip_share.any())
    best_edits = {}
    if run.k == 1 and run.get_space("label") == "onehot":
        best_edits["label"] = float(flip_share.any()), sqrt(2)
    if "probability" in record["levels"]:
        best = int(predictions[:, label].argmin())
        results["validity_soft", "probability"] = was - float(predictions[best, label])
        if "pick: auto" in record["setup"] and has_unique_best_edit(run):
            far = run.compute_distance(row, edited_rows[best].tolist(), "probability")
            best_edits["probability"] = float(flip_share[best]), far
            results["c_soft", "probability"] = was - float(predictions[best, label]), far
    for level, (flip, far) in best_edits.items():
        results["proximity", level] = far
        results["proximity_flips", level] = flip * far, flip
        results["c", level] = flip, far
    return results


LOWER = ("sufficiency", "proximity", "proximity_flips", "pgu")


def find_extremes(metric, scores):
    """Return the worst and the best value, the number of instances whose sets differ, and the truth of the best."""
    sign = -1 if metric in LOWER else 1
    options = [
        [(*(value if isinstance(value, tuple) else (value, 1.0)), share) for value, share in of]
        for of in scores.values()
    ]
    best, worst = (
        side * maximise_ratio([[(side * n, d) for n, d, _ in of] for of in options]) for side in (sign, -sign)
    )
    shares, telling = [], []
    for i, of in enumerate(options):
        gains = [sign * n - sign * best * d for n, d, _ in of]
        top = [share for gain, (_, _, share) in zip(gains, of, strict=True) if gain >= max(gains) - 1e-10]
        shares.append({name: sum(share[name] for share in top) / len(top) for name in top[0]})
        telling += [i] * (len(top) < len(of))
    truth_shares = {
        name: (
            np.mean([instance_shares[name] for instance_shares in shares]),
            np.mean([shares[i][name] for i in telling]) if telling else nan,
        )
        for name in shares[0]
    }
    return len(scores), worst, best, len(telling), truth_shares


def maximise_ratio(options):
    """Return the largest Σ n / Σ d with one (n, d) for each instance: the root λ of Σ max (n - λd)."""
    pairs = [pair for of in options for pair in of]
    if all(d == 1.0 for _, d in pairs):
        return sum(max(n for n, _ in of) for of in options) / len(options)
    if not any(d for _, d in pairs):
        return nan
    high = max(abs(n) for n, _ in pairs) / min(d for _, d in pairs if d) + 1
    low, (above, below) = -high, np.array(pairs).T
    firsts = np.cumsum([0, *(len(of) for of in options[:-1])])
    for _ in range(200):
        middle = (low + high) / 2
        over = np.maximum.reduceat(above - middle * below, firsts).sum() > 1e-13
        low, high = (middle, high) if over else (low, middle)
    return high


def find_common_instances(run, scores):
    """Return {(metric, variant): the instances that all explainers but graded controls cover}."""
    rungs, _ = run.explainers
    common_instances = {}
    for (metric, variant, explainer), part in scores.items():
        if not rungs[explainer] and sum(below for _, below in part.values()):
            pair = (metric, variant)
            common_instances[pair] = common_instances.get(pair, set(part)) & set(part)
    return common_instances


def find_used_instances(run, scores):
    """Return {(metric, variant, explainer): the instances that its value uses}."""
    rungs, _ = run.explainers
    if run.settings["support"] == "own":
        return {key: set(part) for key, part in scores.items()}
    common_instances = find_common_instances(run, scores)
    return {
        key: set(part) if rungs[key[2]] else set(part) & common_instances.get(key[:2], set(part))
        for key, part in scores.items()
    }


def compute_values(scores, used_instances=None):
    """Return ratios of sums, over some instances or all."""
    results = {}
    for key, part in scores.items():
        pairs = [pair for i, pair in part.items() if used_instances is None or i in used_instances[key]]
        if below := sum(b for _, b in pairs):
            results[key] = sum(a for a, _ in pairs) / below
    return results


def compare_pairs(values):
    """Return +1, 0 or -1 for each pair of explainers (pairs, 1 + B); values that differ by rounding are tied."""
    above, below = (np.array(side) for side in zip(*combinations(values, 2), strict=True))
    tolerance = 1e-12 * np.maximum(np.maximum(np.abs(above), np.abs(below)), 1e-3)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(above - below) <= tolerance, 0, np.sign(above - below))


def compute_kendall(ranking, truth):
    """Return τ (1 + B,) of two rankings of the same explainers."""
    return (ranking * truth).mean(axis=0)


SUBSETS = ("all", "without_controls")  # of explainers
STREAM_NAMES = {"shapley": "centered"}  # in keys of random streams, which never change


class ExplainerRankings:
    """The rankings of explainers by metrics, and their τ."""

    def __init__(self, run, draws):
        self.run, self.draws, self.orders, self.taus, self.common_explainers = run, draws, {}, {}, {}
        rungs, self.controls = run.explainers
        self.names = [name for name in rungs if not rungs[name]]

    def list_common_explainers(self, a, b, subset="all"):
        """List the explainers that have values by both metrics."""
        if (a, b, subset) not in self.common_explainers:
            self.common_explainers[a, b, subset] = tuple(
                name for name in self.names
                if (*a, name) in self.draws and (*b, name) in self.draws
                and (subset == "all" or not self.controls[name])
            )  # fmt: skip
        return self.common_explainers[a, b, subset]

    def get_oriented_values(self, metric, names):
        """Return values of a metric (1 + B,) with signs so that larger is better."""
        sign = -1 if self.run.record["metrics"][metric[0]]["better"] == "lower" else 1
        return [sign * self.draws[*metric, name] for name in names]

    def tau(self, a, b, subset="all"):
        """Return τ (1 + B,) between two metrics; None if both rank fewer than two explainers."""
        key = (a, b, subset)
        if key not in self.taus:
            names = self.list_common_explainers(a, b, subset)
            self.taus[key] = compute_kendall(self.order(a, names), self.order(b, names)) if len(names) > 1 else None
        return self.taus[key]

    def order(self, metric, names):
        if (metric, names) not in self.orders:
            self.orders[metric, names] = compare_pairs(self.get_oriented_values(metric, names))
        return self.orders[metric, names]


def compute_agreements(run):
    """Return {(metric, variant, truth, agreement, subset): figures} without graded controls."""
    rankings, level, results = ExplainerRankings(run, run.draws), run.settings["confidence"], {}
    for metric, variant, reference, agreement in list_agreements(run.record, run.draws):
        pair, truth = (metric, variant), (agreement, reference)
        for subset in SUBSETS:
            line = {"explainers": len(rankings.list_common_explainers(pair, truth, subset))}
            results[metric, variant, reference, agreement, subset] = line
            tau = rankings.tau(pair, truth, subset)
            if tau is None:
                continue
            line["tau"] = tau[0]
            if len(tau) > 1:
                line["tau_low"], line["tau_high"] = compute_interval(tau[1:], level)
    return results


def compute_interval(draws, level):
    """Return the ends of a percentile interval, with linear interpolation."""
    draws = np.sort(draws[~np.isnan(draws)])
    if not len(draws):
        return nan, nan
    return tuple(np.interp([(1 - level) / 2, (1 + level) / 2], np.linspace(0, 1, len(draws)), draws))


def reparametrise_model(box, changes, kinds, rng):
    """Return a model with other parameters and the same predictions."""
    model = object.__new__(Sum)
    model.bias, model.w = box.bias, box.w.copy()
    model.e, model.means, model.table_of = list(box.e), list(box.means), box.table_of
    for first_feature in dict.fromkeys(box.table_of):
        features = [j for j, table in enumerate(box.table_of) if table == first_feature]
        table, dim = box.e[first_feature], box.e[first_feature].shape[1]
        where = rng.random()
        # numbers of one bin have one vector
        rows = [row.tobytes() for row in table] if kinds[first_feature] == "number" else list(range(len(table)))
        vectors = list(dict.fromkeys(rows))
        _, sizes, directions = np.linalg.svd(box.w[features])
        unseen = directions[int((sizes > 1e-10 * max(sizes[0], 1e-300)).sum()) :]
        directions_drawn = rng.normal(size=(len(vectors), len(unseen)))
        if len(features) == 1:
            stretch = 2 ** rng.uniform(-1, 1) * np.eye(dim)
        else:
            rotation, upper = np.linalg.qr(rng.normal(size=(dim, dim)))
            rotation = rotation * np.sign(np.diag(upper))
            stretch = (rotation * 2 ** rng.uniform(-1, 1, dim)) @ rotation.T
        if "constant" in changes and len(features) == 1 and box.w[first_feature].any():
            w = box.w[first_feature]
            effects = [float(e @ w) for e in table]
            shift = -(min(effects) + where * (max(effects) - min(effects)))
            table = np.array([e + shift * w / float(w @ w) for e in table])
            model.bias -= shift
            model.means[first_feature] = model.means[first_feature] + shift * w / float(w @ w)
        if "orthogonal" in changes and len(unseen):
            size = sqrt(np.mean([float(e @ u) ** 2 for e in table for u in unseen]))
            new_vectors = []
            for row, e in zip(rows, table, strict=True):
                parts = zip(directions_drawn[vectors.index(row)], unseen, strict=True)
                new_vectors.append(e + sum((float(x) * size - float(e @ u)) * u for x, u in parts))
            table = np.array(new_vectors)
        if "scale" in changes:
            table = table @ stretch
            model.w[features] = box.w[features] @ np.linalg.inv(stretch)
            for j in features:
                model.means[j] = model.means[j] @ stretch
        for j in features:
            model.e[j] = table
    return model


def compute_invariance(run):
    """Return the figures of invariance.csv by key, and the (metric, variant, explainer) whose values change.

    It holds for searches that exchange values and do not use distances: their edits do not depend on the parameters.
    """
    record, box, rows, kinds = run.record, run.box, run.rows, [feature["kind"] for feature in run.features]
    short = any(v is None for row in rows.values() for v in row) or "token" in kinds
    shares_tables, has_constants = len(set(box.table_of)) < len(box.table_of), not short
    rank = int(np.linalg.matrix_rank(box.w)) if shares_tables else 1
    changes = ["constant"] * has_constants + ["orthogonal"] * (box.e[0].shape[1] > rank) + ["scale"]
    stored_scores, sample, codes = run.stored_scores, sample_instances(run), np.array(run.instances["codes"].to_list())

    def compute_sampled_values(scores):
        sampled_scores = {key: {i: pair for i, pair in part.items() if i in sample} for key, part in scores.items()}
        return compute_values(sampled_scores)

    base, changed_values, draws = compute_sampled_values(stored_scores), set(), {}
    for number in range(record["settings"]["reparametrisations"]):
        for name, kinds_of_change in [*((change, [change]) for change in changes), ("together", changes)]:
            if name == "together" and len(changes) == 1:
                continue
            rng = make_generator(record["settings"]["seed"], "reparametrisation", number)
            model = reparametrise_model(box, kinds_of_change, kinds, rng)
            assert np.abs(model.predict_rows(codes) - box.predict_rows(codes)).max() < 1e-9
            # removals by training rows use predictions only
            unchanged_scores = {key: part for key, part in stored_scores.items() if uses_predictions_only(*key[:2])}
            new_scores = unchanged_scores | compute_scores(run, model=model)
            draws.setdefault(name, []).append(compute_sampled_values(new_scores))
            changed_values |= {key for key, value in base.items() if differ(draws[name][-1].get(key, nan), value)}
    all_values = [base, *(values for of in draws.values() for values in of)]
    rankings = ExplainerRankings(run, {key: np.array([values.get(key, nan) for values in all_values]) for key in base})
    names, results = [name for name, of in draws.items() for _ in of], {}
    for metric, variant, reference, agreement in list_agreements(record, base):
        for subset in SUBSETS:
            taus = rankings.tau((metric, variant), (agreement, reference), subset)
            if taus is None:
                continue
            real = float(taus[0])
            changing = list(dict.fromkeys(name for name, tau in zip(names, taus[1:], strict=True) if differ(tau, real)))
            line = {
                "tau": real,
                "tau_lowest": find_lowest(taus),
                "tau_highest": -find_lowest(-taus),
                "not_identifiable": bool(changing),
            }
            single_changes = [name for name in changing if name != "together"] or changing
            line["changed_by"] = " ".join(single_changes) if subset == "all" else ""
            counts = {"instances": len(sample), "reparametrisations": len(next(iter(draws.values())))}
            results[metric, variant, reference, agreement, subset] = line | counts
    return results, changed_values


def find_lowest(taus):
    """Return the lowest τ; the first is that of the original model."""
    return float(min([taus[0], *taus[1:][~np.isnan(taus[1:])]]))


def uses_predictions_only(metric, variant):
    """Return whether a metric uses predictions only, and so does not depend on the parameters of the model."""
    return variant == "marginal" or metric in ("axe", "plausible")


def differ(value, original):
    """Return whether two values differ by more than rounding."""
    return np.isnan(value) != np.isnan(original) or abs(value - original) > 1e-9 + 1e-9 * abs(original)


def list_agreements(record, results):
    """List (metric, variant, truth, agreement) of all judged metrics and truths."""
    pairs, roles = dict.fromkeys(key[:2] for key in results), record["metrics"]
    judged_pairs = [pair for pair in pairs if roles[pair[0]]["role"] == "judged"]
    truths = [pair for pair in pairs if roles[pair[0]]["role"] == "truth"]
    return [(*pair, reference, agreement) for pair in judged_pairs for agreement, reference in truths]


def sample_instances(run):
    """Return the instances of the reparametrisation: those that all explainers cover, at most 500."""
    record, ids, k, covers, (rungs, _) = run.record, list(run.rows), run.k, {}, run.explainers
    for line in run.read_lines("explanations"):
        if not rungs[line.explainer] and len(line.features) >= k:
            covers.setdefault(line.explainer, set()).add(line.instance)
    candidates = [i for i in ids if all(i in instances for instances in covers.values())]
    if record["settings"]["support"] != "common" or not candidates:
        candidates = ids
    if len(candidates) > 500:
        rng = make_generator(record["settings"]["seed"], "reparametrisation.instances", None)
        places = [ids.index(i) for i in candidates]
        candidates = [ids[place] for place in rng.choice(places, 500, replace=False)]
    return set(candidates)


def aggregate_seeds(folders):
    """Return {(metric, variant, truth, subset): figures} of τ in seeds_correlations.csv."""
    records = [json.loads((folder / "run.json").read_text()) for folder in folders]
    agreement, roles = records[0]["settings"]["agreement"], records[0]["metrics"]
    lines, draws, names = [], [], ("metric", "variant", "truth", "subset")
    for folder in folders:
        correlations = pd.read_csv(folder / "correlations.csv")
        correlations = correlations[(correlations["family"] == "explainers") & (correlations["agreement"] == agreement)]
        lines.append({tuple(line[name] for name in names): line for line in correlations.to_dict("records")})
        of = {}
        for line in pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw").to_dict("records"):
            if line["agreement"] == agreement:
                of.setdefault(tuple(line[name] for name in names), []).append(line["tau"])
        draws.append(of)
    results, explainers_by_folder = {}, [list_explainers_with_value(folder) for folder in folders]
    keys = [key for key in dict.fromkeys(key for of in lines for key in of) if roles[key[0]]["role"] == "judged"]
    # keys of random streams never change
    for subset, stream in zip(SUBSETS, ("tau", "tau_without_controls"), strict=True):
        for reference in dict.fromkeys(key[2] for key in keys):
            subset_keys = [key for key in keys if key[2:] == (reference, subset)]
            for key in subset_keys:
                values = [of[key]["tau"] for of in lines if key in of and not np.isnan(of[key]["tau"])]
                errors = [of[key]["tau_se"] for of in lines if key in of and not np.isnan(of[key]["tau"])]
                results[key] = compute_spread(values, errors)
                move_flags = [
                    of[key]["not_identifiable"]
                    for of in lines
                    if key in of and of[key]["not_identifiable"] in (True, False)
                ]
                results[key]["not_identifiable"] = sum(map(bool, move_flags)) if move_flags else nan
            complete_keys = [
                key for key in subset_keys
                if all(key in of and not np.isnan(of[key]["tau"]) for of in lines)
                and all(len(of[key]) == max(map(len, of.values())) for of in draws)
            ]  # fmt: skip
            explainers = [
                [of[subset][key[:2]] & of[subset][agreement, reference] for of in explainers_by_folder]
                for key in complete_keys
            ]  # fmt: skip
            if len(folders) > 1 and complete_keys:
                values = [[of[key]["tau"] for key in complete_keys] for of in lines]
                draws_by_seed = [list(zip(*(of[key] for key in complete_keys), strict=True)) for of in draws]
                stream_key = f"{STREAM_NAMES.get(reference, reference)}.{stream}"
                for key, figures in zip(
                    complete_keys, compare_over_seeds(values, draws_by_seed, explainers, stream_key), strict=True
                ):
                    results[key] |= figures
    return results


def list_explainers_with_value(folder):
    """Return {subset: {(metric, variant): explainers}} with all ranked explainers, and without controls."""
    results = {subset: {} for subset in SUBSETS}
    metrics = pd.read_csv(folder / "metrics.csv")
    for line in metrics[metrics["value"].notna() & metrics["quality_level"].isna()].itertuples():
        results["all"].setdefault((line.metric, line.variant), set()).add(line.explainer)
        if not line.control:
            results["without_controls"].setdefault((line.metric, line.variant), set()).add(line.explainer)
    return results


def compute_spread(values, errors):
    """Return mean and deviation over seeds, and the parts of the deviation within and between seeds."""
    n = len(values)
    mean = sum(values) / n if n else nan
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else nan
    within_deviation = sqrt(sum(error**2 for error in errors) / n) if n else nan
    variance = deviation**2 - within_deviation**2
    between_deviation = nan if np.isnan(variance) else sqrt(max(0.0, variance))
    return {"seeds": n, "mean": mean, "deviation": deviation, "within": within_deviation, "between": between_deviation}


def compare_over_seeds(values, draws, explainers, key):
    """Test J metrics over S seeds: values (S, J), and resamples of the instances of each seed (B, J).

    A metric is compared with the metrics that rank the same explainers (J, S) in every seed.
    """
    size, n_metrics = len(values), len(values[0])
    rng = make_generator(0, f"seeds.{key}", None)
    seed_draws = rng.integers(size, size=(4000, size))
    means = np.zeros((4000, n_metrics))
    for seed in range(size):
        for place in range(size):
            positions = np.flatnonzero(seed_draws[:, place] == seed)
            means[positions] += np.array(draws[seed])[rng.integers(len(draws[seed]), size=len(positions))]
    means /= size
    columns = [(*(of[j] for of in values), *(row[j] for of in draws for row in of)) for j in range(n_metrics)]
    columns = [(*column, tuple(map(frozenset, names))) for column, names in zip(columns, explainers, strict=True)]
    kind = [columns.index(column) for column in columns]
    average = [sum(of[j] for of in values) / size for j in range(n_metrics)]
    fellows = [[i for i in range(n_metrics) if explainers[i] == explainers[j]] for j in range(n_metrics)]
    best = [max(fellows[j], key=lambda i: (average[i], -i)) for j in range(n_metrics)]
    p = [compute_p_value([of[j] for of in values], means[:, j]) for j in range(n_metrics)]
    behind = [compute_p_value([of[b] - of[j] for of in values], means[:, b] - means[:, j]) for j, b in enumerate(best)]
    p_holm, p_behind = adjust_holm(p, kind, []), adjust_holm(behind, kind, {kind[b] for b in best})
    level = stats.t.ppf(0.975, size - 1) / stats.norm.ppf(0.975) * sqrt(size / (size - 1))
    results = []
    for j in range(n_metrics):
        centre = means[:, j].mean()
        interval = np.quantile(centre + level * (means[:, j] - centre), [0.025, 0.975])
        ends = [min(1.0, max(-1.0, end)) for end in interval]  # no τ is beyond
        deviation = compute_spread([of[j] for of in values], [0.0] * size)["deviation"]
        results.append(
            {
                "low": ends[0], "high": ends[1], "p": p[j], "p_holm": p_holm[j],
                "needed": count_required_seeds(average[j], deviation, len(set(kind))),
                "behind": average[best[j]] - average[j], "p_behind": p_behind[j],
            }
        )  # fmt: skip
    return results


def compute_p_value(values, draws):
    """Return two-sided p of a zero mean over seeds: at least that of Student's t, and of a sign test."""
    n = len(values)
    sides = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    student = 0.0
    if len(set(values)) > 1:
        student = stats.ttest_1samp(values, 0).pvalue
    elif not values[0]:
        student = 1.0
    return max(min(1.0, 2 * (1 + sides) / (len(draws) + 1)), student, 0.5 ** (n - 1))


def adjust_holm(p, kind, excluded_kinds):
    """Adjust by Holm, with one test for each kind; NaN for excluded kinds."""
    tests = sorted((p[kind_number], kind_number) for kind_number in set(kind) if kind_number not in excluded_kinds)
    p_by_kind, max_p = {}, 0.0
    for place, (value, kind_number) in enumerate(tests):
        max_p = max(max_p, min(1.0, (len(tests) - place) * value))
        p_by_kind[kind_number] = max_p
    return [p_by_kind.get(kind_number, nan) for kind_number in kind]


def count_required_seeds(mean, deviation, tests):
    """Return the fewest seeds that pass a sign test and a normal approximation, both after Bonferroni."""
    if abs(mean) < 1e-12:
        return nan
    n = max(2, int(((stats.norm.isf(0.025 / tests) * deviation / mean) ** 2) // 1))
    while 2.0 ** (1 - n) >= 0.05 / tests or n < (stats.norm.isf(0.025 / tests) * deviation / mean) ** 2:
        n += 1
    return n
