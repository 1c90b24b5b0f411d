"""A model with hostile label names and unknown labels, its report, and a browser."""

import shutil
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from cgmvae.data import Columns, MultiLabelDataset, make_split, make_survey
from cgmvae.evaluation import PAPER_METRICS, Scored, evaluate
from cgmvae.methods import BinaryRelevance, BlendClassifier, CGMVAEClassifier, MixedForest
from cgmvae.methods.communities import LabelPairs
from cgmvae.methods.conditioning import LabelFactors
from cgmvae.report.contents import Contents, collect
from cgmvae.report.page import Picture, write_page
from cgmvae.report.rows import ReportRows

NAMES = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    'say "hi" & bye',
    "{{ 7 * 7 }}",
    "owl 10",
    "owl 2",
    "a very long name of a label that does not fit into any column of a phone",
    "日本",
)


class Elements(HTMLParser):
    """Elements of a page with their attributes, scripts, tables, and marked and plain texts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self.tables, self.marked, self.texts = [], [], [], [], []
        self.cell = self.mark = self.tag = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.tag = tag
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.cell = ""
        elif tag in ("strong", "em"):
            self.mark = tag

    def handle_endtag(self, tag):
        self.tag = None
        if tag in ("th", "td"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None
        elif tag == self.mark:
            self.mark = None

    def handle_data(self, data):
        self.texts.append(data.strip())
        if self.tag == "script":
            self.scripts.append(data)
        if self.cell is not None:
            self.cell += data
            if self.mark:
                self.marked.append((self.mark, data))

    def outside(self):
        """Return all references to anything outside of the page."""
        names = ("src", "href", "action", "srcset", "data")
        found = [attributes.get(name) for _, attributes in self.found for name in names]
        return [each for each in found if each and not each.startswith(("data:", "#"))]


def emulate(browser, width, height, scheme):
    """Show pages at a size and in a color scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def requested(browser):
    """Return the kinds of addresses that the page asked for."""
    messages = [entry["message"] for entry in browser.get_log("performance")]
    sent = [message for message in messages if '"Network.requestWillBeSent"' in message]
    return {message.split('"url":"')[1].split(":")[0] for message in sent}


@dataclass(frozen=True)
class Report:
    """A model, the contents of its report, and the page."""

    model: Any
    contents: Contents
    path: Path
    rows: ReportRows
    """As they were read, before the model prepares them."""

    @property
    def test(self):
        return self.contents.rows.test

    @property
    def scores(self):
        return self.contents.measured[0].scores


