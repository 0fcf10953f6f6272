"""Overrides that --resume accepts from a run folder."""

import json
import py_compile
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.cli.resume import list_overrides_to_repeat, read_resume_arguments
from cfeval_cli.cli.run import main
from cfeval_cli.errors import UserError
from cfeval_cli.model.function import Function
from cfeval_cli.settings import compose
from cfeval_cli.settings.compose import quote
from tests.conftest import run_cfeval, seal

REFUSAL = "not accepted from a folder, because they could load code or files"


@pytest.mark.parametrize(
    "override",
    [
        "seed=1", "explainer=[lr,lime]", "dataset=adults", "explainer.lime.n_samples=300", "seed=1,2,3",
        "seed=range(5)", "confidence=0.9", "+explainer=graded", "~metric", "explainer=[lr],[lr,lime]", "judge=[]",
        "model=estimator", "model.encoder=onehot", "model.learning_rate={tabular:0.1,text:0.2}", "n_explain=null",
        "figures=[]", "experiment=atlas/tables", "experiment=null", "dataset.only={age:up}", "truth.budget=100",
        "dataset.immutable=[age,'marital status']", "judge.blind.distill=true", "model.blind=[age]",
        "explainer_stability=auto,0",
    ],
)  # fmt: skip
def test_packaged_choices_and_plain_settings_are_accepted(override):
    assert list_overrides_to_repeat([override]) == []


@pytest.mark.parametrize(
    "override",
    [
        "explainer.lime._target_=os.system", "+x={_target_:os.system}", "+x=[{a:{_target_:os.system}}]",
        "hydra.callbacks.x._target_=os.system", "hydra/launcher=joblib", "hydra.searchpath=[file:///evil]",
        "dataset=../../evil", "experiment=/evil", "dataset@hydra.callbacks=adults", "hydra.run.dir=elsewhere",
        "redo=true", "redo=false", "++redo=true",
        "seed=${oc.env:HOME}", "+x=${oc.decode:'{}'}", "dataset/more=x", "++hydra.job.chdir=true",
        "search={a:1}", "explainer@x=lr", "data_dir=/not/there", "cache.folder=/not/there", "x.url=http://a/b",
        "model.path=score.py:predict_proba", "model.path=score.py", "model.trusted=[os.system]",
        "+model.trusted=[os.system]", "model.depends=[helper.py]", "executor.scheduler=evil.example:8786",
        "++executor.scheduler=tcp://127.0.0.1:1",
        "explainer.file.path=shap.csv", "model.path=model.onnx", "model.path=m", "model.path=m.pyc:predict_proba",
        "model.path=m.so:predict_proba", "model.path='m.pyc:predict_proba'", "model.depends=[data]", "data_dir=/tmp",
        "cache.folder=/tmp", "experiment=glob(table1*)", "explainer=mine", "explainer=[lr,mine]", "dataset=adults,mine",
        "explainer.mine.samples=3", "+explainer.lime.unknown=3", "dataset.file.name=x", "model.output=a/b", "k=word",
        "model.estimator._target_=x.Y", "+model.estimator.max_depth=3", "judge.blind.model={path:x}", "seed={a:1}",
        "explainer.graded.truth={a:b}", "explainer.lime={n_samples:3}", "explainer.lime.title=~/x", "dataset=range(3)",
        "dataset.features={age:{_target_:x.Y}}", "dataset.embedding.path=x", "", "k", "k=[", "k={", "k='",
        r"+z.c=\{$\{z.a\}$\{z.b\}: x\}", r"+explainer.e=$\{oc.create:$\{oc.decode:$\{z.c\}\}\}", r"+z.a=a\{", "+z.a=$",
    ],
)  # fmt: skip
def test_other_overrides_must_be_repeated_by_the_user(override):
    assert list_overrides_to_repeat(["k=2", override]) == [override]
    assert list_overrides_to_repeat(["k=2", override], [override]) == [] or "=" not in override


def test_no_packaged_setting_of_a_file_is_accepted():
    """A new setting with the name of a file, a folder or an address must be classified in this test."""
    name = re.compile(r"path|file|folder|dir$|url|address|scheduler|module|trusted|depends")
    for group in compose.list_packaged_groups():
        for key in compose.get_packaged_defaults(group):
            if name.search(key.rpartition(".")[2]) and not key.startswith("dataset.features."):
                assert list_overrides_to_repeat([f"{key}=word"]) == [f"{key}=word"]


