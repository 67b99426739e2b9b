# SPDX-License-Identifier: Apache-2.0
"""The scorer's page in a real browser: three graphs and a table, from the scorer's own answers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from pilothouse.server import Feed
from pilothouse.server.run import start
from tests.scorer.test_scorer import AUTHORIZED, Scorer, a_record

pytestmark = pytest.mark.browser


# Of the module, and named before the page: it is asked while no browser runs its own event loop.
@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    """A scorer that was told of one placement."""
    scorer = Scorer(tmp_path_factory.mktemp("scorer"))
    body = {"kind": "placements", "placements": [a_record(scorer)], "dropped": 3}
    assert scorer.call("POST", "/v1/records", json=body, headers=AUTHORIZED).status_code == 202
    for _ in range(3):
        scorer.parts.history.sample(scorer.board)
        scorer.clock.now += 2
    scorer.app.state.feed = Feed()  # whoever serves an app ends its feed
    return scorer


def test_graphs_and_table_show_what_the_scorer_answers(recorded: Scorer, page: Page) -> None:
    served = start(recorded.app, "127.0.0.1", 0)
    page.goto(served.url)

    expect(page.locator("#summary")).to_contain_text("1 placements recorded, 3 records dropped")
    expect(page.locator("#pods path")).to_have_count(3)
    expect(page.locator("#pods-legend li")).to_have_text(["far", "full", "near"])
    expect(page.locator("#active path")).to_have_count(1)
    expect(page.locator("#latency circle")).to_have_count(1)
    expect(page.locator("#nodes tr")).to_have_count(3)
    expect(page.locator("#nodes tr").first).to_contain_text("5.0 ms")
    served.stop()
    expect(page.locator("#summary")).to_contain_text("The scorer does not answer")
