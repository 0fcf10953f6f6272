import pytest

from cfeval_cli.report.wording import format_p_value, join_names


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_are_joined_by_commas_and_a_final_and(names, text):
    assert join_names(names) == text


@pytest.mark.parametrize(("p", "text"), [(0.0421, "p = 0.042"), (0.0009, "p < 0.001"), (None, "p not known")])
def test_p_values_have_three_decimals_or_a_bound(p, text):
    assert format_p_value(p) == text
