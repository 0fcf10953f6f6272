"""Recomputes what a run folder tells with nothing of cfeval: only NumPy, SciPy, pandas and docs/run-folder.md."""

import json
from hashlib import blake2b
from itertools import combinations, permutations, product
from math import ceil, exp, nan, sqrt

import numpy as np
import pandas as pd
from scipy import stats
from scipy.stats import beta


def sigmoid(z):
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


class Box:
    """The stored model, in the words of the documentation."""

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, self.w = float(file["bias"]), file["weights"]
            spans = list(zip(file["starts"].tolist(), file["sizes"].tolist(), strict=True))
            self.e = [file["embeddings"][start : start + size] for start, size in spans]
            self.table_of = [spans.index(span) for span in spans]  # the first feature that has the same table
            self.centre = [float(mean @ w) for mean, w in zip(file["means"], self.w, strict=True)]

    def vector(self, j, v):
        """The embedding of a code; one that has been moved is its own."""
        return v if isinstance(v, np.ndarray) else self.e[j][v]

    def effect(self, j, v):
        """What a value adds to the logit; nothing where it is deleted."""
        return 0.0 if v is None else float(self.w[j] @ self.vector(j, v))

    def p(self, row):
        """P(1|x); a feature that is None is padding, or deleted."""
        there = ((j, v) for j, v in enumerate(row) if v is not None)
        return sigmoid(self.bias + sum(float(self.w[j] @ self.vector(j, v)) for j, v in there))


def gold(box, definition, row, label, mask):
    """Features by importance; the mask is no value that a feature could have instead, and padding is no feature."""
    sign = 1 if label == 1 else -1
    scores = {}
    for j, v in enumerate(row):
        if v is None:
            continue
        c = [float(e @ box.w[j]) for e in box.e[j]]
        scores[j] = {
            "signed": sign * c[v],
            "absolute": abs(c[v]),
            "centered": sign * (c[v] - box.centre[j]),
            "contrast": max(sign * (c[v] - c[u]) for u in box.tried[j] if u not in (v, mask)),
        }[definition]
    return sorted(scores, key=lambda j: (-scores[j], j))


def distance(box, row, edited, access):
    """Euclidean: one-hot with label access, between embeddings with more."""
    if access == "label":
        return sum(2 for a, b in zip(row, edited, strict=True) if a != b) ** 0.5
    squared = 0.0
    for j, (a, b) in enumerate(zip(row, edited, strict=True)):
        if a is not b:
            squared += float(((box.e[j][a] - box.vector(j, b)) ** 2).sum())
    return squared**0.5


def read(folder):
    """The model, k, the code of the mask, and the codes of each instance."""
    k = json.loads((folder / "run.json").read_text())["settings"]["k"]
    described = json.loads((folder / "dataset.json").read_text())
    mask, box = described["unknown"], Box(folder / "model.npz")
    box.tried = [f.get("candidates", range(len(e))) for f, e in zip(described["features"], box.e, strict=True)]
    rows = {}
    for instance in pd.read_parquet(folder / "instances.parquet").itertuples():
        rows[instance.instance] = [None if c == -1 else int(c) for c in instance.codes]
    return box, k, mask, rows


def recompute(folder, own=False):
    """{(metric, variant, explainer): value} for everything with a value, on the instances that count or on its own.

    All but what takes training rows, which a run folder does not have: the variant `marginal`, and the metrics `axe`
    and `plausible`.
    """
    scores = scored(folder)
    return values(scores, None if own else counted(folder, scores))