class Page:
    """The page as its readers use it."""

    def __init__(self, browser, report):
        self.browser, self.report = browser, report
        self.names = report.model.label_names_
        self.look_at(1280, 900, "light")
        browser.get(report.path.as_uri())
        self.wait(lambda: browser.execute_script("return document.documentElement.dataset.ready"))
        self.settle()

    def look_at(self, width, height, scheme):
        emulate(self.browser, width, height, scheme)

    def wait(self, condition):
        return WebDriverWait(self.browser, 20).until(lambda _: condition())

    def settle(self):
        """Wait until the next frame is drawn."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.browser.execute_script(
            "return document.querySelector(arguments[0]).textContent", selector
        )

    def type(self, selector, *keys):
        element = self.find(selector)
        element.click()
        element.send_keys(*keys)
        self.settle()

    def click_at(self, selector, x, y):
        """Click a point of an element, given as fractions of its width and height."""
        self.point_at(selector, x, y)
        ActionChains(self.browser).click().perform()
        self.settle()

    def point_at(self, selector, x, y):
        element = self.find(selector)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        box = element.rect
        dx, dy = (x - 0.5) * box["width"], (y - 0.5) * box["height"]
        ActionChains(self.browser, duration=0).move_to_element_with_offset(
            element, dx, dy
        ).perform()
        self.settle()

    def choose(self, name):
        self.type("#search", Keys.CONTROL, "a", Keys.NULL, name, Keys.ENTER)
        assert self.text("#label-name") == name

    def set_threshold(self, selector, value):
        self.type(selector, Keys.CONTROL, "a", Keys.NULL, str(value), Keys.TAB)

    def live(self):
        return {name: self.text(f"#live-{name}") for name in PAPER_METRICS}

    def measured(self, rule):
        """Return the metrics of the library under a rule, formatted like the page."""
        rows = Scored(self.report.test.Y, self.report.scores, self.report.test.unknown)
        return {name: f"{value:.3f}" for name, value in evaluate(rows, rule=rule).metrics.items()}


def draw_nothing(patch):
    """Leave the plots of pages empty: drawing them takes most of the time of a page."""

    def undrawn(title, text, display, size=None, *, notes=(), for_experts=False, **_):
        return Picture(title, text, notes=notes, for_experts=for_experts)

    patch.setattr("cgmvae.report.page.make_picture", undrawn)


@pytest.fixture
def undrawn(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(scope="session")
def report_rows():
    data, _ = make_survey(600, 6, len(NAMES), frequency_decay=0.7, seed=2)
    unknown = np.random.default_rng(0).random(data.Y.shape) < 0.08
    data = replace(
        data, label_names=NAMES, unknown=unknown, groups=None, name="birds & <b>bees</b>"
    )
    return ReportRows.of_split(data, make_split(data, seed=0, fractions=(0.5, 0.2, 0.3)))


def make_report(folder, model, rows, **options):
    train, held = rows.train, rows.validation
    model.fit(train.X, train, validation_data=(held.X, held))
    return report_of(folder, model, rows, **options)


def report_of(folder, model, rows, *, drawn=True):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cgmvae.report.contents.N_TREES", 10)
        if not drawn:
            draw_nothing(patch)
        contents = collect(model, rows)
        write_page(model, contents, folder / "report.html", command="cgmvae report <m> & go")
    return Report(model, contents, folder / "report.html", rows)


@pytest.fixture(scope="session")
def report(tmp_path_factory, report_rows):
    """Return the report of a small C-GMVAE."""
    sizes = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,)}
    model = CGMVAEClassifier(n_members=2, epochs=6, embedding_dim=16, network=sizes, random_state=0)
    return make_report(tmp_path_factory.mktemp("report"), model, report_rows)


@pytest.fixture(scope="session")
def joint_report(tmp_path_factory, report_rows):
    """Return the report of a model that knows which labels go together beyond the features."""
    sizes = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,)}
    model = CGMVAEClassifier(n_members=2, epochs=3, embedding_dim=16, network=sizes, random_state=0)
    rng = np.random.default_rng(0)
    loadings = rng.uniform(-0.6, 0.6, (len(NAMES), 2)).astype(np.float32)
    strengths = np.array([0.3, -0.2, 0.1, 0.4], np.float32)
    error = rng.uniform(0, 0.1, (len(NAMES), len(NAMES))).astype(np.float16)
    error += error.T
    train = report_rows.train
    model.fit(train.X, train)
    model.label_factors_ = LabelFactors(loadings, strengths)
    model.label_pairs_ = LabelPairs(np.eye(len(NAMES), dtype=np.float16), error, error)
    return report_of(tmp_path_factory.mktemp("report"), model, report_rows, drawn=False)


@pytest.fixture(scope="session", params=["with C-GMVAE", "without"])
def blend_report(request, tmp_path_factory, report_rows):
    """Return the report of a blend."""
    sizes = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,)}
    network = CGMVAEClassifier(n_members=2, epochs=3, embedding_dim=16, network=sizes)
    experts = [("trees", MixedForest(n_trees=20)), ("logistic", BinaryRelevance())]
    if request.param == "with C-GMVAE":
        experts.append(("net", network))
    model = BlendClassifier(experts, random_state=0)
    return make_report(tmp_path_factory.mktemp("report"), model, report_rows)


@pytest.fixture(scope="session", params=["per-label", "top-k"])
def ruled_report(request, tmp_path_factory, report_rows):
    """Return the report of a model whose rule is not a single threshold."""
    model = BinaryRelevance(threshold_rule=request.param, random_state=0)
    return make_report(tmp_path_factory.mktemp("report"), model, report_rows, drawn=False)


@pytest.fixture(scope="session")
def lonely_report(tmp_path_factory):
    """Return the report of a model with one label."""
    data, _ = make_survey(120, 3, 1, n_groups=1, cardinality=0.5, seed=1)
    split = make_split(data, seed=0)
    model = BinaryRelevance(random_state=0)
    rows = ReportRows.of_split(data, split)
    return make_report(tmp_path_factory.mktemp("report"), model, rows, drawn=False)


@pytest.fixture(scope="session")
def text_rows():
    """Return messages with a number each; a topic has two words of its own."""
    rng = np.random.default_rng(0)
    own = {"sea": ["wave", "gull"], "hill": ["rock", "goat"], "<i>": ["lamp", "desk"]}
    Y = (rng.random((300, 3)) < 0.4).astype(np.uint8)
    texts = []
    for row in Y:
        topics = [rng.choice(own[topic]) for topic, on in zip(own, row, strict=True) if on]
        usual = rng.choice(["said", "april", "ltd", "the", "and", "of"], 5)
        texts.append(" ".join(rng.permutation([*usual, *topics])))
    values = np.array(texts, object), rng.random(len(Y))
    X = Columns(("message", "hour"), values, ("text", "number"))
    data = MultiLabelDataset(X, Y, label_names=tuple(own), name="messages")
    return ReportRows.of_split(data, make_split(data, seed=0, fractions=(0.5, 0.2, 0.3)))


@pytest.fixture(scope="session")
def text_report(tmp_path_factory, text_rows):
    """Return the report of a model of texts."""
    model = BinaryRelevance(random_state=0)
    return make_report(tmp_path_factory.mktemp("report"), model, text_rows)


@pytest.fixture(scope="session")
def browser():
    """Return headless Chromium, which logs console messages and requests."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("Chromium and its driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture
def open_page(browser):
    """Open reports; the browser must not log anything."""
    yield lambda report: Page(browser, report)
    assert browser.get_log("browser") == []
