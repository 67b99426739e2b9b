# SPDX-License-Identifier: Apache-2.0
"""What a reader is, and how it gets at lines and rows of any file without trusting them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import polars as pl

from pilothouse.errors import MissingFile, TraceUnreadable
from pilothouse.learn.traces.accounting import ROW, Accountant

BATCH_ROWS = 500_000
LONGEST_LINE = 1 << 20  # a line of more than a mebibyte is no trace row


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One source file and what it holds."""

    path: Path
    holds: str  # the reader's own word for its layout: "instance_events"


class Reader(Protocol):
    """Knows one published trace; gives canonical frames and never touches the disk otherwise."""

    name: str
    complete: bool
    """Whether every event between the trace's start and end is there; a sample is not complete,
    so that silence about an instance means unknown, not well."""

    def shards(self, source: Path) -> Sequence[Shard]: ...

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]: ...


def words(text: str) -> list[str]:
    """Column names as a schema file lists them."""
    return text.split()


def files_under(source: Path, patterns: dict[str, str]) -> list[Shard]:
    """Files whose name contains a key of ``patterns``; a single file is matched the same way."""
    if not source.exists():
        raise MissingFile(f"There is no trace at {source}. Give an existing file or folder.")
    files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
    found = []
    for path in files:
        relative = path.name if source.is_file() else str(path.relative_to(source))
        holds = next((what for key, what in patterns.items() if key in relative), None)
        if holds is not None and not path.name.startswith((".", "_")):
            found.append(Shard(path=path, holds=holds))
    if not found:
        raise MissingFile(
            f"Nothing under {source} looks like {', '.join(sorted(set(patterns.values())))}. "
            "Give the folder that holds the trace's files."
        )
    return found


def parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Frames with a ``row`` column; a missing column is told before anything is read."""
    try:
        scan = pl.scan_parquet(path)
        schema = scan.collect_schema()
        missing = [c for c in columns if c not in schema]
        if missing:
            raise TraceUnreadable(
                f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(schema)}. "
                "Check that the file belongs to this reader."
            )
        total = scan.select(pl.len()).collect().item()
        for start in range(0, total, BATCH_ROWS):
            frame = scan.select(columns).slice(start, BATCH_ROWS).collect()
            yield frame.with_row_index(ROW, offset=start + 1)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceUnreadable(f"{path} is not a readable Parquet file: {_first(error)}.") from error


def csv_batches(path: Path, columns: Sequence[str], *, header: bool) -> Iterator[pl.DataFrame]:
    """All columns as text with a ``row`` column, so that nothing is guessed; at most BATCH_ROWS."""
    first = 2 if header else 1
    try:
        if path.stat().st_size == 0:
            return
        _refuse_gigantic_lines(path)
        _refuse_another_layout(path, columns)
        frame = pl.read_csv(
            path,
            has_header=False,
            skip_rows=1 if header else 0,
            new_columns=list(columns),
            schema=dict.fromkeys(columns, pl.String),
            truncate_ragged_lines=True,
            quote_char=None,
            raise_if_empty=False,
        )
    except (pl.exceptions.PolarsError, OSError, EOFError) as error:
        raise TraceUnreadable(
            f"{path} is not a readable CSV file: {_first(error)}. It may be cut off or of another "
            "layout."
        ) from error
    frame = frame.with_columns(
        pl.when(pl.col(c).str.strip_chars() != "").then(pl.col(c).str.strip_chars()).alias(c)
        for c in columns
    )
    for start in range(0, len(frame), BATCH_ROWS):
        yield frame.slice(start, BATCH_ROWS).with_row_index(ROW, offset=start + first)


def lines(path: Path, books: Accountant) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a plain or gzipped file; a gigantic line is dropped without being held."""
    try:
        with _open(path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(LONGEST_LINE)
                    books.unreadable(number, f"line longer than {LONGEST_LINE >> 20} MiB")
                elif line.strip():
                    yield number, line
    except (OSError, EOFError) as error:
        raise TraceUnreadable(f"{path} cannot be read to its end: {_first(error)}.") from error


def _refuse_gigantic_lines(path: Path) -> None:
    """A line that long would be held several times over; it is found without being held at all."""
    # A line of more than two blocks covers one whole block, which then has no line break in it.
    block_bytes, row = LONGEST_LINE // 2, 1
    with _open(path) as file:
        while block := file.read(block_bytes):
            breaks = block.count(b"\n")
            if not breaks and len(block) == block_bytes:
                raise TraceUnreadable(
                    f"Row {row} of {path} has no end within {block_bytes >> 10} KiB, so it is no "
                    "row of a trace. Check that the file is what the reader expects."
                )
            row += breaks


def _refuse_another_layout(path: Path, columns: Sequence[str]) -> None:
    with _open(path) as file:
        given = file.readline(LONGEST_LINE).count(b",") + 1
    if given < len(columns):
        raise TraceUnreadable(
            f"Row 1 of {path} has {given} columns, but this table has {len(columns)}: "
            f"{', '.join(columns)}. Check that the file belongs to this reader."
        )


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _first(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
