"""Reports of run folders have the expected content and are safe, small and reproducible."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.cli import report
from cfeval_cli.errors import UserError
from cfeval_cli.report.page import build, instance_browser, provenance
from cfeval_cli.report.render.csv_text import render_csv
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.verdict import _Comparison, write_verdict
from cfeval_cli.results.read import read_results
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS
from cfeval_cli.study.sweep.gather import gather
from cfeval_cli.study.sweep.page import write_page
from tests.conftest import reseal, run_cfeval
from tests.records import change_record
from tests.report.conftest import text_of

FOUR = "explainer=[random,omission,decision_boundary,lr]"
FOUR_RANKED = "explainer=[random,omission,omission_mean,gradient_input,decision_boundary,lr]"  # four have a τ
FEW_METRICS = "metric=[dfr,c,recall]"  # so that figures have few panels
SMALL_RUN = (FEW_METRICS, "truth=[signed]")  # and one question, so that there are fewer figures
# a job of a sweep
SWEEP_JOB = ("explainer=[random,omission,omission_mean,gradient_input,decision_boundary]", FEW_METRICS,
             "removal=[marginal]", "n_explain=20", "resamples=0", "model.max_epochs=10")  # fmt: skip
EVIL = "<img src=x onerror=alert(1)>"


def read_run(folder):
    """Return the results of a folder that a test has changed."""
    reseal(folder)
    return read_results(folder)


def page(folder, figures=True):
    run = read_run(folder)
    return build.Report(run).render_page(build.draw_figures(run) if figures else {}, [])


def read_embedded_json(html, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)[1])


class Checker(HTMLParser):
    """Every element that is opened is closed, no id stands twice, nothing is loaded and no handler is set."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tags = [], [], set()

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes, closed=True)

    def handle_starttag(self, tag, attributes, closed=False):
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value)
            if name == "src" or (name.endswith("href") and tag not in ("a", "link")):
                assert (value or "").startswith(("#", "data:")), (tag, name, value[:50])
        if not closed and tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(html):
    checker = Checker()
    checker.feed(html)
    assert not checker.open and len(checker.ids) == len(set(checker.ids))
    assert not checker.tags & {"iframe", "object", "embed", "form", "foreignobject"}
    for url in re.findall(r"https?://[^\s\"'<)]+", html):
        assert url.startswith("http://www.w3.org/")  # names of namespaces, which are not loaded
    assert "@import" not in html and "url(http" not in html
    assert len(html.encode()) < 5_000_000
    return html


def test_report_has_tables_figures_settings_and_instances(toy, make_run):
    html = check(page(make_run(toy, FOUR_RANKED, "metric=[validity,proximity,recall]")))
    content = unescape(text_of(html))
    for title in ("Scores and ranks", "Agreement of each metric's ranking", "Differences between the τ", "Costs"):
        assert title in content
    for name in ("explainers", "correlations", "counterfactuals", "costs"):
        assert f'id="figure-{name}"' in html
    assert re.search(r"\d+ used, of 600 read", content) and "SHA-256" in content and "cfeval run 'explainer=" in content
    data = read_embedded_json(html, "browser-data")
    assert (
        len(data["instances"]) == 40 and data["truths"][:2] == ["shapley", "contrast"] and "All 40 instances" in content
    )
    assert re.findall(r"<svg[^>]*role=\"img\"", html) and html.count("<desc") == html.count("<svg")


def test_report_made_again_has_the_same_bytes(toy, make_run, monkeypatch, capsys):
    folder = make_run(
        toy,
        "explainer=[random,lr]",
        "metric=[c,recall]",
        "truth=[signed]",
        "n_explain=20",
        "model.max_epochs=10",
        "figures=[pdf]",
        "report=true",
        copy=True,
    )
    first = {path: path.read_bytes() for path in (folder / "report.html", *(folder / "figures").iterdir())}
    assert {path.suffix for path in first} == {".html", ".pdf"}  # the page has the others
    for path in first:
        path.unlink()
    report.main([str(folder)])
    assert "report.html" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (folder / "report.html", *(folder / "figures").iterdir())} == first
    report.main([str(folder), "--figures", "svg,png"])
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".pdf", ".svg", ".png"}
    assert read_results(folder).record.status == "complete"  # with the hashes of the new files
    capsys.readouterr()
    for words, message in (
        ((str(folder), "--figures", "gif"), "there is no format 'gif'. There is: png, svg, pdf."),
        ((str(folder), str(folder), "--figures", "svg"), "--figures applies to the report of one run only"),
    ):
        with pytest.raises(SystemExit) as stop:
            report.main(words)
        assert stop.value.code == 2 and message in capsys.readouterr().err


