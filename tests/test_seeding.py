import numpy as np

from cfeval_cli.seeding import integer, stream


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


def test_an_integer_fits_what_old_generators_take():
    drawn = [integer(stream(0, "a", i)) for i in range(200)]
    assert min(drawn) >= 0 and 2**31 < max(drawn) < 2**32 and len(set(drawn)) == 200
