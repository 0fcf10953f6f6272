"""`cfeval data export`: write the instances that a run explains, for explanations made elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from cfeval_cli.cli.own_configs import list_used_configs
from cfeval_cli.core import Dataset, Loadable, Split
from cfeval_cli.core.files import refuse_linked_path, write_atomically
from cfeval_cli.errors import UserError, check_int, escape_controls, refuse_exit
from cfeval_cli.settings import compose

if TYPE_CHECKING:
    import pandas as pd

    from cfeval_cli.settings.plan import Plan

_FILE_FORMATS = (".csv", ".tsv", ".parquet")


def export_instances(overrides: list[str], config_dir: str | None, into: Path | None, *, force: bool) -> None:
    """Write the instances that a run with these settings explains."""
    from cfeval_cli.pipeline.context import select_explained_instances
    from cfeval_cli.settings.build import build_plan, make_component
    from cfeval_cli.settings.plan import check_size

    path = _check_target(into, force)
    with compose.open_packaged_configs():
        cfg = compose.compose_run(overrides, config_dir)
        if config_dir is not None:
            list_used_configs(overrides, config_dir)
        settings: Loadable = make_component(cfg, "dataset")
    seed, size = _read_sample_settings(cfg)
    with refuse_exit():
        dataset = settings.load(Path(str(cfg.data_dir)).expanduser(), seed)
    check_size(dataset, size)
    instances = select_explained_instances(dataset, seed, size)
    if len(instances) < len(dataset.test) and cfg.min_per_class:
        instances = _sample_by_class(build_plan(cfg))
    _write_table(build_table(dataset, instances), path)
    summary = f"{len(instances):,} instances of {dataset.name} (seed {seed}): {path}"
    command = "cfeval run explainer=[…,file] explainer.file.path=FILE"
    hint = f"To evaluate your scores of these instances, with the same settings: {command}"
    sys.stdout.write(escape_controls(f"{summary}\n{hint}", keep="\n") + "\n")


def _sample_by_class(plan: Plan) -> Split:
    """Return the instances that a run explains if they depend on the predictions of its model, which is trained."""
    from cfeval_cli.pipeline.context import predict_explained_instances
    from cfeval_cli.pipeline.data import load_dataset
    from cfeval_cli.pipeline.train import relabel_by_teacher, train_model

    with refuse_exit():
        dataset = load_dataset(plan)
        model = train_model(plan, relabel_by_teacher(plan, dataset, plan.cache), plan.cache)
        return predict_explained_instances(dataset, model, plan.settings).instances


def build_table(dataset: Dataset, instances: Split) -> pd.DataFrame:
    """Return a row for each instance: its number and the input of the model; for texts also the words."""
    import pandas as pd

    if instances.texts is not None:
        columns = {"instance": instances.ids, "text": list(instances.texts)}
        words = dataset.split_words(instances)
        return pd.DataFrame(columns | ({} if words is None else {"words": [" ".join(row) for row in words]}))
    rows = dataset.decode(instances.codes)
    if isinstance(rows, list):
        raise TypeError("a table has columns")
    if "instance" in rows:
        raise UserError(
            f"a feature of {dataset.name} is called instance, the name of the column of instance numbers. Rename it."
        )
    rows.insert(0, "instance", instances.ids)
    return rows


def _check_target(into: Path | None, force: bool) -> Path:
    if into is None:
        raise UserError("--into is missing: cfeval data export dataset=adults --into explain_me.csv")
    if into.suffix.lower() not in _FILE_FORMATS:
        raise UserError(f"--into {into}: the name must end in {', '.join(_FILE_FORMATS)}.")
    refuse_linked_path(into.parent)
    if into.exists() and not force:
        raise UserError(f"--into {into} exists. Choose another name, or use --force to replace it.")
    if not into.absolute().parent.is_dir():
        raise UserError(f"--into {into}: the folder {into.parent} does not exist.")
    return into


def _read_sample_settings(cfg: DictConfig) -> tuple[int, int | None]:
    try:
        check_int("seed", cfg.seed, 0)
        if cfg.n_explain is not None:
            check_int("n_explain", cfg.n_explain, 1)
    except ValueError as error:
        raise UserError(f"{error}.") from error
    return int(cfg.seed), cfg.n_explain


def _write_table(rows: pd.DataFrame, path: Path) -> None:
    with write_atomically(path) as partial:
        if path.suffix.lower() == ".parquet":
            rows.to_parquet(partial, index=False)
        else:
            rows.to_csv(partial, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")
