"""Plots show the values, intervals and names of the statistics."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from cfeval_cli.report import plots
from cfeval_cli.report.build_costs import build_costs, write_cost_summary
from cfeval_cli.report.page import svg
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.recommendation import Answer, ExplainerFacts, Recommendation, ReferenceScore
from cfeval_cli.statistics.run_statistics import compute_statistics
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from tests.records import change_record, make_metric
from tests.report.test_tables import RECORD
from tests.statistics.tables import EXPLAINERS, build

NAMES = {"a": "A", "b": "$x^2$ <b>", "c": "C_1", "d": "D"}
METRICS = {**RECORD.metrics, "sufficiency": make_metric("Suff.", block="erasure")}
RUN = change_record(RECORD, explainers=NAMES, metrics=METRICS)
COSTS = pd.DataFrame(
    [("explainer", name, "", 0, 0.5 * i, 1000 * i) for i, name in enumerate(EXPLAINERS)]
    + [("search", "a", "label", "", 0.1, 50), ("metric", "c", "", "", 0.2, 70), ("bounds", "", "", "", 0.3, 90)],
    columns=["part", "name", "access", "n_cached", "seconds", "model_rows"],
)


def draw_run(graded=False):
    scores, order = build(4, n=30, controls=("d",))
    if graded:
        order["quality_level"] = order["explainer"].map({"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.0})
    statistics = compute_statistics(
        Scores.from_frame(scores), order, Bootstrap(0, n_resamples=50, min_instances=1), "signed"
    )
    return statistics, plots.draw_plots(statistics, COSTS, RUN)


@pytest.fixture(scope="module")
def drawing():
    """Plots of one run, for tests that do not change them."""
    return draw_run()


def bars(axis):
    return [
        segment for lines in axis.collections if isinstance(lines, LineCollection) for segment in lines.get_segments()
    ]


def test_explainers_have_a_dot_and_an_interval_in_each_panel(drawing):
    statistics, figures = drawing
    assert list(figures) == ["explainers", "correlations", "costs"]
    figure = figures["explainers"].figure
    panels = {re.sub(r"\n", " ", axis.get_title()): axis for axis in figure.axes if axis.get_visible()}
    assert list(panels) == ["signed: recall ↑", "Suff. (del.) ↑", "C (disc., label) ↑"]
    own = dict(iter(statistics.metrics.groupby("metric")))
    order = own["recall"].sort_values("value", ascending=False, kind="stable")["explainer"].tolist()
    for metric, panel in zip(("recall", "sufficiency", "c"), panels.values(), strict=True):
        lines = own[metric].set_index("explainer").loc[order]
        dots = [(line.get_ydata()[0], line.get_xdata()[0]) for line in panel.lines]
        assert dots == [(i, pytest.approx(value)) for i, value in enumerate(lines["value"])]
        ends = sorted((segment[0, 1], segment[:, 0].min(), segment[:, 0].max()) for segment in bars(panel))
        for i, (end, line) in enumerate(zip(ends, lines.itertuples(), strict=True)):
            assert end == pytest.approx((i, min(line.value_low, line.value), max(line.value_high, line.value)))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [NAMES[name] for name in order]
    best = own["recall"].set_index("explainer")["value"][order[0]]
    assert figures["explainers"].description.startswith(f"signed: recall ↑: {NAMES[order[0]]} {best:.2f}, ")


def test_first_panels_have_the_scores_of_the_answer(drawing):
    answers = {
        "contribution": Answer("shapley", scores=[ReferenceScore("a", (0.2, 0.6), (1.0, 1.0), 0.5, 0.7)]),
        "change": Answer(reason="no reference"),
    }
    recommendation = Recommendation(2, 0.05, 0.95, {"a": ExplainerFacts("A")}, answers)
    panel = plots.draw_plots(drawing[0], COSTS, RUN, recommendation)["explainers"].figure.axes[0]
    assert panel.get_title() == "contribution:\nrecall@2 ↑" and panel.lines[0].get_xdata()[0] == 0.6
    ((start, end),) = (segment[:, 0] for segment in bars(panel))
    assert (start, end) == pytest.approx((0.5, 0.7))


def test_metrics_without_a_truth_are_drawn_alone(drawing):
    other = change_record(RUN, settings={"truth": ["absolute"]})  # a truth that was not computed
    figures = plots.draw_plots(drawing[0], COSTS, other)
    visible = [axis for axis in figures["explainers"].figure.axes if axis.get_visible()]
    assert len(visible) == 2 and "reference" not in figures["explainers"].caption


def test_correlations_show_tau_its_interval_and_p(drawing):
    statistics, figures = drawing
    (axis,) = figures["correlations"].figure.axes
    subsets = (ALL_EXPLAINERS, WITHOUT_CONTROLS, ALL_EXPLAINERS)
    drawing, texts = zip(subsets, ("tau", "tau", "rho"), ("τ", "τ′", "ρ"), strict=True), []
    for line, (subset, name, sign) in zip(axis.lines, drawing, strict=False):
        lines = select_subset(statistics.correlations, subset).dropna(subset=name)
        assert line.get_xdata() == pytest.approx(lines[name].to_numpy())
        texts += [f"p({sign})", *(f"{p:.3f}" for p in lines[f"p_{name}"])]
    assert [text.get_text() for text in axis.texts] == texts
    assert axis.get_xlabel().endswith("4 ranked, 3 without controls")


def test_graded_controls_are_not_drawn_as_explainers():
    assert list(draw_run(graded=True)[1]) == ["correlations"]


def test_costs_are_per_instance(drawing):
    statistics, figures = drawing
    time_axis, rows_axis = figures["costs"].figure.axes
    truth = statistics.metrics[statistics.metrics["metric"] == "recall"]["value"].tolist()
    for axis, column, unit in ((time_axis, "seconds", 1000), (rows_axis, "model_rows", 1)):
        dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines]
        assert dots == [(pytest.approx(unit * COSTS[column][i] / 50), pytest.approx(truth[i])) for i in range(4)]
    assert write_cost_summary(COSTS, change_record(RUN, seconds=12.4)) == (
        "Model evaluations per instance, and seconds: D 60 (1.5 s), C_1 40 (1.0 s), $x^2$ <b> 20 (0.5 s), A 0 (0.0 s). "
        "Whole run: 6,210 evaluations, 12 s."
    )
    text = render_markdown(build_costs(COSTS, RUN))
    assert "| explainer: D | 1.500 | 30.000 | 3,000 | 60.0 |" in text
    assert "| search: A (label) | 0.100 | 2.000 | 50 | 1.0 |" in text
    assert "| metric: C | 0.200 | 4.000 | 70 | 1.4 |" in text and "| bounds | 0.300 | 6.000 | 90 | 1.8 |" in text


def test_figures_are_reproducible_and_names_are_plain_text(drawing):
    first, second = drawing[1], draw_run()[1]
    for kind, names in (("svg", list(first)), ("pdf", list(first)), ("png", ["explainers"])):  # dots take long
        bodies = {name: first[name].render(kind) for name in names}
        assert bodies == {name: second[name].render(kind) for name in names}
        if kind == "svg":
            assert not any(b"<b>" in text for text in bodies.values()) and b"$x^2$ &lt;b&gt;" in bodies["explainers"]


def test_axis_limits_hide_rounding_differences():
    low, high = plots.widen_limits((1.4142135623730951, 1.4142135623730954))
    assert low < 1.3 and high > 1.5 and plots.widen_limits((0.1, 0.2)) == (0.1, 0.2)


def test_run_writes_its_figures_and_costs(toy, make_run):
    explainers = ("explainer=[random,omission,graded]", "explainer.graded.quality_levels=3")
    small = ("metric=[comprehensiveness,validity,proximity,recall]", "removal=[marginal]", "model.max_epochs=10")
    folder = make_run(toy, *explainers, *small, "n_explain=20", "figures=[svg]", "bounds=2000", "explainer_stability=5")
    assert sorted(p.name for p in (folder / "figures").iterdir()) == [
        f"{name}.svg" for name in ("correlations", "costs", "counterfactuals", "explainers")
    ]
    costs = pd.read_csv(folder / "costs.csv")
    assert (costs["seconds"] >= 0).all() and costs["seconds"].sum() > 0
    rows = costs.set_index(["part", "name", "access"])["model_rows"]
    assert rows["explainer", "omission", np.nan] > 20 and rows["explainer", "random", np.nan] == 0
    assert rows["search", "graded_0.5", "label"] > 20 and set(costs["part"]) == {
        "explainer",
        "search",
        "metric",
        "explainer_stability",
        "bounds",
    }
    assert costs.loc[costs["part"] == "metric", "model_rows"].sum() > 0 and rows["bounds", np.nan, np.nan] > 20 * 4
    assert "explainer: Omission" in (folder / "costs.md").read_text()


def test_first_40_explainers_have_different_looks_and_neighbours_different_colours_and_marks():
    looks = list(plots.assign_looks(f"explainer_{i}" for i in range(40)).values())
    assert len(set(looks)) == 40
    assert len({look.colour for look in looks[:8]}) == len({look.mark for look in looks[:8]}) == 8


def test_figures_ignore_a_matplotlibrc():
    import matplotlib

    with matplotlib.rc_context({"text.usetex": True, "lines.linewidth": 9.0, "font.family": ["cursive"]}):
        with plots.apply_style():
            assert not matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["lines.linewidth"] == 1.5
            assert matplotlib.rcParams["font.size"] == 8
        assert matplotlib.rcParams["text.usetex"]


def test_inline_svg_has_the_colours_of_the_page_and_unique_ids():
    text = (
        '<?xml version="1.0"?><!-- c --><svg viewBox="0 0 1 1" width="9"><metadata>x</metadata><g id="used"></g>'
        '<g id="not"></g><use href="#used"/><path style="fill: #0072B2; font-family: X;"/></svg>'
    )
    inline = svg.make_inline_svg(text, "one", "<title>", "desc")
    assert (
        'id="one-used"' in inline
        and 'href="#one-used"' in inline
        and 'id="not"' not in inline
        and "metadata" not in inline
    )
    assert "var(--c0)" in inline and "font-family" not in inline and "&lt;title&gt;" in inline