@pytest.fixture(scope="module")
def undrawn(toy, make_run):
    """A page without figures."""
    return page(make_run(toy, FOUR, FEW_METRICS), figures=False)


def test_content_security_policy_allows_only_the_script_of_the_page(undrawn):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', undrawn)
    (script,) = re.findall(r"<script>(.*?)</script>", undrawn, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in unescape(policy) and "default-src 'none'" in unescape(policy)
    assert "unsafe-inline'; script" not in policy.split("script-src")[1]


def test_markup_in_names_is_escaped(toy, make_run):
    folder = make_run(toy, FOUR, *SMALL_RUN, copy=True)
    record = json.loads((folder / "run.json").read_text())
    record["explainers"]["omission"] = EVIL + "</script><!--"
    record["explainers"]["decision_boundary"] = "$x^{2}$ {{ 7 * 7 }}"
    record["data"]["name"] = record["data"]["file"] = EVIL
    record["command"] = ["cfeval", "run", f"name={EVIL}"]
    record["metrics"]["dfr"]["title"] = EVIL
    (folder / "run.json").write_text(json.dumps(record))
    description = json.loads((folder / "dataset.json").read_text())
    description["classes"] = [EVIL, "</script>"]
    description["features"][0]["name"] = description["values"][0][0] = EVIL
    (folder / "dataset.json").write_text(json.dumps(description))
    run = read_run(folder)
    html = check(build.Report(run).render_page({}, []))  # tests/hostile/test_names.py has figures of such names
    assert "<img" not in html and html.count("</script>") == 3 and "49" not in re.findall(r"\$x.{30}", html)[0]
    assert read_embedded_json(html, "browser-data")["classes"] == [EVIL, "</script>"]
    assert EVIL in unescape(text_of(html))


def test_every_table_can_be_copied_as_latex_markdown_and_csv(undrawn):
    texts = read_embedded_json(undrawn, "table-texts")
    buttons = re.findall(r'data-copy="(latex|markdown|csv)" data-table="(\d+)"', undrawn)
    assert {int(number) for _, number in buttons} == {i for i, text in enumerate(texts) if text["csv"].count("\n") > 1}
    scores = next(text for text in texts if text["markdown"].startswith("**Scores"))
    assert scores["latex"].startswith(r"\begin{table*}")
    assert scores["csv"].splitlines()[0] == "Metric,Random,Omission,DecisionBoundary,LR"
    table = Table("t", [Title("a"), Title('b "q"')], [[Row(Title("x, y"), [Cell("1")])]])
    assert render_csv(table) == 'a,"b ""q"""\n"x, y",1\n'


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            [*SMALL_RUN, "removal=[marginal]", "explainer=[lr]"],
            ["a ranking needs two explainers, and this run has one"],
        ),
        (
            ["explainer=[random,omission]", *SMALL_RUN, "removal=[marginal]", "k=3", "n_explain=10"],
            ["k = 3", "No intervals: 10 instances"],
        ),
        pytest.param(
            ["explainer=graded", "explainer.graded.quality_levels=4"],
            ["On 4 graded control explainers"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["explainer=[random,lr]", "access=label", "resamples=0"],
            ["needs probability access"],
            marks=pytest.mark.slow,
        ),
        (["explainer=[random,lr]", "metric=[c,validity]"], ["neither ground truth"]),
        (["explainer=[random,lr]", "metric=[recall]"], ["no metric to be judged"]),
    ],
)
def test_reports_of_unusual_runs_are_valid(toy, make_run, overrides, expected):
    folder = make_run(toy, *overrides, "model.max_epochs=10")
    is_small = overrides[-1].startswith("metric=")  # little to be drawn, and that is tried below
    content = unescape(text_of(check(page(folder, figures=not is_small))))
    assert not is_small or "correlations" not in build.draw_figures(read_run(folder))
    assert all(text in content for text in expected) and not re.search(r"\bnan\b|\bNone \[|inf\b", content)


