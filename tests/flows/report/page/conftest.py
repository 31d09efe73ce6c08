"""What the tests of the pages share: results, the headless browser, and a page by what a reader sees and does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.report.page import live
from dovetail.flows.report.page.server import Server
from dovetail.isa.config.resolved import Config
from tests.flows.report.page.growing import Growing, served
from tests.flows.report.page.synthetic import MANY_AXES, STUDY_AXES, results_of


@pytest.fixture(scope="session")
def study() -> Results:
    """The 36 points of a study of two networks; the second one's name is no HTML."""
    workloads = (Workload("zoo:mobilenet_v1"), Workload("nets/<i>kws & co.onnx", 2.0, {"in put": (1, 3, 8, 8)}))
    constraints = ("cycles <= 50000000",)
    return results_of(Space(workloads, Config(), STUDY_AXES, constraints, ("cycles", "sram")))


@pytest.fixture(scope="session")
def many() -> Results:
    """10,080 points."""
    return results_of(Space((Workload("zoo:mobilenet_v1"),), Config(), MANY_AXES, (), ("cycles", "pe")))


@pytest.fixture
def server(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the sweep ``growing`` of the test's module, which reads the store whenever it is asked."""
    monkeypatch.setattr(live, "LEAST_AGE", 0)
    monkeypatch.setattr(live, "REST", 0)
    with served(growing.path) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser, wide enough for two columns; tests skip where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1500,1300"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


class Page:
    """A page in the browser, by what a reader sees and does."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def js(self, text: str, *values: Any) -> Any:
        """The value of a piece of script."""
        return self.browser.execute_script(text, *values)

    def find(self, selector: str) -> Any:
        """The first element of a CSS selector."""
        return self.browser.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        """What the first such element says."""
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """What all such elements say."""
        found = self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)
        return list(found)

    def cells(self, selector: str) -> list[list[str]]:
        """What the cells of all such rows of a table say."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((r) => [...r.cells].map((c) => c.textContent))"
        )
        return list(self.js(script, selector))

    def click(self, selector: str) -> None:
        """Click the first such element."""
        self.js("document.querySelector(arguments[0]).click()", selector)

    def filter(self, key: str, text: str) -> list[int]:
        """Type into a column's filter; the numbers of the first rows then."""
        self.js(
            "const input = document.querySelector(`.filters input[data-key='${arguments[0]}']`);"
            "input.value = arguments[1]; input.dispatchEvent(new Event('input'))",
            key,
            text,
        )
        return self.numbers()

    def numbers(self) -> list[int]:
        """Of the points whose rows are in the document."""
        return list(self.js("return [...document.querySelectorAll('tr[data-number]')].map((e) => +e.dataset.number)"))

    def row(self, number: int) -> None:
        """Click a point's row."""
        self.click(f"tr[data-number='{number}'] td")

    def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def until(self, condition: Callable[[], Any], seconds: float = 20) -> None:
        """Wait for a condition."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, seconds, 0.05).until(lambda _: condition())

    def complaints(self) -> list[str]:
        """What the browser's console has said since it was last asked: errors, and breaches of the policy."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self) -> list[str]:
        """What the page has fetched."""
        return list(self.js("return performance.getEntriesByType('resource').map((e) => e.name)"))


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Callable[[str], Page]]:
    """Opens an HTML text, or an address; whatever the browser complains of in the test makes it fail."""
    page = Page(chromium)

    def opened(html: str) -> Page:
        if not html.startswith("http"):
            (tmp_path / "page.html").write_text(html, "utf-8")
            html = (tmp_path / "page.html").as_uri()
        chromium.get(html)
        page.frame()
        return page

    page.complaints()
    yield opened
    assert page.complaints() == []
    chromium.get("about:blank")
