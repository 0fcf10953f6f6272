"""The run folder: everything a run leaves behind, each file written whole or not at all.

docs/run-folder.md documents every file and column.
"""

from __future__ import annotations

import json
import logging
import platform
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfeval_cli import __version__
from cfeval_cli.files import whole_file
from cfeval_cli.report import tables
from cfeval_cli.statistics.summary import TRUTHS
from cfeval_cli.types import NONE, Access, Counterfactuals, Dataset, Explanation, Floats, Ints, Split

if TYPE_CHECKING:
    from cfeval_cli.config import Plan
    from cfeval_cli.explaining import Explained
    from cfeval_cli.model.gate import Ledger
    from cfeval_cli.progress import Progress
    from cfeval_cli.statistics.findings import Findings

log = logging.getLogger(__name__)

SCHEMA = 1
_PACKAGES = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "lime", "anchor-exp", "hydra-core")


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path, command: list[str]) -> None:
        self.path = path
        self.begun = False
        self._command = command
        self._record: dict[str, Any] = {}
        self._findings: Findings | None = None
        self._figures: tuple[str, ...] = ()
        self._report = False
        self._clock = time.perf_counter()

    @property
    def results(self) -> str | None:
        """The inputs of the finished run whose results the folder has, if it has any."""
        wanted = ("run.json", "metrics.csv", "correlations.csv", "scores.parquet", "tables.md")
        if not all((self.path / name).exists() for name in wanted):
            return None
        try:
            record = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            return str(record["inputs"]) if record["status"] == "complete" and record["inputs"] else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def begin(self, plan: Plan, dataset: Dataset, inputs: str | None) -> None:
        """Write what is known before anything is computed."""
        self.begun = True
        self._figures, self._report = plan.figures, plan.report
        titles = _titles(plan.explainers)
        self._record = {
            "schema": SCHEMA,
            "status": "running",
            "cfeval": __version__,
            "git_commit": _git_commit(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in _PACKAGES},
            "command": self._command,
            "inputs": inputs,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": {
                "seed": plan.seed, "k": plan.k, "n_explain": plan.n_explain, "access": plan.access.name.lower(),
                "gold": plan.gold, "agreement": plan.agreement, "incomplete": plan.incomplete,
                "bounds": plan.bounds, "resamples": plan.resamples, "confidence": plan.confidence,
                "figures": list(plan.figures),
            },
            "data": {"name": dataset.name, "kind": dataset.kind, **dataset.origin, "fingerprint": dataset.fingerprint},
            "splits": {"train": len(dataset.train), "validation": len(dataset.validation), "test": len(dataset.test)},
            "reference": dict(dataset.reference),
            "explainers": titles,
            "search": plan.search.title,
            "metrics_absent": dict(plan.dropped),
            "setup": f"{plan.search.label}; {plan.distance.label}",
            "levels": [level.name.lower() for level in plan.levels],
            "metrics": {
                m.name: {"title": m.title, "latex": getattr(m, "latex", None), "better": m.better, "place": m.place}
                for m in plan.metrics.values()
            },
        }  # fmt: skip
        self._write_record()
        values = list(dict.fromkeys(feature.values for feature in dataset.features))  # texts share one vocabulary
        features = [{"name": feature.name, "values": values.index(feature.values)} for feature in dataset.features]
        described = {
            "name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes),
            "features": features, "values": values, "unknown": dataset.unknown, "fitted": dict(dataset.fitted),
        }  # fmt: skip
        self._write_text("dataset.json", json.dumps(described, indent=1, ensure_ascii=False) + "\n")

    def save_model(self, model: Any, accuracy: Mapping[str, float]) -> None:
        """The trained model as plain arrays."""
        self._record["accuracy"] = dict(accuracy)
        self._write("model.npz", lambda path: _savez(path, model.arrays()))
        theirs = self._record["reference"].get("test_accuracy")
        log.info("test accuracy %.2f %%%s", 100 * accuracy["test"], f" (paper: {100 * theirs:.2f} %)" if theirs else "")
        self._write_record()

    def save_instances(self, dataset: Dataset, instances: Split, labels: Ints, positive: Floats) -> None:
        """The instances that are explained, and what the model predicts for them."""
        self._record["instances"] = len(instances)
        names = [(*feature.values, "") for feature in dataset.features]
        values = [[name[code] for name, code in zip(names, row, strict=True)] for row in instances.codes]
        self._write_frame(
            "instances.parquet",
            {
                "instance": instances.ids,
                "label": instances.labels,
                "predicted": labels,
                "probability": positive,
                "codes": list(instances.codes),
                "values": values,
                **({} if instances.texts is None else {"text": instances.texts}),
            },
        )

    def save_explanations(
        self, instances: Split, explanations: Mapping[str, Explanation], name: str, done: Explained
    ) -> None:
        """All explanations so far, and what the latest cost."""
        self._record.setdefault("explained", {})[name] = {"known": done.known, "seconds": round(done.seconds, 3)}
        told = [_without_none(e.features) for e in explanations.values()]
        self._write_frame(
            "explanations.parquet",
            {
                "instance": np.tile(instances.ids, len(explanations)),
                "explainer": np.repeat(list(explanations), len(instances)),
                "features": [row for rows in told for row in rows],
                "scores": [
                    scores[: len(row)]
                    for rows, e in zip(told, explanations.values(), strict=True)
                    for row, scores in zip(rows, e.scores, strict=True)
                ],
            },
        )

    def save_counterfactuals(
        self,
        instances: Split,
        usable: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """What each search found, for each instance with a usable explanation."""
        frames = [
            _found(instances.ids[(usable[name] != NONE).any(axis=1)], name, level, found)
            for name, by_level in counterfactuals.items()
            for level, found in by_level.items()
        ]
        self._write_frame("counterfactuals.parquet", pd.concat(frames, ignore_index=True))

    def save_scores(self, scores: pd.DataFrame, findings: Findings) -> None:
        """Scores per instance and what follows from them."""
        self._findings = findings
        self._write_frame("scores.parquet", scores)
        for field in fields(findings):
            table = getattr(findings, field.name)
            if table is not None:
                self._write_text(f"{field.name}.csv", table.to_csv(index=False))

    def finish(self, ledger: Ledger, progress: Progress) -> list[tables.Table]:
        """Complete the record and write the tables that people read."""
        self._record |= {
            "status": "complete",
            "seconds": {"total": time.perf_counter() - self._clock, **progress.seconds},
            "model_rows": dict(ledger.rows),
            "peak_memory_mb": round(_peak_memory(), 1),
            "correlations_absent": self._why_no_correlations(),
        }
        if self._findings is None:
            raise ValueError("a run that has no scores is not finished")
        made = tables.make(self._findings, self._record)
        self._write_text("tables.md", "\n".join(table.markdown() for table in made))
        self._write_text("tables.tex", "\n".join(table.latex() for table in made))
        # apart from the others, which are the same whenever the run is repeated
        costs = costs_of(ledger, self._record)
        self._write_text("costs.csv", costs.to_csv(index=False))
        self._write_text("costs.md", tables.costs(costs, self._record).markdown())
        self._write_record()
        if self._figures or self._report:
            from cfeval_cli.report.page import build, read  # here: a run that draws nothing does not wait for it

            build.write(read.read(self.path), self._figures, self._report)
        return made

    def close(self, status: str) -> None:
        """Say in the record that a run ended early."""
        if self.begun:
            self._record |= {"status": status, "seconds": {"total": time.perf_counter() - self._clock}}
            self._write_record()

    def contents(self) -> list[str]:
        """The names of the result files that are there."""
        kept = (path for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(path.name for path in kept if path.name not in ("run.json", "run.log"))

    def discard(self) -> None:
        """Remove the folder that Hydra made, if nothing but Hydra's own files is in it."""
        hydra_files = [self.path / ".hydra" / name for name in ("config.yaml", "hydra.yaml", "overrides.yaml")]
        for path in (*hydra_files, self.path / "run.log"):
            path.unlink(missing_ok=True)
        # and the folders that it made on the way: outputs/<date>
        for folder in (self.path / ".hydra", self.path, *self.path.parents[:2]):
            try:
                folder.rmdir()
            except OSError:
                return  # something else is in it

    def _why_no_correlations(self) -> str:
        if len(self._record["explainers"]) < 2:
            return "a ranking needs two explainers, and this run has one"
        chosen = set(self._record["metrics"])
        if not chosen & set(TRUTHS):
            return "neither ground truth (recall, hit) is among the metrics"
        if not chosen - {*TRUTHS, "converged", "coverage"}:
            return "no metric to be judged is among the metrics"
        return ""

    def _write_record(self) -> None:
        self._write_text("run.json", json.dumps(self._record, indent=1, ensure_ascii=False) + "\n")

    def _write_text(self, name: str, text: str) -> None:
        self._write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def _write_frame(self, name: str, columns: Mapping[str, Any] | pd.DataFrame) -> None:
        frame = pd.DataFrame(columns)
        self._write(name, lambda path: frame.to_parquet(path, index=False))

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        with whole_file(self.path / name) as partial:
            write(partial)


def costs_of(ledger: Ledger, record: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of costs.csv: who took how long, and asked how much of the model."""
    lines = []
    for asker, rows in ledger.rows.items():
        part, _, name = asker.partition(".")
        name, access = name.rsplit(".", 1) if part == "search" else (name, "")
        known = record["explained"][name]["known"] if part == "explainer" else ""
        lines.append((part, name, access, known, round(float(ledger.seconds[asker]), 4), rows))
    return pd.DataFrame(lines, columns=["part", "name", "access", "known", "seconds", "model_rows"])


def _found(ids: Ints, explainer: str, level: Access, found: Counterfactuals) -> pd.DataFrame:
    """Rows of counterfactuals.parquet."""
    features = _without_none(found.features)
    empty = [None] * len(ids)
    codes, vectors = found.codes, found.vectors
    return pd.DataFrame(
        {
            "instance": ids,
            "explainer": explainer,
            "access": level.name.lower(),
            "features": features,
            "codes": empty if codes is None else [row[named] for row, named in zip(codes, features, strict=True)],
            "vectors": empty
            if vectors is None
            else [list(row[: len(named)]) for row, named in zip(vectors, features, strict=True)],
            "label": found.labels,
            "flipped": found.flipped,
            "probability": np.full(len(ids), np.nan) if found.probability is None else found.probability,
            "distance": found.distance,
            "converged": pd.array(empty if found.converged is None else found.converged.tolist(), dtype="boolean"),
        }
    )


def _peak_memory() -> float:
    """Of this process, in MB; Linux counts in kilobytes, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if platform.system() == "Darwin" else 1 << 10)


def _savez(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as stream:  # a stream keeps NumPy from adding .npz to the temporary name
        np.savez(stream, **arrays)


def _without_none(features: Ints) -> list[Ints]:
    return [row[row != NONE] for row in features]


def _titles(explainers: Mapping[str, Any]) -> dict[str, str]:
    """Names for the tables; where two components would have the same one, their config keys."""
    titles = {name: getattr(explainer, "title", name) for name, explainer in explainers.items()}
    twice = [title for title in titles.values() if list(titles.values()).count(title) > 1]
    return {name: name if title in twice else title for name, title in titles.items()}


def _git_commit() -> str | None:
    """The commit of the source tree that runs, if it is one; an installed copy has none."""
    here = Path(__file__).parent
    try:
        subprocess.run(
            ["git", "-C", str(here), "ls-files", "--error-unmatch", Path(__file__).name],
            check=True,
            capture_output=True,
        )
        found = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ("-dirty" if changed.strip() else "")