@pytest.mark.slow
def test_text_report_has_words_and_moved_embeddings(toy_text, make_run):
    folder = make_run(toy_text, "explainer=[random,omission,lr]", "search=continuous", "search.steps=2")
    html = check(page(folder))
    content = unescape(text_of(html))
    data = read_embedded_json(html, "browser-data")
    assert "Not all searches converged" in content and data["moves_embeddings"]
    instances = pd.read_parquet(folder / "instances.parquet").set_index("instance")
    for instance in data["instances"]:
        words = [data["value_names"][value] for value in instance["values"]]
        assert " ".join(words) == " ".join(instances.loc[instance["id"], "text"].split())


def test_report_warns_if_no_counterfactual_flips(toy, make_run):
    folder = make_run(toy, FOUR, copy=True)
    counterfactuals = pd.read_parquet(folder / "counterfactuals.parquet")
    counterfactuals["flipped"] = False
    counterfactuals.to_parquet(folder / "counterfactuals.parquet", index=False)
    gaps = {"value_low": [""], "value": [""]}
    metrics = pd.read_csv(folder / "metrics.csv", keep_default_na=False, na_values=gaps)
    metrics.loc[metrics["metric"].isin(["validity", "c"]), ["value", "value_low"]] = 0
    metrics.to_csv(folder / "metrics.csv", index=False)
    assert "No counterfactual flips a prediction (label access)" in unescape(
        text_of(check(page(folder, figures=False)))
    )


@pytest.mark.slow
def test_report_of_500_graded_controls_is_small(toy, make_run):
    folder = make_run(toy, "explainer=[random,omission,lr,graded]", "explainer.graded.quality_levels=3", copy=True)
    record = json.loads((folder / "run.json").read_text())
    metrics = pd.read_csv(folder / "metrics.csv", keep_default_na=False, na_values={"quality_level": [""]})
    graded, other_rows = metrics[metrics["quality_level"].notna()], metrics[metrics["quality_level"].isna()]
    level_rows = graded[graded["explainer"] == graded["explainer"].iloc[0]]
    levels = [level_rows.assign(explainer=f"graded_{p:.4f}", quality_level=p) for p in np.linspace(1, 0, 500)]
    pd.concat([other_rows, *levels]).to_csv(folder / "metrics.csv", index=False)
    record["explainers"] |= {f"graded_{p:.4f}": f"Truth {p:.4f}" for p in np.linspace(1, 0, 500)}
    (folder / "run.json").write_text(json.dumps(record))
    html = check(page(folder))
    assert len(html) < 1_500_000 and "11 of 500 quality levels" in text_of(html)
    assert read_embedded_json(html, "browser-data")["explainers"] == ["Random", "Omission", "LR"]


def test_instances_of_the_browser_are_spread_over_the_predictions():
    probability = np.random.default_rng(0).random(5000)
    rows = instance_browser.select_spread(probability, 300)
    assert len(set(rows)) == 300 and (np.diff(rows) > 0).all()
    assert probability[rows].max() == probability.max() and abs(np.median(probability[rows]) - 0.5) < 0.02
    assert instance_browser.select_spread(probability[:10], 300).tolist() == list(range(10))


def test_instance_browser_equals_the_parquet_files(toy, make_run):
    folder = make_run(toy, FOUR)
    browser = instance_browser.build_browser(read_run(folder))
    scores = pd.read_parquet(folder / "scores.parquet").set_index(["metric", "variant", "explainer", "instance"])
    scores = scores["numerator"].to_dict()
    counterfactuals = {
        (line.explainer, line.access, line.instance): line
        for line in pd.read_parquet(folder / "counterfactuals.parquet").itertuples()
    }
    names = list(json.loads((folder / "run.json").read_text())["explainers"])
    for instance in browser.instances:
        for name, explanation, edits in zip(names, instance.explanations, instance.counterfactuals, strict=True):
            if not explanation.features:
                assert edits == [None] * len(browser.access_levels)
                continue
            for truth in browser.truths:
                hit = float(explanation.features[0] in instance.reference[truth])
                assert hit == scores["recall", truth, name, instance.id]
            for level, edit in zip(browser.access_levels, edits, strict=True):
                line = counterfactuals[name, level, instance.id]
                assert edit.features == line.features.tolist() and edit.label == line.label and edit.converged is None
                assert edit.distance == pytest.approx(line.distance, rel=1e-3)
                probability = None if level == "label" else pytest.approx(line.probability, rel=1e-3)
                assert edit.probability == probability


