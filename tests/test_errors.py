import pytest

from cfeval_cli.errors import (
    UserError,
    check_float,
    check_installed,
    check_int,
    check_option,
    did_you_mean,
    escape_controls,
    import_extra,
    shorten,
)


def test_terminal_control_characters_are_escaped():
    assert (
        escape_controls("a\x1b[2Jb\u202e\n") == "a\\x1b[2Jb\\u202e\\n"
        and escape_controls("a\nb\x07", keep="\n") == "a\nb\\x07"
    )
    assert shorten("x" * 70) == f"{'x' * 60!r}… (70 characters)" and shorten("x") == "'x'"


@pytest.mark.parametrize("value", [True, 1.5, "2", None, 0])
def test_values_other_than_whole_numbers_are_refused(value):
    with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
        check_int("k", value, 1)
    check_int("k", 1, 1)


@pytest.mark.parametrize("value", [True, "2", None, float("nan"), float("inf"), -0.1, 1.1])
def test_numbers_outside_the_range_are_refused(value):
    with pytest.raises(ValueError, match="a must be a number at least 0 and at most 1"):
        check_float("a", value, 0, 1)
    with pytest.raises(ValueError, match="a must be a number over 0"):
        check_float("a", 0, 0, open_low=True)
    check_float("a", 0, 0, 1)


def test_similar_options_are_suggested():
    with pytest.raises(ValueError, match=r"must be one of first, nearest, not 'frist'\. Did you mean first\?"):
        check_option("pick", "frist", ("first", "nearest"))
    assert did_you_mean("zzz", ["first"]) == ""


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(UserError, match=r"model=onnx needs the package nonesuch: pip install 'cfeval\[onnx\]'"):
        import_extra("nonesuch.io", "model=onnx", "onnx")
    assert import_extra("json", "model=onnx", "onnx").dumps(1) == "1"
    with pytest.raises(ValueError, match=r"needs the package nonesuch: pip install 'cfeval\[shap\]'"):
        check_installed("nonesuch", "shap")
    check_installed("json", "shap")
