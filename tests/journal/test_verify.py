# SPDX-License-Identifier: Apache-2.0
"""Tampering with a closed journal, value by value and byte by byte."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilothouse.errors import JournalMismatch, JournalTooNew, MissingFile, PilothouseError
from pilothouse.journal import verify
from pilothouse.journal.chain import GENESIS, link_of
from pilothouse.journal.files import COLUMNS

NAMES = COLUMNS.split(", ")
Rows = list[tuple[Any, ...]]


@pytest.fixture
def closed(opened: Any, path: Path) -> tuple[Path, str]:
    """A journal with every kind of record, and its head."""
    book = opened()
    book.one_of_each()
    head = book.journal.head
    book.journal.close()
    return path, head


@pytest.fixture
def tamper(closed: tuple[Path, str]) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(closed[0], isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA synchronous=OFF")
        yield connection


def rows_of(connection: sqlite3.Connection) -> Rows:
    return connection.execute(f"SELECT {COLUMNS} FROM records ORDER BY seq").fetchall()


def rewrite(connection: sqlite3.Connection, rows: Rows) -> None:
    connection.execute("BEGIN")
    connection.execute("DELETE FROM records")
    connection.executemany("INSERT INTO records VALUES (?,?,?,?,?,?,?,?,?)", rows)
    connection.execute("COMMIT")


def with_one_byte_changed(value: Any, place: float) -> Any:
    """The same kind of value with one byte other than before."""
    if isinstance(value, int):
        return value ^ 1 << int(place * 16)
    if isinstance(value, float):
        return value + 2.0**-10
    if value is None:
        return b"\0"
    data = bytearray(value.encode() if isinstance(value, str) else value)
    if not data:
        return "x" if isinstance(value, str) else b"x"
    data[int(place * (len(data) - 1))] ^= 1
    return data.decode() if isinstance(value, str) else bytes(data)


def test_an_untouched_journal_verifies(closed: tuple[Path, str]) -> None:
    report = verify(*closed)

    assert report.ok
    assert (report.records, report.cycles, report.first) == (16, 4, 1)
    assert report.head == closed[1]
    assert report.sentence == "16 records, 4 cycles: the chain holds."


@pytest.mark.parametrize("column", NAMES)
def test_one_changed_byte_of_any_stored_value_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection, column: str
) -> None:
    at = NAMES.index(column)
    for row in rows_of(tamper):
        for place in (0.0, 0.5, 1.0):
            other = with_one_byte_changed(row[at], place)
            if column == "seq" and other <= 16:
                continue  # taken by another row: a swap, which has its own test
            tamper.execute(f"UPDATE records SET {column} = ? WHERE seq = ?", (other, row[0]))
            assert not verify(closed[0]).ok, (row[0], column, place)
            now = other if column == "seq" else row[0]
            tamper.execute(f"UPDATE records SET {column} = ? WHERE seq = ?", (row[at], now))
    assert verify(*closed).ok


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("kind", "CAST(kind AS BLOB)"),
        ("key", "CAST(key AS BLOB)"),
        ("key", "NULL"),
        ("cycle", "'many'"),
        ("cycle", "NULL"),
        ("cycle", "cycle + 0.5"),
        ("wall", "NULL"),
        ("wall", "CAST('soon' AS BLOB)"),
        ("body", "NULL"),
        ("body", "CAST(body AS TEXT)"),
        ("frame", "NULL"),
        ("frame", "x''"),
        ("digest", "NULL"),
        ("link", "NULL"),
        ("link", "hex(link)"),
    ],
)
def test_a_changed_type_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection, column: str, other: str
) -> None:
    tamper.execute(f"UPDATE records SET {column} = {other} WHERE seq = 3")

    assert "Record 3" in verify(closed[0]).problem


@pytest.mark.parametrize("seq", range(1, 16))
def test_a_deleted_record_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection, seq: int
) -> None:
    rows = rows_of(tamper)
    rewrite(tamper, [row for row in rows if row[0] != seq])
    assert not verify(closed[0]).ok

    closed_up = [(row[0] - (row[0] > seq), *row[1:]) for row in rows if row[0] != seq]
    rewrite(tamper, closed_up)
    assert not verify(closed[0]).ok


@pytest.mark.parametrize("seq", [1, 2, 7, 16])
def test_an_inserted_record_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection, seq: int
) -> None:
    rows = rows_of(tamper)
    twin = rows[seq - 1]
    rewrite(tamper, [*rows[:seq], *((row[0] + 1, *row[1:]) for row in (twin, *rows[seq:]))])

    assert not verify(closed[0]).ok


@pytest.mark.parametrize("seq", range(1, 16))
def test_two_swapped_records_are_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection, seq: int
) -> None:
    rows = rows_of(tamper)
    first, second = rows[seq - 1], rows[seq]
    rows[seq - 1], rows[seq] = (first[0], *second[1:]), (second[0], *first[1:])
    rewrite(tamper, rows)

    assert not verify(closed[0]).ok


def test_a_cut_tail_is_found_with_the_head(
    closed: tuple[Path, str], tamper: sqlite3.Connection
) -> None:
    tamper.execute("DELETE FROM records WHERE seq > 12")

    assert verify(closed[0]).ok
    assert "cut off" in verify(*closed).problem


def test_a_relinked_copy_is_found_with_the_head(
    closed: tuple[Path, str], tamper: sqlite3.Connection
) -> None:
    rows, link = [], GENESIS
    for row in rows_of(tamper):
        values = (*row[:4], row[4] + 1.0, *row[5:8])  # one second later, everywhere
        link = link_of(link, values)
        rows.append((*values, link))
    rewrite(tamper, rows)

    assert verify(closed[0]).ok
    assert "nowhere in the chain" in verify(*closed).problem


def test_a_relinked_change_of_content_is_found_by_what_decisions_carry(
    closed: tuple[Path, str], tamper: sqlite3.Connection
) -> None:
    """Even without the head: a snapshot is bound to its decision, a body to the digest."""
    cycles = [row for row in rows_of(tamper) if row[1] == "cycle"]
    rows, link = [], GENESIS
    for row in rows_of(tamper):
        values = row[:8]
        if row[0] == cycles[0][0]:
            values = (*row[:6], cycles[3][6].replace(b"D", b"K", 1), row[7])
        link = link_of(link, values)
        rows.append((*values, link))
    rewrite(tamper, rows)

    assert not verify(closed[0]).ok


def test_an_older_head_says_where_it_stands(opened: Any, path: Path) -> None:
    book = opened()
    book.turn()
    older = book.journal.head
    book.turn()

    assert "is record 3, but the journal goes on to record 5" in verify(path, older).problem


def test_a_flipped_bit_anywhere_in_the_file_is_found_or_changes_no_value(
    closed: tuple[Path, str], tmp_path: Path
) -> None:
    path, head = closed
    data = path.read_bytes()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        original = rows_of(connection)
    copy = tmp_path / "copy.db"
    draw = random.Random(7)
    found = 0
    for _ in range(250):
        at = draw.randrange(len(data))
        broken = bytearray(data)
        broken[at] ^= 1 << draw.randrange(8)
        for beside in tmp_path.glob("copy.db-*"):
            beside.unlink()
        copy.write_bytes(broken)
        try:
            ok = verify(copy, head).ok
        except PilothouseError:
            ok = False
        found += not ok
        if ok:
            with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as connection:
                assert rows_of(connection) == original, at
    assert found > 50  # a good part of this small file is unused space


def test_an_extra_trigger_or_table_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection
) -> None:
    tamper.execute("CREATE TABLE more(a)")

    assert "no Pilothouse journal has" in verify(closed[0]).problem


def test_a_newer_schema_is_refused(closed: tuple[Path, str], tamper: sqlite3.Connection) -> None:
    tamper.execute("PRAGMA user_version=2")

    with pytest.raises(JournalTooNew, match="schema 2; this build reads up to 1"):
        verify(closed[0])


def test_a_schema_version_set_back_is_found(
    closed: tuple[Path, str], tamper: sqlite3.Connection
) -> None:
    tamper.execute("PRAGMA user_version=0")

    assert "no journal schema version" in verify(closed[0]).problem


def test_another_database_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE records(a)")

    with pytest.raises(JournalMismatch, match="not a Pilothouse journal"):
        verify(tmp_path / "other.db")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none.db"):
        verify(tmp_path / "none.db")


def test_a_copy_verifies_where_it_cannot_be_written(
    closed: tuple[Path, str], tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    shutil.copy(closed[0], archive / "run.db")
    archive.chmod(0o500)

    assert verify(archive / "run.db", closed[1]).ok