def write_changed_verdict(folder, number=2, **columns):
    """Return the verdict on a run with these values without controls, over so many explainers."""
    run = read_run(folder)
    lines = run.statistics.correlations
    is_without_controls = lines["subset"] == WITHOUT_CONTROLS
    for name, value in columns.items():
        lines.loc[is_without_controls & lines["tau"].notna(), name] = value
    lines.loc[is_without_controls, "explainers"] = number
    return write_verdict_over_explainers(run)


def write_verdict_over_explainers(run):
    """Return the verdict without the agreement within instances, which leads it otherwise."""
    return write_verdict(
        replace(run.statistics, instance_agreement=run.statistics.instance_agreement.iloc[:0]), run.record
    )


def test_verdict_claims_no_more_than_p_allows(toy, make_run):
    folder = make_run(toy, FOUR, FEW_METRICS)
    inconclusive = write_changed_verdict(folder, tau=0.5)
    assert (
        not inconclusive.is_significant and "2 orderings" in inconclusive.points[-1] and len(inconclusive.points) == 5
    )
    start = "Inconclusive for this trained model: 2 explainers allow only 2 orderings. Highest τ: "
    assert inconclusive.headline.startswith(start)
    assert " for contribution; " in inconclusive.headline and inconclusive.headline.endswith(" for change")
    assert "over the 2 explainers that are not controls (Omission and DecisionBoundary" in inconclusive.points[-1]
    assert inconclusive.points[0].startswith("Contribution: ") and inconclusive.points[2].startswith("Change: ")
    assert all("Highest τ 0.500" in point and "; with the controls " in point for point in inconclusive.points[:4:2])
    assert all("Agreement with the ground truth (recall, " in point for point in inconclusive.points[1:4:2])
    # 24 orders: p can be 0.042, which is nothing among several metrics
    four = write_changed_verdict(folder, number=4, tau=0.5, p_tau=1 / 24)
    assert "Inconclusive" in four.headline and "4 explainers allow only 24 orderings" in four.headline
    assert not four.is_significant
    single = write_changed_verdict(make_run(toy, FOUR, *SMALL_RUN), tau=0.5)
    assert "inconclusive, 2 explainers allow only 2 orderings; highest τ: " in single.headline
    assert "over the 2 explainers that are not controls (Omission and DecisionBoundary" in single.points[0]
    assert "2 orderings" in single.points[0] and "With the controls (Random and LR) τ is" in single.points[0]
    no_agreement = "no metric agrees with the ground truth (no τ is above 0)"
    assert (
        write_changed_verdict(folder, tau=-0.5).headline
        == f"For this trained model. Contribution: {no_agreement}. Change: {no_agreement}"
    )
    alone = write_changed_verdict(make_run(toy, FOUR, *SMALL_RUN), tau=-0.5)
    assert alone.headline == f"For this trained model: {no_agreement}"
    unsure = write_changed_verdict(folder, number=6, tau=0.5, p_tau=0.2)
    assert unsure.headline.count("no metric is significantly above chance; highest τ: ") == 2
    assert "(p = 0.200)" in unsure.headline and not unsure.is_significant
    larger = write_changed_verdict(folder, number=6, tau=0.5, p_tau=0.04)
    assert "not significantly above chance (p = " in larger.headline and not larger.is_significant
    sure = write_changed_verdict(folder, number=6, tau=0.5, p_tau=0.0001)
    assert ", significantly above chance (p < " in sure.headline and sure.is_significant
    assert any("best erasure metric: " in point for point in sure.points)