def test_another_executor_replaces_the_settings_of_the_first(tmp_path):
    dask = ["executor=dask", "executor.scheduler=tcp://127.0.0.1:1", "executor.wait=5"]
    seal(tmp_path, {"status": "running"}, ["k=2", *dask])
    assert read_resume_arguments(tmp_path, ["executor=local"])[:-1] == ["k=2", "executor=local"]
    with pytest.raises(UserError, match=r"executor\.scheduler"):
        read_resume_arguments(tmp_path, ["n_jobs=1"])
    seal(tmp_path, {"status": "running"}, ["k=2", "executor.min_seconds=0"])
    assert read_resume_arguments(tmp_path, dask)[:-1] == ["k=2", *dask]


def test_a_word_that_is_a_file_is_not_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert list_overrides_to_repeat(["explainer.lime.title=notes"]) == []
    (tmp_path / "notes").touch()
    assert list_overrides_to_repeat(["explainer.lime.title=notes"]) == ["explainer.lime.title=notes"]


def test_refusal_shows_the_full_command(tmp_path):
    overrides = ["k=2", "model=function", "model.path=my model.py:predict", "dataset=loans"]
    seal(tmp_path, {"status": "running", "command": ["cfeval", "run", "--config-dir", "a b", *overrides]}, overrides)
    with pytest.raises(UserError, match=REFUSAL) as refusal:
        read_resume_arguments(tmp_path, ["n_jobs=1"])
    words = shlex.split(str(refusal.value).partition("repeat them: ")[2])
    repeated = ["--config-dir", "a b", "model.path=my model.py:predict", "dataset=loans"]
    assert words == ["cfeval", "run", "--resume", str(tmp_path), "n_jobs=1", *repeated]
    assert read_resume_arguments(tmp_path, words[4:]) == [
        "--config-dir", "a b", "k=2", "model=function", *repeated[2:], "n_jobs=1", f"hydra.run.dir='{tmp_path}'"
    ]  # fmt: skip


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), min_size=1))
def test_any_path_can_be_quoted(name):
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_override(f"hydra.run.dir={quote(Path(name))}")
    assert OmegaConf.create({"a": parsed.value()}).a == str(Path(name))


def write(folder, **record):
    folder.mkdir(parents=True, exist_ok=True)
    seal(folder, {"status": "running", **record}, ["k=2"])


def test_folder_without_an_unfinished_run_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="there is no such folder"):
        read_resume_arguments(tmp_path / "nowhere", [])
    with pytest.raises(UserError, match=r"no run\.json, so no run was started in it"):
        read_resume_arguments(tmp_path, [])
    write(tmp_path, overrides="k=2")
    with pytest.raises(UserError, match=r"run\.json is damaged: .*overrides must be a list"):
        read_resume_arguments(tmp_path, [])
    write(tmp_path, status="complete")
    assert read_resume_arguments(tmp_path, []) is None
    assert read_resume_arguments(tmp_path, ["redo=true"]) == ["k=2", "redo=true", f"hydra.run.dir='{tmp_path}'"]
    merged = read_resume_arguments(tmp_path, ["--config-dir", "a", "redo=true", "k=3"])
    assert merged == ["--config-dir", "a", "k=3", "redo=true", f"hydra.run.dir='{tmp_path}'"]
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        read_resume_arguments(tmp_path, [])
    with pytest.raises(UserError, match="--resume needs the folder"):
        main(["--resume"])


