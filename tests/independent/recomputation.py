"""Recomputes what a run folder tells with nothing of cfeval: only NumPy, SciPy, pandas and docs/run-folder.md."""

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

NEEDS_MODEL = {  # what cannot be told from predictions that are stored: other inputs must be put before the model
    "comprehensiveness", "sufficiency", "dfr", "pgi", "pgu", "aopc", "aopc_suff", "naopc", "edits_to_flip", "frozen",
    "faithfulness_correlation", "infidelity", "redundant", "axe", "plausible",
}  # fmt: skip
NEEDS_TRAINING = {"axe", "plausible", "pgi", "pgu"}  # and whatever is removed by `marginal` or `mean`


def sigmoid(z):
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


def generator(*key):
    """Random numbers as the documentation says they are drawn."""
    digest = blake2b("\0".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


class Sum:
    """A stored sum of effects for two classes, in the words of the documentation: also one of embeddings."""

    sums = True

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, self.w = float(file["bias"]), file["weights"]
            spans = list(zip(file["starts"].tolist(), file["sizes"].tolist(), strict=True))
            self.e = [file["embeddings"][start : start + size] for start, size in spans]
            self.table_of = [spans.index(span) for span in spans]  # the first feature that has the same table
            self.means = list(file["means"])

    def vector(self, j, v):
        """The embedding of a code; one that has been moved is its own."""
        return v if isinstance(v, np.ndarray) else self.e[j][v]

    def effect(self, j, v):
        """What a value adds to the logit; nothing where it is deleted."""
        if isinstance(v, np.ndarray):
            return float(self.w[j] @ v)
        return 0.0 if v is None else self.added[j][v]

    def effects(self, j, label):
        """What every value adds to the logit of a class."""
        return [(1 if label else -1) * added for added in self.added[j][:-1]]

    def centre(self, j, label):
        """What the values of the training rows add on average."""
        return (1 if label else -1) * float(self.means[j] @ self.w[j])

    def p(self, row):
        """P(1|x); a feature that is None is padding, or deleted."""
        return sigmoid(self.bias + sum(self.effect(j, v) for j, v in enumerate(row)))

    def of(self, row, label):
        """P(label|x)."""
        return self.p(row) if label == 1 else 1 - self.p(row)

    def label(self, row):
        return int(self.p(row) > 0.5)

    def reads(self, j):
        return self.w[j].any()

    def many(self, rows):
        """Probabilities (n, 2) of codes (n, M), -1 where a feature is absent."""
        with np.errstate(over="ignore"):
            p = 1 / (1 + np.exp(-(self.bias + sum(table[rows[:, j]] for j, table in enumerate(self.tables)))))
        return np.stack([1 - p, p], axis=1)

    @cached_property
    def tables(self):
        return [np.append(e @ w, 0.0) for e, w in zip(self.e, self.w, strict=True)]  # -1 is the last

    @cached_property
    def added(self):
        """What each code of each feature adds to the logit, and what it adds where it is absent."""
        return [table.tolist() for table in self.tables]


class Told:
    """Any model of whole rows: probabilities (n, C) of codes (n, M); the class is the first of the likeliest."""

    sums = False

    def __init__(self, ask):
        self.ask, self.known = ask, {}

    def many(self, rows):
        """Each row is asked for once."""
        rows = [tuple(row) for row in rows.tolist()]
        new = [row for row in dict.fromkeys(rows) if row not in self.known]
        if new:
            self.known.update(zip(new, self.ask(np.array(new)), strict=True))
        return np.array([self.known[row] for row in rows])

    def of(self, row, label):
        return float(self.many(np.array([row]))[0, label])

    def label(self, row):
        return int(self.many(np.array([row]))[0].argmax())


def tree(path):
    """The stored tree: from the root left or right by the value of a node's feature, to a leaf."""
    with np.load(path, allow_pickle=False) as file:
        feature, left, right, tests, probabilities = (
            file[name].tolist() for name in ("feature", "left", "right", "tests", "probabilities")
        )

    def leaf(row):
        node = 0
        while feature[node] != -1:
            node = left[node] if tests[node][row[feature[node]]] else right[node]
        return probabilities[node]

    grown = Told(lambda rows: np.array([leaf(row) for row in rows.tolist()]))
    grown.reads = lambda j: j in feature
    return grown


class Classes(Told):
    """A stored sum of effects for each of several classes."""

    sums = True

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, sizes, self.means = file["bias"], file["sizes"].tolist(), file["means"]
            starts = np.cumsum([0, *sizes])
            self.tables = [file["effects"][start : start + size] for start, size in zip(starts, sizes, strict=False)]

    def many(self, rows):
        raised = np.exp(self.bias + sum(table[rows[:, j]] for j, table in enumerate(self.tables)))
        return raised / raised.sum(axis=1, keepdims=True)

    def effects(self, j, label):
        """On the logit of a class, less the mean of the others'."""
        table = self.tables[j]
        return (table[:, label] - np.delete(table, label, axis=1).mean(axis=1)).tolist()

    def centre(self, j, label):
        return float(self.means[j][label] - np.mean(np.delete(self.means[j], label)))


class Run:
    """A run folder, read once; `ask` is the model, codes (n, M) to probabilities (n, C), if it is not in the folder."""

    def __init__(self, folder, ask=None):
        self.folder, self.record, self.files = folder, json.loads((folder / "run.json").read_text()), {}
        described = json.loads((folder / "dataset.json").read_text())
        self.settings, self.k = self.record["settings"], self.record["settings"]["k"]
        self.mask, self.features, self.classes = described["unknown"], described["features"], described["classes"]
        self.names = [described["values"][feature["values"]] for feature in self.features]
        self.text = described["kind"] == "text"
        self.instances = pd.read_parquet(folder / "instances.parquet").set_index("instance")
        self.rows = {i: [None if c == -1 else int(c) for c in codes] for i, codes in self.instances["codes"].items()}
        self.labels, self.were = self.instances["predicted"].astype(int).to_dict(), {}
        self.train, self.box = self.read_training(), self.read_model(ask)
        self.embedded = isinstance(self.box, Sum) and "zero" not in self.record["removals_absent"]
        self.ways = {variant: self.way(variant) for variant in self.record["removals"]}
        self.ways = {variant: way for variant, way in self.ways.items() if way is not None}
        self.known = {}

    def of(self, other):
        """The same run with the model in other parameters: what is removed there does not ask the training rows."""
        same = copy(self)
        same.box, same.were, same.known = other, {}, {}
        same.ways = {variant: way for variant, way in self.ways.items() if variant in ("del", "mask")}
        return same

    def lines(self, name):
        """Those of a Parquet file, read once."""
        if ("lines", name) not in self.files:
            self.files["lines", name] = list(pd.read_parquet(self.folder / f"{name}.parquet").itertuples())
        return self.files["lines", name]

    @cached_property
    def explainers(self):
        """For each explainer whether it is a rung of a ladder, and whether it is a control."""
        lines = pd.read_csv(self.folder / "metrics.csv").drop_duplicates("explainer").set_index("explainer")
        return lines["quality_level"].notna().to_dict(), lines["control"].to_dict()

    @cached_property
    def stored_scores(self):
        """scores.parquet, in the same form as the scores that are recomputed; with `marginal`."""
        scores = {}
        for row in self.lines("scores"):
            key = (row.metric, row.variant, row.explainer)
            scores.setdefault(key, {})[row.instance] = (row.numerator, row.denominator)
        return scores

    @cached_property
    def drawn(self):
        """{(metric, variant, explainer): its value, then that of every resample (1 + B,)}."""
        ids, scores = list(self.rows), self.stored_scores
        rng = generator(self.settings["seed"], "bootstrap", None)
        drawn = rng.integers(0, len(ids), (self.record["resampled"], len(ids)))
        times = np.stack([np.bincount(row, minlength=len(ids)) for row in drawn]).astype(float)
        times = np.concatenate([np.ones((1, len(ids))), times])
        some, found = counted(self, scores), {}
        for name, part in scores.items():
            pairs = np.array([part[i] if i in part and i in some[name] else (0.0, 0.0) for i in ids])
            above, below = (times @ pairs).T
            if below[0]:
                with np.errstate(divide="ignore", invalid="ignore"):
                    found[name] = np.where(below != 0, above / below, np.nan)
        return found

    def read_training(self):
        """The training rows' codes (n, M), or None if the folder does not have them."""
        path = self.folder / "training.parquet"
        return np.stack(pd.read_parquet(path)["codes"].to_list()) if path.exists() else None

    def read_model(self, ask):
        path = self.folder / "model.npz"
        if ask is not None or not path.exists():
            return None if ask is None else Told(ask)
        with np.load(path, allow_pickle=False) as file:
            kind = Sum if "weights" in file else tree if "tests" in file else Classes if "effects" in file else None
        return kind(path) if kind else None

    def label(self, i):
        return self.labels[i]

    def before(self, i):
        """P(ŷ|x), by the model if there is one."""
        if i not in self.were:
            told = self.box is not None
            self.were[i] = (
                self.box.of(self.rows[i], self.label(i)) if told else self.instances.at[i, "predicted_probability"]
            )
        return self.were[i]

    def values(self, j):
        """The codes that a feature could have instead: of a number those that are tried, and never the mask."""
        codes = self.features[j].get("candidates", range(len(self.names[j])))
        return [code for code in codes if code != self.mask]

    def others(self, j, own):
        """Those that it may have instead of its own."""
        moves, missing = self.features[j].get("allowed_change", "any"), self.features[j].get("missing")
        sides = {"any": lambda v: True, "none": lambda v: False, "up": lambda v: v > own, "down": lambda v: v < own}
        free = [v for v in self.values(j) if v != own and sides[moves](v)]
        return free if moves == "any" else [v for v in free if missing not in (v, own)]

    def way(self, variant):
        """What takes the place of some features of a row: None if that cannot be told from the folder."""
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
            means = [np.mean([self.box.e[j][v] for v in self.having(j)], axis=0) for j in range(len(self.features))]
            return lambda features: ([[means[j] for j in features]], [1.0])
        return self.marginal(facts["settings"]["draws"], facts["settings"]["seed"])

    def marginal_of(self, draws):
        """The removal by `marginal` with fewer draws."""
        if ("coarse", draws) not in self.known:
            settings = self.record["removals"]["marginal"]["settings"]
            self.known["coarse", draws] = self.marginal(min(draws, settings["draws"]), settings["seed"])
        return self.known["coarse", draws]

    def having(self, j):
        """The codes of the training rows that have a feature; a word is the same wherever it stands."""
        mine = self.train.ravel() if self.text else self.train[:, j]
        return mine[mine != -1]

    def marginal(self, draws, seed):
        """Values of training rows, all of a row's together: all combinations, or so many draws."""
        known = {}

        def combined(features):
            if self.text:
                words = self.having(0)
                codes, counts = np.unique(words, return_counts=True)
                if len(features) == 1 and len(codes) <= draws:
                    return codes[:, None], counts / len(words)
                shares = np.bincount(words, minlength=len(self.names[0])) / len(words)
                drawn = generator(seed, "removal.marginal", None).choice(len(shares), (draws, len(features)), p=shares)
                return drawn, np.full(draws, 1 / draws)
            if len(np.unique(numbered(self.train[:1000], features))) <= draws:
                every = numbered(self.train, features)
                _, first, counts = np.unique(every, return_index=True, return_counts=True)
                if len(first) <= draws:
                    return self.train[first][:, features], counts / len(self.train)
            if "rows" not in known:  # the same for any features
                rows = generator(seed, "removal.marginal", None).integers(0, len(self.train), draws)
                known["rows"] = self.train[rows]
            return known["rows"][:, features], np.full(draws, 1 / draws)

        def numbered(rows, features):
            """One number for each combination of values."""
            sizes = [len(self.names[j]) + 1 for j in features]
            number = np.zeros(len(rows), dtype=np.int64 if prod(sizes) < 2**62 else object)
            for j, size in zip(features, sizes, strict=True):
                number = number * size + rows[:, j]
            return number

        def instead(features):
            if tuple(features) not in known:
                known[tuple(features)] = combined(features)
            return known[tuple(features)]

        return instead

    def without(self, way, i, gone):
        """(what is left of p(ŷ), the share that flips, the mean of |p - p′|) without some features of a row."""
        gone = tuple(sorted(j for j in gone if self.rows[i][j] is not None))
        key = (way, i, gone)
        if key in self.known:
            return self.known[key]
        row, label, was = self.rows[i], self.label(i), self.before(i)
        if (way, gone) not in self.known:  # the same for all rows
            values, weights = way(list(gone))
            alone = len(values) == 1 and isinstance(self.box, Sum)  # of which one row is asked in less time
            codes = None if alone else np.array([[-1 if v is None else v for v in one] for one in values])
            self.known[way, gone] = values, np.array(weights, dtype=float), codes
        values, weights, codes = self.known[way, gone]
        if codes is None:
            moved = list(row)
            for j, v in zip(gone, values[0], strict=True):
                moved[j] = v
            p = self.box.of(moved, label)
            self.known[key] = p, float(self.box.label(moved) != label), abs(was - p)
        else:
            edited = np.tile([-1 if v is None else v for v in row], (len(values), 1))
            edited[:, list(gone)] = codes
            told = self.box.many(edited)
            p, flips = told[:, label], told.argmax(axis=1) != label
            self.known[key] = float(weights @ p), float(weights[flips].sum()), float(weights @ np.abs(was - p))
        return self.known[key]

    def space(self, access):
        """In which space distances are measured."""
        chosen = self.record["setup"].rpartition("(space: ")[2].partition(")")[0]
        if chosen != "auto":
            return chosen
        return "scaled" if not self.embedded else "onehot" if access == "label" else "embedding"

    def distance(self, row, edited, access):
        """Euclidean."""
        space, squared = self.space(access), 0.0
        for j, (a, b) in enumerate(zip(row, edited, strict=True)):
            if a is b or (not isinstance(b, np.ndarray) and a == b):
                continue
            if space == "onehot":
                squared += 2
            elif space == "scaled":
                squared += self.apart(j, a, b)
            else:
                squared += float(((self.box.e[j][a] - self.box.vector(j, b)) ** 2).sum())
        return squared**0.5

    def apart(self, j, a, b):
        """The squared distance of two values: 2 for categories, ranks of ordered ones, numbers in units of the MAD."""
        if a == b:
            return 0.0
        feature, missing = self.features[j], self.features[j].get("missing")
        if feature["kind"] != "number" and not feature.get("ordered"):
            return 2.0
        if ("places", j) not in self.known:
            number = feature["kind"] == "number"
            line = [
                nan if c == missing else float(name) if number else float(c) for c, name in enumerate(self.names[j])
            ]
            there = np.array([line[c] for c in self.train[:, j] if c != missing])
            middle = float(np.median(there))
            unit = (float(np.median(np.abs(there - middle))) or float(np.std(there)) or 1.0) if number else 1.0
            self.known["places", j] = [((middle if c == missing else v) / unit) for c, v in enumerate(line)]
        places = self.known["places", j]
        return (places[a] - places[b]) ** 2 + (2.0 if missing in (a, b) else 0.0)

    def squares(self, row, features):
        """The squared distance of each training row in some features."""
        total = np.zeros(len(self.train))
        for j in features:
            if (j, row[j]) not in self.known:
                self.known[j, row[j]] = np.array([self.apart(j, row[j], v) for v in range(len(self.names[j]))])
            total += self.known[j, row[j]][self.train[:, j]]
        return total

    def votes(self, row, features, size):
        """The share of each class among the nearest training rows; those at the last distance share what is left."""
        if "classes" not in self.known:
            self.known["classes"] = self.box.many(self.train).argmax(axis=1)
        squared = self.squares(row, features)
        last = np.sort(squared)[min(size, len(squared)) - 1]
        near = squared < last - 1e-9 * max(1.0, last)
        tied = ~near & (squared <= last + 1e-9 * max(1.0, last))
        left, found = min(size, len(squared)) - near.sum(), []
        for c in range(len(self.classes)):
            mine = self.known["classes"] == c
            found.append((near[mine].sum() + left * tied[mine].sum() / tied.sum()) / min(size, len(squared)))
        return found


def truths(run):
    """{(truth, instance): the importance of each feature}, of the truths that follow from what is known."""
    found = {}
    for name in run.record["truths"]:
        known = referred(run, name)
        for i, row in run.rows.items():
            if i not in known:
                found[name, i] = [nan] * len(row)
                continue
            there = [j for j, v in enumerate(row) if v is not None]
            importance = {"shapley": shapley, "responsibility": responsibility}.get(name)
            told = importance(run, i) if importance else {j: IMPORTANCE[name](run, i, j) for j in there}
            found[name, i] = [told.get(j, nan) for j in range(len(row))]
    return found


def referred(run, name):
    """The instances on which a truth is known: all, or the first of an order that belongs to the seed."""
    order = generator(run.record["settings"]["seed"], "reference", None).permutation(len(run.rows))
    return {list(run.rows)[place] for place in order[: run.record["truths"][name]["instances"]]}


def effect_of(run, i, j, v):
    return run.box.effects(j, run.label(i))[v]


def contrast(run, i, j):
    """The largest drop that another value causes: of the logit if that is a sum, else of p(ŷ); 0 if there is none."""
    row, label = run.rows[i], run.label(i)
    others = run.others(j, row[j])
    if run.box.sums:
        effects = run.box.effects(j, label)
        return max((effects[row[j]] - effects[v] for v in others), default=0.0)
    return max((run.before(i) - run.box.of([*row[:j], v, *row[j + 1 :]], label) for v in others), default=0.0)


def shapley(run, i):
    """Exact Shapley values: of the logit if it is a sum of effects, else of p(ŷ) from all subsets of features."""
    if run.box.sums:
        label, there = run.label(i), [j for j, v in enumerate(run.rows[i]) if v is not None]
        return {j: effect_of(run, i, j, run.rows[i][j]) - run.box.centre(j, label) for j in there}
    row, label, facts = np.array(run.rows[i]), run.label(i), run.record["truths"]["shapley"]["settings"]
    width = len(row)
    if "background" not in run.known:
        rows = np.arange(len(run.train))
        if not (run.folder / "model.npz").exists():  # a tree takes all
            size = min(facts["background"], len(rows))
            rows = np.sort(generator(facts["seed"], "truth.shapley", None).choice(len(rows), size, replace=False))
        run.known["background"] = run.train[rows]
    worth = {}
    for size in range(width + 1):
        for inside in combinations(range(width), size):
            outside = [j for j in range(width) if j not in inside]
            kinds, counts = np.unique(run.known["background"][:, outside], axis=0, return_counts=True)
            mixed = np.tile(row, (len(kinds), 1))
            mixed[:, outside] = kinds
            worth[inside] = float(run.box.many(mixed)[:, label] @ counts / counts.sum())
    told = {}
    for j in range(width):
        without = [inside for inside in worth if j not in inside]
        steps = ((worth[tuple(sorted((*one, j)))] - worth[one], len(one)) for one in without)
        told[j] = sum(step / (width * comb(width - 1, size)) for step, size in steps)
    return told


def responsibility(run, i, most=None):
    """1 / the size of the smallest set with the feature that can flip and none of whose parts can."""
    row, label = run.rows[i], run.label(i)
    there = [j for j, v in enumerate(row) if v is not None]
    most = most or (len(there) if isinstance(run.box, Told) and (run.folder / "model.npz").exists() else 2)
    minimal = []
    for size in range(1, most + 1):
        for some in combinations(there, size):
            if any(set(one) <= set(some) for one in minimal):
                continue
            tried = [list(zip(some, chosen, strict=True)) for chosen in product(*(run.others(j, row[j]) for j in some))]
            if any(run.box.label([dict(edit).get(j, v) for j, v in enumerate(row)]) != label for edit in tried):
                minimal.append(some)
    return {j: max((1 / len(one) for one in minimal if j in one), default=0.0) for j in there}


IMPORTANCE = {
    "signed": lambda run, i, j: effect_of(run, i, j, run.rows[i][j]),
    "absolute": lambda run, i, j: abs(effect_of(run, i, j, run.rows[i][j])),
    "contrast": contrast,
    "used": lambda run, i, j: float(run.box.reads(j)),
}


def shares_of_reference(importance, named, k):
    """(recall, hit): the mean over all ways to break ties of the share of the k most important that are named."""
    there = [j for j, v in enumerate(importance) if not np.isnan(v)]
    size = min(k, len(there))
    last = sorted((importance[j] for j in there), reverse=True)[size - 1] if size else 0.0
    sure = {j for j in there if importance[j] > last}
    tied = [j for j in there if importance[j] == last]
    references = [sure | set(rest) for rest in combinations(tied, size - len(sure))]
    found = [len(reference.intersection(named)) for reference in references]
    return sum(found) / len(found) / k, sum(one > 0 for one in found) / len(found)


def recompute(folder, ask=None):
    """{(metric, variant, explainer): value} for everything with a value, on the instances that count."""
    run = Run(folder, ask)
    scores = scored(run)
    return values(scores, counted(run, scores))


def beyond(run):
    """Whether a metric and its variant are beyond what the folder, and the model if it is given, can tell."""

    def check(metric, variant):
        if run.box is None and metric in NEEDS_MODEL:
            return True
        return run.train is None and (metric in NEEDS_TRAINING or variant in ("marginal", "mean"))

    return check


def scored(run, end="", other=None):
    """{(metric, variant, explainer): {instance: (numerator, denominator)}} of the first explanations, or of others.

    `other` is the model in other parameters, by which the same explanations and edits are scored: only what can change.
    """
    run = run if other is None else run.of(other)
    record, found, k, metrics = run.record, {}, run.k, run.record["metrics"]

    def add(key, i, numerator, denominator=1.0):
        assert i not in found.setdefault(key, {})
        found[key][i] = (numerator, denominator)

    important = important_features(run) if other is None else truths(run)
    references = {}
    for told in run.lines(f"explanations{end}"):
        i, named, name = told.instance, [int(j) for j in told.features][:k], told.explainer
        add(("coverage", "all", name), i, float(len(named) == k))
        if len(named) < k:
            continue
        for definition in record["truths"]:
            key = (definition, i, *named)
            if key not in references:
                known = not np.isnan(important[definition, i]).all()
                references[key] = shares_of_reference(important[definition, i], named, k) if known else None
            if references[key] is None:
                continue
            recall, hit = references[key]
            add(("recall", definition, name), i, recall)
            add(("hit", definition, name), i, hit)
        if any(feature.get("not_identifiable") for feature in run.features):
            add(("fixed", "all", name), i, float(not any(run.others(j, run.rows[i][j]) for j in named)))
        if run.box is None:
            continue
        for variant, way in run.ways.items():
            erased(run, add, (variant, name), way, told, named)
        if "marginal" in run.ways:
            for metric, gone in (("pgi", named), ("pgu", [j for j in range(len(run.features)) if j not in named])):
                add((metric, "marginal", name), i, run.without(run.ways["marginal"], i, gone)[2])
        if "edits_to_flip" in metrics and record["ordered"][name]:
            add(("edits_to_flip", "greedy", name), i, edits(run, i, [int(j) for j in told.features]))
        if "frozen" in metrics:
            others = [j for j, v in enumerate(run.rows[i]) if v is not None and j not in named]
            sets = combinations(others, min(k, len(run.features) - k, len(others)))
            add(("frozen", "all sets", name), i, float(any(flips(run, i, some) for some in sets)))
        if "axe" in metrics and run.train is not None and other is None:
            votes = run.votes(run.rows[i], named, metrics["axe"]["settings"]["neighbours"])
            most = [c for c, vote in enumerate(votes) if vote >= max(votes) - 1e-9]
            add(("axe", "nearest", name), i, float(run.label(i) in most) / len(most))
    for edit in run.lines(f"counterfactuals{end}"):
        edited_scores(run, add, edit, other is None)
    return found


def important_features(run):
    """{(truth, instance): the importance of each feature} as it is stored."""
    lines = run.lines("truth") if (run.folder / "truth.parquet").exists() else ()
    return {(line.truth, line.instance): line.importance for line in lines}


def erased(run, add, key, way, told, named):
    """What follows from taking features away."""
    i, metrics, was = told.instance, run.record["metrics"], run.before(told.instance)
    left, flipped, _ = run.without(way, i, named)
    add(("comprehensiveness", *key), i, was - left)
    add(("dfr", *key), i, flipped)
    rest = [j for j in range(len(run.features)) if j not in named]
    add(("sufficiency", *key), i, was - run.without(way, i, rest)[0])
    if not run.record["ordered"][told.explainer]:
        return
    down = Down(run, i, way, key[0])
    order = [int(j) for j in told.features]
    if {"aopc", "naopc"} & set(metrics):
        aopc = down.mean(order)
        add(("aopc", *key), i, aopc)
    if "aopc_suff" in metrics:
        add(("aopc_suff", *key), i, down.mean(order, keep=True))
    if "naopc" in metrics:
        worst, best = down.ends()
        far = best - worst > 1e-12
        add(("naopc", *key), i, (aopc - worst) / (best - worst) if far else 0.0, float(far))
    if "infidelity" in metrics:
        sums, drops = down.sums(order, told.scores, metrics["infidelity"]["settings"])
        square = sum(a * a for a in sums)
        slope = sum(a * b for a, b in zip(sums, drops, strict=True)) / square if square else 0.0
        add(("infidelity", *key), i, np.mean([(slope * a - b) ** 2 for a, b in zip(sums, drops, strict=True)]))
        sizes = [np.std(side) / max(1e-300, max(map(abs, side))) for side in (sums, drops)]
        varies = min(sizes) > 1e-12
        alike = np.corrcoef(sums, drops)[0, 1] if varies else 0.0
        add(("faithfulness_correlation", *key), i, alike, float(varies))


def edited_scores(run, add, edit, whole):
    """What follows from one counterfactual."""
    i, row, label, metrics = edit.instance, run.rows[edit.instance], run.label(edit.instance), run.record["metrics"]
    edited = list(row)
    if edit.codes is None:
        for j, v in zip(edit.features, edit.vectors, strict=True):
            edited[j] = np.array(v)
        add(("converged", edit.access, edit.explainer), i, float(edit.converged))
    else:
        for j, v in zip(edit.features, edit.codes, strict=True):
            edited[j] = int(v)
    after = edit.label if run.box is None else run.box.label(edited)
    flip = float(after != label)
    far, key = run.distance(row, edited, edit.access), (edit.access, edit.explainer)
    add(("validity", *key), i, flip)
    add(("proximity", *key), i, far)
    add(("proximity_flips", *key), i, flip * far, flip)
    add(("c", *key), i, flip, far)
    changed = [j for j, v in enumerate(row) if v is not None and moved(run.box, j, v, edited[j])]
    add(("sparsity", *key), i, flip * len(changed), flip)
    if edit.access != "label":
        drop = run.before(i) - (edit.probability if run.box is None else run.box.of(edited, label))
        add(("validity_soft", *key), i, drop)
        add(("c_soft", *key), i, drop, far)
    if run.box is None:
        return
    spare = 0
    for j in changed:
        reset = list(edited)
        reset[j] = row[j]
        spare += int(run.box.label(reset) != label)
    add(("redundant", *key), i, flip * spare, flip)
    if "plausible" in metrics and whole and run.train is not None and edit.codes is not None:
        votes = run.votes(edited, range(len(row)), metrics["plausible"]["settings"]["neighbours"])
        add(("plausible", *key), i, flip * votes[after], flip)


def moved(box, j, value, now):
    """Whether an edit has changed a feature."""
    return bool((box.e[j][value] != now).any()) if isinstance(now, np.ndarray) else value != now


def flips(run, i, features):
    """Whether some values of some features change the label."""
    row = run.rows[i]
    key = ("flips", i, tuple(features))
    if key not in run.known:
        chosen = list(product(*({row[j], *run.others(j, row[j])} for j in features)))
        edited = np.tile([-1 if v is None else v for v in row], (len(chosen), 1))
        edited[:, list(features)] = chosen
        run.known[key] = bool((run.box.many(edited).argmax(axis=1) != run.label(i)).any())
    return run.known[key]


def edits(run, i, features):
    """How many features it takes, each in its turn with the value that leaves least of p(ŷ)."""
    row, label, most = list(run.rows[i]), run.label(i), min(10, len(run.features))
    left = run.before(i)
    for step, j in enumerate(features[:most]):
        tried = [[*row[:j], v, *row[j + 1 :]] for v in run.others(j, run.rows[i][j])]
        if any(run.box.label(one) != label for one in tried):
            return step + 1.0
        best = min(tried, key=lambda one: run.box.of(one, label), default=row)
        if run.box.of(best, label) < left:
            row, left = best, run.box.of(best, label)
    return most + 1.0


class Down:
    """Removing the features of one instance, one after the other."""

    def __init__(self, run, i, way, variant):
        self.run, self.i, self.way, self.variant = run, i, way, variant
        self.there = [j for j, v in enumerate(run.rows[i]) if v is not None]
        size = len(self.there)
        shares = (0.01, 0.05, 0.1, 0.2, 0.5)
        self.sizes = [ceil(round(s * size, 9)) for s in shares] if run.text else list(range(1, min(10, size) + 1))

    def drop(self, gone):
        """p of the label before, less p without some features."""
        return self.run.before(self.i) - self.run.without(self.way, self.i, gone)[0]

    def mean(self, order, keep=False):
        """Over the first features, or all but those."""
        firsts = [order[:size] for size in self.sizes]
        gone = [[j for j in self.there if j not in one] if keep else one for one in firsts]
        return sum(map(self.drop, gone)) / len(gone)

    def ends(self):
        """The worst and the best order: exact where the logit is a sum and one value stands in, or where all subsets
        fit the setting `rows`; else by a beam."""
        key = ("ends", self.variant, self.i)
        if key not in self.run.known:
            if self.variant == "marginal" or not self.run.embedded:
                by_subsets = self.fits_subsets()
                self.run.known[key] = self.by_subsets() if by_subsets else (self.beam(-1), self.beam(1))
            elif len(self.there) <= 4:
                drops = {one: self.drop(one) for size in set(self.sizes) for one in combinations(self.there, size)}
                orders = permutations(self.there)
                sums = [sum(drops[tuple(sorted(order[:size]))] for size in self.sizes) for order in orders]
                self.run.known[key] = min(sums) / len(self.sizes), max(sums) / len(self.sizes)
            else:
                order = sorted(self.there, key=self.taken)  # of many features by what each takes from the logit
                self.run.known[key] = self.mean(order), self.mean(order[::-1])
        return self.run.known[key]

    def fits_subsets(self):
        """Whether all subsets of an instance, each with all draws, are no more than `rows`."""
        width = len(self.run.features)
        longest = ceil(0.5 * width) if self.run.text else min(10, width)
        sets = sum(comb(width, size) for size in range(1, longest + 1))
        draws = len(self.way(list(range(width)))[0])
        rows = self.run.record["metrics"]["naopc"]["settings"]["rows"]
        return sets * draws <= rows

    def by_subsets(self):
        """The worst and the best mean over all orders, from those of all sets that an order may begin with."""
        known = {frozenset(): (0.0, 0.0)}
        for size in range(1, max(self.sizes) + 1):
            grown = {}
            for one in map(frozenset, combinations(self.there, size)):
                drop = self.sizes.count(size) * self.drop(one) if size in self.sizes else 0.0
                before = [known[one - {j}] for j in one]
                grown[one] = min(low for low, _ in before) + drop, max(high for _, high in before) + drop
            known = grown
        worst, best = min(low for low, _ in known.values()), max(high for _, high in known.values())
        return worst / len(self.sizes), best / len(self.sizes)

    def taken(self, j):
        """What removing a feature takes from the logit of the label."""
        box, instead = self.run.box, self.way([j])[0][0][0]
        sign = 1 if self.run.label(self.i) else -1
        return sign * (box.effect(j, self.run.rows[self.i][j]) - box.effect(j, instead))

    def beam(self, sign):
        """Orders grow by one feature, and of each length the best few that remove different features are kept.

        They are told apart by few draws, and the one that is found is scored with all.
        """
        settings = self.run.record["metrics"]["naopc"]["settings"]
        coarse = self.run.marginal_of(settings["draws"]) if self.variant == "marginal" else self.way
        kept, last = {(): 0.0}, max(self.sizes)
        for size in range(1, last + 1):
            counted, grown = self.sizes.count(size), {}
            for order, total in kept.items():
                for j in (j for j in self.there if j not in order):
                    drop = sign * (self.run.before(self.i) - self.run.without(coarse, self.i, (*order, j))[0])
                    worth = round(total + max(1, counted) * drop, 12)
                    known = grown.get(frozenset((*order, j)))
                    if known is None or worth > known[0]:
                        grown[frozenset((*order, j))] = worth, (*order, j), total + counted * drop
            best = sorted(grown, key=lambda one: (-grown[one][0], [j in one for j in self.there]))
            kept = {grown[one][1]: grown[one][2] for one in best[: settings["width"]]}
        return self.mean(max(kept, key=lambda order: round(kept[order], 12)))

    def sums(self, order, scores, settings):
        """For random sets the sum of their scores, and what removing them does."""
        rng = generator(settings["seed"], "metric.subsets", self.i)
        size, of = max(1, round(settings["share"] * len(self.there))), dict(zip(order, scores, strict=True))
        lines = rng.random((settings["subsets"], len(self.run.features)))
        sets = [sorted(self.there, key=line.__getitem__)[:size] for line in lines]
        return [sum(of.get(j, 0.0) for j in one) for one in sets], [self.drop(set(one)) for one in sets]


def noise(run, once):
    """Return the lines of explainer_stability.csv and those of explainer_stability_metrics.csv, by their keys.

    `once` are the scores of the first explanations.
    """
    record, k, confidence = run.record, run.k, run.settings["confidence"]
    first, second = (
        {(line.explainer, line.instance): line for line in run.lines(name)}
        for name in ("explanations", "explanations_again")
    )
    names = {}
    for explainer in dict.fromkeys(name for name, _ in second):
        asked = [(first[key], line) for key, line in second.items() if key[0] == explainer]
        answered = [(a, b) for a, b in asked if not isinstance(a.fault, str) and not isinstance(b.fault, str)]
        lists = [(list(a.features), list(b.features)) for a, b in answered]
        lists = [(a, b) for a, b in lists if a or b]
        sets = [(set(a[:k]), set(b[:k])) for a, b in lists]
        n, same = len(sets), sum(a == b for a, b in sets)
        rare = (1 - confidence) / 2
        alike = all(list(a.features) == list(b.features) and list(a.scores) == list(b.scores) for a, b in answered)
        names[explainer] = {
            "n_requested": len(asked),
            "instances": n,
            "same_features": same / n if n else nan,
            "low": nan if not n else 0.0 if not same else beta.ppf(rare, same, n - same + 1),
            "high": nan if not n else 1.0 if same == n else beta.ppf(1 - rare, same + 1, n - same),
            "overlap": sum(len(a & b) / max(len(a), len(b)) for a, b in sets) / n if n else nan,
            "same_order": sum(a == b for a, b in lists) / n if n else nan,
            "deterministic": ("yes" if alike else "no") if n else "",
        }
    values = {}
    for key, parts in scored(run, "_again").items():
        if record["metrics"].get(key[0], {"role": "fact"})["role"] == "fact":
            continue
        pairs = [(*once[key][i], *part) for i, part in parts.items() if i in once.get(key, {})]
        if pairs:
            values[key] = twice(np.array(pairs))
    return names, values


def twice(pairs):
    """A line of explainer_stability_metrics.csv from numerator and denominator with either seed (n, 4)."""
    size = len(pairs)
    one, two = (
        a.sum() / b.sum() if b.sum() else nan for a, b in ((pairs[:, 0], pairs[:, 1]), (pairs[:, 2], pairs[:, 3]))
    )
    nothing = {"instances": size, "value": one, "value_again": two, "difference": nan, "se": nan, "explainer_se": nan}
    if np.isnan([one, two]).any():
        return nothing
    both, mean = (pairs[:, 0] + pairs[:, 2]).sum() / (pairs[:, 1] + pairs[:, 3]).sum(), pairs[:, [1, 3]].mean()
    around = (pairs[:, 0] - one * pairs[:, 1]) / pairs[:, 1].mean()
    moves = (pairs[:, 0] - pairs[:, 2] - both * (pairs[:, 1] - pairs[:, 3])) / mean
    told = nothing | {"difference": two - one}
    if size >= 30:
        told |= {"se": around.std() / sqrt(size - 1), "explainer_se": sqrt((moves**2).mean() / 2 / size)}
    return told


def bounds(run):
    """{(metric, variant): (instances, worst, best, telling, {truth: (share, share over those that tell)})}.

    Every set of k features is tried. What depends on which of several edits a search takes is left out, but for the
    largest drop with probabilities where that is one edit, and one feature with labels where every edit is as far.
    """
    return {key: extremes(key[0], of) for key, of in bounds_of(run).items()}


def bounds_of(run):
    """{(metric, variant): {instance: [(score, {truth: share of it}) of each set of k features]}}."""
    if "bounds" in run.known:
        return run.known["bounds"]
    scores, important = {}, important_features(run)
    for i, row in run.rows.items():
        there = [j for j, v in enumerate(row) if v is not None]
        for named in combinations(there, run.k) if len(there) >= run.k else ():
            tried = tried_set(run, i, named)
            known = [name for name in run.record["truths"] if not np.isnan(important[name, i]).all()]
            shares = {name: shares_of_reference(important[name, i], named, run.k) for name in known}
            for name, (recall, hit) in shares.items():
                tried["recall", name], tried["hit", name] = recall, hit
            references = {name: recall for name, (recall, _) in shares.items()}
            for key, value in tried.items():
                scores.setdefault(key, {}).setdefault(i, []).append((value, references))
    run.known["bounds"] = scores
    return scores


def one_largest(run):
    """Whether one edit only drops p(ŷ) most, or one is the first of such: two features of a tree can be tied."""
    return run.box.sums or run.k == 1


def tried_set(run, i, named):
    """{(metric, variant): score} of one set of features."""
    row, label, was, record, tried = run.rows[i], run.label(i), run.before(i), run.record, {}
    rest = [j for j in range(len(row)) if j not in named]
    for variant, way in run.ways.items():
        left, flipped, gap = run.without(way, i, named)
        tried["comprehensiveness", variant], tried["dfr", variant] = was - left, flipped
        left, _, other = run.without(way, i, rest)
        tried["sufficiency", variant] = was - left
        if variant == "marginal":
            tried["pgi", variant], tried["pgu", variant] = gap, other
    if not record["search"].startswith("disc") or run.mask is not None:
        return tried
    chosen = list(product(*(sorted({row[j], *run.others(j, row[j])}) for j in named)))
    edited = np.tile(row, (len(chosen), 1))
    edited[:, list(named)] = chosen
    changed = (edited != np.array(row)).sum(axis=1)
    edited = edited[np.argsort(changed, kind="stable")][(changed == 0).sum() :]  # of equal edits the first with fewest
    told = run.box.many(edited)
    flipped = told.argmax(axis=1) != label
    for level in record["levels"]:
        tried["validity", level] = float(flipped.any())
    ends = {}
    if run.k == 1 and run.space("label") == "onehot":
        ends["label"] = float(flipped.any()), sqrt(2)
    if "probability" in record["levels"]:
        best = int(told[:, label].argmin())
        tried["validity_soft", "probability"] = was - float(told[best, label])
        if "pick: auto" in record["setup"] and one_largest(run):
            far = run.distance(row, edited[best].tolist(), "probability")
            ends["probability"] = float(flipped[best]), far
            tried["c_soft", "probability"] = was - float(told[best, label]), far
    for level, (flip, far) in ends.items():
        tried["proximity", level] = far
        tried["proximity_flips", level] = flip * far, flip
        tried["c", level] = flip, far
    return tried


LOWER = ("sufficiency", "proximity", "proximity_flips", "pgu")


def extremes(metric, scores):
    """The worst and the best value, how many instances tell sets apart, and the truth in what is best."""
    sign = -1 if metric in LOWER else 1
    options = [
        [(*(value if isinstance(value, tuple) else (value, 1.0)), share) for value, share in of]
        for of in scores.values()
    ]
    best, worst = (side * largest([[(side * n, d) for n, d, _ in of] for of in options]) for side in (sign, -sign))
    shares, telling = [], []
    for i, of in enumerate(options):
        gains = [sign * n - sign * best * d for n, d, _ in of]
        top = [share for gain, (_, _, share) in zip(gains, of, strict=True) if gain >= max(gains) - 1e-10]
        shares.append({name: sum(share[name] for share in top) / len(top) for name in top[0]})
        telling += [i] * (len(top) < len(of))
    found = {
        name: (np.mean([one[name] for one in shares]), np.mean([shares[i][name] for i in telling]) if telling else nan)
        for name in shares[0]
    }
    return len(scores), worst, best, len(telling), found


def largest(options):
    """The largest Σ n / Σ d over one (n, d) of each instance's: the λ at which Σ max (n - λd) comes down to zero."""
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


def common(run, scores):
    """{(metric, variant): the instances that all explainers with a value cover}, rungs aside."""
    rungs, _ = run.explainers
    shared = {}
    for (metric, variant, explainer), part in scores.items():
        if not rungs[explainer] and sum(below for _, below in part.values()):
            pair = (metric, variant)
            shared[pair] = shared.get(pair, set(part)) & set(part)
    return shared


def counted(run, scores):
    """{(metric, variant, explainer): the instances that its value is taken over}."""
    rungs, _ = run.explainers
    if run.settings["support"] == "own":
        return {key: set(part) for key, part in scores.items()}
    shared = common(run, scores)
    return {
        key: set(part) if rungs[key[2]] else set(part) & shared.get(key[:2], set(part)) for key, part in scores.items()
    }


def values(scores, some=None):
    """Ratios of sums, over some instances or all."""
    found = {}
    for key, part in scores.items():
        mine = [pair for i, pair in part.items() if some is None or i in some[key]]
        if below := sum(b for _, b in mine):
            found[key] = sum(a for a, _ in mine) / below
    return found


def orders(values):
    """Who is above whom, +1, 0 or -1 for each pair of explainers (pairs, 1 + B), but for rounding."""
    above, below = (np.array(side) for side in zip(*combinations(values, 2), strict=True))
    noise = 1e-12 * np.maximum(np.maximum(np.abs(above), np.abs(below)), 1e-3)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(above - below) <= noise, 0, np.sign(above - below))


