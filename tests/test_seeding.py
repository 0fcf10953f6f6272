import numpy as np

from cfeval_cli.seeding import integer, numpy_global, stream


def test_a_stream_belongs_to_seed_component_and_instance():
    draws = {
        key: stream(*key).random(4).tolist()
        for key in [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a", None), (0, "a\0001", None)]
    }
    assert len({tuple(draw) for draw in draws.values()}) == len(draws)
    assert stream(0, "a", 1).random(4).tolist() == draws[0, "a", 1]


def test_streams_of_neighbouring_instances_are_not_correlated():
    table = np.stack([stream(0, "x", i).random(1000) for i in range(20)])
    off_diagonal = np.corrcoef(table)[np.triu_indices(20, 1)]
    assert np.abs(off_diagonal).max() < 0.15
    assert abs(table.mean() - 0.5) < 0.01


def test_the_global_generator_is_seeded_and_put_back():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    with numpy_global(1):
        inside = np.random.random()  # noqa: NPY002
    assert np.random.random(3).tolist() == expected.tolist()  # noqa: NPY002
    with numpy_global(1):
        assert np.random.random() == inside  # noqa: NPY002
    assert 0 <= integer(stream(0, "a")) < 2**32
