"""A model that has nothing but predict_proba, or labels only, or three classes, from end to end."""

import importlib.util
import json
import re
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.report.page import build
from cfeval_cli.report.verdict import write_verdict
from cfeval_cli.results import read as folders
from tests import inside
from tests.conftest import SCORED, unless

FOREST = """
from dataclasses import dataclass
from pathlib import Path

from sklearn.ensemble import RandomForestClassifier


@dataclass(frozen=True)
class Box:
    forest: RandomForestClassifier

    def predict_proba(self, codes):
        assert (codes >= 0).all(), "a code for absent"
        return self.forest.predict_proba(codes)


@dataclass(frozen=True)
class Forest:
    def fit(self, dataset, seed) -> Box:
        Path(__file__).with_name("trained").touch()
        return Box(RandomForestClassifier(4, random_state=seed).fit(dataset.train.codes, dataset.train.labels))


class Labels:
    def __init__(self, forest):
        self.forest = forest

    def predict(self, codes):
        assert (codes >= 0).all(), "a code for absent"
        return self.forest.predict(codes)


class Quiet(Forest):
    def fit(self, dataset, seed) -> Labels:
        return Labels(super().fit(dataset, seed).forest)


class Unsaid(Forest):
    def fit(self, dataset, seed):
        return super().fit(dataset, seed)
"""
QUICK = ("n_explain=30",)
FEWER = ("explainer.lime.n_samples=300", "explainer.decision_boundary.n_samples=200")


@pytest.fixture(scope="module")
def models(toy, tmp_path_factory):
    """A folder with three models of one's own, which Python finds."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(toy.folder / "conf", folder / "conf")
    (folder / "conf" / "model").mkdir()
    (folder / "forest.py").write_text(FOREST)
    for name in ("Forest", "Quiet", "Unsaid"):
        (folder / "conf" / "model" / f"{name.lower()}.yaml").write_text(f"_target_: forest.{name}\n")
    (folder / "careless.py").write_text(DELETES)
    (folder / "conf" / "removal").mkdir()
    (folder / "conf" / "removal" / "careless.yaml").write_text("careless: {_target_: careless.Careless}\n")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in ("forest", "careless"):
        sys.modules.pop(name, None)


@pytest.fixture
def place(models):
    """The folder of the models, in which no run is."""
    shutil.rmtree(models / "run", ignore_errors=True)
    (models / "trained").unlink(missing_ok=True)
    (models / "run").mkdir()
    return models


LITTLE = ("cache=off", "n_jobs=1", "figures=[]", "report=false", "resamples=100", "explainer_stability=0")


def run(toy, place, *arguments):
    """The whole run, in this process."""
    usual = [*toy.arguments[2:], *LITTLE, *unless([SCORED], arguments), *QUICK]
    return inside.run(place / "run", *arguments, usual=usual, folder=place / "conf")


OF_SUMS = ["truth=[signed]"]  # truths that other models do not have


def headline(folder):
    """What the command says in the end."""
    found = folders.read_results(folder)
    return write_verdict(found.findings, found.record).headline


def page_of(folder):
    """The report, without its figures."""
    return build.Report(folders.read_results(folder)).render_page({}, [])


def read(place):
    folder = place / "run"
    frames = {name: pd.read_csv(folder / f"{name}.csv") for name in ("metrics", "correlations", "metric_agreement")}
    return json.loads((folder / "run.json").read_text()), frames


def model_of(place, dataset, kind="Forest"):
    """The same model, trained by hand."""
    spec = importlib.util.spec_from_file_location("forest_by_hand", place / "forest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["forest_by_hand"] = module
    spec.loader.exec_module(module)
    return getattr(module, kind)().fit(dataset, 0)


def check_by_hand(place, name, data, labels, kind="Forest", more=()):
    """Validity, by trying every value of the named features with a model of one's own."""
    plan = inside.planned(f"dataset={name}", *more, f"data_dir={data}", folder=place / "conf")
    dataset = plan.dataset.load(plan.settings.data_dir, 0)
    model = model_of(place, dataset, kind)
    instances = pd.read_parquet(place / "run" / "instances.parquet").set_index("instance")
    codes = np.stack(instances["codes"].to_list())
    assert labels(model, codes).tolist() == instances["predicted"].tolist()
    edits = pd.read_parquet(place / "run" / "counterfactuals.parquet")
    values = dataset.candidates  # all values of a category, quantiles of a number
    lines = edits[edits["access"] == "label"].to_dict("records")
    tried, of = [], []  # rows, and the line that each belongs to
    for i, line in enumerate(lines):
        row, named = np.array(instances.loc[line["instance"], "codes"]), [int(j) for j in line["features"]]
        for choice in product(*(values[j] for j in named)):
            one = row.copy()
            one[named] = choice
            tried.append(one)
            of.append(i)
    before = np.array([instances.loc[line["instance"], "predicted"] for line in lines])
    flips = labels(model, np.array(tried, dtype=np.int32)) != before[of]
    found = [bool(flips[np.equal(of, i)].any()) for i in range(len(lines))]
    assert found == [line["flipped"] for line in lines] and set(found) == {False, True}
    return dataset, model, instances


