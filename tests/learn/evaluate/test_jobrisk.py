# SPDX-License-Identifier: Apache-2.0
"""Jobs of 2011 from their published rows to the verdict, on made-up jobs whose rule is known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from benchmarks.forecasts.claims import LINES
from pilothouse.cli import main
from pilothouse.errors import TraceUnreadable
from pilothouse.learn.dataset.jobs import PRIOR, JobRows, job_rows
from pilothouse.learn.evaluate import jobrisk
from pilothouse.learn.traces.importing import import_trace

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL = range(6)  # the numbers of 2011
SECOND, DAY = 1_000_000, 86_400_000_000
JOBS, NAMES, USERS, DAYS = 16_000, 40, 12, 29
Row = tuple[int, int, int, str, str]  # time, job, event, user, logical name


def written(folder: Path, rows: list[Row]) -> Path:
    """As published: no header, gzipped shards, sorted by time."""
    target = folder / "job_events"
    target.mkdir(parents=True)
    lines = [f"{t},,{job},{event},{user},1,hash,{name}\n" for t, job, event, user, name in rows]
    (target / "part-00000-of-00500.csv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return folder


def made_up(*, shuffled: bool) -> list[Row]:
    """A third of the names have bad days, on which half of their jobs fail; nothing else tells."""
    dice = np.random.default_rng(5)
    at = np.sort(dice.integers(1, DAYS * DAY, JOBS))
    name = dice.integers(0, NAMES, JOBS)
    bad_days = dice.random((NAMES, DAYS)) < np.where(np.arange(NAMES) % 3 == 0, 0.4, 0.0)[:, None]
    risk = np.where(bad_days[name, at // DAY], 0.6, 0.01)
    end = np.where(dice.random(JOBS) < risk, FAIL, np.where(dice.random(JOBS) < 0.2, KILL, FINISH))
    if shuffled:
        end = dice.permutation(end)
    lasts = dice.integers(60, 1_800, JOBS) * SECOND
    rows: list[Row] = []
    for job in range(JOBS):
        who, what = f"u{name[job] % USERS}", f"n{name[job]}"
        rows.append((int(at[job]), job, SUBMIT, who, what))
        rows.append((int(at[job] + lasts[job]), job, int(end[job]), who, what))
    return sorted(rows)


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], *, shuffled: bool):
    source = written(tmp_path / "trace", made_up(shuffled=shuffled))
    assert main(["traces", "import", "google-2011", str(source)]) == 0
    capsys.readouterr()
    assert main(["evaluate", "risk", "--dataset", "google-2011", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_history_at_submission_tells_which_jobs_fail(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = judged(tmp_path, capsys, shuffled=False)

    assert figures["average_precision"]["forecaster"] > 4 * figures["base_rate"]["test"]
    for claim in LINES["jobs"](figures):
        assert claim.holds, claim.sentence
    assert (home / "reports" / "risk-google-2011" / "report.html").is_file()


def test_shuffled_ends_tell_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = judged(tmp_path, capsys, shuffled=True)
    verdict = {claim.text: claim.holds for claim in LINES["jobs"](figures)}

    assert figures["average_precision"]["forecaster"] < 1.25 * figures["base_rate"]["test"]
    assert not verdict["gap, lower end of 95 %"]
    assert not verdict["Brier skill, lower end of 95 %"]


def rows_of(folder: Path, rows: list[Row], name: str = "few") -> JobRows:
    import_trace("google-2011", written(folder, rows), name=name)
    return job_rows(folder.parent / "home" / "processed" / name)


FEW: list[Row] = [
    (10 * SECOND, 1, SUBMIT, "u", "n"),
    (15 * SECOND, 2, SUBMIT, "u", "n"),  # the first has not failed yet
    (20 * SECOND, 1, FAIL, "u", "n"),
    (20 * SECOND, 3, SUBMIT, "u", "n"),  # it has, this very moment
    (30 * SECOND, 2, EVICT, "u", "n"),
    (35 * SECOND, 2, SCHEDULE, "u", "n"),
    (40 * SECOND, 2, FINISH, "u", "n"),  # and ends twice
    (50 * SECOND, 4, SUBMIT, "u", "other"),
]


def test_row_of_a_job_holds_what_had_ended_by_its_submission(home: Path, tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "trace", FEW)
    prior = 0.015 * PRIOR

    assert rows.submitted_us.tolist() == [10 * SECOND, 15 * SECOND, 20 * SECOND, 50 * SECOND]
    assert rows.column("name_ends").tolist() == [0, 0, 1, 0]
    assert rows.column("user_ends").tolist() == [0, 0, 1, 3]
    assert rows.column("user_running").tolist() == [0, 1, 1, 1]
    np.testing.assert_allclose(
        rows.column("user_failed_share"),
        [prior / PRIOR, prior / PRIOR, (1 + prior) / (1 + PRIOR), (1 + prior) / (3 + PRIOR)],
        rtol=1e-6,
    )


def test_job_without_an_end_has_no_label_and_the_last_end_is_the_label(
    home: Path, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path / "trace", FEW)

    assert rows.ended.tolist() == [True, True, False, False]
    assert rows.failed.tolist() == [True, False, False, False]
    parts = jobrisk._parts(rows, jobrisk.Cuts(train=30 * SECOND / DAY, stop=1.0, test=1.0))
    # The second was submitted before the cut and ended after it: on neither side.
    assert {name: part.tolist() for name, part in parts.items()} == {
        "train": [0], "stop": [], "calibrate": [], "test": []
    }  # fmt: skip


def test_what_comes_after_a_submission_does_not_move_its_row(home: Path, tmp_path: Path) -> None:
    honest = rows_of(tmp_path / "trace", FEW)
    later = [row if row[0] <= 20 * SECOND else (row[0], row[1], FAIL, "u", "n") for row in FEW[:-1]]
    changed = rows_of(tmp_path / "changed", [*later, (60 * SECOND, 9, SUBMIT, "u", "n")], "changed")

    np.testing.assert_array_equal(changed.features[:3], honest.features[:3])
    assert not np.array_equal(changed.features[3], honest.features[3])


def test_trace_without_job_events_is_told(home: Path) -> None:
    empty = home / "processed" / "empty"
    empty.mkdir(parents=True)
    with pytest.raises(TraceUnreadable, match="empty has no job events"):
        job_rows(empty)
