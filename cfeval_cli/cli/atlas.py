"""`cfeval atlas`: compare metrics over many data sets, judges, truths and seeds."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cfeval_cli.cli.main import Parser
from cfeval_cli.cli.screen import DEFAULT_OPTIONS, Options, print_answer
from cfeval_cli.errors import Failure, UserError, check_option, escape_controls

if TYPE_CHECKING:
    from cfeval_cli.study.atlas.runs import AtlasRun
    from cfeval_cli.study.atlas.store import Atlas

_HELP = """Compare metrics with the truth: every explainer and metric on models with known truth, for all data sets ×
judges × seeds × k of conf/experiment/atlas*.yaml. Complete runs are not computed again: an atlas can be resumed."""
_EPILOG = (
    "cfeval atlas add: add runs; cfeval atlas page: remake the page; cfeval atlas rule: print the metric-based ranking."
)
_ATLAS_FOLDER = Path("outputs/atlas")
_JUDGE_PREFIX = "atlas_"  # of the names of judges in conf/experiment
_DEFAULT_INSTANCES = 200  # in a run
_SCALES: Mapping[str, Mapping[str, str]] = {
    "full": {"k": "1,3", "seed": "0,1,2,3,4"},
    "small": {"k": "1,3", "seed": "0,1", "dataset": "pima,compas,german", "n_explain": "50"},
}
_AXES = ("seed", "k", "dataset", "experiment")  # the first varies slowest
_PROGRESS_SECONDS = 5.0  # between two checks of the progress


def main(arguments: Sequence[str], options: Options = DEFAULT_OPTIONS) -> None:
    """Compute an atlas, add runs to one, remake its page, or print the ranking of metrics that follows from it."""
    actions = {"add": _add, "page": _remake_page, "rule": _print_rule}
    if arguments and arguments[0] in actions:
        actions[arguments[0]](arguments[1:], options)
        return
    parser = Parser("cfeval atlas", description=_HELP, epilog=_EPILOG)
    parser.add_argument(
        "--scale", default="full", help="full (hours), or small: three data sets, two seeds, 50 instances"
    )
    parser.add_argument("--into", type=Path, default=_ATLAS_FOLDER, metavar="FOLDER", help="folder for the atlas")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings of cfeval run: seed=0 dataset=pima,german n_explain=50",
    )
    values = parser.parse_args(arguments)
    try:
        check_option("--scale", values.scale, _SCALES)
    except ValueError as error:
        raise UserError(str(error)) from error
    _run(values.scale, values.into, values.overrides, options)


def _run(scale: str, into: Path, overrides: Sequence[str], options: Options) -> None:
    settings = dict(_SCALES[scale]) | _parse_overrides(overrides)
    sweeps = _plan_sweeps(settings)
    jobs = [job for axes in sweeps for job in _list_jobs(axes)]
    extra_overrides = [f"{key}={value}" for key, value in settings.items() if key not in _AXES]
    failures = run_sweeps(sweeps, jobs, into / "runs", extra_overrides, options)
    gather_jobs(jobs, into, failures, options)
    if failures:
        names = ", ".join(map(str, list(failures)[:5]))
        raise Failure(f"{len(failures)} of {len(jobs)} runs are left out, see above: {names} …")


def gather_jobs(jobs: Sequence[AtlasRun], into: Path, failures: Mapping[str, str], options: Options) -> None:
    """Aggregate the runs of some jobs, write the atlas and print its answer; `failures` are reasons by place."""
    from cfeval_cli.study.atlas.store import collect_runs

    folders = [into / "runs" / job.folder for job in jobs if str(job.folder) not in failures]
    _write(collect_runs(folders, failures), into, options)


def _write(atlas: Atlas, into: Path, options: Options) -> None:
    from cfeval_cli.study.atlas.brief import build_brief
    from cfeval_cli.study.atlas.page import PAGE_FILE, TEXT_FILE, write_results
    from cfeval_cli.study.atlas.store import ATLAS_FILE
    from cfeval_cli.study.atlas.tables import build_tables, write_headlines

    summary, claims = write_results(atlas, into)
    answers = [
        f"{headline.question.capitalize()}: {headline.text}. {' '.join(headline.points)}"
        for headline in write_headlines(summary)
    ]
    lines = [f"Excluded runs: {len(atlas.excluded)}, listed in {into / TEXT_FILE}"] if atlas.excluded else []
    lines.append(f"Written: {into.resolve()}: {ATLAS_FILE}, {TEXT_FILE}, {PAGE_FILE}")
    print_answer(answers, build_brief(summary), build_tables(summary, claims), lines, options)


def _add(arguments: Sequence[str], options: Options) -> None:
    """Add runs to an existing atlas."""
    from cfeval_cli.study.atlas import store
    from cfeval_cli.study.run_folders import find_run_folders

    parser = Parser("cfeval atlas add", description="Check run folders and add their rows to an existing atlas.")
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="folder of a run, or one with runs below it"
    )
    parser.add_argument("--into", type=Path, default=_ATLAS_FOLDER, metavar="FOLDER", help="the folder of the atlas")
    values = parser.parse_args(arguments)
    atlas = store.read_atlas(values.into / store.ATLAS_FILE)
    atlas, message = store.add_runs(atlas, find_run_folders(values.folders))
    _write(atlas, values.into, options)
    sys.stdout.write(escape_controls(message) + "\n")


def _remake_page(arguments: Sequence[str], options: Options) -> None:
    """Remake tables and page from the rows alone."""
    from cfeval_cli.study.atlas import store

    parser = Parser("cfeval atlas page", description="Remake atlas.md and atlas.html from atlas.parquet alone.")
    parser.add_argument("file", nargs="?", type=Path, default=_ATLAS_FOLDER / "atlas.parquet", help="atlas.parquet")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="folder for the pages (default: that of the file)")
    values = parser.parse_args(arguments)
    _write(store.read_atlas(values.file), values.into or values.file.parent, options)


def _print_rule(arguments: Sequence[str], _: Options) -> None:
    """Print the ranking of metrics that follows from an atlas."""
    from cfeval_cli.study.atlas import rule, store
    from cfeval_cli.study.atlas.summary import AtlasSummary

    parser = Parser("cfeval atlas rule", description="Print the ranking of metrics that an atlas supports.")
    parser.add_argument("file", nargs="?", type=Path, default=_ATLAS_FOLDER / "atlas.parquet", help="atlas.parquet")
    values = parser.parse_args(arguments)
    sys.stdout.write(rule.write_rule(AtlasSummary(store.read_atlas(values.file))))


def run_sweeps(
    sweeps: Sequence[Mapping[str, str]],
    jobs: Sequence[AtlasRun],
    runs: Path,
    extra_overrides: Sequence[str],
    options: Options,
) -> dict[str, str]:
    """Run all jobs, sweep by sweep, with progress lines; return the reasons of failed jobs by their place."""
    from cfeval_cli.cli import run
    from cfeval_cli.study.atlas.runs import describe_failure, is_complete

    launcher, cores = _choose_launcher(extra_overrides)
    share = _compute_instance_share(extra_overrides)
    with nullcontext() if options.quiet else _report_progress(jobs, runs, share, cores):
        for axes in sweeps:
            axis_overrides = [f"{key}={axes[key]}" for key in _AXES]
            words = ["--multirun", *axis_overrides, *extra_overrides, *launcher, *_build_sweep_overrides(runs)]
            try:
                run.main(words, options)
            except (UserError, Failure):
                _print_progress("some of these runs failed, see above; all others are complete")
    return {str(job.folder): describe_failure(runs, job) for job in jobs if not is_complete(runs, job)}


def _parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    invalid = [word for word in overrides if "=" not in word]
    if invalid:
        raise UserError(f"{invalid[0]!r} is not a setting: write key=value. See cfeval atlas --help.")
    return {key: value for key, _, value in (word.partition("=") for word in overrides)}


def _plan_sweeps(settings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the axes of each sweep; judges with the same data sets share one."""
    from cfeval_cli.settings import compose

    with compose.open_packaged_configs():
        named = [name for name in compose.list_options("experiment") if name.startswith(_JUDGE_PREFIX)]
        experiments = _split_list(settings.get("experiment", ",".join(named)))
        if unknown := [name for name in experiments if name not in named]:
            raise UserError(f"experiment={unknown[0]} is not a judge of the atlas. There is: {', '.join(named)}.")
        datasets_of_judges = {name: _list_datasets_of_judge(name) for name in experiments}
    all_datasets = list(dict.fromkeys(dataset for datasets in datasets_of_judges.values() for dataset in datasets))
    datasets = _split_list(settings["dataset"]) if "dataset" in settings else all_datasets
    if unknown := [name for name in datasets if name not in all_datasets]:
        raise UserError(f"dataset={unknown[0]} is not in the atlas. There is: {', '.join(all_datasets)}.")
    judges_by_datasets: dict[tuple[str, ...], list[str]] = {}
    for name, supported in datasets_of_judges.items():
        if common := tuple(dataset for dataset in datasets if dataset in supported):
            judges_by_datasets.setdefault(common, []).append(name)
    if not judges_by_datasets:
        raise UserError(f"none of these judges supports {', '.join(datasets)}.")
    return [
        {"k": settings["k"], "seed": settings["seed"], "dataset": ",".join(common), "experiment": ",".join(names)}
        for common, names in judges_by_datasets.items()
    ]


