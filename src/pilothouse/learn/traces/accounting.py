# SPDX-License-Identifier: Apache-2.0
"""Bad rows are counted and named, never silently lost.

A row that lacks what its table requires, or contradicts itself, is dropped and counted with its
file and row. A value that cannot be read where the column may be missing is emptied and counted as
mended. Past the limit the import stops: a wrong reader must not produce a thin dataset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from pilothouse.errors import TraceUnreadable
from pilothouse.learn.traces.schema import AFTER_TRACE_US, REQUIRED, TABLES

ROW = "row"  # the 1-based row of the source file, carried until a frame is accepted
EXAMPLES = 5
PATIENCE_ROWS = 1_000  # below this many rows one bad row is not yet a share


@dataclass(slots=True, kw_only=True)
class Repairs:
    """What was wrong with one source file, what was mended and what was dropped."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, other: Repairs) -> None:
        self.read += other.read
        self.kept += other.kept
        self.dropped += other.dropped
        self.mended += other.mended
        self.examples = [*self.examples, *other.examples][:EXAMPLES]

    def drop(self, reason: str, count: int, example: str) -> None:
        if count:
            self.dropped[reason] += count
            if len(self.examples) < EXAMPLES:
                self.examples.append(example)

    def to_dict(self) -> dict[str, object]:
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "mended": dict(sorted(self.mended.items())),
            "examples": self.examples,
        }

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Repairs:
        return cls(
            read=int(str(data["read"])),
            kept=int(str(data["kept"])),
            dropped=Counter(data["dropped"]),  # type: ignore[call-overload]
            mended=Counter(data["mended"]),  # type: ignore[call-overload]
            examples=list(data["examples"]),  # type: ignore[call-overload]
        )


class Accountant:
    """Accepts frames of one file and keeps the books."""

    def __init__(self, source: str, path: Path, *, limit: float) -> None:
        self.source, self.path, self._limit = source, path, limit
        self.repairs = Repairs()
        self._bad = 0

    def unreadable(self, row: int, reason: str) -> None:
        """A row that never became one: malformed, cut off or gigantic."""
        self.repairs.read += 1
        self._bad += 1
        self.repairs.drop(reason, 1, f"{self.path.name} row {row}: {reason}")
        self._check(row, reason)

    def accept(self, table: str, frame: pl.DataFrame, *, counts: bool = True) -> pl.DataFrame:
        """Cast to the schema, drop and count what cannot be used, and hand back the rest.

        ``counts`` is False for a second table made of the same rows.
        """
        schema = TABLES[table]
        frame = self._cast(frame, schema)
        rows_read = len(frame)
        for reason, bad in _complaints(table):
            found = frame.filter(bad)
            if len(found):
                row = int(found[ROW][0])
                example = f"{self.path.name} row {row}: {reason}"
                self.repairs.drop(reason, len(found) if counts else 0, example)
                frame = frame.filter(~bad)
                self._bad += len(found) if counts else 0
                if counts:
                    self.repairs.read += rows_read
                    self._check(row, reason)
                    self.repairs.read -= rows_read
        if counts:
            self.repairs.read += rows_read
            self.repairs.kept += len(frame)
        return frame.select(list(schema))

    def _cast(
        self, frame: pl.DataFrame, schema: dict[str, pl.DataType | type[pl.DataType]]
    ) -> pl.DataFrame:
        columns: list[pl.Expr | pl.Series] = []
        for name, kind in schema.items():
            if name not in frame.columns:
                columns.append(pl.lit(None, dtype=kind).alias(name))
                continue
            cast = frame[name].cast(kind, strict=False)
            lost = cast.null_count() - frame[name].null_count()
            if lost > 0:
                self.repairs.mended[f"{name} could not be read"] += lost
            if (
                cast.dtype in (pl.Float32, pl.Float64)
                and not cast.is_finite().fill_null(True).all()
            ):
                self.repairs.mended[f"{name} was not finite"] += int((~cast.is_finite()).sum())
                cast = cast.to_frame().select(pl.when(pl.col(name).is_finite()).then(name))[name]
            columns.append(cast.alias(name))
        return frame.select(pl.col(ROW), *columns)

    def _check(self, row: int, reason: str) -> None:
        read = max(self.repairs.read, PATIENCE_ROWS)
        if self._bad > self._limit * read:
            raise TraceUnreadable(
                f"{self.source}: row {row} of {self.path.name}: {reason}. {self._bad} of "
                f"{self.repairs.read} rows are bad; more than {100 * self._limit:g} % stops the "
                "import. Check that the file is what the reader expects, or raise --bad-rows."
            )


def _complaints(table: str) -> list[tuple[str, pl.Expr]]:
    """Reasons to drop a row, each with the expression that finds it."""
    found = [
        (f"{name} is missing or unreadable", pl.col(name).is_null()) for name in REQUIRED[table]
    ]
    if "time_us" in TABLES[table]:
        found.append(("time is negative", pl.col("time_us") < 0))
    if "end_us" in TABLES[table]:
        found += [
            ("window does not end after its start", pl.col("end_us") <= pl.col("start_us")),
            ("window starts before the trace", pl.col("start_us") < 0),
            ("window ends after the trace", pl.col("end_us") >= AFTER_TRACE_US),
            ("usage is negative", (pl.col("cpu_mean") < 0) | (pl.col("memory_mean") < 0)),
        ]
    return [(reason, bad.fill_null(False)) for reason, bad in found]
