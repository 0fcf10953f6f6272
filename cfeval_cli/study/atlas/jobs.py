"""The runs that the atlas is made of: which there are, how long they may take, and how far they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from statistics import median

from cfeval_cli.errors import escape_controls

_NAME = "seconds.json"
_LONGEST = 300  # characters of a reason
_BELIEVED = 0.05  # of the whole, for which the table counts as if it had been seen to hold: one run is not all runs


@dataclass(frozen=True, order=True)
class Job:
    """One run of a judge."""

    data: str
    judge: str
    seed: int
    k: int

    @property
    def place(self) -> Path:
        """Its folder, below that of all runs."""
        return Path(self.data) / self.judge / f"{self.seed}-{self.k}"

    def seconds(self, share: float) -> float:
        """What it takes of one core, if a share of the usual instances is explained; for people only."""
        told = _told()
        known = told.get(self.judge, {})
        every = [one for judge in told.values() for one in judge.values()]
        some = [known[self.data]] if self.data in known else list(known.values()) or every
        # what is found for the first k, the others take from the cache
        return median(one[0 if self.k == 1 else 1] for one in some) * share


@cache
def _told() -> dict[str, dict[str, tuple[float, float]]]:
    """Seconds of one core for k = 1 and for another k after it, by judge and data set."""
    text = resources.files("cfeval_cli.study.atlas").joinpath(_NAME).read_text(encoding="utf-8")
    return {
        judge: {data: (float(both[0]), float(both[1])) for data, both in sets.items()}
        for judge, sets in json.loads(text)["seconds"].items()
    }


def every(sets: Iterable[str], judges: Iterable[str], seeds: Iterable[int], ks: Iterable[int]) -> list[Job]:
    """All of them, seed by seed; of a seed one k after the other, as a later one finds what an earlier one computed."""
    return [Job(data, judge, seed, k) for seed, k, data, judge in product(seeds, ks, sets, judges)]


def complete(runs: Path, job: Job) -> bool:
    """Whether a job's folder says that it is done."""
    try:
        told = json.loads((runs / job.place / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and told.get("status") == "complete"


def reason(runs: Path, job: Job) -> str:
    """Why a job is not complete, as its log tells."""
    try:
        lines = (runs / job.place / "run.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "it failed before anything was computed"
    return escape_controls(f"it is not complete: {lines[-1][:_LONGEST] if lines else 'it left no word'}")


def estimate(jobs: Iterable[Job], share: float, cores: int) -> float:
    """Seconds that some jobs may take together."""
    return sum(job.seconds(share) for job in jobs) / max(1, cores)


class Course:
    """How far the jobs are, as their folders tell: so that it does not matter who does them."""

    def __init__(self, jobs: Sequence[Job], runs: Path, share: float, cores: int, clock: Callable[[], float]) -> None:
        self._jobs, self._runs, self._share, self._cores, self._clock = jobs, runs, share, cores, clock
        self._left = [job for job in jobs if not complete(runs, job)]
        self._whole = estimate(self._left, share, cores)
        self._begun = clock()
        self.done = len(jobs) - len(self._left)

    def look(self) -> bool:
        """Look again; whether there is news."""
        self._left = [job for job in self._left if not complete(self._runs, job)]
        before, self.done = self.done, len(self._jobs) - len(self._left)
        return self.done > before

    def told(self) -> str:
        """How far it is, and how long the rest may take at the speed so far."""
        left = estimate(self._left, self._share, self._cores)
        finished, spent, believed = self._whole - left, self._clock() - self._begun, _BELIEVED * self._whole
        speed = (finished + believed) / (spent + believed) if finished > 0 else 1.0
        return f"{self.done} of {len(self._jobs)} runs, about {duration(left / speed)} left"


def duration(seconds: float) -> str:
    """In words, rounded as an estimate deserves."""
    minutes = seconds / 60
    if minutes < 1:
        return "a minute"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"
