"""A whole run on a table with numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.page import build
from cfeval_cli.results.read import read_results
from tests.conftest import Toy
from tests.end_to_end.test_run import FAST, SIX, same_figures

LOANS = """\
_target_: cfeval_cli.dataset.tabular.Table
name: loans
file: {_target_: cfeval_cli.dataset.sources.File, name: loans.csv}
columns: [age, income, home, default]
label: default
classes: ["no", "yes"]
missing: [-9]
candidates: 8
features:
  age: {_target_: cfeval_cli.dataset.tabular.Number}
  income: {_target_: cfeval_cli.dataset.tabular.Number}
  home: {_target_: cfeval_cli.dataset.tabular.Category}
"""


class Loans(Toy):
    """A folder with a dataset `loans`."""

    @property
    def arguments(self):
        return ["--config-dir", str(self.folder / "conf"), "dataset=loans", f"data_dir={self.folder / 'data'}"]


@pytest.fixture(scope="session")
def loans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loans")
    (folder / "conf" / "dataset").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "conf" / "dataset" / "loans.yaml").write_text(LOANS)
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(500):
        age, income, home = rng.integers(18, 80), rng.lognormal(3, 1), rng.choice(["own", "rent", ""])
        bad = rng.random() < 1 / (1 + np.exp(-(0.05 * (age - 50) - 0.02 * (income - 30) + (home == "rent"))))
        shown = "-9" if rng.random() < 0.1 else f"{income:.3f}"
        lines.append(f"{age},{shown},{home},{'yes' if bad else 'no'}")
    (folder / "data" / "loans.csv").write_text("\n".join(lines) + "\n")
    return Loans(folder)


@pytest.fixture(scope="session")
def run(loans, made):
    return made(loans, SIX, *FAST, "k=2", "n_explain=10", "reparametrisations=1", "metric=core")


def page(folder):
    """The report, without its figures."""
    return build.Report(read_results(folder)).render_page({}, [])


def test_an_outsider_recomputes_every_figure(run):
    same_figures(run)


def test_numbers_are_told_as_numbers_and_edits_are_among_those_that_are_tried(run, loans):
    described = json.loads((run / "dataset.json").read_text())
    age, income, home = described["features"]
    names = {feature["name"]: described["values"][feature["values"]] for feature in described["features"]}
    assert [feature["kind"] for feature in (age, income, home)] == ["number", "number", "category"]
    assert names["income"][income["missing"]] == names["home"][home["missing"]] == "missing" and "missing" not in age
    assert len(age["candidates"]) <= 8 and len(income["candidates"]) <= 9 and "candidates" not in home
    lines = [line.split(",") for line in (loans.folder / "data" / "loans.csv").read_text().splitlines()]
    instances = pd.read_parquet(run / "instances.parquet").set_index("instance")
    for i, values in instances["values"].items():
        told = [cell if cell not in ("-9", "") else "missing" for cell in lines[i][:3]]
        assert [name if name == "missing" or j == 2 else float(name) for j, name in enumerate(values)] == [
            cell if cell == "missing" or j == 2 else float(cell) for j, cell in enumerate(told)
        ]
    found = pd.read_parquet(run / "counterfactuals.parquet")
    changed = 0
    for line in found.itertuples():
        own = instances.loc[line.instance, "codes"]
        for j, code in zip(line.features, line.codes, strict=True):
            assert code == own[j] or j == 2 or code in described["features"][j]["candidates"]
            changed += code != own[j] and j < 2
    assert changed > 20
    assert "income" in page(run)


def test_embeddings_of_numbers_are_moved_and_the_report_names_the_nearest_numbers(loans, made):
    folder = made(loans, "explainer=[lr]", "search=continuous", "search.steps=100", "n_explain=8")
    same_figures(folder)
    assert "income" in page(folder)
    assert pd.read_parquet(folder / "counterfactuals.parquet")["vectors"].notna().all()


def test_constraints_are_kept_and_explanations_that_cannot_flip_are_told(loans, made):
    constraints = ["+dataset.immutable=[home]", "+dataset.only={age: up}"]
    few = ("n_explain=30", "metric=[c,recall]", "resamples=0")
    folder = made(loans, "explainer=[lr,random]", *constraints, *few)
    described = json.loads((folder / "dataset.json").read_text())
    assert [feature.get("moves") for feature in described["features"]] == ["up", None, "none"]
    own = pd.read_parquet(folder / "instances.parquet").set_index("instance")["codes"]
    found = pd.read_parquet(folder / "counterfactuals.parquet")
    told = pd.read_parquet(folder / "explanations.parquet").set_index(["instance", "explainer"])["features"]
    stuck = {"lr": 0, "random": 0}
    for line in found[found["access"] == "label"].itertuples():
        first = int(told[line.instance, line.explainer][0])
        assert line.features.tolist() == ([] if first == 2 else [first])
        if first == 0:
            assert line.codes[0] >= own[line.instance][0]
        if first == 2 or (first == 0 and own[line.instance][0] >= described["features"][0]["candidates"][-1]):
            assert not line.flipped and line.distance == 0
            stuck[line.explainer] += 1
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "explainer"])["value"]
    assert {name: 30 * metrics["fixed", name] for name in stuck} == pytest.approx(stuck) and sum(stuck.values()) > 1
    assert "Fixed" in (folder / "tables.md").read_text() and "Fixed" in page(folder)