def likeliest(model, codes):
    return model.predict_proba(codes).argmax(axis=1)


def test_with_probabilities_every_explainer_and_metric_that_applies(toy, place):
    run(toy, place, "model=forest", "bounds=5", "explainer_stability=2", "metric=core", *OF_SUMS, *FEWER)
    record, frames = read(place)
    assert list(record["explainers"]) == ["random", "omission", "lime", "anchor", "decision_boundary"]
    assert "sum of effects" in record["explainers_absent"]["lr"] and set(record["metrics_absent"]) == {"recall", "hit"}
    assert (
        frames["correlations"].empty
        and record["truths"] == {}
        and "has no ground truth" in record["correlations_absent"]
    )
    assert not {"model.npz", "truth.parquet"} & set(record["files"])
    metrics = frames["metrics"].set_index(["metric", "variant", "explainer"])
    assert metrics.loc["comprehensiveness"].loc["del"]["value"].isna().all()
    assert metrics.loc["comprehensiveness"].loc["del"]["note"].str.contains("embeddings").all()
    assert metrics.loc["comprehensiveness"].loc["marginal"]["value"].notna().all()
    for name in ("validity_soft", "c_soft", "validity", "c", "proximity", "sufficiency", "dfr"):
        assert metrics.loc[name]["value"].notna().any(), name
    said = headline(place / "run")
    assert "No ground truth for this model:" in said and "by erasure metrics" in said
    tables, page = (place / "run" / "tables.md").read_text(), page_of(place / "run")
    assert "Mean ranks of the explainers" in tables and "How far the metrics agree" in tables
    assert "a model without ground truth" in page and "Explainers not applicable" in page
    dataset, model, instances = check_by_hand(place, "toy", toy.folder / "data", likeliest)
    # comprehensiveness by what others have, written out
    explained = pd.read_parquet(place / "run" / "explanations.parquet")
    for name in record["explainers"]:
        lines = explained[(explained["explainer"] == name) & (explained["features"].map(len) > 0)]
        rows = np.stack(instances.loc[lines["instance"], "codes"].to_list()).astype(np.int32)
        label = instances.loc[lines["instance"], "predicted"].to_numpy()
        drops = model.predict_proba(rows)[np.arange(len(rows)), label]
        first = lines["features"].map(lambda named: int(named[0])).to_numpy()
        for j in set(first):
            # each value of the training rows once, as often as it is there
            codes, counts = np.unique(dataset.train.codes[:, j], return_counts=True)
            mine = np.flatnonzero(first == j)
            others = np.repeat(rows[mine], len(codes), axis=0)
            others[:, j] = np.tile(codes, len(mine))
            after = model.predict_proba(others)[np.arange(len(others)), np.repeat(label[mine], len(codes))]
            drops[mine] -= after.reshape(len(mine), -1) @ counts / counts.sum()
        assert metrics.loc["comprehensiveness", "marginal", name]["value"] == pytest.approx(np.mean(drops))


def test_how_far_metrics_agree_is_tau_of_their_rankings(toy, place):
    from scipy.stats import kendalltau

    four = "explainer=[random,omission,lime,decision_boundary]"
    run(toy, place, "model=unsaid", four, "bounds=0", "n_explain=15", "resamples=0", *FEWER)
    _, frames = read(place)
    by_metric = frames["metrics"].pivot(index=["metric", "variant"], columns="explainer", values="rank")
    ranks = {name: row.to_numpy() for name, row in by_metric.iterrows()}
    for line in frames["metric_agreement"].to_dict("records"):
        a, b = (ranks[line[f"{which}metric"], line[f"{which}variant"]] for which in ("", "other_"))
        there = ~np.isnan(a) & ~np.isnan(b)
        a, b = a[there], b[there]
        pairs = [(i, j) for i in range(len(a)) for j in range(i)]
        tau = np.mean([np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in pairs])
        assert line["tau"] == pytest.approx(tau) and line["explainers"] == len(a)
        if len(set(a)) == len(a) and len(set(b)) == len(b):
            assert tau == pytest.approx(kendalltau(a, b).statistic)
    assert len(frames["metric_agreement"]) > 10


def test_with_labels_only(toy, place):
    run(toy, place, "model=quiet", "bounds=0", *FEWER[1:])
    record, frames = read(place)
    assert list(record["explainers"]) == ["random", "anchor", "decision_boundary"]
    assert set(record["explainers_absent"]) == {"omission", "lime", "lr"}
    told = frames["metrics"][frames["metrics"]["value"].notna()]
    judged = {"dfr", "validity", "proximity", "proximity_flips", "c"}
    assert set(told["metric"]) == {*judged, "coverage"} and record["levels"] == ["label"]
    assert "No ground truth" in headline(place / "run") and "No ground truth" in page_of(place / "run")
    check_by_hand(place, "toy", toy.folder / "data", lambda model, codes: model.predict(codes), "Quiet")
    assert pd.read_parquet(place / "run" / "instances.parquet")["predicted_probability"].isna().all()


