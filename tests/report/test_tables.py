import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.build_bounds import build_bounds
from cfeval_cli.report.build_correlations import build_correlations
from cfeval_cli.report.build_differences import build_differences
from cfeval_cli.report.build_scores import compute_mean_ranks
from cfeval_cli.report.build_stability import build_stability
from cfeval_cli.report.build_tables import build_tables
from cfeval_cli.report.instance_counts import write_support_notes
from cfeval_cli.report.metric_table import merge_rows
from cfeval_cli.report.notes import write_remark_notes
from cfeval_cli.report.numbers import write_ordinal
from cfeval_cli.report.render.csv_text import render_csv
from cfeval_cli.report.render.latex import escape_latex, render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Cell, Row, Title
from cfeval_cli.report.titles import find_low_coverage
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS
from tests.records import change_record, make_metric, make_record

RECORD = make_record(
    explainers={"a": "A_1 & <b>|", "b": "B"},
    settings={"agreement": "recall", "truth": ["signed"], "k": 1, "seed": 0, "incomplete": "skip",
              "support": "common", "resamples": 2000, "confidence": 0.95},
    resampled=2000,
    metrics={
        "c": make_metric("C", display_order=60, latex=r"$\mathcal{C}$", details=["{search}", "{variant}"]),
        "proximity": make_metric("Proximity", display_order=50, better="lower"),
        "comprehensiveness": make_metric("Comp.", display_order=10, block="erasure"),
        "recall": make_metric("GroundTruth", display_order=90, role="truth", block="truth",
                              details=["{metric}", "{variant}"]),
        "coverage": make_metric("Coverage", display_order=99, better="none", role="fact", block="truth", details=[],
                                quantity="complete explanations"),
    },
    truths={name: {"question": "paper", "arbitrary": True} for name in ("signed", "absolute")},
    removals={
        "del": {"name": "zero", "title": "del.", "arbitrary": True},
        "mask": {"name": "mask", "title": "mask", "arbitrary": False},
    },
    data={
        "name": "toy", "file": "toy.csv", "source": "data folder", "sha256": ["ab" * 32], "rows_used": 1234,
        "rows_read": 2000, "rows_whole": 3000, "complete": False,
    },
    accuracy={"test": 0.8},
    majority={"test": 0.9},
    auc={"test": 0.6123},
    reference={"test_accuracy": 0.7},
    instances=50,
    search="disc.",
    metrics_absent={"c_soft": "needs probability access"},
    setup="discrete search (pick: auto); euclidean distance (space: auto)",
)  # fmt: skip


