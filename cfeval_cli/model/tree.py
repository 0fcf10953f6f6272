"""One decision tree: a judge whose reasons can be read off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli import core
from cfeval_cli.core import (
    Bools,
    Codes,
    Dataset,
    Floats,
    HasArrays,
    HasReadFeatures,
    Ints,
    Leaves,
    Restorable,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import UserError, check_int
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.encoding import TableEncoder, make_table_encoder
from cfeval_cli.seeding import draw_seed, make_stream

_SEED = 2**31  # below which scikit-learn takes a seed
_MOST = 1 << 28  # cells of all tests together
_LEAF = -1


@dataclass(frozen=True)
class TreeModel(core.Probabilistic, core.HasLeaves, HasReadFeatures, HasArrays):
    """A trained tree. A node looks at one feature, and each value of that goes left or right."""

    feature: Ints  # (K,) that a node looks at, -1 in a leaf
    left: Ints  # (K,) where a row goes whose value passes the test
    right: Ints  # (K,)
    tests: Bools  # (K, V) which values go left
    sizes: Ints  # (M,) values of each feature
    probabilities: Floats  # (K, C)

    def predict_proba(self, codes: Codes) -> Floats:
        """Probabilities (n, C) of (n, M) codes."""
        node = np.zeros(len(codes), dtype=np.int64)
        rows = np.arange(len(codes))
        for _ in range(self._depth):
            feature = self.feature[node]
            passed = self.tests[node, codes[rows, feature]]
            node = np.where(feature == _LEAF, node, np.where(passed, self.left[node], self.right[node]))
        return np.asarray(self.probabilities[node])

    @cached_property
    def _depth(self) -> int:
        """Steps from the root to the farthest leaf."""
        depth = np.zeros(len(self.feature), dtype=np.int64)
        for node in np.flatnonzero(self.feature != _LEAF):  # children stand behind their parents
            depth[[self.left[node], self.right[node]]] = depth[node] + 1
        return int(depth.max())

    @cached_property
    def _leaves(self) -> Leaves:
        open_to = {0: [np.ones(size, dtype=bool) for size in self.sizes]}
        ends: dict[int, list[Bools]] = {}
        for node, feature in enumerate(self.feature.tolist()):
            boxes = open_to.pop(node)
            if feature == _LEAF:
                ends[node] = boxes
                continue
            passed = self.tests[node, : self.sizes[feature]]
            for child, kept in ((self.left[node], passed), (self.right[node], ~passed)):
                open_to[int(child)] = [box & kept if j == feature else box for j, box in enumerate(boxes)]
        # two tests of one feature can leave nothing: no input falls into such a leaf
        whole_ones = [node for node, boxes in ends.items() if all(box.any() for box in boxes)]
        taken = tuple(np.stack([ends[node][j] for node in whole_ones]) for j in range(len(self.sizes)))
        return Leaves(taken, self.probabilities[whole_ones])

    def get_leaves(self) -> Leaves:
        """The leaves that an input can fall into."""
        return self._leaves

    def get_used_features(self) -> Bools:
        """The features that some node looks at."""
        return make_mask(len(self.sizes), np.unique(self.feature[self.feature != _LEAF]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to model.npz."""
        return {
            "feature": self.feature, "left": self.left, "right": self.right, "tests": self.tests,
            "sizes": self.sizes, "probabilities": self.probabilities,
        }  # fmt: skip


