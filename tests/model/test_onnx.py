"""A model in an ONNX file has the predictions of the exported model."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfeval_cli.core import Dataset, ModelSpec
from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.model.external import LabelModel, ProbabilityModel
from cfeval_cli.model.onnx import Onnx
from tests.model.mixed import make_mixed_table
from tests.problems import make_dataset

DATASET = make_mixed_table()
CODES = DATASET.test.codes


class NumericDataset(Dataset):
    """A dataset that decodes rows as numeric codes."""

    def decode(self, codes):
        return pd.DataFrame(codes.astype(float))


def select_columns(codes):
    return DATASET.decode(codes)[["colour", "debt", "flag"]]


@pytest.fixture(scope="module")
def trained():
    """Return a pipeline on the columns without missing values."""
    pick = ColumnTransformer([("c", OneHotEncoder(), ["colour", "flag"]), ("n", "passthrough", ["debt"])])
    names = np.array(DATASET.classes)[DATASET.train.labels]
    return make_pipeline(pick, LogisticRegression(max_iter=2000)).fit(select_columns(DATASET.train.codes), names)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory, trained):
    pytest.importorskip("onnxruntime")
    skl2onnx, onnx = pytest.importorskip("skl2onnx"), pytest.importorskip("onnx")
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    folder = tmp_path_factory.mktemp("onnx")
    text, fraction = StringTensorType([None, 1]), FloatTensorType([None, 1])
    kinds = [("colour", text), ("debt", fraction), ("flag", text)]

    def write(name, model, kinds, zipmap):
        options = {"zipmap": zipmap}
        (folder / name).write_bytes(
            skl2onnx.convert_sklearn(model, initial_types=kinds, options=options).SerializeToString()
        )

    write("columns.onnx", trained, kinds, False)
    write("mapped.onnx", trained, kinds, True)
    numbers = np.nan_to_num(DATASET.train.codes.astype(np.float32))
    classifier = LogisticRegression(max_iter=2000).fit(numbers, DATASET.train.labels)
    write("matrix.onnx", classifier, [("x", FloatTensorType([None, 4]))], False)
    narrow = LogisticRegression().fit(numbers[:, :2], DATASET.train.labels)
    write("narrow.onnx", narrow, [("x", FloatTensorType([None, 2]))], False)
    renamed = onnx.load(folder / "columns.onnx")
    renamed.graph.input[0].name = "colours"
    for node in renamed.graph.node:
        node.input[:] = ["colours" if name == "colour" else name for name in node.input]
    onnx.save(renamed, folder / "renamed.onnx")
    return folder


@pytest.mark.parametrize("name", ["columns.onnx", "mapped.onnx"])
def test_columns_are_passed_by_name_and_classes_are_ordered(model_folder, trained, name):
    settings = Onnx(str(model_folder / name), batch_size=7)
    assert ModelSpec.from_settings(DATASET, settings).kind is ProbabilityModel
    model = settings.fit(DATASET, 0)
    expected = trained.predict_proba(select_columns(CODES))
    assert model.predict_proba(CODES) == pytest.approx(expected, abs=1e-5)
    assert (pickle.loads(pickle.dumps(model)).predict_proba(CODES) == model.predict_proba(CODES)).all()
    # classes in another order than in the file
    reversed_data = make_mixed_table(classes=("good", "bad"))
    probabilities = Onnx(str(model_folder / "mapped.onnx")).fit(reversed_data, 0).predict_proba(CODES)
    assert probabilities == pytest.approx(expected[:, ::-1], abs=1e-5)


def test_output_can_be_labels(model_folder, trained):
    settings = Onnx(str(model_folder / "columns.onnx"), output="label")
    assert settings.output_type(DATASET) is LabelModel
    expected = trained.predict(select_columns(CODES)) == "good"
    assert (settings.fit(DATASET, 0).predict(CODES) == expected).all()
    with pytest.raises(UserError, match=r"model.output=classes: .* has the outputs label, probabilities"):
        Onnx(str(model_folder / "columns.onnx"), output="classes").output_type(DATASET)


def test_matrix_input_has_all_features_in_order(model_folder):
    data = NumericDataset(**vars(make_dataset([4, 3, 2, 3])))
    probabilities = Onnx(str(model_folder / "matrix.onnx")).fit(data, 0).predict_proba(data.test.codes)
    numbers = np.nan_to_num(DATASET.train.codes.astype(np.float32))
    expected = LogisticRegression(max_iter=2000).fit(numbers, DATASET.train.labels).predict_proba(data.test.codes)
    assert probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("matrix.onnx", "its input x is of numbers, but colour is of categories such as"),
        ("narrow.onnx", "needs 2 columns, but mixed has 4 features"),
        ("renamed.onnx", "needs colours, but mixed has no such feature. Did you mean colour?"),
        ("nowhere.onnx", "there is no such file"),
        ("model.pkl", "is a pickle"),
        ("broken.onnx", "onnxruntime cannot open it"),
        ("empty.onnx", "onnxruntime cannot open it"),
    ],
)
def test_unsuitable_file_is_refused(model_folder, name, message):
    (model_folder / "broken.onnx").write_bytes((model_folder / "columns.onnx").read_bytes()[:500])
    (model_folder / "empty.onnx").write_bytes(b"")
    (model_folder / "model.pkl").write_bytes(b"x")
    with pytest.raises((UserError, Failure), match=message):
        Onnx(str(model_folder / name)).fit(DATASET, 0).predict_proba(CODES)


def test_fingerprint_depends_on_content_not_on_path(model_folder, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes((model_folder / "columns.onnx").read_bytes())
    before = hash_component(Onnx(str(file)))
    file.write_bytes((model_folder / "mapped.onnx").read_bytes())
    assert before != hash_component(Onnx(str(file))) is not None


def write_model_with_external_tensor(folder, weight, location="weights.bin"):
    """Write a model of two numbers with weights in a separate file, and return its path."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"]), helper.make_node("Softmax", ["logits"], ["p"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in ("x", "p")]
    graph = helper.make_graph(nodes, "g", [ends[0]], [ends[1]], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    write_weight(folder / "weights.bin", weight)
    return str(folder / "model.onnx")


def write_weight(file, weight):
    file.write_bytes(np.array([[0, weight], [0, 0]], dtype=np.float32).tobytes())


def test_fingerprint_depends_on_external_tensors(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    data = NumericDataset(**vars(make_dataset([4, 3])))
    path = write_model_with_external_tensor(tmp_path / "model", 1.0)
    (tmp_path / "other").mkdir()
    write_weight(tmp_path / "other" / "weights.bin", -5.0)
    monkeypatch.chdir(tmp_path / "other")  # its weights are not those of the model

    def predict_positive():
        return Onnx(path).fit(data, 0).predict_proba(data.test.codes)[:, 1]

    first = hash_component(Onnx(path))
    assert first is not None
    assert predict_positive() == pytest.approx(1 / (1 + np.exp(-data.test.codes[:, 0])), abs=1e-6)
    write_weight(tmp_path / "model" / "weights.bin", 2.0)
    assert hash_component(Onnx(path)) not in (first, None)
    assert predict_positive() == pytest.approx(1 / (1 + np.exp(-2.0 * data.test.codes[:, 0])), abs=1e-6)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../weights.bin", "from ../weights.bin, which is outside its folder"),
        ("{folder}/weights.bin", "which is outside its folder"),
        ("link.bin", "which is outside its folder"),
        ("nowhere.bin", "there is no such file beside it"),
    ],
)
def test_external_tensors_outside_the_folder_are_refused(tmp_path, location, message):
    pytest.importorskip("onnxruntime")
    write_weight(tmp_path / "weights.bin", 1.0)
    path = write_model_with_external_tensor(tmp_path / "model", 1.0, location.format(folder=tmp_path))
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "weights.bin")
    assert hash_component(Onnx(path)) is None
    with pytest.raises(UserError, match=message):
        Onnx(path).output_type(NumericDataset(**vars(make_dataset([4, 3]))))


@pytest.mark.parametrize("settings", [{"path": None}, {"path": ""}, {"path": "x", "batch_size": 0}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"path must be given|batch_size must"):
        Onnx(**settings)
