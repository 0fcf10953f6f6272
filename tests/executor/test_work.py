"""Work starts in this process, and large arrays are sent outside the pickle."""

import numpy as np
import pytest

from cfeval_cli.executor import work
from tests.executor.functions import add


@pytest.mark.parametrize(("min_seconds", "n_local"), [(0.0, 1), (1e9, 5)])
def test_remaining_items_are_sent_if_they_take_long_enough(min_seconds, n_local):
    def send(payload, items):
        function, shared = work.load(*payload)
        return iter([100 + function(shared, item) for item in items])

    results = list(work.map_locally_first(add, {"base": 10}, range(5), min_seconds, send))
    assert results == [10 + i + (0 if i < n_local else 100) for i in range(5)]


def test_large_arrays_are_outside_the_pickle_and_stored_once():
    large, small = np.arange(400_000.0).reshape(500, 800).copy(order="F"), np.arange(3)
    folders, body, arrays = work.dump(add, [large, small, large])
    assert len(body) < 10_000 and [array.nbytes for array in arrays] == [large.nbytes]
    _, (first, second, third) = work.load(folders, body, arrays)
    assert first is third and np.shares_memory(first, large)
    np.testing.assert_array_equal(first, large)
    np.testing.assert_array_equal(second, small)