def kendall(ours, truth):
    """τ (1 + B,) of two orders of the same explainers."""
    return (ours * truth).mean(axis=0)


SUBSETS = ("all", "without_controls")  # of explainers
FROZEN = {"shapley": "centered"}  # in keys of random streams, which never change


class Ranked:
    """Values of explainers, the better the larger, and how far two metrics agree about them."""

    def __init__(self, run, drawn):
        self.run, self.drawn, self.orders, self.taus, self.who = run, drawn, {}, {}, {}
        rungs, self.controls = run.explainers
        self.names = [name for name in rungs if not rungs[name]]

    def list_ranked(self, a, b, subset="all"):
        """The explainers that have a value of both."""
        if (a, b, subset) not in self.who:
            self.who[a, b, subset] = tuple(
                name for name in self.names
                if (*a, name) in self.drawn and (*b, name) in self.drawn
                and (subset == "all" or not self.controls[name])
            )  # fmt: skip
        return self.who[a, b, subset]

    def side(self, one, names):
        """Values of a metric (1 + B,), so that the better is the larger."""
        sign = -1 if self.run.record["metrics"][one[0]]["better"] == "lower" else 1
        return [sign * self.drawn[*one, name] for name in names]

    def tau(self, a, b, subset="all"):
        """τ (1 + B,) between two metrics, or None if they rank fewer than two."""
        key = (a, b, subset)
        if key not in self.taus:
            names = self.list_ranked(a, b, subset)
            self.taus[key] = kendall(self.order(a, names), self.order(b, names)) if len(names) > 1 else None
        return self.taus[key]

    def order(self, one, names):
        if (one, names) not in self.orders:
            self.orders[one, names] = orders(self.side(one, names))
        return self.orders[one, names]


