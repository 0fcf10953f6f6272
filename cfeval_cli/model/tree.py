"""A decision tree; its leaves determine exact reference attributions."""

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
    HasUsedFeatures,
    Ints,
    Leaves,
    Restorable,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import UserError, check_int
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.encoding import TableEncoder, make_table_encoder
from cfeval_cli.seeding import draw_seed, make_stream

MAX_SEED = 2**31  # scikit-learn accepts smaller seeds
_LEAF = -1  # in place of the feature of a node, as in scikit-learn


@dataclass(frozen=True)
class TreeModel(core.Probabilistic, core.HasLeaves, HasUsedFeatures, HasArrays):
    """A trained tree; the test of a node is which values of one feature go left."""

    feature: Ints  # (K,) that each node tests, _LEAF in leaves
    left_child: Ints  # (K,) index of the child for values that pass the test
    right_child: Ints  # (K,) index of the child for other values
    tests: Bools  # (K, V) whether each value passes
    sizes: Ints  # (M,) number of values of each feature
    probabilities: Floats  # (K, C)

    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, C) of codes (n, M)."""
        node = np.zeros(len(codes), dtype=np.int64)
        rows = np.arange(len(codes))
        for _ in range(self._depth):
            feature = self.feature[node]
            passed = self.tests[node, codes[rows, feature]]
            node = np.where(feature == _LEAF, node, np.where(passed, self.left_child[node], self.right_child[node]))
        return np.asarray(self.probabilities[node])

    @cached_property
    def _depth(self) -> int:
        """The number of steps from the root to the deepest leaf."""
        depth = np.zeros(len(self.feature), dtype=np.int64)
        for node in np.flatnonzero(self.feature != _LEAF):  # parents come before their children
            depth[[self.left_child[node], self.right_child[node]]] = depth[node] + 1
        return int(depth.max())

    @cached_property
    def _leaves(self) -> Leaves:
        """The leaves that an input can reach."""
        open_to = {0: [np.ones(size, dtype=bool) for size in self.sizes]}
        ends: dict[int, list[Bools]] = {}
        for node, feature in enumerate(self.feature.tolist()):
            boxes = open_to.pop(node)
            if feature == _LEAF:
                ends[node] = boxes
                continue
            passed = self.tests[node, : self.sizes[feature]]
            for child, accepted in ((self.left_child[node], passed), (self.right_child[node], ~passed)):
                open_to[int(child)] = [box & accepted if j == feature else box for j, box in enumerate(boxes)]
        # Two tests of one feature may exclude each other, so that no input reaches a leaf.
        reachable = [node for node, boxes in ends.items() if all(box.any() for box in boxes)]
        accepted_values = tuple(np.stack([ends[node][j] for node in reachable]) for j in range(len(self.sizes)))
        return Leaves(accepted_values, self.probabilities[reachable])

    def get_leaves(self) -> Leaves:
        """Return the leaves that an input can reach."""
        return self._leaves

    def get_used_features(self) -> Bools:
        """Return whether a node tests each feature (M,)."""
        return make_mask(len(self.sizes), np.unique(self.feature[self.feature != _LEAF]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""
        return {
            "feature": self.feature, "left": self.left_child, "right": self.right_child, "tests": self.tests,
            "sizes": self.sizes, "probabilities": self.probabilities,
        }  # fmt: skip


@dataclass(frozen=True)
class Tree(SupportsFeatureSubset, Restorable):
    """Settings of the tree, whose depth is selected by validation accuracy."""

    max_depth: int = 10  # the largest depth that is tried
    min_leaf: int = 10  # smallest number of training rows in a leaf
    blind: Blind = ()  # features that the model does not read: names, or the share that is drawn

    def __post_init__(self) -> None:
        check_int("max_depth", self.max_depth, 1)
        check_int("min_leaf", self.min_leaf, 1)
        check_blind(self.blind)

    def fit(self, dataset: Dataset, seed: int) -> TreeModel:
        """Return the tree with the best validation accuracy, the smallest of equal ones."""
        from sklearn.tree import DecisionTreeClassifier

        if dataset.kind == "text":
            raise UserError(f"model=tree is for tables, and {dataset.name} is a text. Use model=mlp or model=logistic.")
        reads = choose_read_features(dataset, self.blind, seed)
        visible = keep_features(dataset, reads)
        encoder = make_table_encoder(visible, onehot=True, scale=False, fill=True, max_categories=None)
        train, validation = (encoder.transform(split.codes) for split in (visible.train, visible.validation))
        tree_seed = draw_seed(make_stream(seed, "model")) % MAX_SEED
        best_accuracy, best_tree = float("-inf"), None
        for depth in range(1, self.max_depth + 1):
            grown = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=self.min_leaf, random_state=tree_seed)
            grown.fit(train, visible.train.labels)
            accuracy = float((grown.predict(validation) == visible.validation.labels).mean())
            if accuracy > best_accuracy:
                best_accuracy, best_tree = accuracy, grown
            if grown.get_depth() < depth:  # deeper trees are the same
                break
        return compile_tree(best_tree, encoder, dataset, reads)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> TreeModel:
        """Return the trained tree."""
        names = {"left": "left_child", "right": "right_child"}
        return TreeModel(**{names.get(name, name): array for name, array in arrays.items()})


def compile_tree(grown: Any, encoder: TableEncoder, dataset: Dataset, reads: Ints) -> TreeModel:
    """Convert a tree of scikit-learn, which compares columns, to a tree that looks up values."""
    tree = grown.tree_
    widths = np.array([block.shape[1] for block in encoder.blocks])
    owner, starts = np.repeat(np.arange(len(widths)), widths), np.cumsum(widths) - widths
    sizes = np.array([len(feature.values) for feature in dataset.features])
    inner = tree.children_left != _LEAF
    feature = np.full(tree.node_count, _LEAF, dtype=np.int64)
    tests = np.zeros((tree.node_count, int(sizes.max())), dtype=bool)
    for node in np.flatnonzero(inner):
        position = owner[tree.feature[node]]
        block = encoder.blocks[position][:, tree.feature[node] - starts[position]]
        feature[node] = reads[position]
        tests[node, : len(block)] = block.astype(np.float32) <= tree.threshold[node]  # as scikit-learn compares
    counts = np.asarray(tree.value)[:, 0]
    probabilities = np.zeros((tree.node_count, len(dataset.classes)))  # the training part may lack a class
    probabilities[:, grown.classes_] = counts / counts.sum(axis=1, keepdims=True)
    left_child, right_child = (
        np.where(inner, side, 0).astype(np.int64) for side in (tree.children_left, tree.children_right)
    )
    return TreeModel(feature, left_child, right_child, tests, sizes, probabilities)
