"""A stored model as somebody else may have left it, and the cache."""

import io
import sqlite3
import tracemalloc
import zipfile

import numpy as np
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Section, npy
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from tests.hostile.amounts import parametrize_seeds
from tests.hostile.mutations import Canary, list_names, mutate

RNG = np.random.default_rng(0)
OWN = [RNG.normal(size=(size, 4)) for size in (3, 5, 2)]
SHARED = RNG.normal(size=(6, 4))
MODELS = [
    LinearModel(0.5, RNG.normal(size=(3, 4)), tuple(OWN), RNG.normal(size=(3, 4))),
    LinearModel(-1.0, RNG.normal(size=(5, 4)), (SHARED,) * 5, RNG.normal(size=(5, 4))),
]


LOGISTIC = Logistic(dict.fromkeys(("tabular", "text"), 0.01), dict.fromkeys(("tabular", "text"), 64))


def restored(body):
    """As a run does with what a cache has; ValueError if it is no model."""
    return LOGISTIC.restore(npy.load(io.BytesIO(body)))


def saved(arrays, compressed=False):
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def same(one, other):
    return all(np.array_equal(one.to_arrays()[name], other.to_arrays()[name]) for name in one.to_arrays())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_model_comes_back_to_the_bit(model, compressed):
    found = restored(saved(model.to_arrays(), compressed))
    codes = np.stack([RNG.integers(0, len(table), 20) for table in model.tables], axis=1)
    assert same(found, model) and np.array_equal(found.predict_positive(codes), model.predict_positive(codes))


@parametrize_seeds("model files (npz)")
def test_a_model_is_whole_or_refused(seeds):
    """Every entry has a checksum: what is changed is noticed, but for names and sizes that nobody reads."""
    accepted = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        model = MODELS[seed % 2]
        body = saved(model.to_arrays(), compressed=seed % 4 < 2)
        try:
            found = restored(mutate(body, rng, 2))
        except ValueError as error:
            assert len(str(error)) < 1000, seed
            continue
        accepted += 1
        assert same(found, model), seed
    assert accepted < 0.9 * len(seeds)


def changed(**arrays):
    return saved({**MODELS[0].to_arrays(), **arrays})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (changed(bias=np.array(np.nan)), "bias has values that are not finite"),
        (changed(bias=np.zeros(2)), "bias is float64"),
        (changed(weights=np.zeros((3, 4), np.float32)), "weights is float32"),
        (changed(weights=np.zeros((3, 4), ">f8")), "weights is >f8"),
        (changed(weights=np.zeros((4, 3))), "means"),
        (changed(weights=np.zeros((0, 4)), means=np.zeros((0, 4))), "weights"),
        (changed(embeddings=np.zeros((10, 5))), "embeddings"),
        (changed(embeddings=np.full((10, 4), np.inf)), "not finite"),
        (changed(starts=np.array([0, 3, 9])), "outside"),
        (changed(starts=np.array([0, 3, -2])), "outside"),
        (changed(sizes=np.array([3, 5, 0])), "outside"),
        (changed(sizes=np.array([3, 5, 1 << 62])), "outside"),
        (changed(starts=np.array([0, 1, 8])), "across"),
        (changed(starts=np.zeros(3)), "starts is float64"),
        (changed(sizes=np.array([3, 5])), "3 features have 3 starts and 2 sizes"),
        (changed(more=np.zeros(1)), "expected"),
        (saved({}), "nothing"),
        (b"", "damaged"),
        (b"PK\x05\x06" + b"\0" * 18, "nothing"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(body, reason):
    with pytest.raises(ValueError, match=reason):
        restored(body)


def test_nothing_in_a_model_is_executed(tmp_path):
    canary = Canary(tmp_path / "made")
    body = canary.pickled()
    for name in MODELS[0].to_arrays():
        stream = io.BytesIO()
        np.savez(stream, **{**MODELS[0].to_arrays(), name: np.array(canary, dtype=object)})
        assert not canary.path.exists()
        with np.load(io.BytesIO(stream.getvalue()), allow_pickle=True) as arrays:
            arrays[name]
        assert canary.path.exists()  # so it would
        canary.path.unlink()
        with pytest.raises(ValueError, match="no plain array"):
            restored(stream.getvalue())
    for pickled in (body, body + saved(MODELS[0].to_arrays())[:100]):
        with pytest.raises(ValueError, match="damaged"):
            restored(pickled)
    assert not canary.path.exists()


def test_sizes_are_not_believed():
    """A small file that unpacks to much, and one whose headers tell of more than there is."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.npy", b"\0" * (64 << 20), compresslevel=1)
    liar = io.BytesIO()
    with zipfile.ZipFile(liar, "w") as archive:
        head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 4), }\n"
        archive.writestr("weights.npy", b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head)
    tracemalloc.start()
    for body in (bomb.getvalue(), liar.getvalue()):
        with pytest.raises(ValueError, match=r"larger than can be|not as large"):
            npy.load(io.BytesIO(body), max_bytes=1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    wide = {"bias": np.array(0.0), "weights": np.zeros((40_000, 1)), "means": np.zeros((40_000, 1)),
            "embeddings": np.zeros((40_000, 1)),
            "starts": np.zeros(40_000, np.int64), "sizes": np.full(40_000, 40_000)}  # fmt: skip
    with pytest.raises(ValueError, match="larger than can be"):
        restored(saved(wide))


def entry(i):
    return {"features": np.arange(i % 7), "scores": np.arange(i % 7) / 3, "cost": np.array([i, i / 5, i / 7, i / 9])}


KEYS = [b"%016d" % i for i in range(60)]


@parametrize_seeds("cache (SQLite)")
def test_a_damaged_cache_forgets_and_never_tells_something_else(tmp_path, seeds, caplog):
    cache = Disk(str(tmp_path))
    sections = [Section(name, f"label {name}") for name in ("a", "b")]
    for section in sections:
        cache.put(section, {key: entry(i) for i, key in enumerate(KEYS)})
    body, forgot = cache.path.read_bytes(), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        cache.path.write_bytes(mutate(body, rng, 8))
        found = cache.get(sections[0], KEYS)
        forgot += len(found) < len(KEYS)
        for key, arrays in found.items():
            stored = entry(KEYS.index(key))
            assert arrays.keys() == stored.keys(), seed
            assert all(np.array_equal(arrays[name], stored[name]) for name in stored), seed
        assert isinstance(cache.sections(), list), seed
        cache.put(sections[0], {KEYS[0]: entry(0)})
        cache.clear()
        assert list_names(tmp_path) <= {cache.path.name, f"{cache.path.name}-journal"}, seed
    assert forgot > 0


def test_a_cache_of_another_hand_can_be_listed(tmp_path, monkeypatch, capsys):
    from cfeval_cli.cli.data import main

    cache, never = Disk(str(tmp_path / "cache")), [1e300, -1e300, "x", None, b"\xff"]
    for i, used in enumerate(never):
        cache.put(Section(str(i), "a"), {KEYS[0]: entry(0)})
        with sqlite3.connect(cache.path) as database:
            database.execute(
                "UPDATE section SET label = ?, used = ? WHERE key = ?", (f"\x1b[2J[/red]{i}", used, str(i))
            )
    monkeypatch.setattr("sys.argv", ["cfeval", "cache", f"data_dir={tmp_path}"])
    main()
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    for i in range(len(never)):
        (line,) = [line for line in out.splitlines() if f"\\x1b[2J[/red]{i}" in line]
        assert "?" in line