def agreements(run):
    """{(metric, variant, truth, agreement, subset): figures} of the explainers that are no rungs."""
    ranked, level, found = Ranked(run, run.drawn), run.settings["confidence"], {}
    for metric, variant, reference, agreement in agreements_of(run.record, run.drawn):
        pair, truth = (metric, variant), (agreement, reference)
        for subset in SUBSETS:
            line = {"explainers": len(ranked.list_ranked(pair, truth, subset))}
            found[metric, variant, reference, agreement, subset] = line
            tau = ranked.tau(pair, truth, subset)
            if tau is None:
                continue
            line["tau"] = tau[0]
            if len(tau) > 1:
                line["tau_low"], line["tau_high"] = between(tau[1:], level)
    return found


def between(draws, level):
    """Both ends of what holds so many of the draws, on the straight line between two of them."""
    draws = np.sort(draws[~np.isnan(draws)])
    if not len(draws):
        return nan, nan
    return tuple(np.interp([(1 - level) / 2, (1 + level) / 2], np.linspace(0, 1, len(draws)), draws))


def redrawn(box, changes, kinds, rng):
    """The model in other parameters that give every input the same prediction."""
    other = object.__new__(Sum)
    other.bias, other.w = box.bias, box.w.copy()
    other.e, other.means, other.table_of = list(box.e), list(box.means), box.table_of
    for first in dict.fromkeys(box.table_of):
        mine = [j for j, table in enumerate(box.table_of) if table == first]
        table, dim = box.e[first], box.e[first].shape[1]
        where = rng.random()
        # numbers of one bin have one vector
        rows = [row.tobytes() for row in table] if kinds[first] == "number" else list(range(len(table)))
        vectors = list(dict.fromkeys(rows))
        _, sizes, directions = np.linalg.svd(box.w[mine])
        unseen = directions[int((sizes > 1e-10 * max(sizes[0], 1e-300)).sum()) :]
        drawn = rng.normal(size=(len(vectors), len(unseen)))
        if len(mine) == 1:
            stretch = 2 ** rng.uniform(-1, 1) * np.eye(dim)
        else:
            turned, upper = np.linalg.qr(rng.normal(size=(dim, dim)))
            turned = turned * np.sign(np.diag(upper))
            stretch = (turned * 2 ** rng.uniform(-1, 1, dim)) @ turned.T
        if "constant" in changes and len(mine) == 1 and box.w[first].any():
            w = box.w[first]
            effects = [float(e @ w) for e in table]
            shift = -(min(effects) + where * (max(effects) - min(effects)))
            table = np.array([e + shift * w / float(w @ w) for e in table])
            other.bias -= shift
            other.means[first] = other.means[first] + shift * w / float(w @ w)
        if "orthogonal" in changes and len(unseen):
            size = sqrt(np.mean([float(e @ u) ** 2 for e in table for u in unseen]))
            moved = []
            for row, e in zip(rows, table, strict=True):
                parts = zip(drawn[vectors.index(row)], unseen, strict=True)
                moved.append(e + sum((float(x) * size - float(e @ u)) * u for x, u in parts))
            table = np.array(moved)
        if "scale" in changes:
            table = table @ stretch
            other.w[mine] = box.w[mine] @ np.linalg.inv(stretch)
            for j in mine:
                other.means[j] = other.means[j] @ stretch
        for j in mine:
            other.e[j] = table
    return other


