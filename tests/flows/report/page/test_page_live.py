"""The live page in a browser: rows appear while the store grows, a click brings an explanation that adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import utime
from pathlib import Path
from time import time
from typing import Any

import pytest

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.pricing.evaluation import price
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.store.database import StoreError
from dovetail.flows.report.page import live
from dovetail.flows.report.page.server import Server
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from tests.flows.report.page.growing import Growing

NETWORK = "zoo:mobilenet_v2_block"
SPACE = Space((Workload(NETWORK),), Config(), {"pe": (32, 64), "bus": (32, 64, 128, 256)}, objectives=("cycles", "pe"))


def price_of(config: Config) -> Cost:
    """The real cost; one configuration fails."""
    if (config.macs_per_cycle, config.bus) == (32, 256):
        raise ValueError("the bus must be narrower <b>here</b>")
    return price(frontend.load(NETWORK), config)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    """A sweep that has begun and has no result yet."""
    with Growing(tmp_path / "results.sqlite", SPACE, price_of) as store:
        yield store


@pytest.fixture
def open_live(server: Server, chromium: Any, open_page: Callable[[str], Any]) -> Iterator[Callable[[str], Any]]:
    """Opens a page that asks the server twenty times as often, and is closed before the server."""
    hurry = "window.setTimeout = ((wait) => (run, time) => wait(run, time / 20))(setTimeout)"
    script = chromium.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": hurry})
    yield open_page
    chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_a_sweep_is_seen_growing(open_live: Callable[[str], Any], growing: Growing, server: Server) -> None:
    page = open_live(server.url)
    page.until(lambda: page.texts(".empty") == ["No point has been priced yet."])
    growing.put([0, 5])
    page.until(lambda: sorted(page.numbers()) == [0, 5])
    assert page.text(".tile span") == "points of 8"
    page.row(5)
    growing.lose(1)
    page.until(lambda: page.texts("tr[data-number='1'] .reason") == ["the worker ended"])
    growing.put([1, 2, 3])
    page.until(lambda: sorted(page.numbers()) == [0, 1, 2, 3, 5])
    assert page.texts("tr[data-number='1'] .reason") == []
    assert page.texts("#selected thead th")[0].startswith("A #5")  # a selection stays while rows arrive
    assert page.text("tr[data-number='3'] .reason") == "the bus must be narrower <b>here</b>"
    earlier = time() - 200
    for path in growing.path.parent.glob(f"{growing.path.name}*"):
        utime(path, (earlier, earlier))
    page.until(lambda: page.texts(".live") == ["not finished, last result 3 min ago"])
    growing.put([4, 6, 7])
    page.until(lambda: page.texts(".live")[0].startswith("live"))
    growing.finish()
    page.until(lambda: page.texts(".live") == ["finished"])
    assert len(page.numbers()) == 8
    assert {address.split("?")[0] for address in page.requests()} == {f"{server.url}rows", f"{server.url}explain"}


def test_a_click_explains_a_point(open_live: Callable[[str], Any], growing: Growing, server: Server) -> None:
    growing.put([0, 6])
    page = open_live(server.url)
    page.until(lambda: sorted(page.numbers()) == [0, 6])
    page.row(0)
    page.row(6)
    page.until(lambda: len(page.texts("#cause-bars .barline")) == 2)
    configs = [SPACE.point(number).config for number in (0, 6)]
    cycles = [price_of(config).cycles for config in configs if isinstance(config, Config)]
    assert page.texts("#cause-bars .barline > .number") == [f"{count:,}" for count in cycles]
    lines = page.cells("#difference tbody tr")
    total = lines.pop()
    assert total[1:3] == [f"{count:,}" for count in cycles]
    changes = [int(line[3].replace(",", "").replace("\u2212", "-")) for line in lines]
    assert sum(changes) == cycles[1] - cycles[0]  # causes that cost the same on both are left out
    of_layers = [int(text.replace(",", "")) for text in page.texts("#layer-table .cycles")]
    assert [sum(of_layers[0::2]), sum(of_layers[1::2])] == cycles
    layers = page.cells("#layer-table tbody tr")
    assert len(page.texts("#roofline circle")) == 2 * sum(line[2] != "0" for line in layers)
    assert len(page.texts("#next tbody tr")) > 5
    rungs = page.cells("#ladder tbody tr")
    bounds = rungs.pop()
    assert (bounds[0], len(bounds)) == ("then bound by", 3)
    fewer = [int(rung[1].split("\u2212")[0].replace(",", "")) for rung in rungs]
    assert fewer == sorted(fewer, reverse=True)
    assert 0 < fewer[-1] < fewer[0] < cycles[0]


def test_the_page_says_what_went_wrong(
    open_live: Callable[[str], Any], growing: Growing, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.put([0])
    page = open_live(server.url)
    page.until(lambda: sorted(page.numbers()) == [0])

    def locked(*_: object) -> None:
        raise StoreError("results.sqlite: store must not be locked")

    def busy(*_: object) -> None:
        raise live.BusyError("select this one again")

    with monkeypatch.context() as patch:
        patch.setattr(server.live, "explain", busy)
        page.row(0)
        page.until(lambda: page.texts("#layers .note.reason") == ["Aselect this one again"])
    page.row(0)
    page.row(0)
    page.until(lambda: page.texts("#cause-bars .barline"))
    with monkeypatch.context() as patch:
        patch.setattr(server.live, "rows", locked)
        page.until(lambda: page.texts(".live") == ["results.sqlite: store must not be locked"])
    page.until(lambda: page.texts(".live")[0].startswith("live"))
    server.shutdown()
    server.server_close()
    page.until(lambda: page.texts(".live") == ["no answer from the server"])
    assert page.numbers() == [0]
    page.browser.get("about:blank")
    page.complaints()  # the browser's own, about answers that are errors or refused
