"""Metrics that Quantus defines as well give its values, with the same removal, sets and order of features."""

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
from tests.metric.inputs import InteractionModel, compute_values, draw_sets, make_inputs
from tests.problems import compute_importance, draw_linear, make_dataset

quantus = pytest.importorskip("quantus", reason="quantus is not installed: `make test-compare` installs it")

WIDTH = 6
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # Quantus warns about each of its settings
    pytest.mark.parametrize("seed", [0, 1]),
]


class QuantusModel(torch.nn.Module):
    """A module from numbers to probabilities, as Quantus requires; Quantus passes single precision only."""

    def __init__(self, probabilities):
        super().__init__()
        self.probabilities = probabilities
        self.eval()

    def forward(self, pixels):
        return self.probabilities(pixels.double().reshape(len(pixels), -1))


@dataclass(frozen=True)
class SharedProblem:
    """A problem for cfeval and Quantus: numbers (n, M), and the number by which Quantus replaces removed features."""

    inputs: MetricInput
    variant: str
    pixels: np.ndarray
    baseline: float
    model: QuantusModel

    def compute_with_cfeval(self, metric):
        return compute_values(metric, self.inputs)[self.variant]

    def compute_with_quantus(self, name, *, scores=None, top_features=None, **settings):
        """Compute a metric of Quantus for images that have one row of pixels."""
        shape = (-1, 1, 1, WIDTH)  # many of its metrics accept no other shape
        scores = self.scores if scores is None else scores
        metric = getattr(quantus, name)(disable_warnings=True, return_aggregate=False, **settings)
        return metric(
            self.model,
            self.pixels.reshape(shape),
            self.inputs.predicted_classes,
            scores.reshape(shape),
            s_batch=None if top_features is None else top_features.reshape(shape),
            channel_first=True,
            softmax=False,
        )

    @property
    def scores(self):
        return self.inputs.explanation.to_dense(WIDTH)


def make_embedding_problem(seed):
    """Make a logistic model on single numbers with removal by zero."""
    dataset = make_dataset([5] * WIDTH, n=10, seed=seed)
    model = draw_linear(dataset, seed, 1)
    model = replace(model, tables=tuple(table.astype(np.float32).astype(np.float64) for table in model.tables))
    inputs = make_inputs(dataset, model, 2, seed, removals={"zero": Zero()})
    pixels = np.stack([model.embed_values(j, inputs.codes[:, j])[:, 0] for j in range(WIDTH)], axis=1)
    return SharedProblem(
        inputs, "del", pixels, 0.0, QuantusModel(lambda numbers: model.predict_proba_embedded(numbers[:, :, None]))
    )


def make_logistic_problem(seed):
    """Make a logistic model on codes that uses mean embeddings for the value -1 of Quantus."""
    dataset = make_dataset([3, 4, 2, 3, 5, 3], n=10, seed=seed)
    model = draw_linear(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 2, seed, removals={"mean": Mean()})
    means = np.stack([dataset.frequencies[j] @ model.tables[j] for j in range(WIDTH)])

    def probabilities(numbers):
        codes = numbers.numpy().astype(int)
        vectors = np.stack([model.tables[j][codes[:, j]] for j in range(WIDTH)], axis=1)
        return model.predict_proba_embedded(torch.as_tensor(np.where((codes == ABSENT)[:, :, None], means, vectors)))

    return SharedProblem(inputs, "mean", inputs.codes.astype(float), float(ABSENT), QuantusModel(probabilities))


def make_three_class_problem(seed):
    """Make a model of three classes without additive effects; the last value is a mask token."""
    dataset = make_dataset([4] * WIDTH, n=10, seed=seed)
    dataset = replace(
        dataset, mask_code=4, features=tuple(replace(f, values=(*f.values, "?")) for f in dataset.features)
    )
    model = InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 2, seed, removals={"mask": Mask()})
    model_of_masks = QuantusModel(lambda numbers: torch.as_tensor(model.predict_proba(numbers.numpy().astype(int))))
    return SharedProblem(inputs, "mask", inputs.codes.astype(float), 4.0, model_of_masks)


