# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilothouse.domain import Evidence
from pilothouse.errors import InternalError, JournalCorrupt, UserError
from pilothouse.journal.records import (
    TYPES,
    Check,
    Checkpoint,
    Control,
    Cycle,
    Ingested,
    Outcome,
    Receipts,
    Record,
    Resumed,
    Rotated,
    Run,
    SettingsChange,
    Stage,
    compress,
    decode,
    encode,
    expand,
)
from pilothouse.testing.builders import (
    a_decision,
    a_proposal,
    a_receipt,
    a_result,
    an_action,
)

RUN = Run(run_id="r", cluster="sim", scenario="harbor", seed=7, version="0.1")
SETTINGS = SettingsChange(settings={"b": 1, "a": {"x": 0.5}}, forecaster="f/1", reason="start")
EXAMPLES: list[Record] = [
    RUN,
    SETTINGS,
    Cycle(decision=a_decision(3, actions=(an_action(),)), modes={"safety": "enforce"}),
    Receipts(decision="d0", receipts=(a_receipt(),)),
    Outcome(result=a_result()),
    Control(line="mode safety shadow", command="mode", arguments={"agent": "safety"}),
    Stage(name="loop", state="disabled", reason="--cycles 0", artifacts=("a.json",)),
    Check(name="samples", ok=False, sentence="no samples", numbers={"samples": 0}),
    Ingested(source="scorer", content={"scores": [1, 2.5, None]}),
    Checkpoint(state={"ledger": {"safety": [1, 2]}}, simulator=b"\x00\x01"),
    Resumed(reason="killed", resolved={"d0.0.0": "done"}),
    Rotated(segment=1, previous_head="ab", run=RUN, settings=SETTINGS, simulator=b"s"),
]


def written_and_read(record: Any) -> Any:
    frame = getattr(record, "simulator", b"")
    return decode(record.KIND, encode(record), compress(frame) if frame else None)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: record.KIND)
def test_record_reads_back_as_it_was_written(record: Record) -> None:
    assert written_and_read(record) == record


def test_every_kind_has_an_example() -> None:
    assert {record.KIND for record in EXAMPLES} == set(TYPES)


def test_equal_values_give_equal_bytes_whatever_the_order_of_keys() -> None:
    left = SettingsChange(settings={"a": 1, "b": {"c": 2, "d": 3}}, forecaster="f", reason="")
    right = SettingsChange(settings={"b": {"d": 3, "c": 2}, "a": 1}, forecaster="f", reason="")

    assert encode(left) == encode(right)


def test_hostile_numbers_are_recorded_as_they_are() -> None:
    hostile = a_proposal(
        score=math.nan,
        payload={"huge": 1.7e308, "whole": 1, "real": 1.0, "yes": True},
        evidence=(Evidence("x", -math.inf, needs=math.inf),),
    )

    read = written_and_read(Cycle(decision=a_decision(proposals=(hostile,)))).decision.proposals[0]

    assert math.isnan(read.score)
    assert read.evidence == hostile.evidence
    assert read.payload == hostile.payload
    assert {k: type(v) for k, v in read.payload.items()} == {
        "huge": float,
        "whole": int,
        "real": float,
        "yes": bool,
    }


def test_numpy_scalars_are_recorded_as_the_numbers_they_are() -> None:
    proposal = a_proposal(score=np.float64(0.25), payload={"replicas": np.int32(3)})

    read = written_and_read(Cycle(decision=a_decision(proposals=(proposal,)))).decision

    assert read.proposals[0].score == 0.25
    assert type(read.proposals[0].payload["replicas"]) is int


@pytest.mark.parametrize(
    "changes",
    [{"kind": "explode"}, {"payload": {"n": 10**30}}, {"reason": "\ud800"}, {"score": object()}],
    ids=["unknown kind", "number too large", "broken text", "no value at all"],
)
def test_what_could_not_be_read_back_is_refused_before_it_is_durable(
    changes: dict[str, Any],
) -> None:
    record = Cycle(decision=a_decision(proposals=(a_proposal(**changes),)))

    with pytest.raises(InternalError, match="cannot be recorded"):
        encode(record)


def test_what_another_process_hands_in_is_its_own_mistake() -> None:
    with pytest.raises(UserError, match="numbers of up to 64 bits"):
        encode(Ingested(source="scorer", content={"n": 2**64}))


def test_unknown_kinds_and_broken_bodies_are_refused() -> None:
    with pytest.raises(JournalCorrupt, match="unknown kind"):
        decode("gossip", b"", None)
    with pytest.raises(JournalCorrupt, match="cannot be read"):
        decode("run", b"\x80", None)


@pytest.mark.parametrize("data", [b"", b"short", b"long " * 1000])
def test_compression_gives_back_what_it_was_given(data: bytes) -> None:
    assert expand(compress(data)) == data
    assert len(compress(data)) <= len(data) + 1


@pytest.mark.parametrize("stored", [b"", b"\x07x", b"\x01broken"])
def test_a_broken_stored_value_is_refused(stored: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        expand(stored)


def test_nothing_is_learned_at_the_first_read(opened: Any, path: Path) -> None:
    """msgspec crashes where two threads learn about one class at a time, as readers might."""
    opened().turns(3)
    program = """
import dataclasses, gc, sys
from pathlib import Path
from pilothouse.journal import JournalReader

def learned():
    kinds = (kind for kind in gc.get_objects() if isinstance(kind, type))
    return {k for k in kinds if dataclasses.is_dataclass(k) and "__msgspec_cache__" in vars(k)}

before = learned()
cycles = list(JournalReader(Path(sys.argv[1])).cycles())
print(len(cycles), len(before) > 10, learned() - before)
"""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "3 True set()\n"
