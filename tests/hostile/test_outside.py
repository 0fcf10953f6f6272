"""Explanations and models of another hand: damaged, nonsense, or made to run something."""

import pickle

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import ModelSpec
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.explainer.file import File
from cfeval_cli.explainer.scores import read_scores
from cfeval_cli.model.function import Function
from cfeval_cli.model.onnx import Onnx
from cfeval_cli.model.skops import Skops
from tests.hostile.mutations import Canary, list_names, mutate, parametrize_seeds
from tests.model.mixed import make_mixed_table

DATASET = make_mixed_table()
NAMES = [feature.name for feature in DATASET.features]
SCORES = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)).round(3), columns=NAMES)
SCORES.insert(0, "instance", DATASET.test.ids)


@parametrize_seeds(60, 1500)
def test_damaged_explanations_are_refused_left_out_or_numbers(tmp_path, seeds):
    long = SCORES.melt("instance", var_name="feature", value_name="score")
    SCORES.to_parquet(tmp_path / "a.parquet")
    bodies = [
        SCORES.to_csv(index=False).encode(),
        long.to_csv(index=False).encode(),
        (tmp_path / "a.parquet").read_bytes(),
    ]
    (tmp_path / "a.parquet").unlink()
    n_refused = n_accepted = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        path = tmp_path / ("a.parquet" if seed % 3 == 2 else "a.csv")
        path.write_bytes(mutate(bodies[seed % 3], rng, 3))
        try:
            explanations = read_scores(path, DATASET)
        except UserError as error:
            n_refused += 1
            assert str(error).startswith((str(path), path.name)), seed
        else:
            n_accepted += 1
            assert np.isin(explanations.instances, DATASET.test.ids).all(), seed
            assert (
                explanations.scores.shape == (len(explanations.instances), 4)
                and not np.isinf(explanations.scores).any()
            ), seed
            assert set(explanations.failures) <= set(DATASET.test.ids.tolist()), seed
        path.unlink()
    assert n_refused and n_accepted and list_names(tmp_path) == set()


@parametrize_seeds(20, 400)
def test_damaged_skops_files_are_refused_or_are_models(tmp_path, seeds):
    storage = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(DATASET.train.codes, DATASET.train.labels)
    body, path = storage.dumps(model), tmp_path / "model.skops"
    for seed in seeds:
        path = tmp_path / f"model{seed}.skops"
        path.write_bytes(mutate(body, np.random.default_rng(seed), 4))
        try:
            ModelSpec.from_settings(DATASET, Skops(str(path)))
        except (UserError, Failure) as error:
            assert str(path) in str(error), seed
        path.unlink()


@parametrize_seeds(40, 800)
def test_damaged_onnx_files_are_refused_or_are_models(tmp_path, seeds, capfd):
    pytest.importorskip("onnxruntime")
    from sklearn.linear_model import LogisticRegression

    convert = pytest.importorskip("skl2onnx").to_onnx
    model = LogisticRegression().fit(DATASET.train.codes, DATASET.train.labels)
    rows = DATASET.train.codes[:1].astype(np.float32)
    body, n_opened = convert(model, rows, options={"zipmap": False}).SerializeToString(), 0
    capfd.readouterr()
    for seed in seeds:
        path = tmp_path / f"model{seed}.onnx"
        path.write_bytes(mutate(body, np.random.default_rng(seed), 4))
        try:
            ModelSpec.from_settings(DATASET, Onnx(str(path)))
            n_opened += 1
        except (UserError, Failure) as error:
            assert str(path) in str(error), seed
        path.unlink()
    assert 0 < n_opened < len(seeds) and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".skops", ".onnx", ".csv", ".parquet"])
def test_a_pickle_by_any_name_is_never_opened(tmp_path, suffix):
    canary, path = Canary(tmp_path / "made"), tmp_path / f"model{suffix}"
    path.write_bytes(canary.pickled())
    pickle.loads(path.read_bytes())
    assert canary.path.exists()  # so it would
    canary.path.unlink()
    for make in (Skops, Onnx, Function, File):
        with pytest.raises((UserError, ValueError)):
            component = make(f"{path}:predict") if make is Function else make(str(path))
            component.check(ModelSpec(DATASET, object)) if make is File else component.output_type(DATASET)
            component.expand("file")
    assert not canary.path.exists()