def invariance(run):
    """{(metric, variant, truth, agreement): figures} of invariance.csv, and the (metric, variant, explainer) that move.

    For searches that exchange values and do not choose by distance: their edits are the same in all parameters.
    """
    record, box, rows, kinds = run.record, run.box, run.rows, [feature["kind"] for feature in run.features]
    short = any(v is None for row in rows.values() for v in row) or "token" in kinds
    shared, alone = len(set(box.table_of)) < len(box.table_of), not short
    seen = int(np.linalg.matrix_rank(box.w)) if shared else 1
    changes = ["constant"] * alone + ["orthogonal"] * (box.e[0].shape[1] > seen) + ["scale"]
    stored, some, codes = run.stored_scores, sampled(run), np.array(run.instances["codes"].to_list())

    def values_of(scores):
        known = {key: {i: pair for i, pair in part.items() if i in some} for key, part in scores.items()}
        return values(known)

    base, moved, drawn = values_of(stored), set(), {}
    for number in range(record["settings"]["reparametrisations"]):
        for name, wanted in [*((one, [one]) for one in changes), ("together", changes)]:
            if name == "together" and len(changes) == 1:
                continue
            rng = generator(record["settings"]["seed"], "reparametrisation", number)
            other = redrawn(box, wanted, kinds, rng)
            assert np.abs(other.many(codes) - box.many(codes)).max() < 1e-9
            # what takes the values of training rows asks for predictions only
            fixed = {key: part for key, part in stored.items() if asks_for_predictions(*key[:2])}
            again = fixed | scored(run, other=other)
            drawn.setdefault(name, []).append(values_of(again))
            moved |= {key for key, value in base.items() if apart(drawn[name][-1].get(key, nan), value)}
    every = [base, *(told for of in drawn.values() for told in of)]
    ranked = Ranked(run, {key: np.array([told.get(key, nan) for told in every]) for key in base})
    names, found = [name for name, of in drawn.items() for _ in of], {}
    for metric, variant, reference, agreement in agreements_of(record, base):
        for subset in SUBSETS:
            taus = ranked.tau((metric, variant), (agreement, reference), subset)
            if taus is None:
                continue
            real = float(taus[0])
            by = list(dict.fromkeys(name for name, tau in zip(names, taus[1:], strict=True) if apart(tau, real)))
            line = {
                "tau": real,
                "tau_lowest": lowest(taus),
                "tau_highest": -lowest(-taus),
                "not_identifiable": bool(by),
            }
            alone = [name for name in by if name != "together"] or by
            line["changed_by"] = " ".join(alone) if subset == "all" else ""
            many = {"instances": len(some), "reparametrisations": len(next(iter(drawn.values())))}
            found[metric, variant, reference, agreement, subset] = line | many
    return found, moved


