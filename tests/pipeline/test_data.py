"""The hash of the inputs of a run."""

from cfeval_cli.pipeline.data import hash_inputs
from tests.inside import make_plan


def test_inputs_include_the_data_file_but_not_results_in_the_same_folder(toy, tmp_path):
    """`data init` writes `folder: "."`, which also holds outputs/: it grows with each job of a sweep."""
    (tmp_path / "toy.csv").write_bytes((toy.folder / "data" / "toy.csv").read_bytes())
    plan = make_plan("dataset=toy", f"+dataset.file.folder={tmp_path}", folder=toy.folder / "conf")
    inputs = hash_inputs(plan)
    (tmp_path / "multirun" / "0").mkdir(parents=True)
    (tmp_path / "multirun" / "0" / "run.json").write_text("{}")
    assert hash_inputs(plan) == inputs is not None
    with (tmp_path / "toy.csv").open("a") as file:
        file.write((tmp_path / "toy.csv").read_text().splitlines()[-1] + "\n")
    assert hash_inputs(plan) != inputs


def test_inputs_include_settings_that_affect_results_and_no_others(toy):
    def hash_with(*overrides):
        return hash_inputs(make_plan(*toy.arguments[2:], "explainer=[random]", *overrides, folder=toy.folder / "conf"))

    reference = hash_with()
    assert hash_with("redo=true", "strict=true", "n_jobs=2") == reference
    assert len({reference, hash_with("seed=1"), hash_with("k=2"), hash_with("access=label")}) == 4
