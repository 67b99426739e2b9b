# SPDX-License-Identifier: Apache-2.0
"""The loop publishes and never waits."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from pilothouse.server import Feed
from pilothouse.server.feed import READERS_ALLOWED, TooManyReaders
from pilothouse.server.shapes import CycleView, ShiftView
from tests.server.parade import StageNow, publish


def test_feed_keeps_the_last_cycles_only():
    feed = Feed(keep=5)
    publish(feed, 12)
    page = feed.cycles(limit=100, before=None)
    assert [mark.cycle for mark in page.cycles] == [12, 11, 10, 9, 8]
    assert feed.history().cycle == [8, 9, 10, 11, 12]


def test_cycles_come_in_pages():
    feed = Feed()
    publish(feed, 10)
    first = feed.cycles(limit=4, before=None)
    second = feed.cycles(limit=4, before=first.before)
    last = feed.cycles(limit=4, before=second.before)
    assert [m.cycle for m in first.cycles + second.cycles + last.cycles] == list(range(10, 0, -1))
    assert last.before is None


def test_result_completes_the_decision_it_belongs_to():
    feed = Feed()
    publish(feed, 40)
    settled = feed.latest.settled if feed.latest else []
    action = settled[0].action
    body = feed.decision(action.partition(".")[0])
    assert body is not None
    cycle = msgspec.json.decode(body, type=CycleView)
    assert cycle.decision.actions[0].result == settled[0]


def test_decision_is_found_by_an_unambiguous_beginning():
    feed = Feed()
    publish(feed, 30)
    assert feed.latest is not None
    ident = feed.latest.decision.id
    assert feed.decision(ident) == feed.decision(ident[:6])
    assert feed.decision("nope") is None


def test_stages_show_before_the_first_cycle():
    feed = Feed()
    feed.announce([StageNow(name="forecasters", state="running", done=1, total=3)])
    assert feed.stages().stages[0].done == 1
    assert feed.state_parts()[0] is None


def test_slow_reader_skips_to_the_latest():
    async def watch() -> None:
        feed = Feed()
        publish(feed, 1)
        reader = feed.subscribe(None)
        assert len(feed.take(reader, burst=5)) == 1
        publish(feed, 20, first=1)
        assert len(feed.take(reader, burst=5)) == 1
        publish(feed, 3, first=21)
        assert len(feed.take(reader, burst=5)) == 3
        assert feed.take(reader, burst=5) == []

    asyncio.run(watch())


def test_reader_resumes_after_the_last_frame_it_saw():
    async def watch() -> None:
        feed = Feed()
        publish(feed, 4)
        frame = feed.take(feed.subscribe(None), burst=5)[0]
        publish(feed, 2, first=4)
        missed = feed.take(feed.subscribe(frame.id), burst=5)
        assert [msgspec.json.decode(m.body)["cycle"] for m in missed] == [5, 6]
        stranger = feed.take(feed.subscribe("other.4"), burst=5)
        assert [msgspec.json.decode(m.body)["cycle"] for m in stranger] == [6]

    asyncio.run(watch())


def test_reader_is_woken_from_the_loop_thread():
    async def watch() -> None:
        feed = Feed()
        reader = feed.subscribe(None)
        feed.take(reader, burst=5)
        thread = threading.Thread(target=publish, args=(feed, 3))
        thread.start()
        await asyncio.wait_for(reader.wake.wait(), 60)
        await asyncio.to_thread(thread.join)
        assert feed.take(reader, burst=5)
        feed.close()
        await asyncio.wait_for(reader.wake.wait(), 60)

    asyncio.run(watch())


def test_reader_whose_event_loop_is_gone_is_dropped():
    feed = Feed()

    async def subscribe() -> None:
        feed.subscribe(None)

    asyncio.run(subscribe())
    publish(feed, 2)
    assert not feed._readers


def test_too_many_readers_are_turned_away():
    async def watch() -> None:
        feed = Feed()
        for _ in range(READERS_ALLOWED):
            feed.subscribe(None)
        with pytest.raises(TooManyReaders, match="the limit is 64"):
            feed.subscribe(None)

    asyncio.run(watch())


def test_metrics_count_what_was_published():
    feed = Feed()
    publish(feed, 7)
    text = feed.metrics.text().decode()
    assert "pilothouse_cycles_total 7.0" in text
    assert 'pilothouse_decisions_total{kind="act"}' in text
    assert "pilothouse_cluster_modelled_power_watts" in text
    assert "python_info" not in text


def test_metrics_tell_drift_while_it_lasts():
    feed = Feed()
    publish(feed, 1)
    assert feed.latest is not None
    calm = feed.latest
    shift = ShiftView(scope="pods", feature="memory_over_limit", index=0.41)
    moved = msgspec.structs.replace(calm.forecast, drift=[shift])
    line = 'pilothouse_forecast_drift_index{feature="memory_over_limit",scope="pods"}'
    feed.metrics.record(msgspec.structs.replace(calm, forecast=moved))
    assert f"{line} 0.41" in feed.metrics.text().decode()
    feed.metrics.record(calm)
    assert line not in feed.metrics.text().decode()
