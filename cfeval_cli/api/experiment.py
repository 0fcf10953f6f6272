"""A run with everything that belongs to it: its judges, the recommendation, tables, figures and page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cfeval_cli.errors import Failure, UserError, refuse_exit

if TYPE_CHECKING:
    from cfeval_cli.pipeline.progress import Progress
    from cfeval_cli.pipeline.run import RunOutcome
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.results.folder import RunFolder
    from cfeval_cli.settings.plan import Plan
    from cfeval_cli.statistics.recommendation import JudgeEvidence

log = logging.getLogger("cfeval")


def run_experiment(plan: Plan, folder: RunFolder, progress: Progress) -> Report | None:
    """Compute a run with its judges, and write its tables, figures and page; None if the folder had the results."""
    from cfeval_cli.pipeline.recommend import is_recommended, recommend_explainer
    from cfeval_cli.pipeline.run import run as run_pipeline

    with refuse_exit():
        outcome = run_pipeline(plan, folder, progress)
        if outcome is None:
            return None
        if plan.judges or is_recommended(outcome):
            judges = [_run_judge(name, plan, outcome, folder, progress) for name in plan.judges]
            with progress.stage("recommend"):
                folder.save_recommendation(recommend_explainer(outcome, folder.questions, judges))
    with progress.stage("tables"):
        report = _add_tables(folder)
    if plan.settings.figures or plan.settings.report:
        with progress.stage("figures and page"):
            _add_page(folder, plan, report)
    folder.finish()
    return report


def _run_judge(name: str, plan: Plan, outcome: RunOutcome, folder: RunFolder, progress: Progress) -> JudgeEvidence:
    """Run a judge like any other model, in a folder of its own below the run's; return what it says."""
    from cfeval_cli.pipeline.recommend import plan_judge, read_judge
    from cfeval_cli.pipeline.run import run as run_pipeline

    below = folder.make_judge_folder(name)
    try:
        with below.open():
            part = progress.create_nested(f"judge {name}")
            if run_pipeline(plan_judge(plan, plan.judges[name]), below, part, teacher=outcome.context.model):
                _add_tables(below)
                below.finish()
    except (UserError, Failure) as error:
        raise type(error)(f"judge.{name}: {error}") from error
    return read_judge(name, below)


def _add_tables(folder: RunFolder) -> Report:
    """Write the tables as text, made from what the folder has."""
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.results.read import read_results

    report = Report(read_results(folder.path, folder.completed_record))
    folder.add_files(report.make_texts())
    return report


def _add_page(folder: RunFolder, plan: Plan, report: Report) -> None:
    """Write figures and page; a run does not fail because of them."""
    try:
        folder.add_files(list(report.make_files(plan.settings.figures, plan.settings.report)))
    except OSError:
        raise
    except Exception as error:
        log.exception("no report")
        log.warning("report.html could not be made (%s); all else is complete", error)
