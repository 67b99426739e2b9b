# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: it moves, it says who lost and why, its numbers are the API's."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pilothouse.server import Feed
from pilothouse.server.app import create_app
from pilothouse.server.run import start
from tests.server.parade import publish

pytestmark = pytest.mark.browser

A_LOSER = '[data-testid="timeline"] [data-lost="true"]'


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def the(page: Page | Locator, name: str) -> Locator:
    return page.get_by_test_id(name)


def an_app(feed: Feed):
    return create_app(
        feed, token="t", ingest=lambda s, c: 0, ready=lambda: (True, "fine"), version="1"
    )


def test_current_decision_changes_while_the_loop_runs(page, address):
    page.goto(address)
    expect(the(page, "connection")).to_have_attribute("data-state", "live")
    first = the(page, "decision-id").inner_text()
    expect(the(page, "decision-id")).not_to_have_text(first)
    expect(the(page, "step-observe")).to_contain_text("this cycle")


def test_loser_is_shown_with_who_beat_it_and_why(page, address):
    page.goto(address)
    page.wait_for_selector(A_LOSER, timeout=120_000)
    the(page, "pause").click()
    mark = page.locator(A_LOSER).first
    decision = str(mark.get_attribute("data-decision"))
    mark.click()
    expect(the(page, "decision-id")).to_have_text(decision)

    told = read(f"{address}/v1/decisions/{decision}")["decision"]
    loser = next(p for p in told["proposals"] if p["ruling"] == "overridden")
    row = page.locator(f'[data-testid="proposal"][data-index="{loser["index"]}"]')
    winner = loser["beaten_by"]
    expect(the(row, "verdict")).to_have_text("overridden")
    expect(the(row, "label")).to_have_text(loser["label"])
    expect(the(row, "score")).to_have_text(f"{loser['score']:.2f}")
    expect(the(row, "beaten-by")).to_have_text(
        f"{winner['label']} {winner['target']} ({winner['score']:.2f})"
    )
    expect(the(row, "why")).to_contain_text(loser["sentence"])


def test_numbers_on_the_page_equal_those_of_the_api(page, address):
    page.goto(address)
    the(page, "pause").click()
    decision = the(page, "decision-id").inner_text()
    told = read(f"{address}/v1/decisions/{decision}")
    weighed, cluster = told["decision"], told["cluster"]
    expect(the(page, "cycle")).to_have_text(str(told["cycle"]))
    expect(the(page, "decision-title")).to_have_text(weighed["title"])
    expect(the(page, "decision-rationale")).to_have_text(weighed["rationale"])
    expect(the(page, "power")).to_have_text(f"{cluster['interpreted']['power_watts']:,} W modelled")
    expect(the(page, "pair-waiting")).to_contain_text(f"{cluster['raw']['pending']} pending")
    expect(the(page, "pair-waiting")).to_contain_text(
        f"queue {cluster['interpreted']['queue_length']}"
    )
    expect(the(page, "node")).to_have_count(len(cluster["nodes"]))
    expect(the(page, "score")).to_have_text([f"{p['score']:.2f}" for p in weighed["proposals"]])
    expect(the(page, "stage")).to_have_count(len(told["stages"]))


def test_paused_page_stands_still_and_goes_on(page, address):
    page.goto(address)
    the(page, "pause").click()
    held = the(page, "cycle").inner_text()
    expect(the(page, "pause")).to_contain_text("behind")
    expect(the(page, "cycle")).to_have_text(held)
    the(page, "pause").click()
    expect(the(page, "cycle")).not_to_have_text(held)


def test_past_cycle_can_be_looked_at_and_left(page, address):
    page.goto(address)
    the(page, "pause").click()
    mark = the(page, "timeline").locator("button").first
    cycle = mark.get_attribute("data-cycle")
    mark.click()
    expect(the(page, "cycle")).to_have_text(str(cycle))
    page.keyboard.press("ArrowRight")
    expect(the(page, "cycle")).to_have_text(str(int(cycle or 0) + 1))
    the(page, "back-to-live").click()
    expect(the(page, "back-to-live")).to_be_hidden()
    expect(the(page, "cycle")).not_to_have_text(str(int(cycle or 0) + 1))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_one_screen(browser, address, scheme):
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    page.goto(address)
    expect(the(page, "decision-id")).to_be_visible()
    size = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    page.close()
    assert size == [1440, 900]


def test_page_says_when_the_run_is_over_and_finds_the_next_one(page):
    feed = Feed()
    publish(feed, 20)
    first = start(an_app(feed), "127.0.0.1", 0)
    page.goto(first.url)
    expect(the(page, "connection")).to_have_attribute("data-state", "live")
    first.stop()
    expect(the(page, "connection")).to_have_attribute("data-state", "ended")
    again = Feed()
    publish(again, 30)
    second = start(an_app(again), "127.0.0.1", first.port)
    expect(the(page, "cycle")).to_have_text("30")
    expect(the(page, "connection")).to_have_attribute("data-state", "live")
    second.stop()
