# SPDX-License-Identifier: Apache-2.0
"""Readers of published traces: a few rows as their files hold them, and what becomes of each."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from pilothouse.cli import main
from pilothouse.errors import TraceUnreadable
from pilothouse.home import folder
from pilothouse.learn import artifacts
from pilothouse.learn.traces.importing import READERS, import_trace, table
from pilothouse.learn.traces.schema import AFTER_TRACE_US, SECOND_US, tier_2011

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "openb-pod-0007,12800,16384,1,1000,,LS,Running,10,90,12\n"
    "openb-pod-0008,6400,1024,0,0,,BE,Failed,20,25,21.0\n"
    "openb-pod-0009,6400,1024,1,460,V100M16|V100M32,Burstable,Succeeded,30,70,31\n"
    "openb-pod-0010,6400,1024,0,0,,odd,Pending,40,45,\n"
    "openb-pod-0011,6400,1024,0,0,,BE,Running,50,,51\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0003,64000,262144,2,P100\n"
TASKS = (
    "task_create_time, task_end_time, job_id, task_id,number_of_instances, status, cpus, memory\n"
    "6459,6524,3,4,15740,Terminated,4800,0.25\n"
    "6457,6533,3,5,1,Failed,50,0.004\n"
    "6036,6046,4,7,393,Waiting,,\n"
    "-60,110,6168,37200,103,Terminated,50,0.008\n"
    "-60,-55,6168,37197,1,Terminated,50,0.004\n"
)
Event = tuple[int, int, str]


def imported(home: Path, trace: str, source: Path) -> Path:
    import_trace(trace, source)
    return home / "processed" / trace


def events(dataset: Path) -> list[Event]:
    """Second, job and name of every event, in order."""
    rows = table(dataset, "events").collect()
    seconds = (rows["time_us"] // SECOND_US).to_list()
    names = rows["event"].cast(pl.String).to_list()
    return sorted(zip(seconds, rows["job"].to_list(), names, strict=True))


@pytest.fixture
def openb(tmp_path: Path) -> Path:
    source = tmp_path / "openb"
    source.mkdir()
    (source / "openb_pod_list_default.csv").write_text(PODS)
    (source / "openb_node_list_all_node.csv.gz").write_bytes(gzip.compress(NODES.encode()))
    return source


def test_openb_pod_is_submitted_scheduled_and_ended_by_its_last_phase(
    home: Path, openb: Path
) -> None:
    dataset = imported(home, "openb", openb)

    assert events(dataset) == [
        (10, 7, "SUBMIT"), (12, 7, "SCHEDULE"), (20, 8, "SUBMIT"), (21, 8, "SCHEDULE"),
        (25, 8, "FAIL"), (30, 9, "SUBMIT"), (31, 9, "SCHEDULE"), (40, 10, "SUBMIT"),
        (45, 10, "KILL"), (50, 11, "SUBMIT"), (51, 11, "SCHEDULE"), (70, 9, "FINISH"),
        (90, 7, "KILL"),
    ]  # fmt: skip


def test_openb_sizes_are_shares_of_its_largest_node_and_classes_are_tiers(
    home: Path, openb: Path
) -> None:
    dataset = imported(home, "openb", openb)
    pods = table(dataset, "events").filter(pl.col("event") == "SUBMIT").sort("job").collect()
    node = table(dataset, "machines").collect().row(0, named=True)

    assert pods["cpu_request"].to_list() == pytest.approx([0.1, 0.05, 0.05, 0.05, 0.05])
    assert pods["memory_request"][0] == pytest.approx(16 / 1024)
    assert pods["tier"].to_list() == [3, 0, 1, None, 0]
    assert (node["machine"], node["time_us"], node["event"]) == (3, 0, "ADD")
    assert (node["cpu_capacity"], node["memory_capacity"]) == (0.5, 0.25)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "batch_task.csv.gz"
    path.write_bytes(gzip.compress(TASKS.encode()))
    return path


def test_alibaba_2017_has_a_header_and_what_is_older_than_the_trace_is_at_its_start(
    home: Path, tasks: Path
) -> None:
    dataset = imported(home, "alibaba-2017", tasks)
    repairs = artifacts.load(dataset).facts["repairs"]

    assert repairs["dropped"] == {}
    assert repairs["mended"]["created before the trace"] == 2
    assert events(dataset) == [
        (0, 6168, "FINISH"), (0, 6168, "SUBMIT"), (0, 6168, "SUBMIT"), (110, 6168, "FINISH"),
        (6036, 4, "SUBMIT"), (6457, 3, "SUBMIT"), (6459, 3, "SUBMIT"), (6524, 3, "FINISH"),
        (6533, 3, "FAIL"),
    ]  # fmt: skip


def test_alibaba_2017_cpu_is_hundredths_of_a_core(home: Path, tasks: Path) -> None:
    rows = table(imported(home, "alibaba-2017", tasks), "events").collect()
    first = rows.filter(pl.col("instance") == 4).row(0, named=True)

    assert first["cpu_request"] == pytest.approx(48 / 96)
    assert first["memory_request"] == pytest.approx(0.25)


def test_alibaba_2018_rows_are_not_taken_for_2017(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "batch_task.csv"
    path.write_text("M1,2,j_7,1,Terminated,10,20,100,0.5\n" * 20)
    with pytest.raises(TraceUnreadable, match=r"batch_task.csv is not.*of another layout"):
        import_trace("alibaba-2017", path)


def test_machine_usage_slots_are_five_minutes_and_its_values_shares(
    home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "borg_machine_usage_5min.parquet"
    columns = {
        "slot": [572, 573],
        "machine_id": [20731766, 20731766],
        "avgcpu": [1.25e8, 2.5e8],
        "avgmem": [5e7, None],
        "maxcpu": [5e8, 7.5e8],
        "maxmem": [1e8, 1e8],
    }
    pl.DataFrame(columns).write_parquet(path)
    rows = table(imported(home, "machine-usage", path), "machine_usage").sort("start_us").collect()

    assert rows["machine"].to_list() == [20731766] * 2
    assert rows["start_us"].to_list() == [572 * 300 * SECOND_US, 573 * 300 * SECOND_US]
    assert rows["end_us"][0] == rows["start_us"][1]
    assert rows["cpu_mean"].to_list() == [0.125, 0.25]
    assert rows["cpu_max"].to_list() == [0.5, 0.75]
    assert rows["memory_mean"].to_list() == [pytest.approx(0.05), None]


def test_2011_job_events_are_jobs_with_their_logical_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job_events").mkdir()
    (tmp_path / "job_events" / "part-00000-of-00500.csv").write_text(
        "0,,3418309,0,alice,3,hash,search\n"
        "600000000,,3418309,3,alice,3,hash,search\n"
        f"{AFTER_TRACE_US},5,3418310,5,bob,0,hash2,\n"
    )
    rows = table(imported(home, "google-2011", tmp_path), "jobs").sort("time_us").collect()

    assert rows["event"].cast(pl.String).to_list() == ["SUBMIT", "FAIL", "KILL"]
    assert rows["time_us"].to_list() == [0, 600 * SECOND_US, AFTER_TRACE_US]
    assert rows["user"].to_list() == ["alice", "alice", "bob"]
    assert rows["name"].to_list() == ["search", "search", None]
    assert rows["scheduling_class"].to_list() == [3, 3, 0]


def test_2011_parquet_without_the_hashed_name_gives_the_same_jobs(
    home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "google2011_job_events.parquet"
    columns = {
        "time": pl.Series([0, 2**63 - 1], dtype=pl.UInt64),
        "missing_info": pl.Series([None, 5], dtype=pl.Int8),
        "job_id": pl.Series([7, 8], dtype=pl.UInt64),
        "event_type": pl.Series([0, 6], dtype=pl.Int8),
        "user": pl.Series(["alice", "bob"], dtype=pl.Categorical),
        "scheduling_class": pl.Series([1, 2], dtype=pl.Int8),
        "logical_job_name": pl.Series(["search", "index"], dtype=pl.Categorical),
    }
    pl.DataFrame(columns).write_parquet(path)
    (tmp_path / "borg2019_machine_events.parquet").write_text("another trace in the same folder")
    rows = table(imported(home, "google-2011", tmp_path), "jobs").sort("job").collect()

    assert rows["event"].cast(pl.String).to_list() == ["SUBMIT", "LOST"]
    assert rows["time_us"].to_list() == [0, AFTER_TRACE_US]
    assert rows["name"].to_list() == ["search", "index"]


def test_2011_priorities_are_tiers() -> None:
    priority = pl.Series("priority", [0, 1, 2, 8, 9, 11])
    tiers = pl.select(tier_2011(pl.lit(priority))).to_series()

    assert tiers.to_list() == [0, 0, 1, 1, 3, 3]


def test_raw_and_processed_can_live_elsewhere_and_the_rest_stays_home(
    home: Path, openb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder("processed") == home / "processed"
    monkeypatch.setenv("PILOTHOUSE_PROCESSED", str(tmp_path / "big" / "processed"))
    monkeypatch.setenv("PILOTHOUSE_RAW", str(tmp_path / "big" / "raw"))
    monkeypatch.setenv("PILOTHOUSE_MODELS", str(tmp_path / "big" / "models"))
    import_trace("openb", openb)

    assert folder("raw") == tmp_path / "big" / "raw"
    assert folder("models") == home / "models"  # only raw and processed can be moved
    assert len(events(tmp_path / "big" / "processed" / "openb")) == 13
    assert not (home / "processed").exists()
    assert artifacts.find("openb", "processed") == tmp_path / "big" / "processed" / "openb"


def test_every_reader_can_be_asked_for_by_its_name(home: Path, tmp_path: Path, capsys) -> None:
    for reader in READERS:
        assert main(["traces", "import", reader.name, str(tmp_path / "nothing")]) == 2
        assert "nothing" in capsys.readouterr().err