def metrics(coverage=(1.0, 0.4)):
    rows = []
    for metric, variant, values, ranks in [
        ("comprehensiveness", "del", (0.5, 0.25), (1, 2)),
        ("comprehensiveness", "mask", (np.nan, np.nan), (np.nan, np.nan)),
        ("proximity", "label", (1.4142, 1.4142), (1.5, 1.5)),
        ("proximity", "probability", (2.0, 3.0), (1, 2)),
        ("c", "label", (0.1, 0.2), (2, 1)),
        ("c", "probability", (0.1, 0.2), (2, 1)),
        ("recall", "signed", (0.9, 0.1), (1, 2)),
        ("recall", "absolute", (0.2, 0.3), (2, 1)),
        ("coverage", "all", coverage, (np.nan, np.nan)),
    ]:
        for name, value, rank in zip("ab", values, ranks, strict=True):
            note = "toy has no mask token" if variant == "mask" else ""
            rows.append(
                {
                    "metric": metric, "variant": variant, "explainer": name, "quality_level": np.nan, "value": value,
                    "control": False, "n": 50, "own_value": value, "own_n": 50,
                    "better": RECORD.metrics[metric].better, "role": RECORD.metrics[metric].role,
                    "value_low": value - 0.1, "value_high": value + 0.1, "rank": rank, "note": note, "method": "",
                    "remark": "",
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


CORRELATIONS = pd.DataFrame(
    [
        {
            "metric": m, "variant": v, "truth": g, "agreement": "recall", "tau": t, "rho": t, "note": note,
            "family": "explainers", "tau_low": t - 0.1, "tau_high": t, "rho_low": np.nan, "rho_high": np.nan,
            "p_tau": 0.5, "p_rho": 0.0001, "explainers": 2, "subset": subset,
        }
        for subset in (ALL_EXPLAINERS, WITHOUT_CONTROLS)
        for m, v, g, t, note in [
            ("c", "label", "signed", -1.0, ""),
            ("c", "label", "absolute", 1.0, ""),
            ("comprehensiveness", "del", "signed", 1.0, ""),
            ("comprehensiveness", "del", "absolute", np.nan, "all tied, ρ undefined"),
        ]
    ]
)  # fmt: skip


def tables(correlations=CORRELATIONS, record=RECORD, differences=(), instances=(), values=None):
    frames = (pd.DataFrame(differences), pd.DataFrame(instances), pd.DataFrame([]))
    return build_tables(RunStatistics(metrics() if values is None else values, correlations, *frames), record)


def test_scores_mark_truth_agreement_low_coverage_and_missing_values():
    values, _ = tables()
    text = render_markdown(values)
    lines = {
        re.sub(r"[\\|]", "", line).split("  ")[0].strip(): line for line in text.splitlines() if line.startswith("| ")
    }
    comp = next(line for name, line in lines.items() if name.startswith("Comp. (del.)"))
    assert r"**0.5000 \[0.400, 0.600\] (1st)**" in comp and r"**0.2500 \[0.150, 0.350\] (2nd)**" in comp
    assert "No values: Comp. (mask)." in text and not any("mask" in name for name in lines if "(" in name[:8])
    c = next(line for name, line in lines.items() if name.startswith("C (disc., label / probability)"))
    assert "**" not in c  # its ranks are the reverse of the truth's
    assert "Same value for all explainers, not shown: Proximity (label) 1.4142" in text
    assert "–: toy has no mask token." in text and "pick: auto" in text
    assert "95 % CI from 2,000 resamples" in text
    assert r"0.9000 \[0.800, 1.000\] (1st\*)" in text and "B†" in text and "40.0%" in text
    assert "test accuracy 80.00% (the paper's: 70.00%), largest class 90.00%, AUC 0.612." in text
    assert "an incomplete copy: 2,000 of 3,000 rows" in text and "1,234 of 2,000 rows of toy.csv" in text
    assert "Not computed: c\\_soft (needs probability access)." in text


def test_latex_escapes_special_characters():
    assert r"A\_1\\\&\\\textless{}b\textgreater{}|" in render_latex(tables()[0])  # one word a line
    assert escape_latex("α τ ± 5") == r"$\alpha$ $\tau$ $\pm$ 5"
    assert escape_latex("50% of $x_1^2 {\\}") == r"50\% of \$x\_1\textasciicircum{}2 \{\textbackslash{}\}"


def test_correlations_have_tau_and_rho_for_each_truth_and_the_best_is_bold():
    _, table = tables()
    text = render_markdown(table)
    header = ["Metric", "τ signed*", "p(τ)", "ρ signed*", "p(ρ)", "τ absolute", "ρ absolute"]
    assert [cell.text for cell in table.header] == header
    interval = r"-1.0000 \[-1.100, -1.000\]"
    best = r"**1.0000 \[0.900, 1.000\]**"
    assert rf"| C (disc., label) ↑ | {interval} | 0.500 | -1.0000 | \<0.001 | {best} | **1.0000** |" in text
    assert rf"| Comp. (del.) ↑ | {best} | 0.500 | **1.0000** | \<0.001 | – | – |" in text
    assert "–: all tied, ρ undefined." in text


def test_tau_without_controls_is_beside_tau_and_the_note_names_the_remaining_explainers():
    lines, is_without_controls = CORRELATIONS.assign(explainers=4), CORRELATIONS["subset"] == WITHOUT_CONTROLS
    lines.loc[is_without_controls, ["explainers", "tau", "tau_low", "tau_high", "rho"]] = [2, -0.5, -0.6, 0.0, np.nan]
    record = change_record(RECORD, explainers={"a": "Control", "b": "B", "x": "X"})
    values = metrics()
    values = pd.concat(
        [values.assign(control=values["explainer"] == "a"), values[values["explainer"] == "b"].assign(explainer="x")]
    )
    table = tables(lines, record, values=values)[1]
    header = ["Metric", "τ signed*", "p(τ)", "τ signed*, no controls", "p(τ, no controls)", "ρ signed*", "p(ρ)"]
    header += ["τ absolute", "τ absolute, no controls", "ρ absolute"]
    assert [cell.text for cell in table.header] == header
    assert all(row.cells[2].text.startswith("-0.5000 [") and row.cells[3].text == "0.500" for row in table.blocks[0])
    assert any(
        note.startswith("no controls: without Control,") and note.endswith("remaining: B, X.") for note in table.notes
    )
    assert r"$\tau$\\signed*,\\no\\controls" in render_latex(table)
    lines.loc[is_without_controls, ["tau", "note"]] = [np.nan, "without controls fewer than two explainers are left"]
    alone = tables(lines, record, values=values)[1]
    assert not [cell for cell in alone.header if "no controls" in cell.text]
    assert any("without controls fewer than two explainers are left" in note for note in alone.notes)


def test_coverage_below_90_percent_is_marked_in_every_format():
    for share, mark, is_below_half in ((0.91, False, False), (0.89, True, False), (0.49, True, True)):
        built = tables(values=metrics(coverage=(1.0, share)))
        for text in (render_markdown(built[0]), render_latex(built[0]), render_csv(built[0])):
            assert ("B†" in text or r"B$\dagger$" in text) == mark
        assert ("under 90" in render_markdown(built[0])) == mark
        assert ("Under half of the instances: B." in render_markdown(built[0])) == is_below_half


@pytest.mark.parametrize(("shared", "is_too_few"), [(40, False), (12, True)])
def test_common_support_has_a_note_and_a_table_of_own_scores(shared, is_too_few):
    values = metrics()
    own_row = values["metric"] != "coverage"
    values["n"] = np.where(own_row, shared, 50)
    values["own_n"] = np.where(own_row & (values["explainer"] == "b"), 45, 50)
    values["own_value"] = values["value"] + 1
    scores, *_, own = tables(values=values)
    words = render_markdown(scores)
    assert f"Scored on the {shared} of 50 instances that all explainers cover (support=common)" in words
    assert "B alone covers 45." in words and ("allow no intervals" in words) == is_too_few
    assert own.title == "Scores of each explainer on its own instances" and own.is_supplementary
    assert "1.5000 (50)" in render_markdown(own) and "1.2500 (45)" in render_markdown(own)
    record = change_record(RECORD, settings={"support": "own"})
    words = tables(values=values.assign(n=values["own_n"]), record=record)
    assert "on its own instances (support=own), of 50: B 45." in render_markdown(words[0]) and len(words) == 2
    assert "support=" not in render_markdown(tables()[0])  # all cover the same


def make_values(rows, roles=()):
    """Rows of metrics.csv: metric, variant and how many instances each explainer has."""
    return pd.DataFrame(
        [
            {
                "metric": metric, "variant": variant, "explainer": name, "n": n, "own_n": n, "quality_level": None,
                "role": dict(roles).get(metric, "judged"),
            }
            for metric, variant, *counts in rows
            for name, n in zip("ab", counts, strict=True)
        ]
    )  # fmt: skip


NAMED_RECORD = change_record(
    RECORD,
    explainers={"a": "A", "b": "B"},
    instances=60,
    metrics={
        **RECORD.metrics, "naopc": make_metric("NAOPC", block="erasure"), "validity": make_metric("Validity"),
        "sparsity": make_metric("Sparsity", details=[]),
    },
)  # fmt: skip


def test_note_states_the_usual_number_of_instances_and_the_rows_with_another_one():
    rows = [("c", "label", 47, 47), ("validity", "label", 47, 47), ("naopc", "mask", 7, 7), ("sparsity", "", 57, 57)]
    values = make_values(rows)
    values.loc[values["explainer"] == "a", "own_n"] = 60
    (note,) = write_support_notes(values, NAMED_RECORD)
    assert note == (
        "Scored on the 47 of 60 instances that all explainers cover (support=common). B alone covers 57. "
        "Other rows: NAOPC (mask) 7 instances; Sparsity 57 instances."
    )


def test_note_on_instances_with_full_coverage_lists_exceptions_only():
    rows = [("c", "label", 60, 60), ("validity", "label", 60, 60)]
    truths = [("recall", "signed", 20, 20), ("coverage", "all", 60, 60)]
    roles = {"recall": "truth", "coverage": "fact"}
    assert write_support_notes(make_values(rows), NAMED_RECORD) == []
    (words,) = write_support_notes(
        make_values([*rows, *truths, ("naopc", "del", 43, 43), ("naopc", "mask", 43, 43)], roles), NAMED_RECORD
    )
    assert words == (
        "Scored on all 60 instances. Other rows: GroundTruth (recall, signed) 20 instances; "
        "NAOPC (del.), NAOPC (mask) 43 instances each."
    )
    assert "GroundTruth" not in write_support_notes(
        make_values([*rows, *truths], roles), NAMED_RECORD, [("recall", "signed")]
    )


def test_note_on_instances_with_own_support_lists_each_explainer():
    record = change_record(NAMED_RECORD, settings={"support": "own"})
    rows = [("c", "label", 60, 47), ("validity", "label", 60, 47), ("naopc", "del", 43, 30), ("sparsity", "", 20, 20)]
    (words,) = write_support_notes(make_values(rows), record)
    assert words == (
        "Each explainer is scored on its own instances (support=own), of 60: B 47. Scores over different instances "
        "are not comparable. Other rows: NAOPC (del.): A 43, B 30 instances; Sparsity 20 instances."
    )


def test_correlations_and_instance_agreement_have_the_note_on_instances():
    values = metrics()
    values.loc[values["metric"] == "recall", ["n", "own_n"]] = 20
    words = tables(values=values)
    note = "Scored on all 50 instances. Other rows: GroundTruth (recall, signed), GroundTruth (recall, absolute) 20"
    assert all(note in " ".join(table.notes) for table in words[:2])
    lines = [
        {
            "metric": metric, "variant": "label", "truth": "signed", "agreement": "recall", "instances": n, "tau": 0.5,
            "tau_low": np.nan, "tau_high": np.nan, "d": 0.5, "d_low": np.nan, "d_high": np.nan,
            "subset": ALL_EXPLAINERS,
        }
        for metric, n in (("c", 50), ("proximity", 43))
    ]  # fmt: skip
    (note,) = tables(instances=lines)[-1].notes
    assert "For each of 50 instances" in note and note.endswith("Other rows: Proximity (label) 43 instances.")


def test_value_outside_its_interval_is_marked():
    outside = CORRELATIONS.assign(tau_high=CORRELATIONS["tau"] - 0.05)
    text = render_markdown(tables(outside)[1])
    assert r"**1.0000 \[0.900, 0.950\]‡**" in text and "‡ outside its interval" in text
    assert "‡" not in render_markdown(tables()[1])


def test_missing_correlations_have_a_reason():
    record = change_record(RECORD, correlations_absent="a ranking needs two explainers, and this run has one")
    table = build_correlations(CORRELATIONS.iloc[:0], record)
    assert "Not computed: a ranking needs two explainers, and this run has one." in render_markdown(table)


def test_bounds_have_positions_and_the_agreement_of_the_optimum_with_the_truth():
    bounds = pd.DataFrame(
        [
            ("c", "label", "enumerated", 50, 0.0, 0.5, 25),
            ("recall", "signed", "enumerated", 50, 0.0, 1.0, 50),
        ],
        columns=["metric", "variant", "method", "instances", "worst", "best", "informative"],
    )
    agreement = pd.DataFrame(
        [("c", "label", "signed", 0.8, 0.9), ("recall", "signed", "signed", 1.0, 1.0)],
        columns=["metric", "variant", "truth", "share", "share_informative"],
    )
    table = build_bounds(
        bounds, agreement, metrics().assign(normalised=[0.25, np.nan] * 9), RECORD, find_low_coverage(metrics(), RECORD)
    )
    header = ["Metric", "worst", "best", "A_1 & <b>|", "B†", "informative", "truth signed*"]
    assert [title.text for title in table.header] == header
    assert [(row.title.text, row.texts) for row in table.rows] == [
        ("C (disc., label) ↑", ["0.0000", "0.5000", "25%", "–", "50%", "90%"]),
    ]  # fmt: skip
    assert "every set of 1 of its features is tried" in table.notes[0]


@pytest.mark.parametrize(
    ("rank", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
    ],
)
def test_ordinals(rank, text):
    assert write_ordinal(rank) == text
    assert write_ordinal(2.5, tied=True) == "2.5="


def test_latex_is_balanced():
    for table in tables():
        text = render_latex(table)
        assert text.count("{") == text.count("}")
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(table.header) - 1}
        assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def make_noise(similarity=0.52, deterministic="no"):
    """Return the stability of two explainers, of which the second is random or deterministic."""
    names = pd.DataFrame(
        [("a", 100, 97, 1.0, 0.96, 1.0, 1.0, 1.0, "yes"),
         ("b", 100, 100, similarity, 0.42, 0.62, similarity, 0.25, deterministic)],
        columns=["explainer", "n_requested", "instances", "same_features", "low", "high", "overlap", "same_order",
                 "deterministic"],
    )  # fmt: skip
    keys = [("a", "c", "label"), ("b", "c", "label"), ("b", "proximity", "label"), ("b", "recall", "signed")]
    values = pd.DataFrame([(*key, 100, 0.5, 0.48, -0.02, 0.03, 0.012) for key in keys], columns=[
        "explainer", "metric", "variant", "instances", "value", "value_again", "difference", "se", "explainer_se",
    ])  # fmt: skip
    return names, values


def with_noise(names, values, record=RECORD):
    return build_stability(names, values, record, find_low_coverage(metrics(), RECORD))


def test_explainer_stability_has_a_sentence_and_standard_errors():
    first, second = with_noise(*make_noise())
    assert [[row.title.text, *row.texts] for row in first.rows] == [
        ["A_1 & <b>|", "100% [96%, 100%]", "100%", "100%", "97"],
        ["B†", "52% [42%, 62%]", "52%", "25%", "100"],
    ]
    notes = " ".join(first.notes)
    assert "Share of instances with the same feature for another explainer seed: B 52%." in notes
    assert "Deterministic, with the same features and scores: A_1 & <b>|." in notes and "exact 95 % CI" in notes
    # neither deterministic explainers nor the truth
    assert [cell.text for cell in second.header] == ["Metric", "B†"]
    assert (
        [row.cells[0].text for row in second.rows] == ["0.0200 (0.0120 of 0.0300)"] * 2
        and first.is_supplementary
        and second.is_supplementary
    )
    assert "the same 2 features" in " ".join(
        with_noise(*make_noise(), change_record(RECORD, settings={"k": 2}))[0].notes
    )


def test_deterministic_explainers_have_no_stability_of_values():
    (single_table,) = with_noise(*make_noise(1.0, "yes"))
    assert "for another explainer seed:" not in " ".join(single_table.notes)
    names, values = make_noise()
    names.loc[0, ["instances", "deterministic"]] = (0, "")
    names.loc[0, ["same_features", "overlap", "same_order"]] = np.nan
    values[["se", "explainer_se"]] = np.nan
    values.loc[values["metric"] == "proximity", "difference"] = np.nan
    first, second = with_noise(names, values)
    assert [first.rows[0].title.text, *first.rows[0].texts] == ["A_1 & <b>|", "–", "–", "–", "0"]
    assert [row.cells[0].text for row in second.rows] == ["0.0200"]
    assert any(note.startswith("No values: Proximity") for note in second.notes)


def test_values_that_are_not_identifiable_are_marked_and_explained():
    moving = metrics().assign(not_identifiable=lambda m: m["metric"].isin(["c", "comprehensiveness"]).astype(object))
    moving.loc[moving["metric"] == "coverage", "not_identifiable"] = None
    correlations = CORRELATIONS.assign(not_identifiable=lambda c: (c["metric"] == "c") & (c["truth"] == "signed"))
    correlations.loc[correlations["subset"] == WITHOUT_CONTROLS, "not_identifiable"] = (
        True  # not shown, since no explainer is a control
    )
    ranges = pd.DataFrame(
        [
            {"metric": "c", "variant": "label", "truth": "signed", "agreement": "recall", "tau": 0.5,
             "tau_lowest": -1.0, "tau_highest": 0.75, "not_identifiable": True, "changed_by": "constant scale",
             "reparametrisations": 50, "instances": 1234},
            {"metric": "c", "variant": "label", "truth": "absolute", "agreement": "recall", "tau": 0.25,
             "tau_lowest": 0.25, "tau_highest": 0.25, "not_identifiable": False, "changed_by": "",
             "reparametrisations": 50,
             "instances": 1234},
            {"metric": "c", "variant": "label", "truth": "signed", "agreement": "hit", "tau": 0.1, "tau_lowest": 0.1,
             "tau_highest": 0.1, "not_identifiable": False, "changed_by": "", "reparametrisations": 50,
             "instances": 1234},
        ]
    ).assign(subset=ALL_EXPLAINERS)  # fmt: skip
    empty = pd.DataFrame()
    built = build_tables(RunStatistics(moving, correlations, empty, empty, empty, invariance=ranges), RECORD)
    scores, taus, table = built[0], built[1], built[-1]
    titles = [row.title.text for row in scores.rows]
    assert [title for title in titles if title.endswith(" §")] == [
        title for title in titles if title.startswith(("C ", "Comp."))
    ]
    marked = [(row.title.text, [c.text.endswith("§") for c in row.cells]) for row in taus.blocks[0]]
    columns = [cell.text for cell in taus.header[1:]]
    for title, marks in marked:
        assert marks == [title.startswith("C ") and column == "τ signed*" for column in columns]
    for built_table in (scores, taus):
        assert (
            sum("depends on the parametrisation of the model (not identifiable)" in n for n in built_table.notes) == 1
        )
        assert r"\S{}" in render_latex(built_table) and "§" in render_markdown(built_table)
    assert [table.rows[0].title.text, *table.rows[0].texts] == [
        "C (disc., label) ↑", "0.500§ -1.000 to 0.750 (constant scale)", "0.250",
    ]  # fmt: skip
    assert "1,234 instances" in table.notes[0] and "50 draws" in table.notes[0]
    plain = build_tables(RunStatistics(metrics(), CORRELATIONS, empty, empty, empty), RECORD)
    assert "§" not in "".join(render_markdown(built_table) for built_table in plain)


def test_constant_rows_are_listed_below_and_equal_variants_are_merged():
    def row(name, detail, *cells, **options):
        return Row(Title(name, [detail] if detail else [], "higher", **options), cells)

    ranked = (Cell(0.1, rank=1), Cell(0.2, rank=2))
    bold = tuple(replace(cell, bold=True) for cell in ranked)
    tied = Cell(1.4, 1.0, 2.0, rank=1.5, is_tied=True)
    blocks = {
        "a": [row("V", "label", *ranked), row("P", "label", tied, tied)],
        "b": [
            row("V", "probability", *ranked), row("x", "", Cell(), Cell(np.nan), suffix="§"),
            row("z", "", Cell(2.0), Cell()),
        ],
        "c": [row("W", "probability", *ranked), row("V", "soft", *bold)],
        "d": [row("y", "", Cell(), Cell())],
    }  # fmt: skip
    merged, notes = merge_rows(blocks, ranked=True)
    assert [[line.title.text for line in block] for block in merged] == [
        ["V (label / probability) ↑"], ["z ↑"], ["W (probability) ↑", "V (soft) ↑"],
    ]  # fmt: skip
    assert merged[0][0].cells == ranked
    assert notes == ["Same value for all explainers, not shown: P (label) 1.4000.", "No values: x, y."]
    merged, notes = merge_rows(blocks)  # the columns are not explainers
    assert len(merged[0]) == 2 and notes == ["No values: x, y."]


def test_equal_remarks_are_written_once():
    record = make_record(
        metrics={"naopc": make_metric("NAOPC", block="order")}, removals={"del": {"name": "zero", "title": "del."}},
        explainers={"lr": "LR", "random": "Random"},
    )  # fmt: skip
    texts = {
        "del": [("a", "1 of 2"), ("a", "1 of 2")], "marginal": [("a", "1 of 2"), ("a", "2 of 2")],
        "mask": [("a", "1 of 2"), ("a", "")], "mean": [("", "x"), ("", "y")], "none": [("", ""), ("", "")],
    }  # fmt: skip
    lines = [
        ("naopc", variant, name, *pair)
        for variant, pairs in texts.items()
        for name, pair in zip(("lr", "random"), pairs, strict=True)
    ]
    metrics = pd.DataFrame(lines, columns=["metric", "variant", "explainer", "method", "remark"])
    assert write_remark_notes(metrics, record) == [
        "NAOPC (del.): a; 1 of 2.", "NAOPC (marginal): a. LR: 1 of 2; Random: 2 of 2.",
        "NAOPC (mask). LR: a; 1 of 2; Random: a.", "NAOPC (mean). LR: x; Random: y.",
    ]  # fmt: skip


def test_metrics_that_rank_different_explainers_are_not_compared():
    names = ["metric", "variant", "than_metric", "than_variant", "difference", "p_holm", "same"]
    pairs = [("proximity", "label"), ("c", "label"), ("comprehensiveness", "del")]
    gaps = {(0, 1): (0.5, 0.01, False), (0, 2): (np.nan, np.nan, False), (1, 2): (np.nan, np.nan, False)}
    lines = [
        dict(zip(names, [*pairs[first], *pairs[second], *figures], strict=True))
        | {"family": "explainers", "truth": "signed", "agreement": "recall", "subset": ALL_EXPLAINERS}
        for (first, second), figures in gaps.items()
    ]
    (table,) = build_differences(pd.DataFrame(lines), change_record(RECORD, resampled=100))
    assert [row.texts for row in table.blocks[0]] == [["0.500*", "–"], ["", "–"], ["", ""]]
    assert "–: the two metrics rank different explainers, so their τ are not comparable." in table.notes
    assert not any("are too few" in note for note in table.notes)  # one pair is tested, not three


def test_mean_ranks_use_metrics_that_rank_the_same_explainers():
    """B is first of three by two metrics; its second place by a third metric, without A, does not count."""
    ranks = {("x", "del"): "B A C", ("y", "del"): "B C A", ("z", "del"): "C B", ("u", "label"): "A C", ("t", "del"): ""}
    metrics = pd.DataFrame(
        [
            {"metric": metric, "variant": variant, "explainer": name, "rank": float(place), "role": "judged"}
            for (metric, variant), order in ranks.items()
            for place, name in enumerate(order.split(), 1)
        ]
        + [{"metric": "t", "variant": "del", "explainer": name, "rank": 2.0, "role": "judged"} for name in "ABC"]
    ).assign(quality_level=float("nan"))
    blocks = {name: "erasure" if name != "u" else "counterfactual" for name in "xyzut"}
    record = make_record(metrics={name: make_metric(name, block=block) for name, block in blocks.items()})
    mean_ranks = compute_mean_ranks(metrics, record)
    assert mean_ranks["erasure"]["mean"].to_dict() == {"B": 1.0, "A": 2.5, "C": 2.5}
    assert set(mean_ranks["erasure"]["count"]) == {2} and next(iter(mean_ranks["erasure"].index)) == "B"
    assert mean_ranks["counterfactual"]["mean"].to_dict() == {"A": 1.0, "C": 2.0}