@cache
def _list_datasets_of_judge(experiment: str) -> list[str]:
    """Return the data sets of a judge; a single explainer keeps the composed config small."""
    from cfeval_cli.settings import compose

    explainer = compose.list_default_options("explainer")[0]
    cfg = compose.compose_run([f"experiment={experiment}", f"explainer=[{explainer}]"])
    return [str(name) for name in cfg.experiment.sizes]


def _list_jobs(axes: Mapping[str, str]) -> list[AtlasRun]:
    from cfeval_cli.study.atlas.runs import list_runs

    numbers = {}
    for key in ("seed", "k"):
        try:
            numbers[key] = [int(text) for text in _split_list(axes[key])]
        except ValueError as error:
            raise UserError(f"{key}={axes[key]} must be whole numbers separated by commas.") from error
    return list_runs(_split_list(axes["dataset"]), _split_list(axes["experiment"]), numbers["seed"], numbers["k"])


def _split_list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _compute_instance_share(overrides: Sequence[str]) -> float:
    """Return the number of explained instances as a share of the default number."""
    n_explain = dict(word.split("=", 1) for word in overrides).get("n_explain", "")
    return int(n_explain) / _DEFAULT_INSTANCES if n_explain.isdecimal() else 1.0


def _choose_launcher(overrides: Sequence[str]) -> tuple[list[str], int]:
    """Return overrides that run one job on each core, unless the user chose a launcher, and the number of cores."""
    from joblib import cpu_count

    cores = int(cpu_count())
    is_chosen = any(re.match(r"\+?(hydra/launcher|executor|n_jobs)\b", word) for word in overrides)
    if is_chosen or cores == 1 or not _has_launcher():
        return [], cores
    return ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={cores}", "n_jobs=1"], cores


