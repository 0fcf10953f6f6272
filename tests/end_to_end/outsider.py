"""Recomputes what a run folder tells with nothing of cfeval: only NumPy, SciPy, pandas and docs/run-folder.md."""

import json
from hashlib import blake2b
from itertools import combinations, permutations, product
from math import ceil, exp, nan, sqrt

import numpy as np
import pandas as pd
from scipy.stats import beta


def sigmoid(z):
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


class Box:
    """The stored model, in the words of the documentation."""

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, self.w, self.mean = float(file["bias"]), file["weights"], file["means"]
            spans = zip(file["starts"], file["sizes"], strict=True)
            self.e = [file["embeddings"][start : start + size] for start, size in spans]

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
            "centered": sign * (c[v] - float(box.mean[j] @ box.w[j])),
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


def scored(folder, end=""):
    """{(metric, variant, explainer): {instance: (numerator, denominator)}} of the first explanations, or of others."""
    box, k, mask, rows = read(folder)
    yhat = {i: int(box.p(row) > 0.5) for i, row in rows.items()}
    kept = {i: box.p(row) if yhat[i] == 1 else 1 - box.p(row) for i, row in rows.items()}

    def of_class(i, row):
        return box.p(row) if yhat[i] == 1 else 1 - box.p(row)

    record, found = json.loads((folder / "run.json").read_text()), {}

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
            common = len(set(gold(box, definition, row, yhat[i], mask)[:k]) & set(named))
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

    For means whose value does not depend on which of several edits a search takes; every set of k features is tried.
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
                left = [of_class(edit) for edit in edits if edit != row]
                for level in record["levels"]:
                    tried["validity", level] = float(any(int(box.p(edit) > 0.5) != label for edit in edits))
                tried["validity_soft", "probability"] = of_class(row) - min(left)
            for name, best in golds.items():
                tried["recall", name] = len(best & set(named)) / k
            shares = {name: len(best & set(named)) / k for name, best in golds.items()}
            for key, value in tried.items():
                scores.setdefault(key, {}).setdefault(i, []).append((value, shares))
    return {key: extremes(key[0], of) for key, of in scores.items()}


def extremes(metric, scores):
    """The worst and the best mean, how many instances tell sets apart, and the gold in what is best."""
    sign = -1 if metric == "sufficiency" else 1
    worst, best, shares = [], [], []
    for options in scores.values():
        values = [value for value, _ in options]
        worst.append(min(values, key=lambda value: sign * value))
        best.append(max(values, key=lambda value: sign * value))
        top = [share for value, share in options if abs(value - best[-1]) <= 1e-12]
        shares.append({name: np.mean([share[name] for share in top]) for name in top[0]})
    telling = [i for i, (a, b) in enumerate(zip(worst, best, strict=True)) if abs(a - b) > 1e-12]
    found = {
        name: (np.mean([one[name] for one in shares]), np.mean([shares[i][name] for i in telling]) if telling else nan)
        for name in shares[0]
    }
    return len(scores), np.mean(worst), np.mean(best), len(telling), found


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
