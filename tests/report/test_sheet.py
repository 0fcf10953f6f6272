"""A sheet that was drawn once looks in every format as a figure that is drawn for each."""

import io
import re
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from cfeval_cli.report.plots import style
from cfeval_cli.report.sheet import DPI, Sheet


def fill(figure, rasterized=False):
    """Lines, marks, areas, bars, texts on two lines and askew, what is cut off at the edge, and a legend outside."""
    left, right = figure.subplots(1, 2)
    rng = np.random.default_rng(0)
    left.plot([0, 1, 5], [0, 2, 9], "o-", color="#0072B2", label="a $x^2$")
    left.plot(rng.random(30), rng.random(30), "^", ls="", ms=4, rasterized=rasterized, label="b")
    left.set_xlim(-0.1, 1.1)
    left.fill_between([0, 1], [0, 0.2], [1, 1.5], alpha=0.5)
    left.set_title("one\ntwo", parse_math=False)
    left.grid()
    right.hlines([0, 1], [0, 0.5], [1, 2], colors=["#E69F00", "#009E73"], lw=3)
    right.errorbar([0.5], [0.5], yerr=[[0.2], [0.3]], fmt="s")
    right.barh(0.2, 0.4, height=0.1, alpha=0.4)
    right.annotate("beside", (1, 0.3), xycoords=right.get_yaxis_transform(), xytext=(4, 0), textcoords="offset points")
    right.set_xticks([0, 1], ["a long name", "another"], rotation=30, ha="right")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def saved(figure, kind):
    stream = io.BytesIO()
    told = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style():
        save = (
            figure.save if isinstance(figure, Sheet) else lambda s, kind, **how: figure.savefig(s, format=kind, **how)
        )
        save(stream, kind, dpi=200, metadata=told[kind])
    return stream.getvalue()


def sheet(rasterized=False):
    with style():
        return fill(Sheet(5, 3), rasterized)


@cache
def figures(rasterized=False):
    """Ours and theirs, for all who only save them."""
    with style():
        theirs = fill(Figure(figsize=(5, 3), dpi=DPI, layout="constrained"), rasterized)
    return sheet(rasterized), theirs


@pytest.mark.parametrize("rasterized", [False, True])
def test_dots_are_where_matplotlib_puts_them(rasterized):
    ours, theirs = (imread(io.BytesIO(saved(figure, "png")))[..., :3] for figure in figures(rasterized))
    assert ours.shape == theirs.shape == (600, 1000, 3)
    # sizes of texts are rounded to dots elsewhere, which moves edges by a dot: seen from afar they are the same
    ours, theirs = (image.reshape(60, 10, 100, 10, 3).mean(axis=(1, 3)) for image in (ours, theirs))
    assert np.abs(ours - theirs).mean() < 0.01 and np.abs(ours - theirs).max() < 0.35
    assert (theirs < 0.9).any(axis=2).mean() > 0.05  # there is something to be seen


def test_a_vector_file_has_the_same_texts_in_the_same_places():
    texts = []
    for figure in figures():
        text = saved(figure, "svg").decode()
        found = re.findall(r"<text ([^>]*)>([^<]*)</text>", text)
        places = [[float(number) for number in re.findall(r"-?\d+\.?\d*", re.sub(r"#\w+", "", of))] for of, _ in found]
        texts.append(([name for _, name in found], places, text.count("<use "), text.count("clip-path")))
    (names, places, marks, cut), (their_names, their_places, their_marks, their_cut) = texts
    assert names == their_names and {"one", "two", "beside", "a long name"} <= set(names)
    assert (marks, cut) == (their_marks, their_cut) and marks > 30
    for place, their_place in zip(places, their_places, strict=True):
        assert place == pytest.approx(their_place, abs=1.5)


def test_what_is_to_be_dots_is_dots_in_a_vector_file():
    plain, dotted = (saved(figures(rasterized)[0], "svg").decode() for rasterized in (False, True))
    assert "<image" in dotted and "<image" not in plain and dotted.count("<use ") <= plain.count("<use ") - 30


def test_no_format_depends_on_those_before_it():
    kinds = ("png", "svg", "pdf")
    sheets = [sheet(rasterized=True) for _ in range(2)]
    one, other = (
        {kind: saved(one, kind) for kind in order} for one, order in zip(sheets, (kinds, kinds[::-1]), strict=True)
    )
    assert one == other and one["pdf"].startswith(b"%PDF") and saved(sheets[0], "svg") == one["svg"]


def test_parts_are_drawn_once(monkeypatch):
    drawn, calls = sheet(), []
    for artist in (drawn.axes[0].lines[0], drawn.legends[0]):
        monkeypatch.setattr(artist, "draw", lambda renderer, draw=artist.draw: (calls.append(1), draw(renderer)))
    for kind in ("png", "svg", "pdf", "svg"):
        saved(drawn, kind)
    assert len(calls) == 2