def scored(folder, end="", other=None):
    """{(metric, variant, explainer): {instance: (numerator, denominator)}} of the first explanations, or of others.

    `other` is the model in other parameters, by which the same explanations and edits are scored.
    """
    box, k, mask, rows = read(folder)
    box = other or box
    yhat = {i: int(box.p(row) > 0.5) for i, row in rows.items()}
    kept = {i: box.p(row) if yhat[i] == 1 else 1 - box.p(row) for i, row in rows.items()}

    def of_class(i, row):
        return box.p(row) if yhat[i] == 1 else 1 - box.p(row)

    record, found, golds = json.loads((folder / "run.json").read_text()), {}, {}

    def add(key, i, numerator, denominator=1.0):
        assert i not in found.setdefault(key, {})
        found[key][i] = (numerator, denominator)

    for told in pd.read_parquet(folder / f"explanations{end}.parquet").itertuples():
        i, named = told.instance, [int(j) for j in told.features][:k]
        add(("coverage", "all", told.explainer), i, float(len(named) == k))
        if len(named) < k:
            continue
        row = rows[i]
        for how in ("del",) if mask is None else ("del", "mask"):
            value = None if how == "del" else mask
            without = [value if j in named and v is not None else v for j, v in enumerate(row)]
            only = [v if j in named or v is None else value for j, v in enumerate(row)]
            add(("comprehensiveness", how, told.explainer), i, kept[i] - of_class(i, without))
            add(("sufficiency", how, told.explainer), i, kept[i] - of_class(i, only))
            add(("dfr", how, told.explainer), i, float((box.p(without) > 0.5) != yhat[i]))
            if record["ordered"][told.explainer]:
                down = Down(box, row, yhat[i], value, mask is not None, [int(j) for j in told.features])
                aopc = down.mean(down.order)
                add(("aopc", how, told.explainer), i, aopc)
                add(("aopc_suff", how, told.explainer), i, down.mean(down.order, keep=True))
                worst, best = down.ends()
                far = best - worst > 1e-12
                add(("naopc", how, told.explainer), i, (aopc - worst) / (best - worst) if far else 0.0, float(far))
                if "infidelity" in record["metrics"]:
                    sums, drops = down.sums(told.scores, record["settings"]["seed"], i)
                    square = sum(a * a for a in sums)
                    beta = sum(a * b for a, b in zip(sums, drops, strict=True)) / square if square else 0.0
                    left = np.mean([(beta * a - b) ** 2 for a, b in zip(sums, drops, strict=True)])
                    add(("infidelity", how, told.explainer), i, left)
                    varies = min(np.std(sums) / max(1e-300, max(map(abs, sums))), np.std(drops)) > 1e-12
                    alike = np.corrcoef(sums, drops)[0, 1] if varies else 0.0
                    add(("faithfulness_correlation", how, told.explainer), i, alike, float(varies))
        if record["ordered"][told.explainer]:
            add(("edits_to_flip", "greedy", told.explainer), i, edits(box, row, yhat[i], told.features, mask))
        if "frozen" in record["metrics"]:
            others = [j for j, v in enumerate(row) if v is not None and j not in named]
            able = any(flips(box, row, yhat[i], some) for some in combinations(others, min(k, len(others))))
            add(("frozen", "all sets", told.explainer), i, float(able))
        for definition in ("signed", "absolute", "centered", "contrast"):
            if (definition, i) not in golds:
                golds[definition, i] = set(gold(box, definition, row, yhat[i], mask)[:k])
            common = len(golds[definition, i] & set(named))
            add(("recall", definition, told.explainer), i, common / k)
            add(("hit", definition, told.explainer), i, float(common > 0))
    for edit in pd.read_parquet(folder / f"counterfactuals{end}.parquet").itertuples():
        i, row = edit.instance, rows[edit.instance]
        edited = list(row)
        if edit.codes is None:
            for j, v in zip(edit.features, edit.vectors, strict=True):
                edited[j] = np.array(v)
            add(("converged", edit.access, edit.explainer), i, float(edit.converged))
        else:
            for j, v in zip(edit.features, edit.codes, strict=True):
                edited[j] = int(v)
        flip = float((box.p(edited) > 0.5) != yhat[i])
        far = distance(box, row, edited, edit.access)
        key = (edit.access, edit.explainer)
        add(("validity", *key), i, flip)
        add(("proximity", *key), i, far)
        add(("proximity_flips", *key), i, flip * far, flip)
        changed = [j for j, v in enumerate(row) if v is not None and moved(box, j, v, edited[j])]
        spare = 0
        for j in changed:
            reset = list(edited)
            reset[j] = row[j]
            spare += int((box.p(reset) > 0.5) != yhat[i])
        add(("sparsity", *key), i, flip * len(changed), flip)
        add(("redundant", *key), i, flip * spare, flip)
        add(("c", *key), i, flip, far)
        if edit.access != "label":
            add(("validity_soft", *key), i, kept[i] - of_class(i, edited))
            add(("c_soft", *key), i, kept[i] - of_class(i, edited), far)
    return found


