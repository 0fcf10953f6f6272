"""The runs of an atlas: their list, their expected durations, and their progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median

from cfeval_cli.errors import escape_controls
from cfeval_cli.results.locations import LOG_FILE, RECORD
from cfeval_cli.study.definitions import load_definitions

_MAX_REASON_CHARACTERS = 300
# The table of durations counts as if this share of all work had confirmed it: one slow run is not all runs.
_PRIOR_SHARE = 0.05


@dataclass(frozen=True)
class Durations:
    """Seconds of one core by judge and data set: for the first k, and for another k, which uses the cache."""

    description: str
    seconds: dict[str, dict[str, tuple[float, float]]]


@cache
def _load_durations() -> Durations:
    return load_definitions("cfeval_cli.study.atlas", "seconds.json", Durations)


@dataclass(frozen=True, order=True)
class AtlasRun:
    """One run of a judge."""

    data: str
    judge: str
    seed: int
    k: int

    @property
    def folder(self) -> Path:
        """Its folder, relative to that of all runs."""
        return Path(self.data) / self.judge / f"{self.seed}-{self.k}"

    def estimate_seconds(self, instance_share: float) -> float:
        """Estimate the seconds of one core, if this share of the usual instances is explained."""
        durations = _load_durations().seconds
        by_data = durations.get(self.judge, {})
        if self.data in by_data:
            alike = [by_data[self.data]]
        else:
            alike = list(by_data.values()) or [pair for judge in durations.values() for pair in judge.values()]
        return median(first if self.k == 1 else later for first, later in alike) * instance_share


def list_runs(data: Iterable[str], judges: Iterable[str], seeds: Iterable[int], ks: Iterable[int]) -> list[AtlasRun]:
    """List all runs, seed by seed and k by k: a later k uses what an earlier one computed."""
    return [AtlasRun(name, judge, seed, k) for seed, k, name, judge in product(seeds, ks, data, judges)]


def is_complete(runs: Path, run: AtlasRun) -> bool:
    """Return whether the record of a run states that it is complete."""
    try:
        record = json.loads((runs / run.folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("status") == "complete"


def describe_failure(runs: Path, run: AtlasRun) -> str:
    """Return why a run is not complete, from the last line of its log."""
    try:
        lines = (runs / run.folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "it failed before anything was computed"
    return escape_controls(f"it is not complete: {lines[-1][:_MAX_REASON_CHARACTERS] if lines else 'its log is empty'}")


def estimate_seconds(runs: Iterable[AtlasRun], instance_share: float, n_cores: int) -> float:
    """Estimate the seconds of all runs together."""
    return sum(run.estimate_seconds(instance_share) for run in runs) / max(1, n_cores)


class AtlasProgress:
    """The progress of all runs, read from their folders, whichever process computes them."""

    def __init__(
        self, runs: Sequence[AtlasRun], folder: Path, instance_share: float, n_cores: int, clock: Callable[[], float]
    ) -> None:
        self._folder, self._instance_share, self._n_cores, self._clock = folder, instance_share, n_cores, clock
        self._pending = [run for run in runs if not is_complete(folder, run)]
        self._n_runs = len(runs)
        self._expected_seconds = self._estimate_pending()
        self._start = clock()
        self.n_complete = self._n_runs - len(self._pending)

    def update(self) -> bool:
        """Read the folders again; return whether more runs are complete."""
        self._pending = [run for run in self._pending if not is_complete(self._folder, run)]
        before, self.n_complete = self.n_complete, self._n_runs - len(self._pending)
        return self.n_complete > before

    def describe(self) -> str:
        """Write how many runs are complete, and the time for the others at the speed so far."""
        pending = self._estimate_pending()
        finished, spent = self._expected_seconds - pending, self._clock() - self._start
        prior = _PRIOR_SHARE * self._expected_seconds
        speed = (finished + prior) / (spent + prior) if finished > 0 else 1.0
        return f"{self.n_complete} of {self._n_runs} runs, about {format_duration(pending / speed)} left"

    def _estimate_pending(self) -> float:
        return estimate_seconds(self._pending, self._instance_share, self._n_cores)


def format_duration(seconds: float) -> str:
    """Write minutes or hours, rounded as an estimate."""
    minutes = seconds / 60
    if minutes < 1:
        return "a minute"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"