@pytest.mark.parametrize("truth", [[], ["truth=[signed]", "metric=[comprehensiveness,dfr,validity,c,recall]"]])
def test_the_verdict_compares_metrics_that_rank_the_same_explainers(toy, make_run, truth):
    run = read_run(make_run(toy, FOUR, *truth))
    metrics, lines = run.statistics.metrics, run.statistics.correlations
    metrics["control"] = False
    metrics.loc[metrics["metric"].isin(["c", "dfr"]) & (metrics["explainer"] == "decision_boundary"), "value"] = np.nan
    metrics.loc[(metrics["metric"] == "validity") & (metrics["explainer"] == "lr"), "value"] = np.nan
    fewer, is_without_controls = lines["metric"].isin(["c", "dfr", "validity"]), lines["subset"] == WITHOUT_CONTROLS
    lines.loc[is_without_controls, "explainers"] = np.where(fewer, 3, 4)[is_without_controls]
    of_all = lines[~is_without_controls].set_index(["metric", "variant", "truth", "agreement"])["tau"]
    is_defined = (
        of_all.loc[pd.MultiIndex.from_frame(lines.loc[is_without_controls, of_all.index.names])].notna().to_numpy()
    )
    lines.loc[is_without_controls, "tau"] = np.where(is_defined, np.where(fewer[is_without_controls], 1.0, 0.5), np.nan)
    lines.loc[is_without_controls, "p_tau"] = 0.2
    lines.loc[is_without_controls & (lines["metric"] == "dfr") & lines["tau"].notna(), "tau"] = -0.25
    content = write_verdict_over_explainers(run)
    assert "Comp. (del.)" in content.headline
    assert not any(name in content.headline for name in ("C (disc.", "DFR", "Validity (label)"))
    (point,) = (
        point for point in content.points if point.startswith("Not compared, because they rank fewer explainers: ")
    )
    taus = ("{}",) if truth else ("contribution {}", "change {}")
    for excluded_name, tau in (("DecisionBoundary", "-0.250 to 1.000"), ("LR", "1.000")):
        assert f"(3 explainers, without {excluded_name}): τ {', '.join(taus).format(*[tau] * len(taus))}" in point
    assert point.count("without") == 2 and "C (disc., label)" in point and "Validity (label)" in point
    assert not any(
        name in other for other in content.points if other != point for name in ("C (disc., label)", "DFR (del.)")
    )
    # every metric is either compared or listed as not compared
    comparison = _Comparison.from_statistics(run.statistics, run.record, run.record.settings.truth[0])
    assert set(comparison.lines["tau"]) == {0.5} and comparison.n_ranked == 4
    not_compared = sum(map(len, comparison.not_compared.values()))
    own = lines[
        is_without_controls
        & (lines["truth"] == comparison.truth)
        & (lines["agreement"] == "recall")
        & lines["tau"].notna()
    ]
    assert len(comparison.lines) + not_compared == len(own) and not_compared == fewer[own.index].sum()


def test_controls_alone_give_no_verdict(toy, make_run):
    run = read_run(make_run(toy, "explainer=[random,lr]", FEW_METRICS))
    assert run.statistics.correlations["tau"].notna().any()
    content = write_verdict(run.statistics, run.record)
    assert (
        content.headline
        == "Metrics are not ranked: τ needs at least 4 explainers that are not controls, and this run has none"
    )
    assert not content.is_significant


@pytest.mark.parametrize(("count", "n_text"), [(1, "1 instance is"), (29, "29 instances are"), (30, None)])
def test_few_instances_are_inconclusive(toy, make_run, count, n_text):
    run = read_run(make_run(toy, FOUR))
    written_verdict = write_verdict(run.statistics, change_record(run.record, instances=count))
    if n_text:
        assert written_verdict.headline == f"Inconclusive: {n_text} too few to compare explainers or metrics"
        assert not written_verdict.is_significant
    leads = "Contribution: Suff. (marginal) prefers the more faithful of two explanations of an instance in "
    assert written_verdict.headline.startswith(leads) == (n_text is None)


def test_only_effects_have_colours(toy, make_run):
    folder = read_run(make_run(toy, FOUR))
    browser = instance_browser.build_browser(folder)
    assert dict(zip(browser.explainers, browser.has_effects, strict=True)) == {
        folder.record.explainers[name]: name != "random" for name in folder.displayed_explainers
    }
    assert folder.record.effects["random"] is False


def test_failed_explanations_are_listed(toy, make_run):
    folder = make_run(toy, FOUR, copy=True)
    record = json.loads((folder / "run.json").read_text())
    record["explained"]["decision_boundary"]["faults"] = 7
    (folder / "run.json").write_text(json.dumps(record))
    run = pd.read_parquet(folder / "explanations.parquet")
    run["fault"] = None
    run.loc[(run["explainer"] == "decision_boundary") & (run.index % 2 == 0), "fault"] = "it broke"
    run.to_parquet(folder / "explanations.parquet", index=False)
    assert "Instances without explanation: DecisionBoundary 7." in provenance.list_warnings(read_run(folder))
    browser = instance_browser.build_browser(read_run(folder))
    assert any(instance.explanations[2].missing_reason == "it broke" for instance in browser.instances)


