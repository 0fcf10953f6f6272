"""Each plain setting has a type and bounds, and a wrong value is one sentence with its key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cfeval_cli.errors import UserError
from cfeval_cli.settings.build import read_plain_settings
from cfeval_cli.settings.run_settings import RunSettings, validate_settings
from tests.inside import compose_config

VALUES = read_plain_settings(compose_config())


def test_the_defaults_of_run_yaml_are_valid_and_complete():
    settings = validate_settings(VALUES)
    assert set(VALUES) == set(RunSettings.model_fields)
    assert (settings.seed, settings.k, settings.explainer_stability, settings.tables.metrics) == (0, 1, "auto", None)
    assert validate_settings(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": 0}, "k must be at least 1, not 0."),
        ({"k": "two"}, "k must be a whole number, not 'two'."),
        ({"k": True}, "k must be a whole number, not True."),
        ({"explainer_stability": -1}, "explainer_stability must be at least 0 or auto, not -1."),
        ({"support": "comon"}, "support must be one of common, own, not 'comon'. Did you mean common?"),
        ({"figures": ["svg", "gif"]}, "figures must be one of png, svg, pdf, not 'gif'."),
        ({"figures": "svg"}, "figures must be a list such as [a,b], not 'svg'."),
        ({"confidence": 95}, "confidence must be at most 0.9999, not 95."),
        ({"budget": 0}, "truth.budget must be at least 1, not 0."),
        ({"tables": {"metrics": []}}, "tables.metrics must be a list of metrics such as [a,b]"),
        ({"tabels": 1}, "tabels is not a setting."),
        ({"k": 0, "report": "maybe"}, "k must be at least 1, not 0. report must be true or false, not 'maybe'."),
    ],
)
def test_a_wrong_value_is_named_with_its_key(changed, message):
    with pytest.raises(UserError) as error_info:
        validate_settings(VALUES | changed)
    assert message in str(error_info.value)


def test_a_missing_setting_is_named():
    with pytest.raises(UserError, match=r"^seed is missing\.$"):
        validate_settings({key: value for key, value in VALUES.items() if key != "seed"})


@given(st.sampled_from(sorted(VALUES)), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5))
def test_any_value_is_accepted_or_named(key, value):
    try:
        settings = validate_settings(VALUES | {key: value})
    except UserError as error:
        name = {"budget": "truth.budget"}.get(key, key)
        assert str(error).startswith(name)
    else:
        assert getattr(settings, key) is not None or value is None or OmegaConf.is_config(value)
