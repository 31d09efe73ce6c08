"""The pictures of the page in the documentation, made anew: docs/images/report.png and report_layers.png.

    python benchmarks/page_pictures.py [--output out/page] [--points 500] [--images docs/images]

Points of docs/examples/spaces/mobilenet_v1.toml, drawn evenly, are priced at effort 0 into a store that is kept in
OUTPUT, so that a second run only draws. Two points of the front are selected: the one of the fewest cycles, and the
fastest with at most two thirds of its multipliers. Needs chromium, chromedriver and the extra `dev`.
"""

import argparse
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

from selenium import webdriver

from dovetail.flows.cli import main as dovetail
from dovetail.flows.explore.results.layers import explain_point
from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.report.page import render

ROOT = Path(__file__).parent.parent
SPACE = ROOT / "docs" / "examples" / "spaces" / "mobilenet_v1.toml"
WIDTH, HEIGHT = 1480, 1190
"""Of the pictures, in pixels: what is seen without scrolling."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("out/page"), help="default: %(default)s")
    parser.add_argument("--points", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images", help="default: docs/images")
    args = parser.parse_args()
    plan = ["--search", "random", "--points", str(args.points), "--effort", "0", "--jobs", str(args.jobs)]
    if code := dovetail(["sweep", str(SPACE), *plan, "--output", str(args.output)]):
        raise SystemExit(code)
    with Store(args.output / "results.sqlite") as store:
        sweep = store.sweep(None)
        results = store.results(sweep.id).apart()
    pair = two(results)
    explanations = {row.number: explain_point(results.space, row.config) for row in pair}
    page = args.output.resolve() / "page.html"
    page.write_text(render(results, explanations, version=sweep.version), "utf-8")
    draw(page.as_uri(), args.images)


def two(results: Results) -> tuple[Row, Row]:
    """The points that are selected."""
    front = sorted((row for row in results.rows if row.front), key=lambda row: row.values["cycles"])
    most = front[0].values["pe"] * 2 / 3
    return front[0], next(row for row in front if row.values["pe"] <= most)


def draw(address: str, images: Path) -> None:
    """Write both pictures of a page, which explains and selects two points; the second ends above the layers."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not program or not driver:
        raise SystemExit("chromium and chromedriver must be installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.get(address)
        _size(browser, WIDTH, HEIGHT)
        browser.save_screenshot(str(images / "report.png"))
        _size(browser, WIDTH, 4 * HEIGHT)
        above = "const [all, table] = ['#layers', '#layer-table'].map((s) => document.querySelector(s));"
        box = "const { x, y, width } = all.getBoundingClientRect(), height = table.getBoundingClientRect().y - y;"
        clip = browser.execute_script(f"{above} {box} return {{ x, y, width, height, scale: 1 }}")
        taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        (images / "report_layers.png").write_bytes(b64decode(taken["data"]))
    finally:
        browser.quit()


def _size(browser: Any, width: int, height: int) -> None:
    """Make the visible part of the page so large, whatever the window's frame takes."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    _drawn(browser)


def _drawn(browser: Any) -> None:
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


if __name__ == "__main__":
    main()