problems = pytest.mark.parametrize(
    "make_problem", [make_embedding_problem, make_logistic_problem, make_three_class_problem]
)


@problems
@pytest.mark.parametrize(("share", "size", "normalise"), [(0.1, 1, False), (0.5, 3, True), (0.8, 5, False)])
def test_faithfulness_correlation(make_problem, seed, share, size, normalise, monkeypatch):
    problem = make_problem(seed)
    sets = [
        draw_sets(row, 12, share, 3, int(i)) for row, i in zip(problem.inputs.codes, problem.inputs.ids, strict=True)
    ]
    # Quantus draws the first set of each instance, then the second of each
    draws = iter([sorted(instance_sets[run]) for run in range(12) for instance_sets in sets])

    def choice(features, count, replace):
        assert (features, count, replace) == (WIDTH, size, False)
        return np.array(next(draws))

    monkeypatch.setattr(np.random, "choice", choice)
    expected = problem.compute_with_quantus(
        "FaithfulnessCorrelation",
        nr_runs=12, subset_size=size, perturb_baseline=problem.baseline, normalise=normalise,
    )  # fmt: skip
    assert next(draws, None) is None
    actual = problem.compute_with_cfeval(FaithfulnessCorrelation(subsets=12, share=share, seed=3))
    assert np.isfinite(actual).all() and np.ptp(actual) > 0.1
    assert actual == pytest.approx(np.array(expected), abs=1e-9)


@problems
def test_infidelity_of_one_scale(make_problem, seed, monkeypatch):
    """Quantus has no β, weights scores by how far a number moves, and removes blocks: the test supplies these."""
    problem = make_problem(seed)
    sets = [draw_sets(row, 12, 0.5, 3, int(i)) for row, i in zip(problem.inputs.codes, problem.inputs.ids, strict=True)]
    blocks = iter([[np.array([sorted(instance_sets[run]) for instance_sets in sets])] for run in range(12)])
    monkeypatch.setattr("quantus.helpers.utils.get_block_indices", lambda *_: next(blocks))
    model, labels, rows = (
        problem.model,
        problem.inputs.predicted_classes,
        np.arange(len(problem.inputs.predicted_classes)),
    )

    def predict(numbers):
        return model(torch.as_tensor(numbers)).numpy()[rows, labels]

    is_absent = np.array(
        [[[j in features for j in range(WIDTH)] for features in instance_sets] for instance_sets in sets]
    )
    drops = np.stack(
        [
            predict(problem.pixels) - predict(np.where(is_absent[:, r], problem.baseline, problem.pixels))
            for r in range(12)
        ],
        1,
    )
    sums = np.einsum("nrm,nm->nr", is_absent, problem.scores)
    scale = np.array([np.linalg.lstsq(a[:, None], b, rcond=None)[0][0] for a, b in zip(sums, drops, strict=True)])
    expected = problem.compute_with_quantus(
        "Infidelity",
        scores=scale[:, None] * problem.scores / (problem.pixels - problem.baseline), n_perturb_samples=12,
        perturb_patch_sizes=[1], perturb_baseline=problem.baseline, normalise=False,
    )  # fmt: skip
    assert next(blocks, None) is None
    actual = problem.compute_with_cfeval(Infidelity(subsets=12, share=0.5, seed=3))
    assert actual.max() > 1e-4
    assert actual == pytest.approx(np.array(expected), abs=1e-9)