def moved(box, j, value, now):
    """Whether an edit has changed a feature."""
    return bool((box.e[j][value] != now).any()) if isinstance(now, np.ndarray) else value != now


def flips(box, row, label, features):
    """Whether some values of some features change the label."""
    for chosen in product(*({row[j], *box.tried[j]} for j in features)):
        edited = list(row)
        for j, v in zip(features, chosen, strict=True):
            edited[j] = v
        if (box.p(edited) > 0.5) != label:
            return True
    return False


def edits(box, row, label, features, mask, longest=10):
    """How many features it takes, each with the value that is worst for the label; the logit is a sum."""
    most, logit, sign = (
        min(longest, len(row)),
        box.bias + sum(map(box.effect, range(len(row)), row)),
        1 if label else -1,
    )
    for step, j in enumerate(int(j) for j in features[:most]):
        others = [sign * box.effect(j, u) for u in box.tried[j] if u not in (row[j], mask)]
        logit += sign * min(0.0, min(others, default=0.0) - sign * box.effect(j, row[j]))
        if (logit > 0) != bool(label):
            return step + 1.0
    return most + 1.0


class Down:
    """Removing the features of one instance, one after the other."""

    def __init__(self, box, row, label, value, text, order):
        self.box, self.row, self.label, self.value, self.order = box, row, label, value, order
        self.there = [j for j, v in enumerate(row) if v is not None]
        size = len(self.there)
        shares = (0.01, 0.05, 0.1, 0.2, 0.5)
        self.sizes = [ceil(round(s * size, 9)) for s in shares] if text else range(1, min(10, size) + 1)

    def drop(self, gone):
        """p of the label before, less p without some features."""
        now = [self.value if j in gone else v for j, v in enumerate(self.row)]
        before, after = self.box.p(self.row), self.box.p(now)
        return before - after if self.label else after - before

    def mean(self, order, keep=False):
        """Over the first features, or all but those."""
        firsts = [set(order[:size]) for size in self.sizes]
        return np.mean([self.drop(set(self.there) - one if keep else one) for one in firsts])

    def ends(self):
        """The worst and the best order; of many features by what each takes from the logit."""
        if len(self.there) <= 4:
            means = [self.mean(order) for order in permutations(self.there)]
            return min(means), max(means)
        sign = 1 if self.label else -1
        effects = {j: sign * (self.box.effect(j, self.row[j]) - self.box.effect(j, self.value)) for j in self.there}
        order = sorted(self.there, key=effects.get)
        return self.mean(order), self.mean(order[::-1])

    def sums(self, scores, seed, instance, subsets=50, share=0.25):
        """For random sets the sum of their scores, and what removing them does."""
        key = blake2b(f"{seed}\0metric.subsets\0{instance}".encode(), digest_size=16).digest()
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))
        size, of = max(1, round(share * len(self.there))), dict(zip(self.order, scores, strict=True))
        sets = [sorted(self.there, key=line.__getitem__)[:size] for line in rng.random((subsets, len(self.row)))]
        return [sum(of.get(j, 0.0) for j in one) for one in sets], [self.drop(set(one)) for one in sets]


def noise(folder):
    """{explainer: line} of noise.csv, and {(metric, variant, explainer): line} of noise_metrics.csv."""
    record = json.loads((folder / "run.json").read_text())
    k, confidence = record["settings"]["k"], record["settings"]["confidence"]
    first, second = (
        {(line.explainer, line.instance): line for line in pd.read_parquet(folder / name).itertuples()}
        for name in ("explanations.parquet", "explanations_again.parquet")
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
            "asked": len(asked),
            "instances": n,
            "same_features": same / n if n else nan,
            "low": nan if not n else 0.0 if not same else beta.ppf(rare, same, n - same + 1),
            "high": nan if not n else 1.0 if same == n else beta.ppf(1 - rare, same + 1, n - same),
            "overlap": sum(len(a & b) / max(len(a), len(b)) for a, b in sets) / n if n else nan,
            "same_order": sum(a == b for a, b in lists) / n if n else nan,
            "deterministic": ("yes" if alike else "no") if n else "",
        }
    values, once = {}, scored(folder)
    for key, parts in scored(folder, "_again").items():
        if record["metrics"].get(key[0], {"role": "fact"})["role"] == "fact":
            continue
        pairs = [(*once[key][i], *part) for i, part in parts.items() if i in once.get(key, {})]
        if pairs:
            values[key] = twice(np.array(pairs))
    return names, values


