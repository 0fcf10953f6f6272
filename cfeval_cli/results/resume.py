"""What a run does with the results that its folder has already: keep, continue, or refuse to replace them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import UserError
from cfeval_cli.results.entries import get_time
from cfeval_cli.results.record import RunRecord
from cfeval_cli.settings.plan import Plan

_IGNORED_OVERRIDES = re.compile(r"[+~]*(n_jobs|strict|redo|executor|cache)\b")  # results do not depend on them


def has_same_overrides(record: RunRecord, overrides: Sequence[str]) -> bool:
    """Return whether a run had the same overrides, apart from those that results do not depend on."""
    if record.overrides is None:
        return False
    return _select_result_overrides(record.overrides) == _select_result_overrides(overrides)


def _select_result_overrides(overrides: Sequence[Any]) -> list[str]:
    return [str(override) for override in overrides if not _IGNORED_OVERRIDES.match(str(override))]


def is_same_run(record: RunRecord, inputs: str | None) -> bool:
    """Return whether an earlier run had these inputs."""
    # A run that was killed before its inputs were known has no results yet.
    has_inputs = "inputs" in record.model_fields_set
    return inputs is not None and (not has_inputs or record.inputs == inputs)


def refuse_replacement(path: Path, record: RunRecord, inputs: str | None, plan: Plan) -> None:
    """Raise UserError: the folder has complete results, and not those of the run with these inputs."""
    results = "the complete results of another run"
    if inputs is None or ("inputs" in record.model_fields_set and record.inputs is None):
        results = f"complete results. Whether they are of this run is unknown, because {_explain_unknown_inputs(plan)}"
    raise UserError(f"{path} has {results}. They are kept: choose another folder, or replace them with redo=true.")


def merge_earlier_record(record: RunRecord, earlier: RunRecord) -> RunRecord:
    """Return the record with command and start of an earlier attempt, and the time at which the run continues."""
    entries = {name: getattr(earlier, name) for name in ("command", "started") if name in earlier.model_fields_set}
    return record.model_copy(update=entries | {"resumed_at": [*earlier.resumed_at, get_time()]})


def _explain_unknown_inputs(plan: Plan) -> str:
    """Return which components do not declare what their results depend on."""
    components = plan.components.items()
    unknown = [key for key, component in components if hash_component(component, hash_folders=False) is None]
    if not unknown:
        return "the earlier run did not record its inputs"
    hint = " (model.depends names the files that a model reads)" if "depends" in vars(plan.model) else ""
    return f"the dependencies of {', '.join(unknown)} are not declared{hint}"
