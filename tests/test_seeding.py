import ast
import re
from pathlib import Path

import numpy as np

import cfeval_cli
from cfeval_cli.seeding import draw_seed, draw_uniforms, hash_uniforms, make_stream


def test_a_stream_belongs_to_seed_component_and_instance():
    draws = {
        key: make_stream(*key).random(4).tolist()
        for key in [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a", None), (0, "a\0001", None)]
    }
    assert len({tuple(draw) for draw in draws.values()}) == len(draws)
    assert make_stream(0, "a", 1).random(4).tolist() == draws[0, "a", 1]


def test_streams_of_neighbouring_instances_are_not_correlated():
    table = np.stack([make_stream(0, "x", i).random(1000) for i in range(20)])
    off_diagonal = np.corrcoef(table)[np.triu_indices(20, 1)]
    assert np.abs(off_diagonal).max() < 0.15
    assert abs(table.mean() - 0.5) < 0.01


def test_an_integer_fits_what_old_generators_take():
    drawn = [draw_seed(make_stream(0, "a", i)) for i in range(200)]
    assert min(drawn) >= 0 and 2**31 < max(drawn) < 2**32 and len(set(drawn)) == 200


def test_uniform_numbers_belong_to_the_instance_and_are_uniform():
    ids = np.arange(5000)
    drawn = draw_uniforms(3, "x", ids, 2)
    assert drawn.shape == (5000, 2) and drawn.min() >= 0 and drawn.max() < 1
    assert (draw_uniforms(3, "x", ids[::-1], 2)[::-1] == drawn).all()
    assert (draw_uniforms(4, "x", ids, 2) != drawn).any() and (draw_uniforms(3, "y", ids, 2) != drawn).any()
    assert np.abs(np.histogram(drawn, 10, (0, 1))[0] / 10_000 - 0.1).max() < 0.012
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05
    assert draw_uniforms(0, "x", ids[:0], 2).shape == (0, 2)


def test_hashed_numbers_belong_to_the_pair_and_are_uniform():
    uniforms, numbers = np.repeat(draw_uniforms(3, "x", np.arange(50), 1)[:, 0], 200), np.tile(np.arange(200), 50)
    hashed = hash_uniforms(uniforms, numbers)
    assert hashed.min() >= 0 and hashed.max() < 1 and len(np.unique(hashed)) == 10_000
    assert (hash_uniforms(uniforms[7:99], numbers[7:99]) == hashed[7:99]).all()
    assert np.abs(np.histogram(hashed, 10, (0, 1))[0] / 10_000 - 0.1).max() < 0.012
    assert np.abs(np.corrcoef(hashed.reshape(50, 200))[np.triu_indices(50, 1)]).max() < 0.4
    assert abs(np.corrcoef(hashed[:-1], hashed[1:])[0, 1]) < 0.05


def keys_of_streams():
    """The key of every call of `make_stream` and `draw_uniforms` in the package, … for a part filled in."""
    keys, expressions = set(), set()
    for path in Path(cfeval_cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("make_stream", "draw_uniforms")):
                continue
            key = node.args[1]
            if isinstance(key, ast.Constant):
                keys.add(key.value)
            elif isinstance(key, ast.JoinedStr):
                keys.add("".join(part.value if isinstance(part, ast.Constant) else "…" for part in key.values))
            else:
                expressions.add(ast.unparse(key))
    return keys, expressions


def test_the_docs_list_the_keys_of_all_random_streams():
    page = (Path(__file__).parents[1] / "docs" / "run-folder.md").read_text(encoding="utf-8")
    section = page.partition("\n## Random streams\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    keys, expressions = keys_of_streams()
    # explainers, searches and `frozen` hand over the key of their component
    assert expressions == {"self.component", "task.component"}
    assert sorted(listed) == sorted(keys | {"explainer.…", "search.…", "frozen"})
