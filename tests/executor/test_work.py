"""Work starts in this process; the rest is spread only if that saves time, and errors of workers can be sent back."""

import pickle

import numpy as np
import pytest

from cfeval_cli.executor import work
from tests.executor.functions import add


@pytest.mark.parametrize(("min_seconds", "here"), [(0.0, 1), (1e9, 5)])
def test_the_rest_is_spread_if_enough_is_left(min_seconds, here):
    given = []

    def spread(payload, rest):
        given.append(list(rest))
        function, shared = work.load(*payload)
        return iter([100 + function(shared, item) for item in rest])

    done = list(work.map_here_first(add, {"base": 10}, range(5), min_seconds, False, spread))
    assert done == [10 + i + (0 if i < here else 100) for i in range(5)]
    assert given == ([] if here == 5 else [[1, 2, 3, 4]])


def test_the_last_item_is_not_spread():
    assert list(work.map_here_first(max, 0, [1, 2], 0.0, True, lambda *_: iter(()))) == [1, 2]


def test_large_arrays_travel_apart_from_the_pickle_and_once():
    large, small = np.arange(400_000.0).reshape(500, 800).copy(order="F"), np.arange(3)
    body, arrays = work.dump(add, [large, small, large])
    assert len(body) < 10_000 and [array.nbytes for array in arrays] == [large.nbytes]
    _, (first, second, third) = work.load(body, arrays)
    assert first is third and np.shares_memory(first, large)
    np.testing.assert_array_equal(first, large)
    np.testing.assert_array_equal(second, small)


def test_functions_of_a_script_are_not_sent(monkeypatch):
    monkeypatch.setattr(add, "__module__", "__main__")
    monkeypatch.setattr("__main__.add", add, raising=False)
    with pytest.raises(pickle.PicklingError, match="of a script"):
        work.dump(add, None)


def test_jobs():
    assert work.count_jobs(3) == 3 and work.count_jobs(-1) >= 1


def test_an_error_is_sent_back_as_it_is_or_by_its_message():
    class Unpicklable(Exception):
        """A class that workers define themselves."""

    def fail(shared, item):
        raise Unpicklable("this and that")

    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        work.call(fail, None, 1)
    with pytest.raises(KeyError):
        work.call(add, {}, 1)