@dataclass(frozen=True)
class Tree(SupportsFeatureSubset, Restorable):
    """How the tree is grown: to the depth that the validation part likes best."""

    max_depth: int = 10  # depths from 1 to this one are tried
    min_leaf: int = 10  # training rows in a leaf at least
    blind: Blind = ()  # features that it is not shown: names, or a share of them

    def __post_init__(self) -> None:
        check_int("max_depth", self.max_depth, 1)
        check_int("min_leaf", self.min_leaf, 1)
        check_blind(self.blind)

    def fit(self, dataset: Dataset, seed: int) -> TreeModel:
        """Grow a tree of each depth, and keep the one with the best validation accuracy, the smallest of equal ones."""
        from sklearn.tree import DecisionTreeClassifier

        if dataset.kind == "text":
            raise UserError(f"model=tree is for tables, and {dataset.name} is a text. Use model=mlp or model=logistic.")
        reads = choose_read_features(dataset, self.blind, seed)
        seen = keep_features(dataset, reads)
        encoder = make_table_encoder(seen, onehot=True, scale=False, fill=True, max_categories=None)
        train, validation = (encoder.transform(split.codes) for split in (seen.train, seen.validation))
        drawn = draw_seed(make_stream(seed, "model")) % _SEED
        best, kept = -1.0, None
        for depth in range(1, self.max_depth + 1):
            grown = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=self.min_leaf, random_state=drawn)
            grown.fit(train, seen.train.labels)
            right = float((grown.predict(validation) == seen.validation.labels).mean())
            if right > best:
                best, kept = right, grown
            if grown.get_depth() < depth:  # it does not grow any further
                break
        return compile_tree(kept, encoder, dataset, reads)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> TreeModel:
        """The tree that was grown before; ValueError if the arrays are not one's."""
        _check(arrays)
        return TreeModel(**{name: arrays[name] for name in _NAMES})


def compile_tree(grown: Any, encoder: TableEncoder, dataset: Dataset, reads: Ints) -> TreeModel:
    """A tree of scikit-learn, whose nodes compare columns, as one whose nodes look up values."""
    tree = grown.tree_
    widths = np.array([block.shape[1] for block in encoder.blocks])
    owner, starts = np.repeat(np.arange(len(widths)), widths), np.cumsum(widths) - widths
    sizes = np.array([len(feature.values) for feature in dataset.features])
    inner = tree.children_left != _LEAF
    feature = np.full(tree.node_count, _LEAF, dtype=np.int64)
    tests = np.zeros((tree.node_count, int(sizes.max())), dtype=bool)
    for node in np.flatnonzero(inner):
        place = owner[tree.feature[node]]
        block = encoder.blocks[place][:, tree.feature[node] - starts[place]]
        feature[node] = reads[place]
        tests[node, : len(block)] = block.astype(np.float32) <= tree.threshold[node]  # as scikit-learn compares
    counts = np.asarray(tree.value)[:, 0]
    told = np.zeros((tree.node_count, len(dataset.classes)))  # the training part may lack a class
    told[:, grown.classes_] = counts / counts.sum(axis=1, keepdims=True)
    left, right = (np.where(inner, side, 0).astype(np.int64) for side in (tree.children_left, tree.children_right))
    return TreeModel(feature, left, right, tests, sizes, told)


_NAMES = ("feature", "left", "right", "tests", "sizes", "probabilities")


def _check(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that are no tree's: ValueError says why."""
    if missing := [name for name in _NAMES if name not in arrays]:
        raise ValueError(f"the arrays have no {missing[0]}")
    feature, left, right, tests, sizes, told = (arrays[name] for name in _NAMES)
    nodes = len(feature) if feature.ndim == 1 else 0
    whole_numbers = all(one.dtype.kind == "i" and one.ndim == 1 for one in (feature, left, right, sizes))
    if not nodes or not whole_numbers or tests.dtype != bool or told.dtype != np.float64 or not len(sizes):
        raise ValueError("the arrays are not of the kinds that a tree has")
    if left.shape != (nodes,) or right.shape != (nodes,) or told.ndim != 2 or len(told) != nodes or not told.size:
        raise ValueError("the arrays do not tell of the same nodes")
    if sizes.min() < 1 or tests.shape != (nodes, int(sizes.max())) or tests.size > _MOST:
        raise ValueError("the tests do not fit the values")
    if not np.isfinite(told).all() or feature.min() < _LEAF or feature.max() >= len(sizes):
        raise ValueError("the nodes look at features that there are not")
    inner = np.flatnonzero(feature != _LEAF)
    children = np.concatenate([left[inner], right[inner]])
    # each node but the first has one parent, which stands before it
    if (children <= np.tile(inner, 2)).any() or not np.array_equal(np.sort(children), np.arange(1, nodes)):
        raise ValueError("the nodes do not form a tree")