def twice(pairs):
    """A line of noise_metrics.csv from numerator and denominator with either seed (n, 4)."""
    size = len(pairs)
    one, two = (
        a.sum() / b.sum() if b.sum() else nan for a, b in ((pairs[:, 0], pairs[:, 1]), (pairs[:, 2], pairs[:, 3]))
    )
    nothing = {"instances": size, "value": one, "value_again": two, "difference": nan, "se": nan, "noise_se": nan}
    if np.isnan([one, two]).any():
        return nothing
    both, mean = (pairs[:, 0] + pairs[:, 2]).sum() / (pairs[:, 1] + pairs[:, 3]).sum(), pairs[:, [1, 3]].mean()
    around = (pairs[:, 0] - one * pairs[:, 1]) / pairs[:, 1].mean()
    moves = (pairs[:, 0] - pairs[:, 2] - both * (pairs[:, 1] - pairs[:, 3])) / mean
    told = nothing | {"difference": two - one}
    if size >= 30:
        told |= {"se": around.std() / sqrt(size - 1), "noise_se": sqrt((moves**2).mean() / 2 / size)}
    return told


def bounds(folder):
    """{(metric, variant): (instances, worst, best, telling, {gold: (share, share over those that tell)})}.

    Every set of k features is tried. What depends on which of several edits a search takes is left out, but for the
    largest drop with probabilities, which is one edit, and one feature with labels, whose every edit is as far.
    """
    box, k, mask, rows = read(folder)
    record = json.loads((folder / "run.json").read_text())
    exhaustive = record["search"].startswith("disc") and mask is None
    scores = {}
    for i, row in rows.items():
        label = int(box.p(row) > 0.5)

        def of_class(edited, label=label):
            return box.p(edited) if label else 1 - box.p(edited)

        there = [j for j, v in enumerate(row) if v is not None]
        golds = {name: set(gold(box, name, row, label, mask)[:k]) for name in record["truths"]}
        for named in combinations(there, k) if len(there) >= k else ():
            tried = {}
            for how, value in (("del", None), *([] if mask is None else [("mask", mask)])):
                without = [value if j in named else v for j, v in enumerate(row)]
                only = [v if j in named or v is None else value for j, v in enumerate(row)]
                tried["comprehensiveness", how] = of_class(row) - of_class(without)
                tried["sufficiency", how] = of_class(row) - of_class(only)
                tried["dfr", how] = float((box.p(without) > 0.5) != label)
            if exhaustive:
                tries = list(product(*({row[j], *box.tried[j]} for j in named)))
                edits = [list(row) for _ in tries]
                for edit, chosen in zip(edits, tries, strict=True):
                    for j, v in zip(named, chosen, strict=True):
                        edit[j] = v
                left = {tuple(edit): of_class(edit) for edit in edits if edit != row}
                can = float(any(int(box.p(edit) > 0.5) != label for edit in edits))
                for level in record["levels"]:
                    tried["validity", level] = can
                tried["validity_soft", "probability"] = of_class(row) - min(left.values())
                ends = {"label": (can, sqrt(2))} if k == 1 else {}
                if "pick: auto" in record["setup"] and "probability" in record["levels"]:
                    edit = min(left, key=left.get)
                    flips = float(int(box.p(edit) > 0.5) != label)
                    ends["probability"] = flips, distance(box, row, edit, "probability")
                    tried["c_soft", "probability"] = of_class(row) - left[edit], ends["probability"][1]
                for level, (flips, far) in ends.items():
                    tried["proximity", level] = far
                    tried["proximity_flips", level] = flips * far, flips
                    tried["c", level] = flips, far
            for name, best in golds.items():
                tried["recall", name] = len(best & set(named)) / k
            shares = {name: len(best & set(named)) / k for name, best in golds.items()}
            for key, value in tried.items():
                scores.setdefault(key, {}).setdefault(i, []).append((value, shares))
    return {key: extremes(key[0], of) for key, of in scores.items()}