def lowest(taus):
    """Of those that there are, the first of which is the model's own."""
    return float(min([taus[0], *taus[1:][~np.isnan(taus[1:])]]))


def asks_for_predictions(metric, variant):
    """What does not depend on the parameters of a model, since it puts training rows or parts of them before it."""
    return variant == "marginal" or metric in ("axe", "plausible")


def apart(value, real):
    """Not the same, but for rounding."""
    return np.isnan(value) != np.isnan(real) or abs(value - real) > 1e-9 + 1e-9 * abs(real)


def agreements_of(record, found):
    """(metric, variant, truth, agreement) of all that is judged and all that it is judged by."""
    pairs, roles = dict.fromkeys(key[:2] for key in found), record["metrics"]
    judged = [pair for pair in pairs if roles[pair[0]]["role"] == "judged"]
    truths = [pair for pair in pairs if roles[pair[0]]["role"] == "truth"]
    return [(*pair, reference, agreement) for pair in judged for agreement, reference in truths]


def sampled(run):
    """The instances that other parameters are tried on: those that all explainers cover, at most 500 of them."""
    record, ids, k, covers, (rungs, _) = run.record, list(run.rows), run.k, {}, run.explainers
    for told in run.lines("explanations"):
        if not rungs[told.explainer] and len(told.features) >= k:
            covers.setdefault(told.explainer, set()).add(told.instance)
    everyone = [i for i in ids if all(i in mine for mine in covers.values())]
    if record["settings"]["support"] != "common" or not everyone:
        everyone = ids
    if len(everyone) > 500:
        rng = generator(record["settings"]["seed"], "reparametrisation.instances", None)
        places = [ids.index(i) for i in everyone]
        everyone = [ids[place] for place in rng.choice(places, 500, replace=False)]
    return set(everyone)


