"""The folder of a run: locked while the run computes, with a record (run.json) of its state and its files.

docs/run-folder.md documents every file and column.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import re
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

from cfeval_cli.cache.run import PROGRESS_FILE, RunCache
from cfeval_cli.core import (
    Access,
    Cache,
    Counterfactuals,
    Dataset,
    ExplainerResult,
    Floats,
    HasArrays,
    Ints,
    Ledger,
    Model,
    Rows,
    Split,
    TruthEstimate,
)
from cfeval_cli.core.files import lock_folder, make_subfolder, refuse_links, remove_partial_files
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.results import entries, resume, tables
from cfeval_cli.results.files import ResultFiles, format_json
from cfeval_cli.results.locations import LOG_FILE, RECORD, has_record
from cfeval_cli.results.recommendation import RECOMMENDATION_FILE, dump_recommendation
from cfeval_cli.results.record import FidelityEntry, RunRecord, StageEntry, parse_record
from cfeval_cli.results.schema import RESULT_FILES, get_table_file
from cfeval_cli.results.validation import read_record, read_verified_record
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.recommendation import Recommendation
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.scores import Scores

log = logging.getLogger(__name__)

JUDGES_FOLDER = "judges"  # inside a run's folder

_HYDRA_FILES = ("config.yaml", "hydra.yaml", "overrides.yaml")
_HYDRA_FOLDERS = re.compile(r"outputs|multirun|[\d-]+")  # that Hydra makes on the way: outputs/<date>


class RunFolder:
    """The folder of one run."""

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
        self.scratch = Scratch(path)  # for temporary arrays: on the same disk as the results
        self.has_begun = False
        self._is_resumed = is_resumed  # by --resume: complete results are kept even if their inputs are not known
        self._is_judge = is_judge  # and belongs to the run above it
        self._is_new = False  # the folder had no record before
        self._continues = False  # an attempt that was interrupted
        self._command, self._overrides = list(command), list(overrides)
        self._record = RunRecord(status="unknown")
        self._files = ResultFiles(path, self.scratch)
        self._cache: RunCache | None = None
        self._clock = time.perf_counter()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Lock the folder against other runs, and write a first record."""
        with _lock(self.path, "another run is writing to {}. Wait for it, or choose another hydra.run.dir."):
            remove_partial_files(self.path)
            if not has_record(self.path):
                self._refuse_foreign_files()
                self._is_new = True
                self._record = self._check_record(entries.build_start_record(self._command, self._overrides))
                self._write_record()
            yield

    def _refuse_foreign_files(self) -> None:
        for name in RESULT_FILES:
            if (self.path / name).exists():
                raise UserError(
                    f"{self.path / name} was not written by a run, and would be overwritten. Choose another folder."
                )

    def _read_complete_record(self) -> RunRecord | None:
        try:
            record = read_verified_record(self.path)
        except UserError:
            return None
        return record if record.status == "complete" else None

    def has_results_of(self, inputs: str | None) -> bool:
        """Return whether the folder has the complete results of these inputs, or of the same job of a resumed sweep."""
        record = self._read_complete_record()
        if record is None:
            return False
        if record.inputs is not None and record.inputs == inputs:
            return True
        if not self._is_resumed or not resume.has_same_overrides(record, self._overrides):
            return False
        log.warning("%s is complete and is kept. If code or data have changed, redo=true computes it again", self.path)
        return True

    def open_cache(self, shared: Cache, *, redo: bool = False) -> RunCache:
        """Return the cache of the run, which has what the run computed until it is complete; `redo`: nothing older."""
        self._cache = RunCache(self.path, shared, redo=redo)
        if redo and not self._continues:
            self._cache.clear()
        return self._cache

    def begin(self, plan: Plan, dataset: Dataset, inputs: str | None) -> None:
        """Write what is known before anything is computed; unfinished results of another run are removed."""
        earlier = self._take_over(inputs, plan)
        self.has_begun = True
        record = entries.build_start_record(self._command, self._overrides)
        if earlier is not None:
            record = resume.merge_earlier_record(record, earlier)
        with self._report_invalid_entries():
            record = entries.add_plan_entries(record, plan, dataset, inputs)
        self._record = self._check_record(record)
        self._write_record()
        stores_training = len(dataset.train) <= plan.settings.training
        stored = [dataset.test, *([dataset.train] if stores_training else [])]
        self._files.write_json("dataset.json", entries.describe_dataset(dataset, stored))
        if stores_training:
            self._files.write_arrow_groups("training.parquet", [tables.build_training(dataset.train)])
            (self.path / "training.parquet").chmod(0o600)
            log.info("the folder contains training data (training.parquet); training=0 leaves it out")

    def _take_over(self, inputs: str | None, plan: Plan) -> RunRecord | None:
        """Return the record of an earlier attempt at the same run; remove unfinished results of another run."""
        self._continues = False
        if self._is_new:
            return None
        try:
            record = read_record(self.path)
        except UserError:
            record = RunRecord(status="unknown", inputs="")
        is_same, is_complete = resume.is_same_run(record, inputs), record.status == "complete"
        if not is_same:
            if is_complete and not plan.settings.redo and not self._is_judge:
                resume.refuse_replacement(self.path, record, inputs, plan)
            self._remove_results()
        if not is_same or is_complete:
            return None
        self._continues = not plan.settings.redo or record.redo
        return record

    def _remove_results(self) -> None:
        """Remove all files that a run can have written, whatever the record lists, and no others."""
        for name in RESULT_FILES:
            (self.path / name).unlink(missing_ok=True)
        for suffix in ("png", "svg", "pdf"):
            for figure in (self.path / "figures").glob(f"*.{suffix}"):
                figure.unlink()

    def save_model(
        self, model: Model, quality: Mapping[str, Mapping[str, float]], warnings: Sequence[str] = ()
    ) -> None:
        """Save how good the trained model is, reasons to doubt it, and its arrays if it has any."""
        self._add_entries({**{name: dict(by_split) for name, by_split in quality.items()}, "warnings": list(warnings)})
        if isinstance(model, HasArrays):
            self._files.write_arrays("model.npz", model.to_arrays())
        reference = self._record.reference.test_accuracy
        accuracy, majority, auc = quality["accuracy"]["test"], quality["majority"]["test"], quality["auc"].get("test")
        paper = f" (paper: {100 * reference:.2f} %)" if reference else ""
        with_auc = "" if auc is None else f", AUC {auc:.3f}"
        log.info("test accuracy %.2f %%%s, largest class %.2f %%%s", 100 * accuracy, paper, 100 * majority, with_auc)
        self._write_record()

    def add_warning(self, warning: str) -> None:
        """Add a limit of the results, which the report shows."""
        self._add_entries({"warnings": [*self._record.warnings, warning]})
        self._write_record()

    def save_fidelity(self, fidelity: Mapping[str, float]) -> None:
        """Save how often a distilled model makes the prediction of its teacher."""
        self._add_entries({"fidelity": FidelityEntry.model_validate(fidelity)})
        share, low, high = (100 * fidelity[name] for name in ("test", "low", "high"))
        log.info("same prediction as the teacher for %.1f %% [%.1f, %.1f] of the test rows", share, low, high)
        self._write_record()

    def save_instances(self, dataset: Dataset, instances: Split, rows: Rows, probabilities: Floats | None) -> None:
        """Save the explained instances, and what the model predicts for them."""
        self._add_entries({"instances": len(instances)})
        builders = tables.make_instances_builders(dataset, instances, rows, probabilities)
        self._files.write_row_groups("instances.parquet", builders)

    def save_truth(self, instances: Split, truth: Mapping[str, TruthEstimate]) -> None:
        """Save the true importance of each feature under each definition, and how precisely it is known."""
        self._add_entries({"truths": entries.complete_truth_entries(self._record.truths, truth, self.scratch)})
        if truth:
            self._files.write_arrow_groups("truth.parquet", tables.build_truth_groups(instances.ids, truth))

    def save_explanations(self, instances: Split, results: Mapping[str, ExplainerResult]) -> None:
        """Save all explanations so far, and their costs."""
        self._add_entries({"explained": entries.build_explained_entries(results)})
        builders = tables.make_explanations_builders(instances.ids, results)
        self._files.write_row_groups("explanations.parquet", builders)
        self._write_record()

    def save_counterfactuals(
        self,
        instances: Split,
        selected: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """Save the results of each search; `selected` has the features (N, k) that each explainer selects."""
        builders = tables.make_counterfactuals_builders(instances.ids, selected, counterfactuals)
        self._files.write_row_groups("counterfactuals.parquet", builders)

    def save_repetition(
        self,
        instances: Split,
        results: Mapping[str, ExplainerResult],
        selected: Mapping[str, Ints],
        counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]],
    ) -> None:
        """Save the explanations of some instances with another explainer seed, and their counterfactuals."""
        self._files.write_frame("explanations_again.parquet", tables.build_explanations(instances.ids, results))
        builders = tables.make_counterfactuals_builders(instances.ids, selected, counterfactuals)
        self._files.write_row_groups("counterfactuals_again.parquet", builders)

    def save_scores(
        self,
        scores: Scores,
        statistics: RunStatistics,
        n_resamples: int,
        ledger: Ledger,
        seconds: Mapping[tuple[str, str], float],
    ) -> None:
        """Save the scores per instance, the statistics, and the costs; `seconds` are by stage and component."""
        self._files.write_row_groups("scores.parquet", tables.make_scores_builders(scores))
        for field in fields(statistics):
            frame = getattr(statistics, field.name)
            if frame is not None:
                self._files.write_frame(get_table_file(field.name), frame)
        self._add_entries(
            {
                "resampled": n_resamples,
                "seconds": time.perf_counter() - self._clock,
                "stages": [
                    StageEntry(stage=stage, component=component, seconds=spent)
                    for (stage, component), spent in seconds.items()
                ],
                "peak_memory_mb": round(_get_peak_memory(), 1),
                "correlations_absent": entries.explain_missing_correlations(self._record),
            }
        )
        self._files.write_frame("costs.csv", tables.build_costs(ledger, self._record.explained))

    def save_recommendation(self, recommendation: Recommendation) -> None:
        """Save which explainer to use, and why."""
        self._files.write_json(RECOMMENDATION_FILE, dump_recommendation(recommendation))

    def add_files(self, contents: Iterable[tuple[str, bytes]]) -> None:
        """Add files that are made from the others: tables, figures, the report."""
        for name, content in contents:
            self._files.write_bytes(name, content)

    def make_judge_folder(self, judge: str) -> RunFolder:
        """Make the folder of a judge inside this one, and return it."""
        path = make_subfolder(make_subfolder(self.path, JUDGES_FOLDER), judge)
        return RunFolder(path, self._command, self._overrides, is_judge=True)

    @property
    def questions(self) -> Mapping[str, str]:
        """The question of each truth that depends on no arbitrary constant of the model."""
        return self._record.questions

    @property
    def has_training(self) -> bool:
        """Whether the folder contains training rows."""
        return (self.path / "training.parquet").exists()

    @property
    def completed_record(self) -> RunRecord:
        """The record as it will be when the run is complete, for reports that are part of the run."""
        return self._record.model_copy(update={"status": "complete", "files": dict(self._files.hashes)})

    def find_failed_explainers(self) -> list[str]:
        """Return a message for each explainer of the complete run that failed on every instance."""
        record = read_record(self.path)
        return [
            f"explainer.{name} failed on every instance ({record.instances:,}): {entry.reasons}"
            for name, entry in record.explained.items()
            if record.instances and entry.faults >= record.instances
        ]

    def list_results(self) -> list[str]:
        """Return the names of the result files that exist."""
        files = (path.name for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(name for name in files if name not in (RECORD, LOG_FILE, PROGRESS_FILE))

    def finish(self) -> None:
        """Mark the run as complete, and remove what would be needed to continue it."""
        missing = [name for name in self._files.hashes if not (self.path / name).is_file()]
        if missing:
            raise Failure(f"{self.path / missing[0]} was removed during the run.")
        self._add_entries({"status": "complete"})
        self._write_record()
        if self._cache is not None:
            self._cache.clear()

    def close(self, status: str) -> None:
        """Record that the run ended early."""
        if self.has_begun:
            self._add_entries({"status": status, "seconds": time.perf_counter() - self._clock})
            self._write_record()

    def discard(self) -> None:
        """Remove a new folder in which nothing was computed, unless it has other files than Hydra's."""
        if not self._is_new:
            return
        hydra_files = [self.path / ".hydra" / name for name in _HYDRA_FILES]
        with contextlib.suppress(OSError):
            for path in (*hydra_files, self.path / LOG_FILE, self.path / RECORD):
                path.unlink(missing_ok=True)
        parents = takewhile(lambda folder: _HYDRA_FOLDERS.fullmatch(folder.name), self.path.parents[:4])
        for folder in (self.path / ".hydra", self.path, *parents):
            try:
                folder.rmdir()
            except OSError:
                return  # something else is in it

    def _add_entries(self, values: Mapping[str, object]) -> None:
        self._record = self._check_record(self._record.model_copy(update=values))

    def _check_record(self, record: RunRecord) -> RunRecord:
        """Return the record as a reader gets it; UserError if no reader would accept it."""
        with self._report_invalid_entries():
            return parse_record(record.to_dict())

    @contextlib.contextmanager
    def _report_invalid_entries(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise UserError(f"{self.path}: {error}.") from error

    def _write_record(self) -> None:
        self._record = _write_record(self._files, self._record)


def replace_files(path: Path, record: RunRecord, contents: Iterable[tuple[str, bytes]]) -> None:
    """Write some files of a complete run again.

    The record does not list them meanwhile, so that the folder is valid whenever this is interrupted.
    """
    new = dict(contents)
    with _lock(path, "another process is writing to {}. Wait for it."):
        hashes = {name: digest for name, digest in record.files.items() if name not in new}
        files = ResultFiles(path, Scratch(path), hashes)
        _write_record(files, record)
        for name, content in new.items():
            files.write_bytes(name, content)
        _write_record(files, record)


def _write_record(files: ResultFiles, record: RunRecord) -> RunRecord:
    """Write a record with the files that were written so far, and return it."""
    record = record.model_copy(update={"files": dict(sorted(files.hashes.items()))})
    with files.replace(RECORD) as path:
        path.write_text(format_json(record.to_dict()), encoding="utf-8")
    return record


@contextlib.contextmanager
def _lock(path: Path, message: str) -> Iterator[None]:
    """Hold a folder against other processes; UserError with the message if one holds it, or if it contains links."""
    with lock_folder(path, wait=False) as is_held:
        if not is_held:
            raise UserError(message.format(path))
        refuse_links(path)
        yield


def _get_peak_memory() -> float:
    """Return the peak memory of this process in MB; Linux counts in kilobytes, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if platform.system() == "Darwin" else 1 << 10)
