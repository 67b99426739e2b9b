# SPDX-License-Identifier: Apache-2.0
"""Broken source files: a clear error or a counted row, always with the file and the row."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("polars")

from pilothouse.errors import ArtifactBroken, TraceUnreadable
from pilothouse.learn import artifacts
from pilothouse.learn.traces.importing import import_trace
from pilothouse.learn.traces.source import LONGEST_LINE

GOOD = "10,,3,0,7,0,u,2,1,0.1,0.1,0,0\n"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Where a CSV shard of the 2011 task events belongs."""
    folder = tmp_path / "trace" / "task_events"
    folder.mkdir(parents=True)
    return folder / "part-00000-of-00500.csv"


def imported(shard: Path):
    return import_trace("google-2011", shard.parents[1])


def test_mistyped_number_is_named_by_file_and_row(home: Path, shard: Path) -> None:
    shard.write_text(GOOD * 3 + GOOD.replace("10,", "ten,", 1) + GOOD)
    repairs = imported(shard).facts["repairs"]

    assert repairs["examples"] == [f"{shard.name} row 4: time_us is missing or unreadable"]


def test_a_shard_of_nonsense_stops_with_file_and_row(home: Path, shard: Path) -> None:
    shard.write_text("no,,numbers,here,at,all,u,2,1,0.1,0.1,0,0\n" * 20)
    with pytest.raises(TraceUnreadable, match=rf"row \d+ of {shard.name}.*stops the import"):
        imported(shard)


def test_a_shard_of_another_layout_is_told_by_its_columns(home: Path, shard: Path) -> None:
    shard.write_text("what is this\n" * 20)
    with pytest.raises(TraceUnreadable, match=rf"Row 1 of .*{shard.name} has 1 columns.*has 13"):
        imported(shard)


def test_row_that_is_cut_off_is_counted_and_named(home: Path, shard: Path) -> None:
    shard.write_text(GOOD * 5 + GOOD[:6])
    repairs = imported(shard).facts["repairs"]

    assert sum(repairs["dropped"].values()) == 1
    assert f"{shard.name} row 6" in repairs["examples"][0]


def test_cut_off_gzip_of_csv_names_the_file(home: Path, shard: Path) -> None:
    packed = gzip.compress((GOOD * 20_000).encode())
    path = shard.with_suffix(".csv.gz")
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceUnreadable, match=path.name):
        imported(path)


def test_empty_csv_names_the_file(home: Path, shard: Path) -> None:
    shard.write_text("")
    with pytest.raises(TraceUnreadable, match=rf"{shard.name} is empty"):
        imported(shard)


def test_gigantic_csv_line_is_refused_by_file_and_row(home: Path, shard: Path) -> None:
    shard.write_text(GOOD * 2 + "x" * (2 * LONGEST_LINE) + "\n" + GOOD)
    with pytest.raises(TraceUnreadable, match=rf"Row 3 of .*{shard.name} has no end"):
        imported(shard)


def test_parquet_cut_in_the_middle_names_the_file(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "google2011_machine_events.parquet"
    columns = ["time", "machine_id", "event_type", "platform_id", "cpus", "memory"]
    pl.DataFrame({c: [1, 2, 3] for c in columns}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceUnreadable, match=path.name):
        import_trace("google-2011", path)


def test_parquet_of_the_wrong_type_is_named_by_file_and_row(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "google2011_machine_events.parquet"
    columns = ["time", "machine_id", "event_type", "platform_id", "cpus", "memory"]
    pl.DataFrame({c: ["soon", "later", "never"] for c in columns}).write_parquet(path)
    with pytest.raises(TraceUnreadable, match=rf"row \d of {path.name}"):
        import_trace("google-2011", path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 1}', b"[]"])
def test_manifest_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / artifacts.MANIFEST).write_bytes(content)
    with pytest.raises(ArtifactBroken, match=r"manifest\.json cannot be read"):
        artifacts.load(tmp_path)


def test_manifest_of_another_version_is_refused(home: Path, shard: Path) -> None:
    shard.write_text(GOOD)
    imported(shard)
    path = home / "processed" / "google-2011" / artifacts.MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"schema": 1', b'"schema": 99'))
    with pytest.raises(ArtifactBroken, match="schema 99, but this build knows 1"):
        artifacts.load(path.parent)
