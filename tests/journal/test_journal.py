# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilothouse.domain import Status
from pilothouse.errors import (
    InternalError,
    JournalCorrupt,
    JournalMismatch,
    JournalTooNew,
    JournalUnwritable,
    MissingFile,
    UnknownName,
)
from pilothouse.journal import (
    Checkpoint,
    Cycle,
    Ingested,
    Journal,
    JournalReader,
    Outcome,
    Receipts,
    Resumed,
    Run,
    SettingsChange,
    digest_of,
    verify,
)
from pilothouse.testing.builders import a_receipt, a_result, a_snapshot


def other_run(**changes: Any) -> Run:
    values = {"run_id": "r0", "cluster": "sim", "scenario": "harbor", "seed": 0, "version": "0.1"}
    return Run(**{**values, **changes})


def test_a_new_journal_has_nothing_to_resume(opened: Any) -> None:
    assert opened().resume is None


def test_the_writer_syncs_every_commit(opened: Any) -> None:
    connection = opened().journal._connection

    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_same_content_gives_the_same_digest_whatever_the_wall_clock_says(
    opened: Any, tmp_path: Path, clock: Any
) -> None:
    book = opened()
    book.one_of_each()
    clock.now += 3600.25
    again = opened(tmp_path / "again.db")
    again.one_of_each()

    assert book.journal.digest == again.journal.digest
    assert book.journal.head != again.journal.head


def test_another_seed_gives_another_digest(opened: Any, tmp_path: Path) -> None:
    one = opened()
    other = opened(tmp_path / "other.db", run=other_run(seed=1))

    assert one.journal.digest != other.journal.digest


def test_an_interrupted_run_has_the_digest_of_one_that_was_not(opened: Any, tmp_path: Path) -> None:
    whole = opened()
    whole.turns(6)
    first = opened(tmp_path / "cut.db")
    first.turns(3)
    first.journal.append(Checkpoint(state={"spent": 3}))
    first.journal.close()
    second = opened(tmp_path / "cut.db")
    second.snapshot = first.snapshot
    second.journal.append(Resumed(reason="restart"))
    second.turns(3)

    assert second.journal.digest == whole.journal.digest
    assert verify(tmp_path / "cut.db").digest == whole.journal.digest


def test_cycles_come_back_with_the_very_values_they_were_made_from(opened: Any) -> None:
    book = opened(keyframe_cycles=3)
    seen = []
    for _ in range(8):
        seen.append((digest_of(book.snapshot), book.turn()))

    read = list(book.journal.reader().cycles())

    assert [(digest_of(turn.snapshot), turn.cycle) for turn in read] == seen


@pytest.mark.parametrize("after", [0, 1, 4, 9, 12])
def test_cycles_can_be_read_from_the_middle(opened: Any, after: int) -> None:
    book = opened(keyframe_cycles=3)
    book.turns(8)
    everything = list(book.journal.reader().cycles())

    some = list(book.journal.reader().cycles(after))

    assert [t.seq for t in some] == [t.seq for t in everything if t.seq > after]
    assert [digest_of(t.snapshot) for t in some] == [
        digest_of(t.snapshot) for t in everything if t.seq > after
    ]


def test_a_decision_is_found_by_the_beginning_of_its_id(opened: Any) -> None:
    book = opened(keyframe_cycles=4)
    book.turns(7)
    reader = book.journal.reader()

    entry = reader.find("00000005")

    assert entry.cycle == 5
    assert isinstance(entry.record, Cycle)
    assert digest_of(reader.frame_of(entry).snapshot) == entry.record.decision.snapshot_digest
    with pytest.raises(UnknownName, match="Several decisions"):
        reader.find("0000000")
    with pytest.raises(UnknownName, match="No decision"):
        reader.find("f")


def test_what_became_of_a_decision_is_found(opened: Any) -> None:
    book = opened()
    book.turns(2)
    book.journal.append(Outcome(result=a_result("00000000.0")), cycle=1)

    found = book.journal.reader().outcomes_of("00000000")

    assert [type(record) for record in found] == [Receipts, Outcome]


def test_last_cycle_is_the_newest_decision(opened: Any) -> None:
    book = opened()
    assert book.journal.reader().last_cycle() is None
    book.turns(2)

    assert book.journal.reader().last_cycle().cycle == 1


def test_resume_gives_back_where_the_run_stands(opened: Any) -> None:
    book = opened()
    settings = SettingsChange(settings={"a": 1}, forecaster="ewma-trend/1", reason="start")
    book.journal.append(settings, cycle=0)
    book.turns(2)
    book.journal.append(Checkpoint(state={"spent": [3]}, simulator=b"world"), cycle=1)
    last = [book.turn(), book.turn()][-1]
    book.journal.close()

    resume = opened().resume

    assert resume.run == other_run()
    assert resume.settings == settings
    assert (resume.cycle, resume.last) == (3, last)
    assert (resume.checkpoint_cycle, resume.state) == (1, {"spent": [3]})
    assert resume.simulator == b"world"
    assert [entry.kind for entry in resume.since] == ["cycle", "receipts"] * 2
    assert resume.open_intents == ()


