"""What a sweep composes before its first job, against composing all of them."""

from types import SimpleNamespace

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from cfeval_cli.commands import sweeping

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
    some, seen = composed(sweeping._some, *words)
    every, told = composed(sweeping._all, *words)
    assert seen == told == wrong and len(some) == many and set(some) <= set(every)
    assert some[0] == every[0]  # the first that is wrong is named


def test_hydras_own_sweeper_is_told_so(monkeypatch):
    monkeypatch.setattr(BasicSweeper, "validate_batch_is_legal", sweeping._all)
    sweeping.begin_at_once()
    assert BasicSweeper.validate_batch_is_legal is sweeping._some
