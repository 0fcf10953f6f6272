"""LIME and Anchor on sentences: the packages on strings, one after the other, beside ours over token positions."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from anchor.anchor_text import AnchorText
from lime.lime_text import LimeTextExplainer

from cfeval_cli import configs, pipeline
from cfeval_cli.config import plan
from cfeval_cli.model.gate import Ledger
from cfeval_cli.types import ABSENT, Access, Batch

SENTENCES = 24
ROUNDS = 3


class Token:
    def __init__(self, text: str, idx: int) -> None:
        self.text, self.idx = text, idx


def split(text: str) -> list[Token]:
    tokens, at = [], 0
    for word in text.split():
        tokens.append(Token(word, at))
        at += len(word) + 1
    return tokens


def main() -> None:
    with configs.opened():
        overrides = ["dataset=movie_reviews", f"n_explain={SENTENCES}", "search=exact"]
        made = plan(configs.run([*overrides, f"data_dir={os.environ.get('CFEVAL_DATA', 'data')}"]))
    dataset = made.dataset.load(made.data_dir, made.seed)
    model = made.model.fit(dataset, made.seed)
    study = pipeline.prepare(made, dataset, model)
    code = {word: i for i, word in enumerate(dataset.features[0].values)}

    def encode(texts: list[str]) -> np.ndarray:
        rows = np.full((len(texts), dataset.width), ABSENT, dtype=np.int32)
        for i, text in enumerate(texts):
            words = text.split()
            rows[i, : len(words)] = [code.get(word, dataset.mask) for word in words]
        return rows

    def both(texts: list[str]) -> np.ndarray:
        p = model.proba(encode(texts))
        return np.column_stack([1 - p, p])

    def stock_lime() -> None:
        package = LimeTextExplainer(bow=False, split_expression=r"\s+", feature_selection="none", random_state=0)
        for text, label in zip(study.instances.texts, study.labels.tolist(), strict=True):
            package.explain_instance(text, both, labels=(label,), num_features=dataset.width, num_samples=5000)

    def stock_anchor() -> None:
        package = AnchorText(split, list(dataset.classes), use_unk_distribution=True, mask_string="UNKWORDZ")
        np.random.seed(0)
        for text in study.instances.texts:
            package.explain_instance(text, lambda texts: model.labels(encode(texts)))

    def ours(name: str) -> None:
        explainer = made.explainers[name]
        batch = Batch(study.instances.codes, study.labels, study.instances.ids, 0, name)
        explainer.fit(dataset, Ledger().gate(model, Access.WHITE_BOX, name))(batch)

    lines = [
        "| explainer | stock, s a sentence | cfeval, s a sentence | ratio (rounds) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, stock in (("lime", stock_lime), ("anchor", stock_anchor)):
        seconds = []
        for _ in range(ROUNDS):  # alternating, so that both meet the same machine
            begun = time.perf_counter()
            stock()
            middle = time.perf_counter()
            ours(name)
            seconds.append((middle - begun, time.perf_counter() - middle))
        theirs, mine = (np.median([pair[i] for pair in seconds]) / SENTENCES for i in (0, 1))
        ratios = ", ".join(f"{a / b:.1f}" for a, b in sorted(seconds))
        lines.append(f"| {name} | {theirs:.3f} | {mine:.3f} | {theirs / mine:.1f} ({ratios}) |")
        print(lines[-1], flush=True)
    Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/text_packages.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