def _has_launcher() -> bool:
    """Return whether Hydra's joblib launcher, a separate package, is installed."""
    try:
        return find_spec("hydra_plugins.hydra_joblib_launcher") is not None
    except ModuleNotFoundError:
        return False


def _build_sweep_overrides(runs: Path) -> list[str]:
    from cfeval_cli.core.files import refuse_links
    from cfeval_cli.settings.compose import quote

    refuse_links(runs)
    subdir = "${dataset.name}/${hydra:runtime.choices.experiment}/${seed}-${k}"
    return [f"hydra.sweep.dir={quote(runs.absolute())}", f"hydra.sweep.subdir={subdir}", "~hydra.callbacks.gather"]


@contextmanager
def _report_progress(jobs: Sequence[AtlasRun], runs: Path, share: float, cores: int) -> Iterator[None]:
    """Print the expected duration and, from time to time, the progress."""
    from cfeval_cli.study.atlas.runs import AtlasProgress, estimate_seconds, format_duration

    progress, is_over = AtlasProgress(jobs, runs, share, cores, time.perf_counter), threading.Event()
    expected = format_duration(estimate_seconds(jobs, share, cores))
    _print_progress(
        f"{len(jobs)} runs, {progress.n_complete} of them done; all take about {expected} on {cores} idle cores: {runs}"
    )

    def watch() -> None:
        while not is_over.wait(_PROGRESS_SECONDS):
            if progress.update():
                _print_progress(progress.describe())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _print_progress(line: str) -> None:
    sys.stderr.write(escape_controls(f"atlas: {line}") + os.linesep)
    sys.stderr.flush()
