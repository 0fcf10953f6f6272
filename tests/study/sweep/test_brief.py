"""The table of a sweep for the screen, compared with loops over the values of the runs."""

import itertools

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.numbers import write_three_digits
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.sweep.brief import build_brief
from cfeval_cli.study.sweep.conclusion import write_conclusion
from cfeval_cli.study.sweep.frames import SweepFrames
from cfeval_cli.study.sweep.gather import gather
from tests.study.sweep.test_gather import METRICS, draw_taus, draw_values, write_run

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_means_over_seeds_are_ranked_and_marked_if_deviations_overlap(tmp_path, seed):
    rng = np.random.default_rng(seed)
    values = [draw_values(rng) for _ in range(4)]
    taus = [draw_taus(rng) for _ in range(4)]
    for i in range(4):
        write_run(tmp_path / str(i), i, [f"seed={i}"], values[i], taus[i])
    table = gather([tmp_path], tmp_path / "into").brief
    titles = {"c": "C (disc., label) ↑", "proximity": "Proximity (label) ↓", "recall": "Recall* (recall, signed) ↑"}
    rows = {row.title.text: row.cells for row in table.rows}
    assert sorted(rows) == sorted(titles.values()) and next(iter(rows)) == titles["recall"]
    for metric, title in titles.items():
        by_seed = {name: np.array([run[metric, name][0] for run in values]) for name in NAMES}
        mean = {name: scores.mean() for name, scores in by_seed.items()}
        spread = {name: scores.std(ddof=1) for name, scores in by_seed.items()}
        order = sorted(NAMES, key=lambda name: mean[name] * (-1 if METRICS[metric] == "higher" else 1))
        for place, name in enumerate(order):
            is_close = place > 0 and abs(mean[name] - mean[order[place - 1]]) <= spread[name] + spread[order[place - 1]]
            cell = rows[title][NAMES.index(name)]
            assert cell.value_text == write_three_digits(mean[name])
            assert cell.rank == place + 1 and cell.rank_marks.endswith("~") == is_close
    assert table.header[-1].text == "τ\u00a0signed"
    mean = np.mean([run["c", "signed"][0] / 2 for run in taus])  # without controls, as write_run has it
    assert rows[titles["c"]][-1].value == pytest.approx(mean)
    assert all(len(text.plain) <= 80 for text in render_narrow(table, 80))


def test_settings_are_summarised_by_ranking_stability_and_range_of_tau(tmp_path):
    rng = np.random.default_rng(1)
    values = [draw_values(rng) for _ in range(3)]
    taus = [draw_taus(rng) for _ in range(3)]
    for i in range(3):
        write_run(tmp_path / str(i), 0, [f"k={i + 1}"], values[i], taus[i], k=i + 1)
    results = gather([tmp_path], tmp_path / "into")
    names = ("sweep", "seeds_metrics", "seeds_correlations", "stability", "stability_truth")
    frames = SweepFrames(*(pd.read_csv(tmp_path / "into" / f"{name}.csv") for name in names))
    assert render_narrow(build_brief(results.sweep, frames), 80) == render_narrow(results.brief, 80)
    row = next(row for row in results.brief.rows if row.title.text == "C (disc., label) ↑")
    stability = []
    for first_values, other_values in itertools.combinations(values, 2):
        signs = [
            np.sign(first_values["c", x][0] - first_values["c", y][0])
            * np.sign(other_values["c", x][0] - other_values["c", y][0])
            for x, y in itertools.combinations(NAMES, 2)
        ]
        stability.append(np.mean(signs))
    same_order, tau = row.texts[:2]
    assert same_order == f"{np.mean(stability):.2f} ({min(stability):.2f})"
    ends = [run["c", "signed"][0] / 2 for run in taus]
    assert tau == f"{min(ends):.2f} to {max(ends):.2f}" and "What varies: k." in results.brief.notes[0]


def test_conclusion_names_metric_with_highest_mean_tau(tmp_path):
    rng = np.random.default_rng(2)
    for i, k in enumerate((1, 2)):
        taus = {("c", "signed"): (0.4, 0.1, 0.4), ("proximity", "signed"): (0.9 - 0.4 * i, 0.1, 0.9)}
        write_run(tmp_path / str(i), 0, [f"k={k}"], draw_values(rng), taus, k=k)
    results = gather([tmp_path], tmp_path / "into")
    conclusion = results.conclusion
    assert conclusion.headline == "Proximity (label) has the highest mean τ over 2 runs"
    assert conclusion.points[0].startswith("Mean τ 0.350, from 0.250 to 0.450")
    correlations = pd.read_csv(tmp_path / "into" / "seeds_correlations.csv")
    assert conclusion == write_conclusion(results.sweep, correlations)
