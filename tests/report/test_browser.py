"""The report in a real browser: Debian's chromium, driven headless through the DevTools protocol."""

import json
import re
import shutil

import pytest

from cfeval_cli.report.page import build
from cfeval_cli.results.folder import replace_files
from cfeval_cli.results.read import read_results
from cfeval_cli.study.sweep.gather import gather
from tests.conftest import reseal
from tests.report.test_page import SWEEP_JOB

FEW_METRICS = "metric=[validity,proximity,recall]"  # few panels, and yet all figures

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
if BROWSER is None:
    pytest.skip("there is no chromium or google-chrome on this machine", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

EVIL = "<img src=x onerror=\"console.error('obeyed')\">"


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        # in a container there is no user to be protected from; the page under test is ours
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(toy, toy_text, make_run):
    """A table with names that are markup, and sentences with moved embeddings."""
    table = make_run(toy, "explainer=[random,omission,lr]", FEW_METRICS, "truth=[signed,contrast]", copy=True)
    record = json.loads((table / "run.json").read_text())
    record["explainers"]["omission"] = EVIL
    (table / "run.json").write_text(json.dumps(record))
    description = json.loads((table / "dataset.json").read_text())
    description["classes"][1] = description["features"][0]["name"] = EVIL
    (table / "dataset.json").write_text(json.dumps(description))
    search_settings = ["search=continuous", "search.steps=5", "resamples=0"]
    text = make_run(
        toy_text, "explainer=[random,omission,lr]", FEW_METRICS, "truth=[signed]", *search_settings, copy=True
    )
    for folder in (table, text):
        reseal(folder)
        replace_files(folder, read_results(folder).record, build.Report(read_results(folder)).make_files([]))
    without_truth = table / "uncomputed.html"
    without_truth.write_text(re.sub(r'(?<="reference":)\{[^}]*\}', "{}", (table / "report.html").read_text()))
    sweep = table.parent / "sweep"
    for number, seed in enumerate((1, 2)):
        shutil.copytree(make_run(toy, *SWEEP_JOB, f"seed={seed}"), sweep / str(number))
    gather([sweep], sweep, {sweep / "2": [f"seed={EVIL}"]}, page=True)
    pages = {"table": table / "report.html", "text": text / "report.html", "sweep": sweep / "report.html"}
    return pages | {"uncomputed": without_truth}


@pytest.fixture
def open_page(chromium, reports):
    """Open a report; it must write nothing to the console and request no other file."""
    contexts, messages, urls = [], [], []

    def open_(name, path=None, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: urls.append(request.url))
        page.goto((path or reports[name]).as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert messages == []
    assert {re.sub(r"#.*", "", url) for url in urls} <= {path.as_uri() for path in reports.values()}


ODD = {
    "one explainer": ["explainer=[lr]"],
    "k = 3, ten instances": ["explainer=[random,omission,lr]", "k=3", "n_explain=10"],
    "a ladder": ["explainer=graded", "explainer.graded.quality_levels=30"],
    "labels only": ["explainer=[random,lr]", "access=label", "resamples=0"],
}


@pytest.mark.parametrize("name", ["sweep", *(pytest.param(name, marks=pytest.mark.slow) for name in ODD)])
def test_pages_of_sweeps_and_unusual_runs_are_valid(open_page, reports, make_run, toy, name):
    if name in ODD:
        odd = make_run(toy, *ODD[name], copy=True)
        replace_files(odd, read_results(odd).record, build.Report(read_results(odd)).make_files([]))
        reports[name] = odd / "report.html"
    page = open_page(name)
    assert page.locator("h1").is_visible() and page.locator("figure svg").count() >= 1
    for bad in ("NaN", "Infinity", "[object", "undefined undefined"):
        assert bad not in page.locator("main").inner_text()
    head = page.locator("table.sortable").first.locator("thead th button").nth(1)
    if head.count():
        head.click()
    assert width_on_a_phone(page) <= 390


def width_on_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("innerWidth") == 390
    return page.evaluate("document.documentElement.scrollWidth")


def column(page, place, table=0):
    return page.evaluate(
        "([t, i]) => [...document.querySelectorAll('table.sortable')[t].querySelectorAll('tbody tr')]"
        ".map((row) => row.cells[i].textContent.trim())",
        [table, place],
    )


def numbers(texts):
    return [float(re.match(r"-?[\d.]+", text)[0]) for text in texts if re.match(r"-?\d", text)]


FIGURES = ["explainers", "counterfactuals", "costs"]


@pytest.mark.parametrize("name", ["table", "text"])
def test_page_opens_without_an_error_and_fits_a_phone(open_page, name):
    page = open_page(name)
    assert page.locator("h1").is_visible() and page.locator("#browser").is_visible()
    drawn = page.locator("figure").filter(has=page.locator("svg")).evaluate_all("(all) => all.map((f) => f.id)")
    assert sorted(drawn) == sorted(f"figure-{figure}" for figure in FIGURES)
    assert page.locator("img").count() == 0
    if name == "text":
        check_sentences(page.locator("#instance-details"))
    assert width_on_a_phone(page) <= 390


def check_sentences(case):
    """They are coloured, and edits are marked."""
    assert case.locator(".explanation").count() == 3 and case.locator(".words .top-k").count() == 3
    assert (
        case.locator("del").count() == 3
        and case.locator("ins").count() == 3
        and case.locator(".reference").count() == 3
    )
    assert re.search(r"score -?[\d.e-]+, rank 1", case.locator(".top-k").first.get_attribute("title"))


def test_rows_sort_by_a_column_and_explainers_by_a_metric(open_page):
    page = open_page("table")
    tables = page.locator("table.sortable")
    scores = next(i for i in range(tables.count()) if "GroundTruth*" in tables.nth(i).inner_text())
    table = tables.nth(scores)
    before, names = column(page, 0, scores), table.locator("thead th").all_text_contents()
    head = table.locator("thead th").nth(2)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers(column(page, 2, scores)) == sorted(numbers(column(page, 2, scores)), reverse=True)
    page.keyboard.press("Enter")  # the button has the focus
    assert head.get_attribute("aria-sort") == "ascending"
    assert numbers(column(page, 2, scores)) == sorted(numbers(column(page, 2, scores)))
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") is None and column(page, 0, scores) == before
    row = table.locator("tbody tr").filter(has_text="GroundTruth*").first
    row.locator("th button").click()
    headings = [re.sub(r"\s*[▲▼]", "", name) for name in table.locator("thead th").all_text_contents()]
    assert headings[1].rstrip(" ?") == "LR" and sorted(headings) == sorted(names)  # with what leads to the glossary
    ranks = [re.search(r"\((\d+)", text)[1] for text in row.locator("td").all_text_contents()]
    assert ranks == sorted(ranks)
    row.locator("th button").click()
    assert table.locator("thead th").all_text_contents() == names


def test_instance_browser_works_by_mouse_and_by_keyboard(open_page):
    page = open_page("table")
    case, place = page.locator("#instance-details"), page.locator("#position")
    assert place.text_content() == "1 of 40" and page.locator("#previous").is_disabled()
    first = case.text_content()
    assert EVIL in first and "Counterfactual" in first and re.search(r"(flips to|stays)", first)
    page.locator("#next").click()
    assert place.text_content() == "2 of 40" and case.text_content() != first
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageDown")
    assert place.text_content() == "13 of 40"
    page.keyboard.press("ArrowLeft")
    assert place.text_content() == "12 of 40"
    page.locator("#instance").select_option("0")
    assert case.text_content() == first
    page.locator("#instance-filter").select_option("disagree")
    assert re.fullmatch(r"1 of \d+", place.text_content()) and place.text_content() != "1 of 40"
    page.locator("#instance-filter").select_option("all")
    page.locator("#truth").select_option("contrast")
    assert "ground truth (contrast)" in case.text_content() and case.locator(".reference").count() == 1
    page.locator("#access-level").select_option("0")
    assert "P(" not in case.locator(".edits").text_content()  # with labels alone no probability is seen
    assert case.locator("td.top-k").count() == 3  # each explainer selects k = 1


def test_instance_browser_states_that_a_ground_truth_was_not_computed(open_page):
    case = open_page("uncomputed").locator("#instance-details")
    assert re.search(r"ground truth \(\w+\) not computed", case.text_content())
    assert case.locator(".reference").count() == 0


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compute_contrast(first, second):
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


STYLE = "(e) => { const s = getComputedStyle(e); return [s.color, s.backgroundColor, s.fill]; }"


def test_light_and_dark_themes_have_sufficient_contrast(open_page):
    papers = []
    for scheme in ("light", "dark"):
        page = open_page("table", color_scheme=scheme)
        _, paper, _ = page.locator("body").evaluate(STYLE)
        papers.append(paper)
        for selector in ("h1", ".lead", ".note", "figcaption", "nav a", "td small", "td .rank"):
            assert compute_contrast(page.locator(selector).first.evaluate(STYLE)[0], paper) >= 4.5, (scheme, selector)
        for cell in page.locator("#instance-details td[class*=p], #instance-details td[class*=n], td.agrees").all()[
            :20
        ]:
            ink, background, _ = cell.evaluate(STYLE)
            under = paper if background == "rgba(0, 0, 0, 0)" else background  # what is not coloured shows the paper
            assert compute_contrast(ink, under) >= 4.5, (scheme, background)
        assert compute_contrast(page.locator("figure svg text").first.evaluate(STYLE)[2], paper) >= 4.5
        page.locator("#theme").click()
        assert page.locator("body").evaluate(STYLE)[1] != paper
    assert luminance(papers[0]) > 0.9 and luminance(papers[1]) < 0.05


def test_buttons_copy_tables_and_the_command(open_page, reports):
    texts = json.loads(re.search(r'id="table-texts">(.*?)</script>', reports["table"].read_text(), re.S)[1])
    page = open_page("table", permissions=["clipboard-read", "clipboard-write"])
    for form in ("latex", "markdown", "csv"):
        page.locator(f"button[data-copy={form}]").first.click()
        playwright.expect(page.locator("#scores .status").first).to_have_text("copied")
        assert page.evaluate("navigator.clipboard.readText()") == texts[0][form]
        page.evaluate("document.querySelector('#scores .status').textContent = ''")
    # and where the page may not use the clipboard by itself
    page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('no')))")
    page.locator("button[data-copy=command]").click()
    playwright.expect(page.locator("#provenance .status")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#command").text_content()


def test_print_has_no_buttons_and_all_details_are_open(open_page, tmp_path):
    page = open_page("table", color_scheme="dark")
    page.emulate_media(media="print")
    for selector in ("nav", "#instances", "button[data-copy=latex]", "#theme"):
        assert not page.locator(selector).first.is_visible()
    assert luminance(page.locator("body").evaluate(STYLE)[1]) > 0.9  # black on white
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media=None)
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF") and (
        tmp_path / "report.pdf"
    ).stat().st_size > 50_000


def test_page_without_scripts_shows_all_but_the_instance_browser(open_page):
    page = open_page("table", java_script_enabled=False)
    assert page.locator("table.sortable").first.is_visible() and page.locator("figure svg").first.is_visible()
    assert page.locator("noscript").first.is_visible() and not page.locator("#browser").is_visible()
    assert not page.locator("button").first.is_visible()
