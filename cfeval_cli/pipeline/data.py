"""The data stage: a hash of all inputs of a run, and the dataset as the model reads it."""

from __future__ import annotations

from cfeval_cli.core import Dataset, Trainable
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.model.external import PretrainedModel
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.settings.plan import Plan


def hash_inputs(plan: Plan) -> str | None:
    """Hash everything that a run depends on; None if a component does not declare what it depends on."""
    settings = plan.settings.model_dump(mode="json", exclude={"redo", "strict", "data_dir"})
    settings |= {"levels": plan.levels, "absent": dict(plan.absent.metrics)}
    components = {key: hash_component(component) for key, component in plan.components.items()}
    # The files of the data are hashed below. The folder that holds them, often the current one, also holds results.
    components["dataset"] = hash_component(plan.dataset, hash_folders=False)
    data = [file.sha256 for file in plan.dataset.fetch(plan.settings.data_dir)]
    return hash_work(RunContext, settings, components, data) if None not in components.values() else None


def load_dataset(plan: Plan) -> Dataset:
    """Load the dataset of a run, as its model reads it."""
    return restore_original_texts(plan.model, plan.dataset.load(plan.settings.data_dir, plan.settings.seed))


def restore_original_texts(model: Trainable, dataset: Dataset) -> Dataset:
    """Return the dataset as the model reads it: a model trained outside cfeval reads the original texts."""
    return dataset.restore_spellings() if isinstance(model, PretrainedModel) else dataset