@problems
@pytest.mark.parametrize("max_length", [1, 4, WIDTH])
def test_aopc_is_the_mean_of_three_curves(make_problem, seed, max_length):
    """PixelFlipping and Selectivity return the remaining probability, RegionPerturbation the drop in probability."""
    problem = make_problem(seed)
    actual = problem.compute_with_cfeval(Aopc(max_features=max_length))
    remaining = [
        problem.compute_with_quantus("PixelFlipping", perturb_baseline=problem.baseline),
        problem.compute_with_quantus("Selectivity", patch_size=1, perturb_baseline=problem.baseline),
    ]
    for curves in remaining:
        assert np.shape(curves) == (len(actual), WIDTH)
        drops = problem.inputs.probability[:, None] - np.array(curves)
        assert actual == pytest.approx(drops[:, :max_length].mean(axis=1), abs=1e-9)
    lost = problem.compute_with_quantus(
        "RegionPerturbation",
        patch_size=1, order="morf", regions_evaluation=max_length, perturb_baseline=problem.baseline,
    )  # fmt: skip
    assert np.shape(lost) == (len(actual), max_length)
    assert actual == pytest.approx(np.mean(lost, axis=1), abs=1e-9)


@problems
def test_comprehensiveness_and_sufficiency_are_points_of_the_curves(make_problem, seed):
    """Removing the first two features is a point of the curve, keeping only them a point of the reversed curve."""
    problem = make_problem(seed)
    settings = {"patch_size": 1, "regions_evaluation": WIDTH, "perturb_baseline": problem.baseline}
    first = np.array(problem.compute_with_quantus("RegionPerturbation", order="morf", **settings))
    last = np.array(problem.compute_with_quantus("RegionPerturbation", order="lerf", **settings))
    assert problem.compute_with_cfeval(Comprehensiveness()) == pytest.approx(first[:, 2 - 1], abs=1e-9)
    assert problem.compute_with_cfeval(Sufficiency()) == pytest.approx(last[:, WIDTH - 2 - 1], abs=1e-9)
    # Keeping all features loses nothing: the curve of Quantus lacks this point, and ends with all features removed.
    assert problem.compute_with_cfeval(AopcSufficiency()) == pytest.approx(
        last[:, : WIDTH - 1].sum(axis=1) / WIDTH, abs=1e-9
    )


@problems
def test_dfr_is_one_minus_the_accuracy_of_road(make_problem, seed):
    """The accuracy of ROAD against ŷ is the share of labels that stay, with the same removal in both."""
    problem = make_problem(seed)
    sizes = {17: 1, 34: 2, 50: 3, 67: 4, 84: 5}  # percentages, rounded down
    unchanged = problem.compute_with_quantus(
        "ROAD",
        percentages=list(sizes), perturb_func=quantus.baseline_replacement_by_indices,
        perturb_func_kwargs={"indexed_axes": [0, 1, 2], "perturb_baseline": problem.baseline},
    )  # fmt: skip
    inputs_by_size = [
        replace(problem.inputs, k=k, features=problem.inputs.explanation.top_k(k)) for k in sizes.values()
    ]
    actual = [compute_values(Dfr(), inputs)[problem.variant].mean() for inputs in inputs_by_size]
    assert max(actual) > min(actual)
    assert actual == pytest.approx([1 - unchanged[percentage] for percentage in sizes], abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_recall_and_hit(seed, k):
    """With the k most important features as the segmentation: share of the first k in it, and whether the first is."""
    problem = make_embedding_problem(seed)
    dataset, model = problem.inputs.dataset, draw_linear(problem.inputs.dataset, seed, 1)
    truth = compute_importance("signed", model, dataset, problem.inputs.codes, problem.inputs.predicted_classes)
    inputs = replace(problem.inputs, k=k, features=problem.inputs.explanation.top_k(k), truth={"signed": truth})
    top_features = (np.argsort(np.argsort(-truth, axis=1), axis=1) < k).astype(int)
    actual = compute_values(Recall(), inputs)["signed"]
    assert 0 < actual.mean() < 1
    assert actual == pytest.approx(
        np.array(problem.compute_with_quantus("TopKIntersection", k=k, top_features=top_features)), abs=1e-12
    )
    assert actual == pytest.approx(
        np.array(problem.compute_with_quantus("RelevanceRankAccuracy", top_features=top_features)), abs=1e-12
    )
    if k == 1:
        hits = np.array(problem.compute_with_quantus("PointingGame", top_features=top_features), dtype=float)
        assert compute_values(Hit(), inputs)["signed"] == pytest.approx(hits, abs=1e-12)