def seeds(folders):
    """{(metric, variant, truth, subset): figures} of τ in seeds_correlations.csv, for runs that differ in the seed."""
    records = [json.loads((folder / "run.json").read_text()) for folder in folders]
    agreement, roles = records[0]["settings"]["agreement"], records[0]["metrics"]
    lines, draws, names = [], [], ("metric", "variant", "truth", "subset")
    for folder in folders:
        told = pd.read_csv(folder / "correlations.csv")
        told = told[(told["family"] == "explainers") & (told["agreement"] == agreement)]
        lines.append({tuple(one[name] for name in names): one for one in told.to_dict("records")})
        of = {}
        for one in pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw").to_dict("records"):
            if one["agreement"] == agreement:
                of.setdefault(tuple(one[name] for name in names), []).append(one["tau"])
        draws.append(of)
    found, valued = {}, [explainers_with_value(folder) for folder in folders]
    keys = [key for key in dict.fromkeys(key for of in lines for key in of) if roles[key[0]]["role"] == "judged"]
    # the ends of the keys of random streams are as old as these figures
    for subset, stream in zip(SUBSETS, ("tau", "tau_without_controls"), strict=True):
        for reference in dict.fromkeys(key[2] for key in keys):
            mine = [key for key in keys if key[2:] == (reference, subset)]
            for key in mine:
                values = [of[key]["tau"] for of in lines if key in of and not np.isnan(of[key]["tau"])]
                errors = [of[key]["tau_se"] for of in lines if key in of and not np.isnan(of[key]["tau"])]
                found[key] = spread(values, errors)
                tried = [
                    of[key]["not_identifiable"]
                    for of in lines
                    if key in of and of[key]["not_identifiable"] in (True, False)
                ]
                found[key]["not_identifiable"] = sum(map(bool, tried)) if tried else nan
            known = [
                key for key in mine
                if all(key in of and not np.isnan(of[key]["tau"]) for of in lines)
                and all(len(of[key]) == max(map(len, of.values())) for of in draws)
            ]  # fmt: skip
            who = [
                [of[subset][key[:2]] & of[subset][agreement, reference] for of in valued] for key in known
            ]  # fmt: skip
            if len(folders) > 1 and known:
                values = [[of[key]["tau"] for key in known] for of in lines]
                again = [list(zip(*(of[key] for key in known), strict=True)) for of in draws]
                stream_key = f"{FROZEN.get(reference, reference)}.{stream}"
                for key, figures in zip(known, together(values, again, who, stream_key), strict=True):
                    found[key] |= figures
    return found


