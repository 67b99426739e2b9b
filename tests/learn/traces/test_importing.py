# SPDX-License-Identifier: Apache-2.0
"""Importing: bad rows are counted and named, a second run redoes nothing, half is never whole."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from pilothouse.errors import ArtifactBroken, MissingFile, TraceUnreadable, UnknownName
from pilothouse.learn import artifacts
from pilothouse.learn.traces import importing
from pilothouse.learn.traces.importing import import_trace, table
from pilothouse.learn.traces.source import LONGEST_LINE


@pytest.fixture
def copy(tmp_path: Path, synthetic: Path) -> Path:
    return Path(shutil.copytree(synthetic, tmp_path / "trace"))


def usage_file(folder: Path) -> Path:
    return next(folder.glob("instance_usage*"))


def test_synthetic_trace_survives_the_whole_path(home: Path, synthetic: Path) -> None:
    manifest = import_trace("google-2019", synthetic)

    assert manifest.facts["repairs"]["dropped"] == {}
    assert set(manifest.facts["rows"]) == {"events", "jobs", "machines", "usage"}
    events = table(home / "processed" / "google-2019", "events").collect()
    assert {"SUBMIT", "SCHEDULE", "FINISH", "FAIL"} <= set(events["event"].cast(pl.String))


def test_synthetic_trace_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    from pilothouse.learn.traces.synthetic import Recipe, write

    for name in ("a", "b"):
        write(tmp_path / name, Recipe(jobs=5, hours=4, seed=9))

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_json_lines_and_parquet_shards_give_the_same_table(home: Path, copy: Path) -> None:
    import_trace("google-2019", copy, name="lines")
    path = usage_file(copy)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    pl.DataFrame(rows).write_parquet(path.with_suffix(".parquet"))
    path.unlink()
    import_trace("google-2019", copy, name="parquet")
    keys = ["job", "instance", "end_us"]
    lines, parquet = (
        table(home / "processed" / name, "usage").collect().sort(keys)
        for name in ("lines", "parquet")
    )

    assert lines.equals(parquet)


def test_second_import_redoes_nothing(
    home: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = import_trace("google-2019", copy)
    written = []
    monkeypatch.setattr(importing, "_write_part", lambda path, frame: written.append(path))
    second = import_trace("google-2019", copy)

    assert written == []
    assert second == first


def test_killed_import_resumes_with_what_is_missing(
    home: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = importing._write_part

    def dies(path: Path, frame: pl.DataFrame) -> None:
        if path.parent.name == "usage":
            raise KeyboardInterrupt
        original(path, frame)

    monkeypatch.setattr(importing, "_write_part", dies)
    with pytest.raises(KeyboardInterrupt):
        import_trace("google-2019", copy)
    with pytest.raises(MissingFile, match="interrupted"):
        artifacts.load(home / "processed" / "google-2019")
    written = []

    def counts(path: Path, frame: pl.DataFrame) -> None:
        written.append(path.parent.name)
        original(path, frame)

    monkeypatch.setattr(importing, "_write_part", counts)
    import_trace("google-2019", copy)

    assert "events" not in written
    assert "usage" in written


def test_few_bad_rows_are_dropped_and_named(home: Path, copy: Path) -> None:
    path = usage_file(copy)
    lines = path.read_text().splitlines()
    lines[3] = '{"start_time": "oops"}'
    path.write_text("\n".join(lines) + "\n")
    repairs = import_trace("google-2019", copy, bad_rows=0.01).facts["repairs"]

    assert sum(repairs["dropped"].values()) == 1
    assert f"{path.name} row 4" in repairs["examples"][0]


def test_many_bad_rows_stop_the_import_with_file_and_row(home: Path, copy: Path) -> None:
    path = usage_file(copy)
    path.write_text("nonsense\n" * 50)
    with pytest.raises(TraceUnreadable, match=rf"row 2 of {path.name}.*stops the import"):
        import_trace("google-2019", copy)


def test_unknown_event_number_is_a_bad_row_not_a_guess(home: Path, copy: Path) -> None:
    path = next(copy.glob("instance_events*"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["type"] = 42
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    repairs = import_trace("google-2019", copy, bad_rows=0.01).facts["repairs"]

    assert repairs["dropped"] == {"event is missing or unreadable": 1}


def test_gigantic_line_is_dropped_without_being_held(home: Path, copy: Path) -> None:
    path = usage_file(copy)
    with path.open("a") as file:
        file.write("x" * (3 * LONGEST_LINE) + "\n")
    repairs = import_trace("google-2019", copy, bad_rows=0.01).facts["repairs"]

    assert repairs["dropped"] == {"line longer than 1 MiB": 1}


def test_empty_file_is_an_error_that_names_it(home: Path, copy: Path) -> None:
    usage_file(copy).write_text("")
    with pytest.raises(TraceUnreadable, match=r"instance_usage.*is empty"):
        import_trace("google-2019", copy)


def test_cut_off_gzip_is_an_error_that_names_it(home: Path, copy: Path) -> None:
    path = usage_file(copy)
    packed = gzip.compress(path.read_bytes())
    path.with_suffix(".json.gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()
    with pytest.raises(TraceUnreadable, match="cannot be read to its end"):
        import_trace("google-2019", copy)


def test_parquet_of_another_layout_is_refused_by_column(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "instance_usage-0.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(TraceUnreadable, match="lacks the columns start_time"):
        import_trace("google-2019", path)


def test_broken_parquet_is_refused(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "instance_usage-0.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(TraceUnreadable, match="not a readable Parquet file"):
        import_trace("google-2019", path)


def test_unknown_trace_lists_the_known_ones(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match='Did you mean "google-2019"'):
        import_trace("google-2091", tmp_path)


def test_2011_shards_use_the_2011_numbers(home: Path, tmp_path: Path) -> None:
    text = "0,,3,0,7,0,u,2,1,0.1,0.1,0,0\n5,,3,0,7,3,u,2,1,,,,\n9,,3,0,7,4,u,2,1,,,,\n"
    (tmp_path / "task_events").mkdir()
    path = tmp_path / "task_events" / "part-00000-of-00500.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    import_trace("google-2011", tmp_path)
    events = table(home / "processed" / "google-2011", "events").collect()

    assert events["event"].cast(pl.String).to_list() == ["SUBMIT", "FAIL", "FINISH"]


def test_alibaba_status_becomes_an_end(home: Path, tmp_path: Path) -> None:
    (tmp_path / "batch_task.csv").write_text(
        "M1,2,j_7,1,Terminated,10,20,100,0.5\ntask_x,1,j_8,1,Failed,11,30,50,0.2\n"
        "R2_1,1,j_7,1,Running,20,0,50,0.2\n"
    )
    import_trace("alibaba-2018", tmp_path)
    events = table(home / "processed" / "alibaba-2018", "events").collect()

    counts = dict(events["event"].cast(pl.String).value_counts().iter_rows())
    assert counts == {"SUBMIT": 3, "FINISH": 1, "FAIL": 1}


def test_altered_artefact_is_found_by_its_hash(home: Path, copy: Path) -> None:
    import_trace("google-2019", copy)
    dataset = home / "processed" / "google-2019"
    part = next((dataset / "jobs").glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[20] ^= 1
    part.write_bytes(bytes(data))
    with pytest.raises(ArtifactBroken, match="was altered"):
        artifacts.load(dataset, check=True)
    part.write_bytes(bytes(data[:-5]))
    with pytest.raises(ArtifactBroken, match="cut off"):
        artifacts.load(dataset)


def test_journal_of_a_run_is_a_trace(home: Path, tmp_path: Path) -> None:
    from pilothouse.learn.traces.journal import frames_of
    from pilothouse.scenarios import load
    from pilothouse.sim.cluster import SimCluster

    cluster = SimCluster(load("harbor"), seed=1)
    seen = []
    for _ in range(8):
        cluster.advance(15)
        seen.append(cluster.observe())
    tables = dict.fromkeys(("events", "usage", "machines"), 0)
    for name, frame in frames_of(seen):
        tables[name] += len(frame)

    assert min(tables.values()) > 0