def test_resume_names_the_intents_nobody_answered(opened: Any) -> None:
    book = opened()
    book.turn()
    open_cycle = book.turn(answered=False)
    book.journal.close()

    again = opened()

    writes = open_cycle.decision.actions[0].writes
    assert again.resume.open_intents == writes
    assert again.journal.open_intents == writes
    skipped = a_receipt(writes[0].intent, status=Status.SKIPPED)
    again.journal.append(Receipts(decision=open_cycle.decision.id, receipts=(skipped,)))
    assert again.journal.open_intents == ()


def test_a_checkpoint_with_open_intents_is_a_bug(opened: Any) -> None:
    book = opened()
    book.turn(answered=False)
    before = book.journal.head

    with pytest.raises(InternalError, match=r"while 1 intents are open, the first 00000000.0.0"):
        book.journal.append(Checkpoint())
    assert book.journal.head == before


def test_head_and_digest_survive_a_restart(opened: Any) -> None:
    book = opened()
    book.one_of_each()
    head, digest = book.journal.head, book.journal.digest
    book.journal.close()

    again = opened().journal

    assert (again.head, again.digest) == (head, digest)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 3}, "started with seed 0, but 3 was given"),
        ({"scenario": "storm"}, "started with scenario harbor, but storm was given"),
        ({"cluster": "prod"}, "started with cluster sim, but prod was given"),
    ],
)
def test_a_journal_of_another_run_is_refused(
    opened: Any, changes: dict[str, Any], words: str
) -> None:
    book = opened()
    book.turn()
    book.journal.close()

    with pytest.raises(JournalMismatch, match=words):
        opened(run=other_run(**changes))


def test_a_newer_version_of_the_program_may_go_on(opened: Any) -> None:
    book = opened()
    book.turn()
    book.journal.close()

    assert opened(run=other_run(version="0.2")).resume.cycle == 0


def test_a_second_writer_is_refused(opened: Any, path: Path) -> None:
    opened()

    with pytest.raises(JournalUnwritable, match="another process holds it"):
        Journal.open(path)


def test_closing_leaves_one_file_and_lets_go(opened: Any, path: Path) -> None:
    book = opened()
    book.turn()
    book.journal.close()
    book.journal.close()

    assert [file.name for file in path.parent.iterdir()] == ["run.db"]
    opened()


def test_a_long_read_does_not_keep_the_next_writer_out(opened: Any) -> None:
    book = opened()
    book.turns(12)
    book.journal.close()
    walk = book.journal.reader().entries()
    next(walk)

    opened().turn()

    assert len(list(walk)) == 26


def test_appending_gives_the_number_of_the_record(opened: Any) -> None:
    book = opened()

    assert book.journal.append(Ingested(source="scorer", content={})) == 2
    assert book.journal.append(Ingested(source="scorer", content={}), Resumed(reason="")) == 4


def test_a_newer_schema_is_refused_and_left_alone(opened: Any, path: Path) -> None:
    opened().journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=9")
    before = path.read_bytes()

    with pytest.raises(JournalTooNew, match="Use the Pilothouse that wrote it"):
        opened()
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_refused_and_left_alone(opened: Any, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers(name)")
    before = path.read_bytes()

    with pytest.raises(JournalMismatch, match="not a Pilothouse journal"):
        opened()
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(opened: Any, path: Path) -> None:
    path.write_bytes(b"a diary, not a journal\n" * 400)

    with pytest.raises(JournalCorrupt, match="not a readable journal"):
        opened()
    assert path.read_bytes() == b"a diary, not a journal\n" * 400
    assert not list(path.parent.glob("*.lock"))


def test_an_empty_file_becomes_a_journal(opened: Any, path: Path) -> None:
    path.touch()

    assert opened().resume is None


def test_a_changed_record_near_the_end_is_refused_at_once(opened: Any, path: Path) -> None:
    book = opened()
    book.turns(2)
    book.journal.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE records SET cycle = 7 WHERE seq = 4")

    with pytest.raises(JournalCorrupt, match="Record 4 does not match the chain"):
        opened()


def test_a_reader_never_hands_out_a_changed_record(opened: Any, path: Path) -> None:
    book = opened()
    book.turns(3)
    book.journal.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE records SET wall = wall + 1 WHERE seq = 4")
    reader = JournalReader(path)

    with pytest.raises(JournalCorrupt, match="Record 4"):
        list(reader.entries())
    with pytest.raises(JournalCorrupt, match="Record 4"):
        reader.find("00000001")


def test_a_reader_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="No journal at"):
        JournalReader(tmp_path / "none.db")


def test_threads_append_to_one_chain(opened: Any, path: Path) -> None:
    book = opened()

    def hand_in(source: str) -> None:
        for number in range(20):
            book.journal.append(Ingested(source=source, content={"n": number}))

    threads = [threading.Thread(target=hand_in, args=(f"scorer-{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    book.turns(5)
    for thread in threads:
        thread.join()

    report = verify(path, book.journal.head)
    assert report.ok
    assert report.records == 1 + 3 * 20 + 2 * 5


def test_a_reader_sees_a_growing_journal_without_disturbing_it(opened: Any) -> None:
    book = opened()
    book.turns(2)
    walk = book.journal.reader().entries()
    assert next(walk).kind == "run"
    book.turns(20)

    assert [entry.seq for entry in walk] == list(range(2, 46))


def test_a_journal_stays_within_its_size_per_cycle(opened: Any) -> None:
    book = opened()
    book.snapshot = a_snapshot(nodes=100, pods=1_000)
    book.turns(60)

    assert book.journal.size / 60 <= 40_000