LOWER = ("sufficiency", "proximity", "proximity_flips")


def extremes(metric, scores):
    """The worst and the best value, how many instances tell sets apart, and the gold in what is best."""
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
        shares.append({name: np.mean([share[name] for share in top]) for name in top[0]})
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
    low = -high
    for _ in range(200):
        middle = (low + high) / 2
        over = sum(max(n - middle * d for n, d in of) for of in options) > 1e-13
        low, high = (middle, high) if over else (low, middle)
    return high


def explainers(folder):
    """For each explainer whether it is a rung of a ladder, and whether it is a control."""
    lines = pd.read_csv(folder / "metrics.csv").drop_duplicates("explainer").set_index("explainer")
    return lines["rung"].notna().to_dict(), lines["control"].to_dict()


def common(folder, scores):
    """{(metric, variant): the instances that all explainers with a value cover}, rungs aside."""
    rungs, _ = explainers(folder)
    shared = {}
    for (metric, variant, explainer), part in scores.items():
        if not rungs[explainer] and sum(below for _, below in part.values()):
            pair = (metric, variant)
            shared[pair] = shared.get(pair, set(part)) & set(part)
    return shared


def counted(folder, scores):
    """{(metric, variant, explainer): the instances that its value is taken over}."""
    rungs, _ = explainers(folder)
    if json.loads((folder / "run.json").read_text())["settings"]["support"] == "own":
        return {key: set(part) for key, part in scores.items()}
    shared = common(folder, scores)
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


def stored_scores(folder):
    """scores.parquet, in the same form as the scores that are recomputed; with `marginal`."""
    scores = {}
    for row in pd.read_parquet(folder / "scores.parquet").itertuples():
        scores.setdefault((row.metric, row.variant, row.explainer), {})[row.instance] = (row.numerator, row.denominator)
    return scores


def resampled_values(folder, scores):
    """{(metric, variant, explainer): its value, then that of every resample (1 + B,)}."""
    record = json.loads((folder / "run.json").read_text())
    ids = pd.read_parquet(folder / "instances.parquet")["instance"].tolist()
    key = blake2b(f"{record['settings']['seed']}\0bootstrap\0None".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))
    drawn = rng.integers(0, len(ids), (record["resampled"], len(ids)))
    times = np.stack([np.bincount(row, minlength=len(ids)) for row in drawn]).astype(float)
    times = np.concatenate([np.ones((1, len(ids))), times])
    some, found = counted(folder, scores), {}
    for name, part in scores.items():
        pairs = np.array([part[i] if i in part and i in some[name] else (0.0, 0.0) for i in ids])
        above, below = (times @ pairs).T
        if below[0]:
            with np.errstate(divide="ignore", invalid="ignore"):
                found[name] = np.where(below != 0, above / below, np.nan)
    return found


def kendall(ours, truth):
    """τ (1 + B,) of the values of each explainer, the better the larger."""
    total = np.zeros(len(ours[0]))
    pairs = list(combinations(range(len(ours)), 2))
    for a, b in pairs:
        signs = []
        for side in (ours, truth):
            gap = side[a] - side[b]
            noise = 1e-12 * np.maximum(np.maximum(np.abs(side[a]), np.abs(side[b])), 1e-3)
            signs.append(np.where(np.isnan(gap), np.nan, np.where(np.abs(gap) <= noise, 0, np.sign(gap))))
        total += signs[0] * signs[1]
    return total / len(pairs)


