"""A whole run on a table with numbers."""

import json

import pandas as pd
import pytest

from cfeval_cli.report.page import build
from cfeval_cli.results.read import read_results


@pytest.fixture(scope="module")
def run(loans, make_run):
    return make_run(loans, "explainer=[random,omission,lr]", "k=2", "n_explain=10", "metric=[core,naopc]")


def page(folder):
    """The report, without its figures."""
    return build.Report(read_results(folder)).render_page({}, [])


def test_numbers_stay_numbers_and_edits_are_among_the_candidates(run, loans):
    description = json.loads((run / "dataset.json").read_text())
    age, income, home = description["features"]
    names = {feature["name"]: description["values"][feature["values"]] for feature in description["features"]}
    assert [feature["kind"] for feature in (age, income, home)] == ["number", "number", "category"]
    assert names["income"][income["missing"]] == names["home"][home["missing"]] == "missing" and "missing" not in age
    assert len(age["candidates"]) <= 8 and len(income["candidates"]) <= 9 and "candidates" not in home
    lines = [line.split(",") for line in (loans.folder / "data" / "loans.csv").read_text().splitlines()]
    instances = pd.read_parquet(run / "instances.parquet").set_index("instance")
    for i, values in instances["values"].items():
        cells = [cell if cell not in ("-9", "") else "missing" for cell in lines[i][:3]]
        assert [name if name == "missing" or j == 2 else float(name) for j, name in enumerate(values)] == [
            cell if cell == "missing" or j == 2 else float(cell) for j, cell in enumerate(cells)
        ]
    counterfactuals = pd.read_parquet(run / "counterfactuals.parquet")
    n_changed = 0
    for line in counterfactuals.itertuples():
        own = instances.loc[line.instance, "codes"]
        for j, code in zip(line.features, line.codes, strict=True):
            assert code == own[j] or j == 2 or code in description["features"][j]["candidates"]
            n_changed += code != own[j] and j < 2
    assert n_changed > 20
    assert "income" in page(run)


def test_constraints_hold_and_explanations_that_cannot_flip_are_counted(loans, make_run):
    constraints = ["+dataset.immutable=[home]", "+dataset.only={age: up}"]
    settings = ("n_explain=30", "metric=[c,recall]", "resamples=0")
    folder = make_run(loans, "explainer=[lr,random]", *constraints, *settings)
    description = json.loads((folder / "dataset.json").read_text())
    assert [feature.get("allowed_change") for feature in description["features"]] == ["up", None, "none"]
    own = pd.read_parquet(folder / "instances.parquet").set_index("instance")["codes"]
    counterfactuals = pd.read_parquet(folder / "counterfactuals.parquet")
    explained_features = pd.read_parquet(folder / "explanations.parquet").set_index(["instance", "explainer"])[
        "features"
    ]
    n_without_flip = {"lr": 0, "random": 0}
    for line in counterfactuals[counterfactuals["access"] == "label"].itertuples():
        first = int(explained_features[line.instance, line.explainer][0])
        assert line.features.tolist() == ([] if first == 2 else [first])
        if first == 0:
            assert line.codes[0] >= own[line.instance][0]
        if first == 2 or (first == 0 and own[line.instance][0] >= description["features"][0]["candidates"][-1]):
            assert not line.flipped and line.distance == 0
            n_without_flip[line.explainer] += 1
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "explainer"])["value"]
    assert {name: 30 * metrics["fixed", name] for name in n_without_flip} == pytest.approx(n_without_flip) and sum(
        n_without_flip.values()
    ) > 1
    assert "Fixed" in (folder / "tables.md").read_text() and "Fixed" in page(folder)
