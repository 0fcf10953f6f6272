"""Figures of single counterfactuals, and figures as parts of a page."""

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report import distributions
from cfeval_cli.report.page import svg
from tests.records import make_record

RECORD = make_record(
    levels=["label", "probability"], explainers={"a": "A", "b": "B"}, instances=4, data={"name": "toy"}
)  # fmt: skip


@pytest.mark.parametrize("iterates", [False, True])
def test_distances_and_drops_are_drawn_where_a_search_saw_probabilities(iterates):
    instances = pd.DataFrame({"instance": range(4), "predicted_probability": [0.9, 0.8, 0.7, 0.6]})
    lines = [
        {
            "instance": i, "explainer": name, "access": level, "distance": 1.0 + i, "steps": 5.0,
            "probability": np.nan if level == "label" else 0.3, "converged": (i > 0) if iterates else None,
        }
        for i in range(4) for name in "ab" for level in RECORD.levels
    ]  # fmt: skip
    whole = pd.DataFrame(lines)
    drawn = distributions.draw_distributions(instances, [whole], ["a", "b"], RECORD)
    assert list(drawn) == ["distributions", *(["convergence"] if iterates else [])]
    labels = [axis.get_xlabel() for axis in drawn["distributions"].figure.axes]
    assert labels == ["distance (label)", "distance (probability)", "drop of P(ŷ) (probability)"]
    assert drawn["distributions"].render("svg").startswith(b"<?xml")
    in_parts = distributions.draw_distributions(instances, [whole[:3], whole[3:3], whole[3:]], ["a", "b"], RECORD)
    assert {name: plot.render("svg") for name, plot in in_parts.items()} == {
        name: plot.render("svg") for name, plot in drawn.items()
    }
    boxes = {one.get_ydata()[0]: one.get_xdata()[0] for one in drawn["distributions"].figure.axes[0].lines[2::3]}
    assert boxes == {0: 2.5, 1: 2.5}  # the mean distance of either


def test_a_figure_takes_on_the_colours_of_the_page_and_its_names_are_its_own():
    text = (
        '<?xml version="1.0"?><!-- c --><svg viewBox="0 0 1 1" width="9"><metadata>x</metadata><g id="used"></g>'
        '<g id="not"></g><use href="#used"/><path style="fill: #0072B2; font-family: X;"/></svg>'
    )
    made = svg.make_inline_svg(text, "one", "<title>", "desc")
    assert 'id="one-used"' in made and 'href="#one-used"' in made and 'id="not"' not in made and "metadata" not in made
    assert "var(--c0)" in made and "font-family" not in made and "&lt;title&gt;" in made
