"""A run with everything that belongs to it: its judges, the recommendation, tables, figures and page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cfeval_cli.errors import Failure, UserError, refuse_exit

if TYPE_CHECKING:
    from cfeval_cli.pipeline.progress import Progress
    from cfeval_cli.pipeline.recommend import JudgeResult
    from cfeval_cli.pipeline.run import RunOutcome
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.results.folder import RunFolder
    from cfeval_cli.settings.plan import Plan
    from cfeval_cli.statistics.recommendation import Recommendation

log = logging.getLogger("cfeval")


def run_experiment(plan: Plan, folder: RunFolder, progress: Progress) -> Report | None:
    """Compute a run with its judges, and write its tables, figures and page; None if the folder had the results."""
    from cfeval_cli.pipeline.recommend import check_recommendation
    from cfeval_cli.pipeline.run import run as run_pipeline

    with refuse_exit():
        outcome = run_pipeline(plan, folder, progress, announce=_log_answers)
        if outcome is None:
            return None
        judges = {name: _run_judge(name, plan, outcome, folder, progress) for name in plan.judges}
        folder.save_recommendation(check_recommendation(outcome, judges))
    with progress.track_stage("tables"):
        report = _add_tables(folder)
    if plan.settings.figures or plan.settings.report:
        with progress.track_stage("figures and page"):
            _add_page(folder, plan, report)
    folder.finish()
    return report


def _log_answers(recommendation: Recommendation) -> None:
    """Log which explainer to use, long before the other results are complete."""
    from cfeval_cli.report.recommendation import write_paragraphs

    for paragraph in write_paragraphs(recommendation):
        log.info("%s", paragraph)


def _run_judge(name: str, plan: Plan, outcome: RunOutcome, folder: RunFolder, progress: Progress) -> JudgeResult:
    """Run a judge like any other model, in a folder of its own below the run's; return its recommendation."""
    from cfeval_cli.pipeline.recommend import JudgeResult, plan_judge
    from cfeval_cli.pipeline.run import run as run_pipeline
    from cfeval_cli.results.read import read_recommendation
    from cfeval_cli.results.validation import read_record

    below = folder.make_judge_folder(name)
    try:
        with below.open():
            part = progress.create_nested(f"judge {name}")
            if run_pipeline(plan_judge(plan, plan.judges[name]), below, part, teacher=outcome.context.model):
                _add_tables(below)
                below.finish()
    except (UserError, Failure) as error:
        raise type(error)(f"judge.{name}: {error}") from error
    fidelity = read_record(below.path).fidelity
    return JudgeResult(read_recommendation(below.path), None if fidelity is None else fidelity.test)


def _add_tables(folder: RunFolder) -> Report:
    """Write the tables as text, made from what the folder has."""
    from cfeval_cli.report.page.build import Report
    from cfeval_cli.results.read import read_results

    report = Report(read_results(folder.path, folder.completed_record))
    folder.add_files(report.render_table_files())
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