def agreements(folder):
    """{(metric, variant, gold, agreement): figures} of the explainers that are no rungs, with and without controls."""
    record = json.loads((folder / "run.json").read_text())
    drawn = resampled_values(folder, stored_scores(folder))
    rungs, controls = explainers(folder)
    roles = {name: facts["role"] for name, facts in record["metrics"].items()}
    signs = {name: -1 if facts["better"] == "lower" else 1 for name, facts in record["metrics"].items()}
    pairs = dict.fromkeys(key[:2] for key in drawn)
    level, found = record["settings"]["confidence"], {}
    for metric, variant in (pair for pair in pairs if roles[pair[0]] == "judged"):
        for agreement, gold in (pair for pair in pairs if roles[pair[0]] == "truth"):
            both = [
                n for n in rungs if not rungs[n] and (metric, variant, n) in drawn and (agreement, gold, n) in drawn
            ]
            line = {}
            for end, names in (("", both), ("_without_controls", [name for name in both if not controls[name]])):
                line[f"explainers{end}"] = len(names)
                if len(names) < 2:
                    continue
                ours = [signs[metric] * drawn[metric, variant, name] for name in names]
                tau = kendall(ours, [drawn[agreement, gold, name] for name in names])
                line[f"tau{end}"] = tau[0]
                if len(tau) > 1:
                    ends = np.nanquantile(tau[1:], [(1 - level) / 2, (1 + level) / 2])
                    line |= {f"tau{end}_low": ends[0], f"tau{end}_high": ends[1]}
            found[metric, variant, gold, agreement] = line
    return found


