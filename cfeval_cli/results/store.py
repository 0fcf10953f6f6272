"""The run folder: everything a run leaves behind, each file written whole or not at all.

docs/run-folder.md documents every file and column.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import re
import resource
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache, partial, reduce
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfeval_cli import __version__
from cfeval_cli.cache.resumable import FILE, Resumable
from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Cache,
    Codes,
    Counterfactuals,
    Dataset,
    Explainer,
    ExplainerResult,
    Floats,
    HasArrays,
    Ints,
    Ledger,
    Model,
    ModelSpec,
    Reparametrisable,
    Rows,
    Spellings,
    Split,
    Trainable,
    TruthEstimate,
)
from cfeval_cli.core.files import as_csv, hash_file, locked, make_subfolder, refuse_links, sweep_partial, whole_file
from cfeval_cli.core.fingerprint import of_component, version_of
from cfeval_cli.core.scratch import Scratch, slabs
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord, parse_record
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.findings import Findings, get_file_name
from cfeval_cli.statistics.scores import Scores

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_PART = 1 << 17  # rows at most of a table with lists in it that are made and written at once, as a row group
_ROWS = 1 << 20  # of one with single numbers only
_MADE = re.compile(r"outputs|multirun|[\d-]+")  # folders that Hydra makes on the way: outputs/<date>
_PACKAGES = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "lime", "hydra-core")


_RESULTS = (
    "bounds.csv", "correlations.csv", "costs.csv", "costs.md", "counterfactuals.parquet",
    "counterfactuals_again.parquet", "dataset.json", "differences.csv", "explanations.parquet",
    "explanations_again.parquet", "instance_agreement.csv", "instances.parquet", "invariance.csv", "metrics.csv",
    "metric_agreement.csv", "model.npz", "noise.csv", "noise_metrics.csv", "recommendation.json", "report.html",
    "scores.parquet", "tables.md", "tables.tex", "tau_resamples.parquet", "training.parquet", "truth.parquet",
)  # fmt: skip


_UNRECORDED = {"report", "redo", "strict", "data_dir"}  # settings that results do not depend on

JUDGES = "judges"  # the folder below a run that has those of its judges


class RunFolder:
    """One run's folder."""

    def __init__(
        self,
        path: Path,
        command: Sequence[str],
        overrides: Sequence[str] = (),
        *,
        is_resumed: bool = False,
        is_judge: bool = False,
    ) -> None:
        self.path = path
        self._is_resumed = is_resumed  # by --resume: complete results are kept even if their inputs are not known
        self._is_judge = is_judge  # and belongs to the run above it
        self.begun = False
        self._command, self._overrides = list(command), list(overrides)
        self._record = RunRecord(status="unknown")
        self._files: dict[str, str] = {}  # name: sha256
        self._early = False  # whether the record was written before anything was known
        self._cache: Resumable | None = None
        self._goes_on = False  # from an attempt that broke off
        self._clock = time.perf_counter()
        self.scratch = Scratch(path)  # what a run puts aside while it computes: on the same disk, and seen by nobody

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder against other runs, and say in it what is about to be computed."""
        with locked(self.path, wait=False) as held:
            if not held:
                raise UserError(f"another run is writing to {self.path}. Wait for it, or choose another hydra.run.dir.")
            refuse_links(self.path)
            sweep_partial(self.path)
            if not (self.path / "run.json").exists():
                there = [name for name in _RESULTS if (self.path / name).exists()]
                if there:
                    raise UserError(
                        f"{self.path / there[0]} is not of a run, and would be lost. Choose another folder."
                    )
                self._early = True
                self._record = self._check_record(self._start())
                self._write_record()
            yield

    @property
    def results(self) -> str | None:
        """The inputs of the finished run whose results the folder has, if it has any and all are as they were."""
        try:
            record = checked.read(self.path)
        except UserError:
            return None
        return record.inputs if record.status == "complete" else None

    def has_results_of(self, inputs: str | None) -> bool:
        """Whether the folder has the complete results of these inputs, or of the same job of a resumed sweep."""
        results = self.results
        if results is not None and results == inputs:
            return True
        if not self._is_resumed:
            return False
        try:
            record = checked.read(self.path)
        except UserError:
            return False
        if record.status != "complete" or record.overrides is None:
            return False
        if _results_overrides(record.overrides) != _results_overrides(self._overrides):
            return False
        log.warning("%s is complete and is kept. If code or data have changed, redo=true computes it again", self.path)
        return True

    def _start(self) -> dict[str, Any]:
        return {
            "schema": checked.SCHEMA,
            "status": "running",
            "cfeval": __version__,
            "command": self._command,
            "overrides": self._overrides,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _add_entries(self, **entries: Any) -> None:
        """Add entries to the record."""
        self._record = self._check_record(self._record.to_dict() | entries)

    def _check_record(self, content: dict[str, Any]) -> RunRecord:
        """Return the record with this content; UserError if no reader would accept it."""
        try:
            return parse_record(content)
        except ValueError as error:
            raise UserError(f"{self.path}: {error}.") from error

    def open_cache(self, shared: Cache, *, redo: bool = False) -> Resumable:
        """Return the cache of the run, which has what the run computed until it is complete; `redo`: nothing older."""
        self._cache = Resumable(self.path, shared, redo=redo)
        if redo and not self._goes_on:
            self._cache.clear()
        return self._cache

    def begin(self, plan: Plan, dataset: Dataset, inputs: str | None) -> None:
        """Write what is known before anything is computed."""
        before = self._before(inputs, plan)
        self.begun = True
        titles = _titles(plan.explainers)
        self._record = self._check_record(self._start() | before | {
            "git_commit": _git_commit(),
            "python": platform.python_version(),
            "packages": {name: version_of(name) for name in _PACKAGES},
            "inputs": inputs,
            "redo": plan.settings.redo,
            "settings": plan.settings.model_dump(mode="json", exclude=_UNRECORDED) | {"gold": list(plan.golds)},
            "data": {"name": dataset.name, "kind": dataset.kind, **dataset.origin, "fingerprint": dataset.fingerprint},
            "model": {"name": _named(plan.model), "settings": _settings(plan.model)},
            "splits": {"train": len(dataset.train), "validation": len(dataset.validation), "test": len(dataset.test)},
            "reference": dict(dataset.reference),
            "explainers": titles,
            "explainer_settings": {name: _settings(one) for name, one in plan.explainers.items()},
            "effects": {name: explainer.effects for name, explainer in plan.explainers.items()},
            "ordered": {name: explainer.gives == "scores" for name, explainer in plan.explainers.items()},
            "search": plan.search.title,
            "explainers_absent": dict(plan.absent.explainers),
            "metrics_absent": dict(plan.absent.metrics),
            "truths_absent": dict(plan.absent.truths),
            "removals_absent": dict(plan.absent.removals),
            "invariance_absent": _why_no_invariance(plan, dataset),
            "truths": {
                name: {"question": one.question, "arbitrary": one.arbitrary, "settings": _settings(one)}
                for name, one in plan.truths.items()
            },
            "removals": {
                one.variant: {"name": name, "title": one.title, "arbitrary": one.arbitrary, "settings": _settings(one)}
                for name, one in plan.removals.items()
            },
            "definitions": {
                "metric": {m.name: _sentence(m) for m in plan.metrics.values()},
                "explainer": {name: _sentence(one) for name, one in plan.explainers.items()},
                "truth": {name: _sentence(one) for name, one in plan.truths.items()},
                "removal": {name: _sentence(one) for name, one in plan.removals.items()},
            },
            "setup": f"{plan.search.label}; {plan.distance.label}",
            "levels": [level.name.lower() for level in plan.levels],
            "metrics": {
                m.name: {
                    "title": m.title, "latex": m.latex, "better": m.better, "place": m.place, "role": m.role,
                    "quantity": m.quantity, "block": m.block, "detail": m.detail, "settings": _settings(m),
                }
                for m in plan.metrics.values()
            },
        })  # fmt: skip
        self._write_record()
        lists: dict[tuple[str, ...], int] = {}  # texts share one vocabulary
        features = [
            {"name": feature.name, "values": lists.setdefault(feature.values, len(lists)), "kind": feature.kind}
            | ({"ordered": True} if feature.ordered else {})
            | ({} if feature.missing is None else {"missing": feature.missing})
            | ({} if feature.moves == "any" else {"moves": feature.moves})
            | ({"candidates": dataset.candidates[j].tolist()} if feature.kind == "number" else {})
            for j, feature in enumerate(dataset.features)
        ]
        described = {
            "name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes),
            "features": features, "values": list(lists), "unknown": dataset.unknown, "fitted": dict(dataset.fitted),
        }  # fmt: skip
        if dataset.spellings is not None and dataset.with_spellings() is dataset:
            splits = [dataset.test, *([dataset.train] if len(dataset.train) <= plan.settings.training else [])]
            described["spellings"] = _describe_spellings(dataset.spellings, [split.codes for split in splits])
        self._write_text("dataset.json", json.dumps(described, indent=1, ensure_ascii=False) + "\n")
        if len(dataset.train) <= plan.settings.training:
            self._write_training(dataset.train)

    def _before(self, inputs: str | None, plan: Plan) -> dict[str, Any]:
        """What is taken over from an attempt at the same run; unfinished results of another run are removed."""
        self._goes_on = False
        if self._early:
            return {}
        try:
            record = checked.read_record(self.path)
        except UserError:
            record = RunRecord(status="unknown", inputs="")
        has_inputs = "inputs" in record.model_fields_set
        # a run that was killed before its inputs were known has no results yet
        same = inputs is not None and (not has_inputs or record.inputs == inputs)
        if not same:
            if record.status == "complete" and not plan.settings.redo and not self._is_judge:
                whose = "the complete results of another run"
                if inputs is None or (has_inputs and record.inputs is None):
                    whose = (
                        f"complete results. Whether they are of this run is unknown, because {_unknown_inputs(plan)}"
                    )
                raise UserError(
                    f"{self.path} has {whose}. They are kept: choose another folder, or replace them with redo=true."
                )
            self._clean()
        if not same or record.status == "complete":
            return {}
        self._goes_on = not plan.settings.redo or record.redo
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return record.model_dump(include={"command", "started"}, exclude_unset=True) | {
            "resumed": [*record.resumed, now]
        }

    def _clean(self) -> None:
        """Remove the results of another run, whatever its record lists; nothing that no run writes."""
        for name in _RESULTS:
            (self.path / name).unlink(missing_ok=True)
        for kind in ("png", "svg", "pdf"):
            for figure in (self.path / "figures").glob(f"*.{kind}"):
                figure.unlink()

    def save_model(self, model: Model, quality: Mapping[str, Mapping[str, float]], doubts: Sequence[str] = ()) -> None:
        """How good the trained model is, what to doubt of it, and the model as plain arrays, if there are such."""
        self._add_entries(**{name: dict(by_split) for name, by_split in quality.items()}, doubts=list(doubts))
        if isinstance(model, HasArrays):
            self._write("model.npz", lambda path: _savez(path, model.to_arrays()))
        theirs = self._record.reference.test_accuracy
        accuracy, majority, area = quality["accuracy"]["test"], quality["majority"]["test"], quality["auc"].get("test")
        paper = f" (paper: {100 * theirs:.2f} %)" if theirs else ""
        shown = "" if area is None else f", AUC {area:.3f}"
        log.info("test accuracy %.2f %%%s, largest class %.2f %%%s", 100 * accuracy, paper, 100 * majority, shown)
        self._write_record()

    def add_doubt(self, doubt: str) -> None:
        """Add what is to be doubted of explanations that were made elsewhere."""
        self._add_entries(doubts=[*self._record.doubts, doubt])
        self._write_record()

    def _write_training(self, train: Split) -> None:
        """The training rows, in the order in which they are drawn from."""
        columns = {"instance": train.ids, "label": train.labels, "codes": _lists(train.codes)}
        self._write_table("training.parquet", columns)
        (self.path / "training.parquet").chmod(0o600)
        log.info("the folder contains training data (training.parquet); training=0 leaves it out")

    def save_fidelity(self, agreement: Mapping[str, float]) -> None:
        """How often a model that learned another one's predictions says the same."""
        self._add_entries(fidelity=dict(agreement))
        share, low, high = (100 * agreement[name] for name in ("test", "low", "high"))
        log.info("says what its teacher says for %.1f %% [%.1f, %.1f] of the test rows", share, low, high)
        self._write_record()

    def save_instances(self, dataset: Dataset, instances: Split, rows: Rows, probabilities: Floats | None) -> None:
        """The instances that are explained, and what the model predicts for them."""
        nothing = np.full(len(instances), np.nan)
        two = probabilities is not None and probabilities.shape[1] == 2
        self._add_entries(instances=len(instances))
        names = [(*feature.values, "") for feature in dataset.features]
        words = dataset.words(instances)
        columns: dict[str, Any] = {
            "instance": instances.ids,
            "label": instances.labels,
            "predicted": rows.labels,
            "probability": probabilities[:, 1] if two and probabilities is not None else nothing,
            "predicted_probability": nothing if rows.probability is None else rows.probability,
            "codes": instances.codes,
        }

        def some(part: slice) -> pd.DataFrame:
            told = {name: column[part] for name, column in columns.items()}
            codes = told["codes"]
            told["codes"] = list(codes)
            told["values"] = [[name[code] for name, code in zip(names, row, strict=True)] for row in codes]
            if instances.texts is not None:
                told["text"] = instances.texts[part]
            if words is not None:
                told["words"] = words[part]
            return pd.DataFrame(told)

        self._write_parts("instances.parquet", [partial(some, part) for part in _parts(len(instances))])

    def save_truth(self, instances: Split, truth: Mapping[str, TruthEstimate]) -> None:
        """How much each feature truly matters, under each definition that the model has, and how well that is known."""
        entries = self._record.to_dict()["truths"]
        for name, known in truth.items():
            many = self._many_known(known.importance)
            entries[name] |= {"exact": known.error is None, "how": known.method, "instances": many}
            if known.error is not None and not np.isnan(known.error).all():
                told = {"error": float(np.nanmean(known.error)), "largest_error": float(np.nanmax(known.error))}
                entries[name] |= told
        self._add_entries(truths=entries)
        if not truth:
            return
        pieces = _pieces(truth, len(instances))
        self._write_tables("truth.parquet", (_known(instances.ids, *piece) for piece in pieces))

    def _many_known(self, importance: Floats) -> int:
        """Of how many instances anything is known."""
        many = 0
        for slab in slabs(len(importance)):
            many += int((~np.isnan(importance[slab]).all(axis=1)).sum())
            self.scratch.release()
        return many

    def save_explanations(self, instances: Split, explained: Mapping[str, ExplainerResult]) -> None:
        """All explanations so far, and what they cost."""
        entries = {
            name: {
                "known": done.n_cached,
                "seconds": round(done.cost.seconds, 3),
                "faults": len(done.faults),
                "reasons": done.reasons,
            }
            for name, done in explained.items()
        }
        self._add_entries(explained=entries)
        pieces = _pieces(explained, len(instances))
        self._write_parts("explanations.parquet", [partial(_told, instances.ids, *piece) for piece in pieces])
        self._write_record()

    def save_counterfactuals(
        self,
        instances: Split,
        usable: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """What each search found, for each instance with a usable explanation."""
        self._write_edited("counterfactuals.parquet", instances.ids, usable, counterfactuals)

    def _write_edited(
        self,
        file: str,
        ids: Ints,
        usable: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """Edits of all explainers and levels, part by part where there are many."""
        there = {name: (usable[name] != NO_FEATURE).any(axis=1) for name in counterfactuals}
        whose = {name: ids if mine.all() else ids[mine] for name, mine in there.items()}  # all are not copied
        whole = [
            (whose[name], name, level, found)
            for name, by_level in counterfactuals.items()
            for level, found in by_level.items()
        ]
        if sum(len(one[0]) for one in whole) <= _PART:
            self._write_parts(file, [lambda: pd.concat([_found(*one) for one in whole], ignore_index=True)])
            return

        def some(of: Ints, name: str, level: Access, found: Counterfactuals, part: slice) -> pd.DataFrame:
            return _found(of[part], name, level, found.take(part))

        self._write_parts(file, [partial(some, *one, part) for one in whole for part in _parts(len(one[0]))])

    def save_again(
        self,
        instances: Split,
        explained: Mapping[str, ExplainerResult],
        usable: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """What the explainers said of some instances with another seed, and what the search made of that."""
        self._write_frame("explanations_again.parquet", _told(instances.ids, explained, slice(None)))
        self._write_edited("counterfactuals_again.parquet", instances.ids, usable, counterfactuals)

    def save_scores(
        self,
        scores: Scores,
        findings: Findings,
        resampled: int,
        ledger: Ledger,
        seconds: Mapping[tuple[str, str], float],
    ) -> None:
        """Scores per instance, what follows from them by so many resamples, and what it all cost.

        `seconds` are by stage and component.
        """
        parts = [partial(scores.frame, part.start, part.stop) for part in _parts(len(scores), _ROWS)]
        self._write_parts("scores.parquet", parts)
        for field in fields(findings):
            table, file = getattr(findings, field.name), get_file_name(field)
            if table is not None and file.endswith(".csv"):
                self._write_text(file, as_csv(table))
            elif table is not None:
                self._write_frame(file, table)
        self._add_entries(
            resampled=resampled,
            seconds=time.perf_counter() - self._clock,
            stages=[
                {"stage": stage, "component": component, "seconds": spent}
                for (stage, component), spent in seconds.items()
            ],
            model_rows=dict(ledger.rows),
            peak_memory_mb=round(_peak_memory(), 1),
            correlations_absent=self._why_no_correlations(),
        )
        self._write_text("costs.csv", as_csv(costs_of(ledger, self._record)))

    def below(self, judge: str) -> RunFolder:
        """The folder of a judge."""
        path = self.path / JUDGES / judge
        make_subfolder(make_subfolder(self.path, JUDGES), judge)
        return RunFolder(path, self._command, self._overrides, is_judge=True)

    def save_recommendation(self, told: Mapping[str, Any]) -> None:
        """Which explainer to use, and what that rests on."""
        self._write_text("recommendation.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")

    @property
    def questions(self) -> Mapping[str, str]:
        """The question of each truth that depends on no arbitrary constant of the model."""
        return self._record.questions

    def silent(self) -> list[str]:
        """The explainers that failed on every instance, each with the reasons, of a run that is complete."""
        record = checked.read_record(self.path)
        return [
            f"explainer.{name} failed on every instance ({record.instances:,}): {entry.reasons}"
            for name, entry in record.explained.items()
            if record.instances and entry.faults >= record.instances
        ]

    @property
    def has_training(self) -> bool:
        """Whether the folder contains training rows."""
        return (self.path / "training.parquet").exists()

    @property
    def finished(self) -> RunRecord:
        """The record as it will be when the run is complete, for who reads the folder before that."""
        return self._record.model_copy(update={"status": "complete", "files": dict(self._files)})

    def add(self, bodies: Iterable[tuple[str, bytes]]) -> None:
        """More files, made from the others: tables, figures, the report."""
        for name, body in bodies:
            self._write(name, partial(_put, body))

    def finish(self) -> None:
        """All is there: say so, and put away what would be needed to go on."""
        lost = [name for name in self._files if not (self.path / name).is_file()]
        if lost:
            raise Failure(f"{self.path / lost[0]} was removed during the run.")
        self._add_entries(status="complete")
        self._write_record()
        if self._cache is not None:
            self._cache.clear()

    @staticmethod
    def remake(path: Path, record: RunRecord, bodies: Iterable[tuple[str, bytes]]) -> None:
        """Make some files of a finished run anew; whenever that ends, the record lists no file that is not so."""
        made, folder = dict(bodies), RunFolder(path, [])
        with locked(path, wait=False) as held:
            if not held:
                raise UserError(f"another process is writing to {path}. Wait for it.")
            refuse_links(path)
            folder._record = record
            folder._files = {name: digest for name, digest in record.files.items() if name not in made}
            folder._write_record()
            folder.add(made.items())
            folder._write_record()

    def close(self, status: str) -> None:
        """Say in the record that a run ended early."""
        if self.begun:
            self._add_entries(status=status, seconds=time.perf_counter() - self._clock)
            self._write_record()

    def contents(self) -> list[str]:
        """The names of the result files that are there."""
        kept = (path for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(path.name for path in kept if path.name not in ("run.json", "run.log", FILE))

    def discard(self) -> None:
        """Remove the folder that Hydra made, if nothing but Hydra's own files is in it; not that of another run."""
        if not self._early:
            return
        hydra_files = [self.path / ".hydra" / name for name in ("config.yaml", "hydra.yaml", "overrides.yaml")]
        with contextlib.suppress(OSError):
            for path in (*hydra_files, self.path / "run.log", self.path / "run.json"):
                path.unlink(missing_ok=True)
        made = takewhile(lambda folder: _MADE.fullmatch(folder.name), self.path.parents[:4])
        for folder in (self.path / ".hydra", self.path, *made):  # not one that the user made
            try:
                folder.rmdir()
            except OSError:
                return  # something else is in it

    def _why_no_correlations(self) -> str:
        if len(self._record.explainers) < 2:
            return "a ranking needs two explainers, and this run has one"
        roles = {metric.role for metric in self._record.metrics.values()}
        if self._record.truths_absent and not self._record.truths:
            reason = next(iter(self._record.truths_absent.values()))
            return f"no truth is known of this model: each {reason}"
        if "truth" not in roles:
            return "neither ground truth (recall, hit) is among the metrics"
        return "" if "judged" in roles else "no metric to be judged is among the metrics"

    def _write_record(self) -> None:
        self._add_entries(files=dict(sorted(self._files.items())))
        text = json.dumps(self._record.to_dict(), indent=1, ensure_ascii=False) + "\n"
        with self._whole("run.json") as path:
            path.write_text(text, encoding="utf-8")

    def _write_text(self, name: str, text: str) -> None:
        self._write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def _write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._write(name, lambda path: pq.write_table(pa.table(dict(columns)), path))

    def _write_frame(self, name: str, columns: Mapping[str, Any] | pd.DataFrame) -> None:
        frame = pd.DataFrame(columns)
        self._write(name, lambda path: frame.to_parquet(path, index=False))

    def _write_parts(self, name: str, makers: Sequence[Callable[[], pd.DataFrame]]) -> None:
        """A table in row groups, of which only one is in memory; one that fits into a part is written in one go.

        Parts are made twice: what a column holds, such as nothing but empty lists, is known when all have been seen.
        """
        import pyarrow as pa

        if len(makers) == 1:
            self._write_frame(name, makers[0]())
            self.scratch.release()
            return
        found = (pa.Schema.from_pandas(frame, preserve_index=False) for frame in self._made(makers))
        schema = reduce(lambda one, two: pa.unify_schemas([one, two], promote_options="permissive"), found)
        parts = (pa.Table.from_pandas(frame, schema=schema, preserve_index=False) for frame in self._made(makers))
        self._write(name, lambda path: _write_groups(path, parts))

    def _made(self, makers: Iterable[Callable[[], pd.DataFrame]]) -> Iterator[pd.DataFrame]:
        """One part after the other; what it is made from is given back."""
        for make in makers:
            yield make()
            self.scratch.release()

    def _write_tables(self, name: str, parts: Iterable[Mapping[str, Any]]) -> None:
        """Columns part by part, each a row group; what they are made from is given back."""
        import pyarrow as pa

        def tables() -> Iterator[Any]:
            for part in parts:
                yield pa.table(dict(part))
                self.scratch.release()

        self._write(name, lambda path: _write_groups(path, tables()))

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        with self._whole(name) as partial:
            write(partial)
            self._files[name] = hash_file(partial)

    @contextlib.contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        try:
            if "/" in name:  # the run's own folder is not made again if somebody removed it
                make_subfolder(self.path, str(Path(name).parent))
            with whole_file(self.path / name) as partial:
                yield partial
        except FileNotFoundError as error:
            if self.path.is_dir():
                raise
            raise Failure(f"{self.path} was removed during the run.") from error


def _results_overrides(overrides: Sequence[Any]) -> list[str]:
    """Return the overrides that results depend on."""
    ignored = re.compile(r"[+~]*(n_jobs|strict|redo|executor|cache)\b")
    return [str(text) for text in overrides if not ignored.match(str(text))]


def _unknown_inputs(plan: Plan) -> str:
    """Return why the inputs of a run are unknown: which components do not say what their results depend on."""
    parts = plan.components.items()
    unknown = [key for key, component in parts if of_component(component, hash_folders=False) is None]
    if not unknown:
        return "the inputs of the earlier run were not known"
    hint = " (model.depends names the files that a model reads)" if "depends" in vars(plan.model) else ""
    return f"it is not known what {', '.join(unknown)} depends on{hint}"


def _why_no_invariance(plan: Plan, dataset: Dataset) -> str:
    """Why it is not told what other parameters of the model move; nothing if it is."""
    if not plan.settings.reparametrisations:
        return "reparametrisations=0"
    return ModelSpec.from_settings(dataset, plan.model).missing_ability_reason(Reparametrisable) or ""


def _describe_spellings(spellings: Spellings, stored: Sequence[Codes]) -> dict[str, Any]:
    """Return the spellings of a dataset; separators, which may be the rest of a text, only those of stored rows."""
    codes = np.unique(np.concatenate([part[part >= spellings.first] for part in stored])) - spellings.first
    indices = {name: getattr(spellings, name) for name in ("before", "after", "rest")}
    kept = {0}.union(*(index[codes].tolist() for index in indices.values()))
    return {
        "first": spellings.first,
        "vocabulary": spellings.vocabulary.tolist(),
        **{name: index.tolist() for name, index in indices.items()},
        "separators": [text if i in kept else None for i, text in enumerate(spellings.separators)],
    }


def _lists(rows: NDArray[Any]) -> Any:
    """A column whose cells are the rows (n, M)."""
    import pyarrow as pa

    kind, ends = (pa.ListArray, np.int32) if rows.size < 1 << 31 else (pa.LargeListArray, np.int64)
    return kind.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=ends) * rows.shape[1]), pa.array(rows.ravel()))


def _parts(size: int, most: int | None = None) -> list[slice]:
    """So many rows in parts, one at least."""
    step = most or _PART
    return [slice(start, min(size, start + step)) for start in range(0, max(1, size), step)]


def _pieces(named: Mapping[str, _T], size: int) -> list[tuple[Mapping[str, _T], slice]]:
    """All explainers or truths at once if they are few rows together, else each by itself, in parts."""
    if size * len(named) <= _PART:
        return [(named, slice(None))]
    return [({name: one}, part) for name, one in named.items() for part in _parts(size)]


def _write_groups(path: Path, parts: Iterator[Any]) -> None:
    """Tables of one schema, each as a row group."""
    import pyarrow.parquet as pq

    first = next(parts)
    with pq.ParquetWriter(path, first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)


def _known(ids: Ints, truth: Mapping[str, TruthEstimate], part: slice) -> dict[str, Any]:
    """Rows of truth.parquet, of some instances."""
    some = ids[part]
    whole = np.concatenate([known.importance[part] for known in truth.values()])
    errors = [np.zeros(len(some)) if known.error is None else known.error[part] for known in truth.values()]
    return {
        "instance": np.tile(some, len(truth)),
        "truth": np.repeat(list(truth), len(some)),
        "importance": _lists(np.where(np.isfinite(whole), whole, np.nan)),
        "error": np.concatenate(errors),
    }


def _put(body: bytes, path: Path) -> None:
    path.write_bytes(body)


def costs_of(ledger: Ledger, record: RunRecord) -> pd.DataFrame:
    """Rows of costs.csv: who took how long, and asked how much of the model."""
    lines = []
    for component in list(ledger.rows):
        part, _, name = component.partition(".")
        name, access = name.rsplit(".", 1) if part == "search" else (name, "")
        known = record.explained[name].known if part == "explainer" else ""
        cost = ledger.cost(component)
        told = (round(cost.seconds, 4), cost.rows, round(cost.inside, 4), round(cost.calls))
        lines.append((part, name, access, known, *told))
    columns = ["part", "name", "access", "known", "seconds", "model_rows", "model_seconds", "model_calls"]
    return pd.DataFrame(lines, columns=columns)


def _told(ids: Ints, explained: Mapping[str, ExplainerResult], part: slice) -> pd.DataFrame:
    """Rows of explanations.parquet, of some instances."""
    explanations = {name: done.explanation.take(part) for name, done in explained.items()}
    places, ids = range(len(ids))[part], ids[part]
    told = [_without_none(e.features) for e in explanations.values()]
    return pd.DataFrame(
        {
            "instance": np.tile(ids, len(explanations)),
            "explainer": np.repeat(list(explanations), len(ids)),
            "features": [row for rows in told for row in rows],
            "scores": [
                scores[: len(row)]
                for rows, e in zip(told, explanations.values(), strict=True)
                for row, scores in zip(rows, e.scores, strict=True)
            ],
            "fault": pd.array([done.faults.get(row) for done in explained.values() for row in places], "str"),
        }
    )


def _found(ids: Ints, explainer: str, level: Access, found: Counterfactuals) -> pd.DataFrame:
    """Rows of counterfactuals.parquet."""
    features = _without_none(found.features)
    empty = [None] * len(ids)
    codes, vectors = found.codes, found.vectors
    rows: dict[str, Any] = {
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
        "steps": pd.array(empty if found.steps is None else found.steps.tolist(), dtype="Int64"),
    }
    return pd.DataFrame(rows)


def _peak_memory() -> float:
    """Of this process, in MB; Linux counts in kilobytes, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if platform.system() == "Darwin" else 1 << 10)


def _savez(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as stream:  # a stream keeps NumPy from adding .npz to the temporary name
        np.savez(stream, **arrays)


def _without_none(features: Ints) -> list[Ints]:
    return [row[row != NO_FEATURE] for row in features]


def _titles(explainers: Mapping[str, Explainer]) -> dict[str, str]:
    """Names for the tables; where two components would have the same one, their config keys."""
    titles = {name: explainer.title or name for name, explainer in explainers.items()}
    twice = [title for title in titles.values() if list(titles.values()).count(title) > 1]
    return {name: name if title in twice else title for name, title in titles.items()}


def _settings(component: object) -> dict[str, Any]:
    """The settings of a component that are plain values."""
    return {
        name: value for name, value in vars(component).items() if isinstance(value, bool | int | float | str | None)
    }


def _sentence(component: object) -> str:
    """The first sentence that a component's class says of itself; empty if it says none."""
    kind = type(component)
    text = kind.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{kind.__name__}(") else " ".join(text.partition("\n\n")[0].split())


def _named(model: Trainable) -> str:
    """The model's class and those of which it is made: Estimator (HistGradientBoostingClassifier), blind."""
    told = vars(model)
    simple = (bool, int, float, str, type(None), Sequence, Mapping)
    parts = [type(value).__name__ for value in told.values() if not isinstance(value, simple)]
    return type(model).__name__ + (f" ({', '.join(parts)})" if parts else "") + (", blind" if told.get("blind") else "")


@cache
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
