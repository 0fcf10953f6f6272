"""`cfeval atlas`: which metric may be believed, over many data sets, judges, truths and seeds."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cfeval_cli.cli.main import Parser
from cfeval_cli.errors import Failure, UserError, check_option, escape_controls

if TYPE_CHECKING:
    from cfeval_cli.study.atlas.jobs import Job
    from cfeval_cli.study.atlas.store import Atlas

_HELP = """Which metric may be believed? Every explainer and metric on models whose truth is known: data sets × judges ×
seeds × k, as conf/experiment/atlas*.yaml say. What is there already is not computed again: a stopped atlas goes on."""
_MORE = "cfeval atlas add: more runs; cfeval atlas page: the page anew; cfeval atlas rule: the rule that follows."
_INTO = Path("outputs/atlas")
_JUDGE = "atlas_"  # before the names of its judges among the experiments
_USUAL = 200  # instances of a run
_SCALES: Mapping[str, Mapping[str, str]] = {
    "full": {"k": "1,3", "seed": "0,1,2,3,4"},
    "small": {"k": "1,3", "seed": "0,1", "dataset": "pima,compas,german", "n_explain": "50"},
}
_AXES = ("seed", "k", "dataset", "experiment")  # the first is varied last
_EVERY = 5.0  # seconds between two looks at how far it is


def main() -> None:
    """Make the runs and what they say together; or add to that, make its page anew, or tell the rule that follows."""
    actions = {"add": _add, "page": _page, "rule": _rule}
    if sys.argv[1:2] and sys.argv[1] in actions:
        actions[sys.argv.pop(1)]()
        return
    parser = Parser("cfeval atlas", description=_HELP, epilog=_MORE)
    parser.add_argument(
        "--scale", default="full", help="full (hours), or small: three data sets, two seeds, 50 instances"
    )
    parser.add_argument("--into", type=Path, default=_INTO, metavar="FOLDER", help="where all of it goes")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="as of cfeval run: seed=0 dataset=pima,german n_explain=50"
    )
    arguments = parser.parse_args()
    try:
        check_option("--scale", arguments.scale, _SCALES)
    except ValueError as error:
        raise UserError(str(error)) from error
    _run(arguments.scale, arguments.into, arguments.overrides)


def _run(scale: str, into: Path, overrides: Sequence[str]) -> None:
    given = dict(_SCALES[scale]) | _assigned(overrides)
    sweeps = _sweeps(given)
    jobs = [job for axes in sweeps for job in _jobs(axes)]
    more = [f"{key}={value}" for key, value in given.items() if key not in _AXES]
    lost = make(sweeps, jobs, into / "runs", more)
    gather(jobs, into, lost)
    if lost:
        raise Failure(
            f"{len(lost)} of {len(jobs)} runs are left out, see above: {', '.join(map(str, list(lost)[:5]))} …"
        )


def gather(jobs: Sequence[Job], into: Path, lost: Mapping[str, str]) -> None:
    """Write what the runs of some jobs say together, and show it."""
    from cfeval_cli.study.atlas.store import gathered

    folders = [into / "runs" / job.place for job in jobs if str(job.place) not in lost]
    _write(gathered(folders, lost), into)


def _write(atlas: Atlas, into: Path) -> None:
    from cfeval_cli.cli import screen
    from cfeval_cli.study.atlas import brief, page, store, tables

    summary, claims = page.write(atlas, into)
    answers = [
        f"{name.capitalize()}: {headline}. {' '.join(points)}" for name, headline, points in tables.headlines(summary)
    ]
    told = [f"{len(atlas.left)} left out, {into / page.TEXT} names them"] if atlas.left else []
    told.append(f"Written: {into.resolve()}: {store.NAME}, {page.TEXT}, {page.PAGE}")
    screen.answer(answers, brief.of_atlas(summary), tables.make(summary, claims), told)


def _add() -> None:
    """Take more runs into an atlas that there is."""
    from cfeval_cli.study.atlas import store
    from cfeval_cli.study.run_folders import find_run_folders

    parser = Parser("cfeval atlas add", description="Check run folders and add their rows to an atlas that there is.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a run, or one with runs below it")
    parser.add_argument("--into", type=Path, default=_INTO, metavar="FOLDER", help="the folder of the atlas")
    arguments = parser.parse_args()
    atlas = store.read(arguments.into / store.NAME)
    atlas, told = store.added(atlas, find_run_folders(arguments.folders))
    _write(atlas, arguments.into)
    sys.stdout.write(escape_controls(told) + "\n")


def _page() -> None:
    """Make tables and page anew from the rows alone."""
    from cfeval_cli.study.atlas import store

    parser = Parser("cfeval atlas page", description="atlas.md and atlas.html, made anew from atlas.parquet alone.")
    parser.add_argument("file", nargs="?", type=Path, default=_INTO / "atlas.parquet", help="atlas.parquet")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where they go (default: beside the file)")
    arguments = parser.parse_args()
    _write(store.read(arguments.file), arguments.into or arguments.file.parent)


def _rule() -> None:
    """Print the rule that a recommendation takes from an atlas."""
    from cfeval_cli.study.atlas import rule, store
    from cfeval_cli.study.atlas.summary import Summary

    parser = Parser("cfeval atlas rule", description="The rule of the recommendation, as an atlas gives it.")
    parser.add_argument("file", nargs="?", type=Path, default=_INTO / "atlas.parquet", help="atlas.parquet")
    arguments = parser.parse_args()
    sys.stdout.write(rule.text(Summary(store.read(arguments.file))))


def make(sweeps: Sequence[Mapping[str, str]], jobs: Sequence[Job], runs: Path, more: Sequence[str]) -> dict[str, str]:
    """Do all jobs, sweep by sweep, and tell how far they are; those that failed, with the reason."""
    from cfeval_cli.cli import run
    from cfeval_cli.study.atlas.jobs import complete, reason

    spread, cores = _spread(more)
    share = _share(more)
    kept = sys.argv
    with _watched(jobs, runs, share, cores):
        for axes in sweeps:
            sys.argv = [kept[0], "--multirun", *(f"{key}={axes[key]}" for key in _AXES), *more, *spread, *_places(runs)]
            try:
                run.main()
            except (UserError, Failure):
                _say("not all of these runs succeeded; the others are not lost")  # each job has said why
            finally:
                sys.argv = kept
    return {str(job.place): reason(runs, job) for job in jobs if not complete(runs, job)}


def _assigned(overrides: Sequence[str]) -> dict[str, str]:
    odd = [word for word in overrides if "=" not in word]
    if odd:
        raise UserError(f"{odd[0]!r} is no setting: write key=value. See cfeval atlas --help.")
    return {key: value for key, _, value in (word.partition("=") for word in overrides)}


def _sweeps(given: Mapping[str, str]) -> list[dict[str, str]]:
    """The axes of each sweep: judges that are made for the same data sets together."""
    from cfeval_cli.settings import compose

    with compose.packaged_configs():
        named = [name for name in compose.list_options("experiment") if name.startswith(_JUDGE)]
        wanted = _listed(given.get("experiment", ",".join(named)))
        if strange := [name for name in wanted if name not in named]:
            raise UserError(f"experiment={strange[0]} is no judge of the atlas. There is: {', '.join(named)}.")
        made_for = {name: _made_for(name) for name in wanted}
    every = list(dict.fromkeys(one for sets in made_for.values() for one in sets))
    asked = _listed(given["dataset"]) if "dataset" in given else every
    if strange := [name for name in asked if name not in every]:
        raise UserError(f"dataset={strange[0]} is not in the atlas. There is: {', '.join(every)}.")
    by_sets: dict[tuple[str, ...], list[str]] = {}
    for name, sets in made_for.items():
        if some := tuple(one for one in asked if one in sets):
            by_sets.setdefault(some, []).append(name)
    if not by_sets:
        raise UserError(f"none of these judges is made for {', '.join(asked)}.")
    return [
        {"k": given["k"], "seed": given["seed"], "dataset": ",".join(sets), "experiment": ",".join(names)}
        for sets, names in by_sets.items()
    ]


@cache
def _made_for(experiment: str) -> list[str]:
    """The data sets that a judge is for; without all explainers and metrics, which would be composed with it."""
    from cfeval_cli.settings import compose

    cfg = compose.compose_run([f"experiment={experiment}", "explainer=[random]", "metric=[validity]"])
    return [str(name) for name in cfg.experiment.sizes]


def _jobs(axes: Mapping[str, str]) -> list[Job]:
    from cfeval_cli.study.atlas.jobs import every

    numbers = {}
    for key in ("seed", "k"):
        try:
            numbers[key] = [int(one) for one in _listed(axes[key])]
        except ValueError as error:
            raise UserError(f"{key}={axes[key]} must be whole numbers with commas between them.") from error
    return every(_listed(axes["dataset"]), _listed(axes["experiment"]), numbers["seed"], numbers["k"])


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _share(more: Sequence[str]) -> float:
    """Of the usual instances, those that are explained."""
    told = dict(word.split("=", 1) for word in more).get("n_explain", "")
    return int(told) / _USUAL if told.isdecimal() else 1.0


def _spread(more: Sequence[str]) -> tuple[list[str], int]:
    """What makes runs go side by side, one on each core, unless the user chose who does the work; how many cores."""
    from joblib import cpu_count

    cores = int(cpu_count())
    chosen = any(re.match(r"\+?(hydra/launcher|executor|n_jobs)\b", word) for word in more)
    if chosen or cores == 1 or not _has_launcher():
        return [], cores
    return ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={cores}", "n_jobs=1"], cores


def _has_launcher() -> bool:
    """Whether Hydra can start jobs in several processes: a package of its own."""
    try:
        return find_spec("hydra_plugins.hydra_joblib_launcher") is not None
    except ModuleNotFoundError:
        return False


def _places(runs: Path) -> list[str]:
    from cfeval_cli.core.files import refuse_links
    from cfeval_cli.settings.compose import quote

    refuse_links(runs)
    named = "${dataset.name}/${hydra:runtime.choices.experiment}/${seed}-${k}"
    return [f"hydra.sweep.dir={quote(runs.absolute())}", f"hydra.sweep.subdir={named}", "~hydra.callbacks.gather"]


@contextmanager
def _watched(jobs: Sequence[Job], runs: Path, share: float, cores: int) -> Iterator[None]:
    """Tell how long it will take, and from time to time how far it is: told only, nothing depends on it."""
    from cfeval_cli.cli import screen
    from cfeval_cli.study.atlas.jobs import Course, duration, estimate

    if screen.quiet():
        yield
        return
    course, over = Course(jobs, runs, share, cores, time.perf_counter), threading.Event()
    whole = duration(estimate(jobs, share, cores))
    _say(f"{len(jobs)} runs, {course.done} of them done; all take about {whole} on {cores} quiet cores: {runs}")

    def watch() -> None:
        while not over.wait(_EVERY):
            if course.look():
                _say(course.told())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _say(line: str) -> None:
    sys.stderr.write(escape_controls(f"atlas: {line}") + os.linesep)
    sys.stderr.flush()