def generator(*key):
    """Random numbers as the documentation says they are drawn."""
    digest = blake2b("\0".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


def redrawn(box, changes, kinds, rng):
    """The model in other parameters that give every input the same prediction."""
    other = object.__new__(Box)
    other.tried, other.bias, other.w = box.tried, box.bias, box.w.copy()
    other.e, other.centre, other.table_of = list(box.e), list(box.centre), box.table_of
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
            other.centre[first] += shift
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
            other.e[j] = table
    return other


def invariance(folder):
    """{(metric, variant, gold, agreement): figures} of invariance.csv, and the (metric, variant, explainer) that move.

    For searches that exchange values and do not choose by distance: their edits are the same in all parameters.
    """
    record = json.loads((folder / "run.json").read_text())
    box, _, _, rows = read(folder)
    described = json.loads((folder / "dataset.json").read_text())
    kinds = [feature["kind"] for feature in described["features"]]
    short = any(v is None for row in rows.values() for v in row) or "token" in kinds
    shared, alone = len(set(box.table_of)) < len(box.table_of), not short
    seen = int(np.linalg.matrix_rank(box.w)) if shared else 1
    changes = ["constant"] * alone + ["orthogonal"] * (box.e[0].shape[1] > seen) + ["scale"]
    rungs, controls = explainers(folder)
    stored, some = stored_scores(folder), sampled(folder, list(rows))

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
            for row in rows.values():
                assert abs(other.p(row) - box.p(row)) < 1e-9
            # what takes the values of training rows asks for predictions only
            again = {key: part for key, part in stored.items() if key[1] == "marginal"} | scored(folder, other=other)
            drawn.setdefault(name, []).append(values_of(again))
            moved |= {key for key, value in base.items() if apart(drawn[name][-1].get(key, nan), value)}
    found = {}
    for key in agreements_of(record, base):
        metric, variant, gold, agreement = key
        named = [
            one for one in rungs
            if not rungs[one] and (metric, variant, one) in base and (agreement, gold, one) in base
        ]  # fmt: skip
        line = {}
        for end, names in (("", named), ("_without_controls", [one for one in named if not controls[one]])):
            if len(names) < 2:
                continue
            sign = -1 if record["metrics"][metric]["better"] == "lower" else 1

            def tau(told, names=names, sign=sign, metric=metric, variant=variant, agreement=agreement, gold=gold):
                ours = [np.array([sign * told.get((metric, variant, one), nan)]) for one in names]
                return float(kendall(ours, [np.array([told.get((agreement, gold, one), nan)]) for one in names])[0])

            real = tau(base)
            taus = {name: [tau(told) for told in of] for name, of in drawn.items()}
            every = [real, *(value for of in taus.values() for value in of if not np.isnan(value))]
            by = [name for name, of in taus.items() if any(apart(value, real) for value in of)]
            line |= {f"tau{end}": real, f"tau{end}_lowest": min(every), f"tau{end}_highest": max(every)}
            line[f"moves{end}"] = bool(by)
            if not end:
                line["moved_by"] = " ".join([name for name in by if name != "together"] or by)
        if line:
            found[key] = line | {"instances": len(some), "reparametrisations": len(next(iter(drawn.values())))}
    return found, moved


def apart(value, real):
    """Not the same, but for rounding."""
    return np.isnan(value) != np.isnan(real) or abs(value - real) > 1e-9 + 1e-9 * abs(real)


def agreements_of(record, found):
    """(metric, variant, gold, agreement) of all that is judged and all that it is judged by."""
    pairs, roles = dict.fromkeys(key[:2] for key in found), record["metrics"]
    judged = [pair for pair in pairs if roles[pair[0]]["role"] == "judged"]
    truths = [pair for pair in pairs if roles[pair[0]]["role"] == "truth"]
    return [(*pair, gold, agreement) for pair in judged for agreement, gold in truths]


def sampled(folder, ids):
    """The instances that other parameters are tried on: those that all explainers cover, at most 500 of them."""
    record = json.loads((folder / "run.json").read_text())
    rungs, _ = explainers(folder)
    k, covers = record["settings"]["k"], {}
    for told in pd.read_parquet(folder / "explanations.parquet").itertuples():
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
    """{(metric, variant, gold, coefficient): figures} of seeds_correlations.csv, for runs that differ in the seed."""
    records = [json.loads((folder / "run.json").read_text()) for folder in folders]
    agreement, roles = records[0]["settings"]["agreement"], records[0]["metrics"]
    lines, draws = [], []
    for folder in folders:
        told = pd.read_csv(folder / "correlations.csv")
        told = told[(told["family"] == "explainers") & (told["agreement"] == agreement)]
        lines.append({(one["metric"], one["variant"], one["gold"]): one for one in told.to_dict("records")})
        of = {}
        for one in pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw").to_dict("records"):
            if one["agreement"] == agreement:
                of.setdefault((one["metric"], one["variant"], one["gold"]), []).append(one)
        draws.append(of)
    found = {}
    keys = [key for key in dict.fromkeys(key for of in lines for key in of) if roles[key[0]]["role"] == "judged"]
    for name in ("tau", "tau_without_controls"):
        moves = name.replace("tau", "moves")
        for gold in dict.fromkeys(key[2] for key in keys):
            mine = [key for key in keys if key[2] == gold]
            for key in mine:
                values = [of[key][name] for of in lines if key in of and not np.isnan(of[key][name])]
                errors = [of[key][f"{name}_se"] for of in lines if key in of and not np.isnan(of[key][name])]
                found[(*key, name)] = spread(values, errors)
                tried = [of[key][moves] for of in lines if key in of and of[key][moves] in (True, False)]
                found[(*key, name)]["moves"] = sum(map(bool, tried)) if tried else nan
            known = [
                key for key in mine
                if all(key in of and not np.isnan(of[key][name]) for of in lines)
                and not any(np.isnan(one[name]) for of in draws for one in of[key])
            ]  # fmt: skip
            if len(folders) > 1 and known:
                values = [[of[key][name] for key in known] for of in lines]
                again = [[[of[key][b][name] for key in known] for b in range(len(of[known[0]]))] for of in draws]
                for key, figures in zip(known, together(values, again, f"{gold}.{name}"), strict=True):
                    found[(*key, name)] |= figures
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


def together(values, draws, key):
    """What S seeds say of each of J metrics: values (S, J), and resamples of each seed's instances (B, J)."""
    size, many = len(values), len(values[0])
    rng = generator(0, f"seeds.{key}", None)
    chosen = rng.integers(size, size=(4000, size))
    means = np.zeros((4000, many))
    for seed in range(size):
        for place in range(size):
            here = [row for row in range(4000) if chosen[row, place] == seed]
            for row, b in zip(here, rng.integers(len(draws[seed]), size=len(here)), strict=True):
                means[row] += draws[seed][b]
    means /= size
    columns = [(*(of[j] for of in values), *(one[j] for of in draws for one in of)) for j in range(many)]
    kind = [columns.index(column) for column in columns]
    average = [sum(of[j] for of in values) / size for j in range(many)]
    best = max(range(many), key=lambda j: (average[j], -j))
    p = [doubt([of[j] for of in values], means[:, j]) for j in range(many)]
    behind = [doubt([of[best] - of[j] for of in values], means[:, best] - means[:, j]) for j in range(many)]
    p_holm, p_behind = stepwise(p, kind, []), stepwise(behind, kind, [kind[best]])
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
                "needed": enough(average[j], deviation, len(set(kind))), "behind": average[best] - average[j],
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
