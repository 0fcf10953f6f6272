import numpy as np
import pytest

from cfeval_cli.dataset.cells import number, rows
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError


@pytest.mark.parametrize(("cell", "value"), [("12", 12), (" -0.5 ", -0.5), ("1e3", 1000), (".5", 0.5), ("+1.", 1)])
def test_numbers_as_tables_have_them(cell, value):
    assert number(cell) == value


@pytest.mark.parametrize("cell", ["", "1_000", "nan", "inf", "1e400", "١٢", "0x1f", "1,5"])
def test_what_python_would_take_for_a_number_and_tables_would_not(cell):
    assert number(cell) is None


def test_rows_come_with_the_line_that_they_begin_on(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeffa, b\n\n"two\nlines", c\n', encoding="utf-8")
    assert list(rows(tmp_path / "a.csv")) == [(1, ["a", "b"]), (3, ["two\nlines", "c"])]
    (tmp_path / "b.csv").write_bytes(b"a\xff")
    with pytest.raises(UserError, match="is not UTF-8"):
        list(rows(tmp_path / "b.csv"))


def test_rows_are_divided_without_loss_and_by_the_seed_alone():
    parts = shuffled(np.arange(30), (0.8, 0.1, 0.1), 3)
    assert [len(part) for part in parts] == [24, 3, 3] and sorted(np.concatenate(parts)) == list(range(30))
    again = shuffled(np.arange(30), (0.8, 0.1, 0.1), 3)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    assert any((a != b).any() for a, b in zip(parts, shuffled(np.arange(30), (0.8, 0.1, 0.1), 4), strict=True))
    for bad in ((0.5, 0.5), (0.8, 0.1, 0.2), (1.0, 0.0, 0.0)):
        with pytest.raises(ValueError, match="split"):
            check_shares(bad)
