"""Work begins here; what is left is spread only if it is worth it, and what others get wrong can be told."""

import pickle

import pytest

from cfeval_cli.executor import work


@pytest.mark.parametrize(("least", "here"), [(0.0, 1), (1e9, 5)])
def test_the_rest_is_spread_if_enough_is_left(least, here):
    given = []

    def spread(rest, each):
        given.append((list(rest), each >= 0))
        return iter([100 * item for item in rest])

    done = list(work.here_first(lambda shared, item: shared * item, 10, range(5), lambda: least, spread))
    assert done == [10 * i if i < here else 100 * i for i in range(5)]
    assert given == ([] if here == 5 else [([1, 2, 3, 4], True)])


def test_the_last_one_is_not_spread():
    assert list(work.here_first(max, 0, [1, 2], lambda: 0.0, lambda rest, _: iter(()))) == [1, 2]


def test_jobs():
    assert work.jobs(3) == 3 and work.jobs(-1) >= 1


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
        self.what = lambda: None  # which cannot travel


def test_an_error_travels_or_what_it_says():
    error = ValueError("as it is")
    assert work.portable(error) is error
    told = work.portable(Stubborn("not", "so"))
    assert str(pickle.loads(pickle.dumps(told))) == "Stubborn: not so"