def explainers_with_value(folder):
    """{subset: {(metric, variant): explainers}}: those that are ranked, and those of them that are no controls."""
    found = {subset: {} for subset in SUBSETS}
    metrics = pd.read_csv(folder / "metrics.csv")
    for line in metrics[metrics["value"].notna() & metrics["quality_level"].isna()].itertuples():
        found["all"].setdefault((line.metric, line.variant), set()).add(line.explainer)
        if not line.control:
            found["without_controls"].setdefault((line.metric, line.variant), set()).add(line.explainer)
    return found


def spread(values, errors):
    """Mean and deviation over seeds, and what choosing instances explains of it."""
    n = len(values)
    mean = sum(values) / n if n else nan
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else nan
    within = sqrt(sum(error**2 for error in errors) / n) if n else nan
    left = deviation**2 - within**2
    between = nan if np.isnan(left) else sqrt(max(0.0, left))
    return {"seeds": n, "mean": mean, "deviation": deviation, "within": within, "between": between}


def together(values, draws, who, key):
    """What S seeds say of each of J metrics: values (S, J), and resamples of each seed's instances (B, J).

    Metrics are compared with those that rank the same explainers (J, S) in every seed.
    """
    size, many = len(values), len(values[0])
    rng = generator(0, f"seeds.{key}", None)
    chosen = rng.integers(size, size=(4000, size))
    means = np.zeros((4000, many))
    for seed in range(size):
        for place in range(size):
            here = np.flatnonzero(chosen[:, place] == seed)
            means[here] += np.array(draws[seed])[rng.integers(len(draws[seed]), size=len(here))]
    means /= size
    columns = [(*(of[j] for of in values), *(one[j] for of in draws for one in of)) for j in range(many)]
    columns = [(*column, tuple(map(frozenset, names))) for column, names in zip(columns, who, strict=True)]
    kind = [columns.index(column) for column in columns]
    average = [sum(of[j] for of in values) / size for j in range(many)]
    fellows = [[i for i in range(many) if who[i] == who[j]] for j in range(many)]
    best = [max(fellows[j], key=lambda i: (average[i], -i)) for j in range(many)]
    p = [doubt([of[j] for of in values], means[:, j]) for j in range(many)]
    behind = [doubt([of[b] - of[j] for of in values], means[:, b] - means[:, j]) for j, b in enumerate(best)]
    p_holm, p_behind = stepwise(p, kind, []), stepwise(behind, kind, {kind[b] for b in best})
    level = stats.t.ppf(0.975, size - 1) / stats.norm.ppf(0.975) * sqrt(size / (size - 1))
    told = []
    for j in range(many):
        centre = means[:, j].mean()
        both = np.quantile(centre + level * (means[:, j] - centre), [0.025, 0.975])
        ends = [min(1.0, max(-1.0, end)) for end in both]  # no τ is beyond
        deviation = spread([of[j] for of in values], [0.0] * size)["deviation"]
        told.append(
            {
                "low": ends[0], "high": ends[1], "p": p[j], "p_holm": p_holm[j],
                "needed": enough(average[j], deviation, len(set(kind))), "behind": average[best[j]] - average[j],
                "p_behind": p_behind[j],
            }
        )  # fmt: skip
    return told