def test_config_folder_of_the_run_must_be_repeated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is no folder of one's own configs
    run = tmp_path / "a run"
    for command in (["--config-dir", "my conf"], ["--config-dir=my conf"], ["-cd", "my conf"]):
        write(run, command=["cfeval", "run", *command, "k=2"])
        match = f"was started with --config-dir 'my conf'. These words are {REFUSAL}"
        with pytest.raises(UserError, match=match) as error:
            read_resume_arguments(run, [])
        assert str(error.value).endswith(f"cfeval run --resume '{run}' --config-dir 'my conf'")
        for own in (["--config-dir", "x"], ["--config-dir=x"], ["-cd", "x"]):
            assert read_resume_arguments(run, own) == [*own, "k=2", f"hydra.run.dir='{run}'"]
    sweep = tmp_path / "sweep"
    write(sweep / "0", command=["cfeval", "run", "--config-dir", "conf"])
    (sweep / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": {"task": ["k=1,2"], "hydra": []}}}))
    with pytest.raises(UserError, match=r"--resume \S+ --config-dir conf$"):
        read_resume_arguments(sweep, [])
    assert read_resume_arguments(sweep, ["--config-dir", "conf"])[:2] == ["--multirun", "--config-dir"]


def test_conf_in_the_working_directory_need_not_be_repeated(tmp_path, monkeypatch):
    (tmp_path / "here" / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "here" / "conf" / "dataset" / "mine.yaml").write_text("_target_: x.Y\n")
    run, place = tmp_path / "run", tmp_path / "here" / "conf"
    write(run, command=["cfeval", "run", "--config-dir", str(place), "k=2"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"--config-dir {place}$"):
        read_resume_arguments(run, [])
    monkeypatch.chdir(tmp_path / "here")
    assert read_resume_arguments(run, []) == ["k=2", f"hydra.run.dir='{run}'"]
    write(run, command=["cfeval", "run", "--config-dir", "/elsewhere", "k=2"])
    with pytest.raises(UserError, match=r"--config-dir /elsewhere$"):  # here is another
        read_resume_arguments(run, [])


def test_complete_run_with_changed_files_is_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text("a")
    write(tmp_path, status="complete")
    (tmp_path / "metrics.csv").write_text("b")
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'metrics.csv'} is not as the run left it")):
        read_resume_arguments(tmp_path, [])


@pytest.mark.parametrize(
    ("hydra", "good"),
    [
        (["hydra.sweep.dir=x", "hydra.mode=MULTIRUN", "hydra/hydra_logging=disabled"], True),
        (["hydra.sweep.subdir=${hydra:runtime.choices.experiment}/${first_component:${truth}}-${seed}"], True),
        (["hydra.sweep.subdir=${dataset.name}-${hydra:runtime.choices.model}-${seed}-${k}/${hydra:job.num}"], True),
        (["hydra.sweep.subdir=${hydra:job.override_dirname}"], True),
        (["hydra.sweep.subdir=${hydra:runtime.cwd}/mine"], False),
        (["hydra.sweep.subdir=${data_dir}"], False),
        (["hydra.sweep.subdir=${hydra.run.dir}"], False),
        (["hydra.sweep.subdir=../../x"], False),
        (["hydra.sweep.subdir=/x"], False),
        (["hydra.sweep.subdir=${oc.env:HOME,x}"], False),
        (["hydra/launcher=joblib"], False),
        (["hydra.callbacks.x._target_=os.system"], False),
    ],
)
def test_sweep_is_resumed_with_its_own_overrides(tmp_path, hydra, good):
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": {"task": ["k=1,2"], "hydra": hydra}}}))
    if not good:
        with pytest.raises(UserError, match=REFUSAL):
            read_resume_arguments(tmp_path, [])
    assert read_resume_arguments(tmp_path, hydra)[:1] == ["--multirun"]
    if good:
        accepted = [override for override in hydra if "subdir" in override]
        assert read_resume_arguments(tmp_path, ["n_jobs=1"]) == [
            "--multirun", "k=1,2", "n_jobs=1", *accepted, f"hydra.sweep.dir='{tmp_path}'",
        ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[", "a: 1", "hydra: {overrides: {task: [1]}}", "!!python/object/apply:os.mkdir [made]", "{" * 1000]
)
def test_sweep_with_damaged_overrides_is_refused(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "multirun.yaml").write_text(text)
    with pytest.raises(UserError, match="has no valid list of"):
        read_resume_arguments(tmp_path, [])
    assert not (tmp_path / "made").exists()


def test_target_in_a_run_folder_is_never_instantiated(toy, tmp_path):
    """Neither from .hydra/config.yaml, nor from the overrides, nor from a config that they lead to."""
    evil = "_target_: os.mkdir\npath: made\n"
    run = tmp_path / "run"
    (run / ".hydra").mkdir(parents=True)
    for name in ("config.yaml", "hydra.yaml"):
        (run / ".hydra" / name).write_text(f"dataset:\n  {evil.strip().replace(chr(10), chr(10) + '  ')}\n")
    (tmp_path / "evil.yaml").write_text(evil)
    up = "../" * 12
    for overrides in (
        ["dataset._target_=os.mkdir", "+dataset.path=made"],
        [f"dataset={up}{tmp_path}/evil"],
        [f"hydra.searchpath=[file://{tmp_path}]", "dataset=evil"],
        ["hydra.callbacks.x={_target_:os.mkdir,path:made}"],
    ):
        seal(run, {"status": "running", "overrides": overrides}, [])
        with pytest.raises(UserError, match=REFUSAL):
            read_resume_arguments(run, [])
    process = run_cfeval("run", "--resume", "run", cwd=tmp_path, code=2)
    assert REFUSAL in process.stderr and "Traceback" not in process.stderr
    seal(run, {"status": "running"}, ["n_explain=10", "explainer=[random,lr]", "resamples=0"])
    own = [
        *toy.arguments,
        "cache=off",
        "figures=[]",
        "report=false",
        "metric=[c,recall]",
        "reparametrisations=0",
    ]
    own += ["truth=[signed]", "explainer_stability=0", "bounds=0"]
    run_cfeval("run", "--resume", "run", *own, cwd=tmp_path)
    assert not list(tmp_path.rglob("made")) and (run / "metrics.csv").exists()


def test_target_built_by_interpolation_is_never_instantiated(tmp_path, monkeypatch):
    """An interpolation in hiding, which builds `_target_` from two halves and names code in the folder."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as the command does
    (tmp_path / "run" / "payload.py").write_text("from pathlib import Path\nPath('made').mkdir()\n")
    overrides = [
        "+z.a=_tar", "+z.b=get_", r"+z.c=\{$\{z.a\}$\{z.b\}: run.payload.go\}",
        r"+explainer.evil=$\{oc.create:$\{oc.decode:$\{z.c\}\}\}",
    ]  # fmt: skip
    seal(tmp_path / "run", {"status": "running"}, overrides)
    (tmp_path / "sweep").mkdir()
    content = {"hydra": {"overrides": {"task": overrides, "hydra": []}}}
    (tmp_path / "sweep" / "multirun.yaml").write_text(json.dumps(content))
    for name in ("run", "sweep"):
        with pytest.raises(UserError, match=REFUSAL):
            main(["--resume", name])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["figures", ".hydra", "run.log", "unfinished.sqlite", "deep/link"])
def test_folder_with_links_is_refused_before_writing(tmp_path, name):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.txt").write_text("mine")
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / name).symlink_to(tmp_path / "outside")
    seal(tmp_path / "run", {"status": "running", "inputs": "x", "files": {"figures/precious.txt": "x"}}, [])
    with pytest.raises(UserError, match="is a symbolic link"):
        read_resume_arguments(tmp_path / "run", [])
    assert (tmp_path / "outside" / "precious.txt").read_text() == "mine"


def test_value_of_the_user_replaces_that_of_the_folder(tmp_path):
    seal(tmp_path, {"status": "running"}, ["k=2", "seed=1", "data_dir=/a"])
    assert read_resume_arguments(tmp_path, ["k=3", "data_dir=/b"])[:3] == ["k=3", "seed=1", "data_dir=/b"]


@pytest.mark.parametrize("suffix", [".pyc", ".so"])
def test_compiled_model_named_by_a_folder_is_not_loaded(tmp_path, monkeypatch, suffix):
    """The file is refused by --resume, and by model=function itself when the user repeats its name."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "m.py"
    source.write_text("from pathlib import Path\nPath('loaded').touch()\ndef predict_proba(rows): return rows\n")
    py_compile.compile(str(source), cfile=f"m{suffix}")
    source.unlink()
    (tmp_path / f"m{suffix}:predict_proba").touch()  # so that the whole value names a file
    seal(tmp_path, {"status": "running"}, ["model=function", f"model.path=m{suffix}:predict_proba"])
    with pytest.raises(UserError, match=REFUSAL):
        read_resume_arguments(tmp_path, [])
    with pytest.raises(UserError, match=rf"m{suffix} is not a \.py file\. model=function loads Python source only"):
        Function(f"m{suffix}:predict_proba").fingerprint()
    assert not (tmp_path / "loaded").exists()


def test_folder_cannot_choose_a_config_of_the_user(tmp_path, monkeypatch):
    """./conf is read without being named, so a folder could instantiate any class on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text("_target_: payload.Payload\n")
    (tmp_path / "payload.py").write_text("from pathlib import Path\nPath('loaded').touch()\n")
    (tmp_path / "run").mkdir()
    for place in (None, str(tmp_path / "conf")):
        command = ["cfeval", "run", *([] if place is None else ["--config-dir", place])]
        seal(tmp_path / "run", {"status": "running", "command": command}, ["dataset=mine"])
        with pytest.raises(UserError, match=r"cfeval run --resume run dataset=mine$"):
            main(["--resume", "run"])
    assert not (tmp_path / "loaded").exists()