def test_incomplete_run_has_no_report(toy, make_run, tmp_path, monkeypatch):
    folder = make_run(toy, FOUR, copy=True)
    record = json.loads((folder / "run.json").read_text())
    for change, reason in (({"status": "failed"}, "its status is failed"), ({"schema": 0}, "another version")):
        (folder / "run.json").write_text(json.dumps(record | change))
        with pytest.raises(UserError, match=reason):
            read_results(folder)
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit):  # the report of one run goes into its own folder
        report.main([str(folder), "--into", str(tmp_path)])
    (folder / "metrics.csv").write_text("changed")
    with pytest.raises(UserError, match=re.escape(f"{folder / 'metrics.csv'} is not as the run left it")):
        report.main([str(folder)])
    (folder / "metrics.csv").unlink()
    with pytest.raises(UserError, match=r"metrics\.csv is missing"):
        read_results(folder)
    outcome = run_cfeval("report", str(tmp_path), cwd=tmp_path, code=2)
    assert "contains a run.json" in outcome.stderr and outcome.stderr.startswith("cfeval: ")


def test_report_of_a_sweep_names_varied_settings_and_failed_runs(toy, make_run, tmp_path):
    for number, overrides in enumerate((["seed=1"], ["seed=2"], ["seed=1", "k=2"])):
        shutil.copytree(make_run(toy, *SWEEP_JOB, *overrides), tmp_path / str(number))
        record = json.loads((tmp_path / str(number) / "run.json").read_text())
        (tmp_path / str(number) / "run.json").write_text(json.dumps(record | {"overrides": overrides}))
    (tmp_path / "0" / "report.html").touch()
    outcome = gather([tmp_path], tmp_path, {tmp_path / "9": ["seed=<b>", "k=99"]}, page=True)
    html = check((tmp_path / "report.html").read_text())
    content = unescape(text_of(html))
    assert "3 runs together" in content and "9: failed" in content and "Means over 2 seeds: k=1" in content
    assert 'href="0/report.html"' in html and 'href="2/report.html"' not in html
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in ("agreement", "varied_k", "agreement_contrast", "varied_k_contrast")
        for kind in ("png", "svg", "pdf")
    }
    first = (tmp_path / "report.html").read_bytes()
    write_page(outcome.sweep, outcome.frames, outcome.conclusion, outcome.tables, tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first


@pytest.mark.parametrize("resamples", [100, 1000])
def test_verdict_states_too_few_resamples(toy, make_run, resamples):
    run = read_run(
        make_run(toy, FOUR, FEW_METRICS, *([] if resamples == 100 else [f"resamples={resamples}"]), copy=True)
    )
    assert run.record.settings.resamples == resamples
    comparison = _Comparison.from_statistics(run.statistics, run.record, "shapley")
    smallest_p = 2 / (resamples + 1) * comparison.n_hypotheses * (comparison.n_hypotheses - 1) / 2
    assert bool(comparison.resamples_note) == (smallest_p >= 0.05) == (resamples == 100)
    assert comparison.differences["p_holm"].min() >= min(1.0, smallest_p) - 1e-12  # no p can be smaller
    content = " ".join(write_verdict(run.statistics, run.record).points)
    assert ("resamples are too few" in content) == bool(comparison.resamples_note)


def test_metrics_that_share_the_lead_do_not_share_an_interval(toy, make_run):
    run = read_run(make_run(toy, FOUR, copy=True))
    lines = run.statistics.correlations
    is_without_controls = lines["subset"] == WITHOUT_CONTROLS
    lead = (
        is_without_controls
        & (lines["truth"] == "shapley")
        & (lines["agreement"] == "recall")
        & lines["metric"].isin(["dfr", "c"])
    )
    lines.loc[is_without_controls, "tau"] = 0.1
    lines.loc[lead, ["tau", "tau_high"]] = 1.0
    lines.loc[lead & (lines["metric"] == "dfr"), "tau_low"] = 0.25
    lines.loc[lead & (lines["metric"] == "c"), "tau_low"] = 0.75
    content = write_verdict_over_explainers(run).points[0]
    assert (
        "DFR (del.) [0.250, 1.000]" in content
        and "DFR (marginal) [0.250, 1.000]" in content
        and "[0.750, 1.000]" in content
    )