def doubt(values, means):
    """Two-sided p that a mean over seeds is zero: never below Student's, nor below that of all seeds agreeing."""
    n = len(values)
    sides = min(int((means <= 0).sum()), int((means >= 0).sum()))
    student = 0.0
    if len(set(values)) > 1:
        student = stats.ttest_1samp(values, 0).pvalue
    elif not values[0]:
        student = 1.0
    return max(min(1.0, 2 * (1 + sides) / (len(means) + 1)), student, 0.5 ** (n - 1))


def stepwise(p, kind, out):
    """Holm's correction, those of one kind being one test; no figure for the kinds that are no test."""
    tests = sorted((p[one], one) for one in set(kind) if one not in out)
    corrected, largest = {}, 0.0
    for place, (value, one) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - place) * value))
        corrected[one] = largest
    return [corrected.get(one, nan) for one in kind]


def enough(mean, deviation, tests):
    """The fewest seeds at which both a sign test and the normal approximation would pass after Bonferroni."""
    if abs(mean) < 1e-12:
        return nan
    n = max(2, int(((stats.norm.isf(0.025 / tests) * deviation / mean) ** 2) // 1))
    while 2.0 ** (1 - n) >= 0.05 / tests or n < (stats.norm.isf(0.025 / tests) * deviation / mean) ** 2:
        n += 1
    return n
