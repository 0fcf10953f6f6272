"""The one table of a sweep, against loops over the runs' own figures."""

import itertools

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.numbers import write_three_digits
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.sweep.answer import say
from cfeval_cli.study.sweep.brief import of_sweep
from cfeval_cli.study.sweep.gather import gather
from tests.study.sweep.test_gather import METRICS, some_taus, some_values, write_run

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_over_seeds_values_are_means_ranked_and_marked_by_their_deviations(tmp_path, seed):
    rng = np.random.default_rng(seed)
    values = [some_values(rng) for _ in range(4)]
    taus = [some_taus(rng) for _ in range(4)]
    for i in range(4):
        write_run(tmp_path / str(i), i, [f"seed={i}"], values[i], taus[i])
    one = gather([tmp_path], tmp_path / "into").brief
    titles = {"c": "C (disc., label) ↑", "proximity": "Proximity (label) ↓", "recall": "Recall* (recall, signed) ↑"}
    rows = {row.title.text: row.cells for row in one.rows}
    assert sorted(rows) == sorted(titles.values()) and next(iter(rows)) == titles["recall"]
    for metric, title in titles.items():
        drawn = {name: np.array([run[metric, name][0] for run in values]) for name in NAMES}
        mean, spread = ({name: f(of) for name, of in drawn.items()} for f in (np.mean, lambda of: of.std(ddof=1)))
        order = sorted(NAMES, key=lambda name: mean[name] * (-1 if METRICS[metric] == "higher" else 1))
        for place, name in enumerate(order):
            close = place > 0 and abs(mean[name] - mean[order[place - 1]]) <= spread[name] + spread[order[place - 1]]
            cell = rows[title][NAMES.index(name)]
            assert cell.value_text == write_three_digits(mean[name])
            assert cell.rank == place + 1 and cell.rank_marks.endswith("~") == close
    assert one.header[-1].text == "τ\u00a0signed"
    mean = np.mean([run["c", "signed"][0] / 2 for run in taus])  # without controls, as write_run has it
    assert rows[titles["c"]][-1].value == pytest.approx(mean)
    assert all(len(text.plain) <= 80 for text in render_narrow(one, 80))


def test_over_settings_it_says_how_alike_two_runs_rank_and_how_far_tau_goes(tmp_path):
    rng = np.random.default_rng(1)
    values = [some_values(rng) for _ in range(3)]
    taus = [some_taus(rng) for _ in range(3)]
    for i in range(3):
        write_run(tmp_path / str(i), 0, [f"k={i + 1}"], values[i], taus[i], k=i + 1)
    done = gather([tmp_path], tmp_path / "into")
    frames = [pd.read_csv(tmp_path / "into" / f"{name}.csv") for name in ("sweep", "seeds_metrics")]
    frames += [pd.read_csv(tmp_path / "into" / f"{name}.csv") for name in ("seeds_correlations", "stability")]
    assert render_narrow(of_sweep(done.sweep, *frames), 80) == render_narrow(done.brief, 80)
    row = next(row for row in done.brief.rows if row.title.text == "C (disc., label) ↑")
    alike = []
    for one, other in itertools.combinations(values, 2):
        signs = [
            np.sign(one["c", x][0] - one["c", y][0]) * np.sign(other["c", x][0] - other["c", y][0])
            for x, y in itertools.combinations(NAMES, 2)
        ]
        alike.append(np.mean(signs))
    same, tau = row.texts[:2]
    assert same == f"{np.mean(alike):.2f} ({min(alike):.2f})"
    ends = [run["c", "signed"][0] / 2 for run in taus]
    assert tau == f"{min(ends):.2f} to {max(ends):.2f}" and "What varies: k." in done.brief.notes[0]


def test_the_answer_names_the_metric_whose_mean_is_largest(tmp_path):
    rng = np.random.default_rng(2)
    for i, k in enumerate((1, 2)):
        taus = {("c", "signed"): (0.4, 0.1, 0.4), ("proximity", "signed"): (0.9 - 0.4 * i, 0.1, 0.9)}
        write_run(tmp_path / str(i), 0, [f"k={k}"], some_values(rng), taus, k=k)
    done = gather([tmp_path], tmp_path / "into")
    assert done.answer.headline == "Proximity (label) agrees best with the truth on average over 2 runs"
    assert done.answer.points[0].startswith("Mean τ 0.350, from 0.250 to 0.450")
    assert done.answer == say(done.sweep, pd.read_csv(tmp_path / "into" / "seeds_correlations.csv"))
