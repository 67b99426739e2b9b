# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.domain import Abstention, Cause, Forecast, NodeTable, Scaler, Snapshot, Trouble
from pilothouse.errors import InternalError, JournalCorrupt
from pilothouse.journal import Frame, digest_of
from pilothouse.journal.blocks import BlockReader
from pilothouse.journal.frames import decode, encode, is_keyframe
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    ints,
    moved,
    names,
    with_node,
    with_pod,
    with_risk,
)

INT32 = st.integers(-(2**31), 2**31 - 1)


def frame_of(snapshot: Snapshot, seed: int = 0) -> Frame:
    return Frame(snapshot=snapshot, forecast=a_forecast(snapshot, seed=seed))


def assert_same(left: Any, right: Any) -> None:
    """Field by field, with the type of every array."""
    assert type(left) is type(right)
    for item in fields(left):
        ours, theirs = getattr(left, item.name), getattr(right, item.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert (ours == theirs).all()
        elif hasattr(ours, "uid") or isinstance(ours, Snapshot | Forecast):
            assert_same(ours, theirs)
        else:
            assert ours == theirs


def node_tables() -> st.SearchStrategy[NodeTable]:
    """Any rows at all: extreme values, any uids in ascending order, any names without zeros."""

    def table(rows: list[tuple[int, str, int, int]]) -> NodeTable:
        rows = sorted(rows)
        plain = a_snapshot(nodes=len(rows), pods=0).nodes
        return replace(
            plain,
            uid=np.array([row[0] for row in rows], dtype=np.int64),
            names=names([row[1] for row in rows]),
            cpu_used_millicores=ints([row[2] for row in rows]),
            errors_per_minute=ints([row[3] for row in rows]),
        )

    word = st.text(
        st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=4
    )
    # A small range makes rows survive, leave, come back and get inserted between others.
    uid = st.one_of(st.integers(-4, 8), st.integers(-(2**63), 2**63 - 1))
    row = st.tuples(uid, word, INT32, INT32)
    return st.lists(row, max_size=8, unique_by=lambda r: r[0]).map(table)


@given(st.lists(node_tables(), min_size=2, max_size=4))
def test_any_sequence_of_tables_decodes_exactly(tables: list[NodeTable]) -> None:
    plain = a_snapshot(nodes=0, pods=0)
    before = decoded = None
    for number, table in enumerate(tables):
        snapshot = replace(plain, nodes=table, taken_seconds=number)
        frame = frame_of(snapshot, number)
        decoded = decode(encode(frame, before), decoded)
        assert_same(decoded.snapshot, frame.snapshot)
        assert_same(decoded.forecast, frame.forecast)
        before = frame


@given(st.integers(0, 40), st.integers(0, 1000), st.integers(0, 2**16))
def test_a_moving_cluster_decodes_exactly(pods: int, replaced: int, seed: int) -> None:
    first = a_snapshot(nodes=4, pods=pods, seed=seed)
    second = moved(first, seed, replaced_permille=replaced) if pods else first

    was, now = frame_of(first), frame_of(second, seed)
    decoded = decode(encode(now, was), decode(encode(was)))

    assert_same(decoded.snapshot, second)
    assert_same(decoded.forecast, now.forecast)
    assert digest_of(decoded.snapshot) == digest_of(second)


def test_facts_beside_the_tables_decode_exactly() -> None:
    snapshot = a_snapshot()
    abstention = Abstention(scope="nodes", reason="warming up", until_seconds=None)
    frame = Frame(
        snapshot=snapshot, forecast=replace(a_forecast(snapshot), abstentions=(abstention,))
    )

    decoded = decode(encode(frame))

    assert decoded.snapshot.sources == snapshot.sources
    assert decoded.forecast.abstentions == (abstention,)


def test_a_forecast_for_other_rows_than_the_snapshot_decodes_exactly() -> None:
    snapshot = a_snapshot(pods=20)
    forecast = a_forecast(moved(snapshot, replaced_permille=300))

    decoded = decode(encode(Frame(snapshot=snapshot, forecast=forecast)))

    assert_same(decoded.forecast, forecast)


def test_rows_that_lost_their_order_are_stored_whole() -> None:
    first = a_snapshot(pods=6)
    pods = first.pods
    backwards = type(pods)(**{f.name: getattr(pods, f.name)[::-1].copy() for f in fields(pods)})
    second = replace(first, pods=backwards)

    decoded = decode(encode(frame_of(second), frame_of(first)), frame_of(first))

    assert_same(decoded.snapshot, second)


def test_a_delta_without_its_predecessor_is_refused() -> None:
    first = a_snapshot()
    delta = encode(frame_of(moved(first)), frame_of(first))

    assert not is_keyframe(delta)
    with pytest.raises(JournalCorrupt, match="earlier"):
        decode(delta)


@pytest.mark.parametrize("data", [b"", b"X", b"K", b"Knot compressed", b"D\x78\x9c"])
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        decode(data)


def test_a_column_of_the_wrong_type_is_a_bug_not_a_record() -> None:
    snapshot = a_snapshot()
    wrong = replace(snapshot.nodes, ready=snapshot.nodes.ready.astype(np.int64))

    with pytest.raises(InternalError, match=r"NodeTable\.ready must be int32, but is int64"):
        encode(frame_of(replace(snapshot, nodes=wrong)))


def test_a_name_with_a_zero_character_is_a_bug_not_a_record() -> None:
    snapshot = a_snapshot()
    wrong = replace(snapshot.nodes, names=names(["a\0b", *snapshot.nodes.names[1:]]))

    with pytest.raises(InternalError, match="zero character"):
        digest_of(replace(snapshot, nodes=wrong))


def test_digest_changes_with_every_value() -> None:
    snapshot = a_snapshot()
    forecast = a_forecast(snapshot)
    snapshots = [
        snapshot,
        replace(snapshot, taken_seconds=1),
        replace(snapshot, cluster="other"),
        replace(snapshot, sources=()),
        with_node(snapshot, 1, ready=0),
        with_pod(snapshot, 3, restarts=1),
        replace(snapshot, nodes=replace(snapshot.nodes, uid=snapshot.nodes.uid + 1)),
        replace(snapshot, nodes=replace(snapshot.nodes, names=snapshot.nodes.names[::-1])),
    ]
    forecasts = [
        forecast,
        with_risk(forecast, "pod_risk", 2, 900),
        replace(forecast, forecaster=""),
    ]

    assert len({digest_of(value) for value in [*snapshots, *forecasts]}) == 11


@pytest.mark.parametrize(
    ("nodes", "pods", "delta_bytes", "keyframe_bytes"),
    [(100, 1_000, 25_000, 80_000), (5_000, 50_000, 600_000, 2_000_000)],
)
def test_frames_stay_small_while_every_pod_moves(
    nodes: int, pods: int, delta_bytes: int, keyframe_bytes: int
) -> None:
    before = frame_of(a_snapshot(nodes=nodes, pods=pods))
    after = frame_of(moved(before.snapshot, 1), 1)

    assert len(encode(before)) <= keyframe_bytes
    assert len(encode(after, before)) <= delta_bytes


def live(snapshot: Snapshot) -> Snapshot:
    trouble = Trouble(
        cause=Cause.QUOTA, kind="workload", namespace="n", name="w", count=2, sentence="no"
    )
    scaler = Scaler(namespace="n", name="w", current=1, desired=2, minimum=1, maximum=3)
    return replace(snapshot, troubles=(trouble,), scalers=(scaler,))


def test_what_only_a_live_cluster_tells_comes_back_from_keyframe_and_delta() -> None:
    plain = frame_of(a_snapshot())
    rich = frame_of(live(a_snapshot()))
    assert_same(decode(encode(rich)).snapshot, rich.snapshot)
    assert_same(decode(encode(rich, plain), plain).snapshot, rich.snapshot)
    assert_same(decode(encode(plain, rich), rich).snapshot, plain.snapshot)


def test_record_without_it_is_byte_for_byte_what_it_was_before_there_was_such_a_thing() -> None:
    frame = frame_of(a_snapshot())
    facts = BlockReader(encode(frame)[1:]).head.facts
    assert len(facts) == 3 + 4  # of the snapshot, of the forecast; nothing is appended
    assert digest_of(live(frame.snapshot)) != digest_of(frame.snapshot)