def test_three_classes(place):
    data = ["dataset=wine", "dataset.candidates=8", f"data_dir={place / 'data'}", "bounds=0", *LITTLE, SCORED]
    few = ["n_explain=15", "explainer=[random,omission,lime]", *FEWER[:1], "k=2", "truth.shapley.budget=500"]
    inside.run(place / "run", *data, *few, "model=forest", folder=place / "conf")
    _, frames = read(place)
    assert len(json.loads((place / "run" / "dataset.json").read_text())["classes"]) == 3
    assert frames["metrics"].query("metric == 'c_soft'")["value"].notna().all()
    _, model, instances = check_by_hand(place, "wine", place / "data", likeliest, more=["dataset.candidates=8"])
    assert instances["probability"].isna().all() and set(instances["predicted"]) == {0, 1, 2}
    codes = np.stack(instances["codes"].to_list()).astype(np.int32)
    assert instances["predicted_probability"].to_numpy() == pytest.approx(model.predict_proba(codes).max(axis=1))
    edits = pd.read_parquet(place / "run" / "counterfactuals.parquet")
    assert edits.loc[edits["flipped"], "label"].nunique() == 3  # a flip is any other class
    (place / "two").mkdir()
    with pytest.raises(UserError, match="model=logistic tells two classes apart, and wine has 3"):
        inside.run(place / "two", *data, folder=place / "conf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search=continuous"], "needs gradients in the embeddings, which this model (Box)"),
        (["search=exact"], "needs a logit that is linear in the embeddings"),
        (["distance.space=embedding"], "distance.space=embedding needs embeddings, which this model (Box)"),
        (["explainer.omission.removal=zero"], "explainer.omission: removal=zero: needs embeddings"),
        (["explainer=[lr]"], "no explainer is applicable to this model: lr needs a logit that is a sum of effects"),
        (["model=quiet", "search.pick=largest_drop"], "needs probabilities, but this model returns labels only"),
        (
            ["model=quiet", "metric=[c_soft]"],
            "no metric to be judged is applicable to this model: c_soft needs probabilities",
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_is_refused_before_training(toy, place, arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        run(toy, place, "model=forest", *arguments)
    assert not (place / "trained").exists() and not (place / "run" / "run.json").exists()


DELETES = """
from dataclasses import dataclass

from cfeval_cli.core.removal import SingleValue
from cfeval_cli.core import Removal


@dataclass(frozen=True)
class Careless(Removal):
    name = variant = title = "careless"

    def not_applicable_reason(self, subject):
        return None

    def fit(self, dataset, model):
        return SingleValue(-1)
"""


def test_the_code_for_absent_never_reaches_a_model_without_embeddings(toy, place):
    with pytest.raises(Failure, match="deletes features of an input, and this model has no embedding for that"):
        run(toy, place, "model=forest", "removal=[careless]", "explainer=[random]")


READS = """
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Explainer, Explanation, Fingerprinted


class Base(Explainer):
    access = Access.NOTHING

    def fit(self, dataset, model):
        first = int(open(self.where).read())

        def explain(batch):
            order = np.r_[first, np.delete(np.arange(dataset.n_features), first)]
            return Explanation(np.tile(order, (len(batch), 1)), np.tile(-np.arange(len(order)), (len(batch), 1)))

        return explain


@dataclass(frozen=True)
class Named(Base, Fingerprinted):
    path: str

    @property
    def where(self):
        return self.path

    def fingerprint(self):
        return ""


class Hidden(Base):
    where = "first.csv"
"""


def test_an_explainer_that_reads_a_file_is_never_taken_from_the_cache_when_the_file_changes(toy, tmp_path, monkeypatch):
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    (tmp_path / "reads.py").write_text(READS)
    for name, setting in (("named", ", path: first.csv"), ("hidden", "")):
        text = f"{name}: {{_target_: reads.{name.title()}{setting}}}\n"
        (tmp_path / "conf" / "explainer" / f"{name}.yaml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    usual = [*toy.arguments[2:], *LITTLE, "explainer=[random,named,hidden]", "metric=[c]", "n_explain=20", "bounds=0"]
    usual += ["truth=[signed]"]
    usual += ["reparametrisations=0", "cache=disk", f"cache.folder={tmp_path / 'cache'}", "resamples=0"]

    def explained(*more):
        """Which features those who read it name first, and how many explanations were known."""
        run = Path(tempfile.mkdtemp(dir=tmp_path))
        inside.run(run, *usual, *more, folder=tmp_path / "conf")
        told = pd.read_parquet(run / "explanations.parquet")
        record = json.loads((run / "run.json").read_text())["explained"]
        read = told.loc[told["explainer"] != "random", "features"]
        return set(read.map(lambda one: int(one[0]))), {name: one["known"] for name, one in record.items()}

    (tmp_path / "first.csv").write_text("2")
    assert explained()[0] == {2}
    (tmp_path / "first.csv").write_text("1")
    assert explained() == ({1}, {"random": 20, "named": 0, "hidden": 0})
    # computes everything again, whatever the cache knows
    assert explained("redo=true")[1] == {"random": 0, "named": 0, "hidden": 0}
    assert explained("seed=0", "k=2") == ({1}, {"random": 20, "named": 20, "hidden": 0})
