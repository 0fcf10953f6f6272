"""What is not composed changes nothing: against Hydra, which composes it."""

from types import SimpleNamespace

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from cfeval_cli.cli import shortcuts

GROUPS = {"distance": ["euclidean", "cosine"], "explainer": ["lr"]}
SETTINGS = {"k", "gold", "seed"}


class Loader:
    """Objects to what Hydra objects to: files and settings that there are not."""

    def __init__(self):
        self.composed = []

    def load_sweep_config(self, master_config, sweep_overrides):
        self.composed.append(tuple(sweep_overrides))
        for word in sweep_overrides:
            key, _, value = word.partition("=")
            if key not in SETTINGS and value not in GROUPS.get(key, ()):
                raise HydraException(word)


def composed(validate, *words):
    """The jobs that are composed, and what is wrong with the sweep, if anything."""
    (jobs,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(list(words)), None)
    choices = OmegaConf.create({"hydra": {"runtime": {"choices": dict.fromkeys(GROUPS, "")}}})
    loader = Loader()
    sweeper = SimpleNamespace(config=choices, hydra_context=SimpleNamespace(config_loader=loader))
    try:
        validate(sweeper, jobs)
    except HydraException as error:
        return loader.composed, str(error)
    return loader.composed, None


@pytest.mark.parametrize(
    ("words", "many", "wrong"),
    [
        (["seed=range(5)", "k=1,2"], 1, None),
        (["seed=range(5)", "distance=euclidean,cosine", "k=1,2", "explainer=lr"], 2, None),
        (["seed=range(5)", "distance=euclidean,cosine,nearby"], 3, "distance=nearby"),
        (["distance=euclidean,cosine", "kk=1,2"], 1, "kk=1"),
    ],
)
def test_what_is_wrong_is_seen_as_if_all_were_composed(words, many, wrong):
    some, seen = composed(shortcuts._some, *words)
    every, told = composed(shortcuts._all, *words)
    assert seen == told == wrong and len(some) == many and set(some) <= set(every)
    assert some[0] == every[0]  # the first that is wrong is named


OWN = """\
# @package _global_
hydra: {mode: MULTIRUN}
"""


@pytest.mark.parametrize(
    ("words", "body", "mode", "asked"),
    [
        (["k=2", "hydra.run.dir=x"], None, None, False),
        (["experiment=mine"], "# @package _global_\nk: 2\n", None, False),
        (["experiment=mine"], OWN, RunMode.MULTIRUN, True),
        (["hydra.mode=RUN"], None, RunMode.RUN, True),
    ],
)
def test_the_mode_is_that_which_hydra_finds(tmp_path, monkeypatch, words, body, mode, asked):
    (tmp_path / "experiment").mkdir()
    if body is not None:
        (tmp_path / "experiment" / "mine.yaml").write_text(body)
    monkeypatch.setattr("sys.argv", ["cfeval", "--config-dir", str(tmp_path)])
    few = ["explainer=[lr]", "metric=[recall]", "truth=[signed]", "removal=[zero]"]
    seen, real = [], shortcuts._asked
    monkeypatch.setattr(shortcuts, "_asked", lambda *of: seen.append(of) or real(*of))
    search = create_config_search_path("pkg://cfeval_cli.conf")
    search.prepend("command-line", f"file://{tmp_path}", SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    try:
        hydra = Hydra.create_main_hydra2("run", search)
        assert shortcuts._mode(hydra, "run", [*words, *few]) == mode and bool(seen) == asked
        assert real(hydra, "run", [*words, *few]) == mode
    finally:
        GlobalHydra.instance().clear()


def test_hydra_takes_them(monkeypatch):
    monkeypatch.setattr(BasicSweeper, "validate_batch_is_legal", shortcuts._all)
    monkeypatch.setattr(Hydra, "get_mode", shortcuts._asked)
    shortcuts.take()
    assert BasicSweeper.validate_batch_is_legal is shortcuts._some and Hydra.get_mode is shortcuts._mode
