"""Metrics that Quantus defines as well have its values: the same removal, sets and order, by its own code."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from cfeval_cli.core import ABSENT, MetricInput
from cfeval_cli.metric.aopc import Aopc, AopcSufficiency
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.dfr import Dfr
from cfeval_cli.metric.faithfulness_correlation import FaithfulnessCorrelation
from cfeval_cli.metric.ground_truth import Hit, Recall
from cfeval_cli.metric.infidelity import Infidelity
from cfeval_cli.metric.sufficiency import Sufficiency
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import Crossed, make_inputs, sets_of, values
from tests.problems import importance, make_dataset, random_linear

quantus = pytest.importorskip("quantus", reason="quantus is not installed: `make test-compare` installs it")

WIDTH = 6
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # Quantus tells of each of its settings
    pytest.mark.parametrize("seed", [0, 1]),
]


class Told(torch.nn.Module):
    """A module as Quantus wants it: numbers in, probabilities out; it hands on single precision only."""

    def __init__(self, probabilities):
        super().__init__()
        self.probabilities = probabilities
        self.eval()

    def forward(self, inputs):
        return self.probabilities(inputs.double().reshape(len(inputs), -1))


@dataclass(frozen=True)
class Same:
    """One problem, put to both: numbers (n, M), and the number that Quantus puts in place of what is removed."""

    inputs: MetricInput
    variant: str
    inputs: np.ndarray
    baseline: float
    model: Told

    def ours(self, metric):
        return values(metric, self.inputs)[self.variant]

    def theirs(self, name, *, scores=None, gold=None, **settings):
        """What a metric of Quantus says of the explanation of images, which have one row of pixels."""
        shape = (-1, 1, 1, WIDTH)  # many of its metrics take nothing else
        scores = self.scores if scores is None else scores
        metric = getattr(quantus, name)(disable_warnings=True, return_aggregate=False, **settings)
        return metric(
            self.model,
            self.inputs.reshape(shape),
            self.inputs.labels,
            scores.reshape(shape),
            s_batch=None if gold is None else gold.reshape(shape),
            channel_first=True,
            softmax=False,
        )

    @property
    def scores(self):
        return self.inputs.explanation.table(WIDTH)


def embedded(seed):
    """A logistic model on single numbers, removed by zero."""
    dataset = make_dataset([5] * WIDTH, n=10, seed=seed)
    model = random_linear(dataset, seed, 1)
    model = replace(model, tables=tuple(table.astype(np.float32).astype(np.float64) for table in model.tables))
    inputs = make_inputs(dataset, model, 2, seed, ways={"zero": Zero()})
    inputs = np.stack([model.embed_values(j, inputs.codes[:, j])[:, 0] for j in range(WIDTH)], axis=1)
    return Same(inputs, "del", inputs, 0.0, Told(lambda numbers: model.predict_proba_embedded(numbers[:, :, None])))


def usual(seed):
    """A logistic model on codes, whose embeddings become their means where Quantus puts -1."""
    dataset = make_dataset([3, 4, 2, 3, 5, 3], n=10, seed=seed)
    model = random_linear(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 2, seed, ways={"mean": Mean()})
    means = np.stack([dataset.frequencies[j] @ model.tables[j] for j in range(WIDTH)])

    def probabilities(numbers):
        codes = numbers.numpy().astype(int)
        vectors = np.stack([model.tables[j][codes[:, j]] for j in range(WIDTH)], axis=1)
        return model.predict_proba_embedded(torch.as_tensor(np.where((codes == ABSENT)[:, :, None], means, vectors)))

    return Same(inputs, "mean", inputs.codes.astype(float), float(ABSENT), Told(probabilities))


def crossed(seed):
    """Three classes of which nothing adds up, on codes; the last value is a mask that no row has."""
    dataset = make_dataset([4] * WIDTH, n=10, seed=seed)
    dataset = replace(dataset, unknown=4, features=tuple(replace(f, values=(*f.values, "?")) for f in dataset.features))
    model = Crossed(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 2, seed, ways={"mask": Mask()})
    told = Told(lambda numbers: torch.as_tensor(model.predict_proba(numbers.numpy().astype(int))))
    return Same(inputs, "mask", inputs.codes.astype(float), 4.0, told)


problems = pytest.mark.parametrize("problem", [embedded, usual, crossed])


@problems
@pytest.mark.parametrize(("share", "size", "normalise"), [(0.1, 1, False), (0.5, 3, True), (0.8, 5, False)])
def test_faithfulness_correlation(problem, seed, share, size, normalise, monkeypatch):
    same = problem(seed)
    sets = [sets_of(row, 12, share, 3, int(i)) for row, i in zip(same.inputs.codes, same.inputs.ids, strict=True)]
    # Quantus draws the first set of each instance, then the second of each
    draws = iter([sorted(mine[run]) for run in range(12) for mine in sets])

    def choice(features, count, replace):
        assert (features, count, replace) == (WIDTH, size, False)
        return np.array(next(draws))

    monkeypatch.setattr(np.random, "choice", choice)
    theirs = same.theirs(
        "FaithfulnessCorrelation",
        nr_runs=12, subset_size=size, perturb_baseline=same.baseline, normalise=normalise,
    )  # fmt: skip
    assert next(draws, None) is None
    ours = same.ours(FaithfulnessCorrelation(subsets=12, share=share, seed=3))
    assert np.isfinite(ours).all() and np.ptp(ours) > 0.1
    assert ours == pytest.approx(np.array(theirs), abs=1e-9)


@problems
def test_infidelity_of_one_scale(problem, seed, monkeypatch):
    """Quantus has no β, weighs scores by how far a number moves, and removes blocks: these are given to it."""
    same = problem(seed)
    sets = [sets_of(row, 12, 0.5, 3, int(i)) for row, i in zip(same.inputs.codes, same.inputs.ids, strict=True)]
    blocks = iter([[np.array([sorted(mine[run]) for mine in sets])] for run in range(12)])
    monkeypatch.setattr("quantus.helpers.utils.get_block_indices", lambda *_: next(blocks))
    model, labels, rows = same.model, same.inputs.labels, np.arange(len(same.inputs.labels))

    def kept(numbers):
        return model(torch.as_tensor(numbers)).numpy()[rows, labels]

    gone = np.array([[[j in one for j in range(WIDTH)] for one in mine] for mine in sets])
    drops = np.stack([kept(same.inputs) - kept(np.where(gone[:, r], same.baseline, same.inputs)) for r in range(12)], 1)
    sums = np.einsum("nrm,nm->nr", gone, same.scores)
    scale = np.array([np.linalg.lstsq(a[:, None], b, rcond=None)[0][0] for a, b in zip(sums, drops, strict=True)])
    theirs = same.theirs(
        "Infidelity",
        scores=scale[:, None] * same.scores / (same.inputs - same.baseline), n_perturb_samples=12,
        perturb_patch_sizes=[1], perturb_baseline=same.baseline, normalise=False,
    )  # fmt: skip
    assert next(blocks, None) is None
    ours = same.ours(Infidelity(subsets=12, share=0.5, seed=3))
    assert ours.max() > 1e-4
    assert ours == pytest.approx(np.array(theirs), abs=1e-9)


@problems
@pytest.mark.parametrize("longest", [1, 4, WIDTH])
def test_aopc_is_the_mean_of_three_curves(problem, seed, longest):
    """PixelFlipping and Selectivity tell what is left of p, RegionPerturbation what it lost, after each feature."""
    same = problem(seed)
    ours = same.ours(Aopc(longest=longest))
    left = [
        same.theirs("PixelFlipping", perturb_baseline=same.baseline),
        same.theirs("Selectivity", patch_size=1, perturb_baseline=same.baseline),
    ]
    for curves in left:
        assert np.shape(curves) == (len(ours), WIDTH)
        drops = same.inputs.probability[:, None] - np.array(curves)
        assert ours == pytest.approx(drops[:, :longest].mean(axis=1), abs=1e-9)
    lost = same.theirs(
        "RegionPerturbation",
        patch_size=1, order="morf", regions_evaluation=longest, perturb_baseline=same.baseline,
    )  # fmt: skip
    assert np.shape(lost) == (len(ours), longest)
    assert ours == pytest.approx(np.mean(lost, axis=1), abs=1e-9)


@problems
def test_sets_are_points_of_the_curves(problem, seed):
    """The first two gone are a point of the curve, nothing but these a point of the one that begins with the last."""
    same = problem(seed)
    settings = {"patch_size": 1, "regions_evaluation": WIDTH, "perturb_baseline": same.baseline}
    first = np.array(same.theirs("RegionPerturbation", order="morf", **settings))
    last = np.array(same.theirs("RegionPerturbation", order="lerf", **settings))
    assert same.ours(Comprehensiveness()) == pytest.approx(first[:, 2 - 1], abs=1e-9)
    assert same.ours(Sufficiency()) == pytest.approx(last[:, WIDTH - 2 - 1], abs=1e-9)
    # with all features nothing is lost: Quantus' curve has no such point, and one where all are gone
    assert same.ours(AopcSufficiency()) == pytest.approx(last[:, : WIDTH - 1].sum(axis=1) / WIDTH, abs=1e-9)


@problems
def test_dfr_is_what_road_leaves(problem, seed):
    """The accuracy of ROAD against ŷ is the share of labels that stay; it is given our removal for its own."""
    same = problem(seed)
    sizes = {17: 1, 34: 2, 50: 3, 67: 4, 84: 5}  # percentages, rounded down
    stay = same.theirs(
        "ROAD",
        percentages=list(sizes), perturb_func=quantus.baseline_replacement_by_indices,
        perturb_func_kwargs={"indexed_axes": [0, 1, 2], "perturb_baseline": same.baseline},
    )  # fmt: skip
    cases = [replace(same.inputs, k=k, features=same.inputs.explanation.top(k)) for k in sizes.values()]
    ours = [values(Dfr(), inputs)[same.variant].mean() for inputs in cases]
    assert max(ours) > min(ours)
    assert ours == pytest.approx([1 - stay[percentage] for percentage in sizes], abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_recall_and_hit(seed, k):
    """Gold as Quantus' segmentation: the share of the first k that lie in it, and whether the first does."""
    same = embedded(seed)
    dataset, model = same.inputs.dataset, random_linear(same.inputs.dataset, seed, 1)
    truth = importance("signed", model, dataset, same.inputs.codes, same.inputs.labels)
    inputs = replace(same.inputs, k=k, features=same.inputs.explanation.top(k), truth={"signed": truth})
    gold = (np.argsort(np.argsort(-truth, axis=1), axis=1) < k).astype(int)
    ours = values(Recall(), inputs)["signed"]
    assert 0 < ours.mean() < 1
    assert ours == pytest.approx(np.array(same.theirs("TopKIntersection", k=k, gold=gold)), abs=1e-12)
    assert ours == pytest.approx(np.array(same.theirs("RelevanceRankAccuracy", gold=gold)), abs=1e-12)
    if k == 1:
        hits = np.array(same.theirs("PointingGame", gold=gold), dtype=float)
        assert values(Hit(), inputs)["signed"] == pytest.approx(hits, abs=1e-12)
