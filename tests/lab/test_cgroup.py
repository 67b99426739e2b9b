# SPDX-License-Identifier: Apache-2.0
"""The lab on cgroup version 2: which files it writes, on a tree that looks like the kernel's.

The tree is made of ordinary files, so what the kernel would refuse is said by the test.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilothouse.errors import LabFailed
from pilothouse.lab import cgroup, machine, worker
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Site
from pilothouse.lab.layout import Layout, Worker

WORKER = "/pilothouse-lab/worker-1"
CONTROLLERS = ("cpu", "memory", "pids", "cpuset", "io")
Written = list[tuple[str, str]]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a version 2 hierarchy."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text(" ".join(CONTROLLERS))
    monkeypatch.setattr(cgroup, "MOUNT", root)
    monkeypatch.setattr(machine, "MOUNT", root)
    return root


def watched(
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuses: Callable[[str, str], int] = lambda _path, _text: 0,
) -> Written:
    """Every write below the tree, in order; ``refuses`` gives the kernel's error, 0 for none."""
    written: Written = []
    write = Path.write_text

    def kept(path: Path, text: str, *rest: Any, **more: Any) -> int:
        if not path.is_relative_to(tree):
            return write(path, text, *rest, **more)
        place = str(path.relative_to(tree))
        if code := refuses(place, text):
            raise OSError(code, "the kernel says no")
        written.append((place, text))
        return write(path, text, *rest, **more)

    monkeypatch.setattr(Path, "write_text", kept)
    return written


def test_tree_with_its_controllers_at_the_root_is_version_2(tree: Path) -> None:
    assert cgroup.is_unified()
    assert cgroup.hierarchies() == [tree]
    assert cgroup.mounts() == [(tree, "-t cgroup2")]
    (tree / "cgroup.controllers").unlink()  # the control: what version 1 looks like
    assert not cgroup.is_unified()


def test_controllers_are_handed_down_to_the_worker_and_no_further(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = watched(tree, monkeypatch)
    cgroup.make(WORKER)
    assert (tree / "pilothouse-lab" / "worker-1").is_dir()
    # Never in the worker itself: a group that hands down may hold no process, and it holds one.
    assert written == [
        (f"{folder}cgroup.subtree_control", f"+{controller}")
        for folder in ("", "pilothouse-lab/")
        for controller in CONTROLLERS
    ]


def test_controller_that_a_kernel_lacks_keeps_none_of_the_others_back(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = lambda _path, text: errno.EINVAL if text == "+cpuset" else 0  # noqa: E731
    written = watched(tree, monkeypatch, lacks)
    cgroup.make(WORKER)
    assert {text for _, text in written} == {f"+{c}" for c in CONTROLLERS if c != "cpuset"}


def test_worker_gets_its_quota_its_limit_and_the_lab_its_weight(tree: Path) -> None:
    cgroup.make(WORKER)
    cgroup.give_weight()
    cgroup.limit(WORKER, cpu_millicores=500, memory_mib=512)
    lab = tree / "pilothouse-lab"
    assert (lab / "worker-1/cpu.max").read_text() == "50000 100000"
    assert (lab / "worker-1/memory.max").read_text() == str(512 * 2**20)
    assert 1 <= int((lab / "cpu.weight").read_text()) <= 10_000  # what the kernel takes
    cgroup.set_cpu(WORKER, 125)
    assert (lab / "worker-1/cpu.max").read_text() == "12500 100000"


def test_quota_that_the_kernel_refuses_says_what_to_do(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup.make(WORKER)
    watched(tree, monkeypatch, lambda _path, _text: errno.EINVAL)
    with pytest.raises(LabFailed, match="cannot be 10 millicores"):
        cgroup.set_cpu(WORKER, 10)


def test_process_that_leaves_its_worker_joins_the_system(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup.make(cgroup.SYSTEM)
    written = watched(tree, monkeypatch)
    cgroup.leave(4711)
    assert written == [("pilothouse-lab/system/cgroup.procs", "4711")]
    assert cgroup.members_file(WORKER) == tree / "pilothouse-lab/worker-1/cgroup.procs"


def test_usage_and_members_are_read_wherever_they_are(tree: Path) -> None:
    cgroup.make(f"{WORKER}/kubepods/pod1")
    cgroup.make(cgroup.SYSTEM)
    lab = tree / "pilothouse-lab"
    (lab / "worker-1/cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert cgroup.used_seconds(WORKER) == 2.5
    (lab / "worker-1/kubepods/pod1/cgroup.procs").write_text("12\n13\n")
    (lab / "system/cgroup.procs").write_text("7\n")
    (tree / "cgroup.procs").write_text("1\n")  # somebody else's
    assert cgroup.pids() == {7, 12, 13}


def test_everything_of_the_lab_is_removed_from_below_and_what_stays_is_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("pilothouse-lab/worker-1/kubepods/pod1", "pilothouse-lab/system", "others"):
        (tree / path).mkdir(parents=True)
    held = tree / "pilothouse-lab/worker-1/kubepods/pod1/cgroup.procs"
    held.write_text("12\n")  # the kernel keeps a group with a process in it; so does this tree
    stays = [held.parents[depth] for depth in range(4)]
    assert cgroup.remove(0) == stays
    assert not (tree / "pilothouse-lab/system").exists()
    held.unlink()
    assert cgroup.remove(0) == []
    assert [path.name for path in tree.iterdir() if path.is_dir()] == ["others"]


def test_worker_joins_its_group_before_it_sees_nothing_else(tree: Path, tmp_path: Path) -> None:
    binaries = Binaries(folder=tmp_path / "bin", origin={})
    site = Site(layout=Layout(tmp_path), binaries=binaries, ports={})
    one = Worker(number=1, cpu_millicores=500, memory_mib=512)
    script = worker.enclosure(site, one).command[-1]
    join = f"echo $$ > {tree}{WORKER}/cgroup.procs && exec unshare "
    assert script.startswith(join)
    assert f"umount {tree} && mount -t cgroup2 cgroup {tree} && " in script


def test_machine_whose_tree_lacks_a_controller_is_told(tree: Path) -> None:
    named = "These cgroup controllers are not"
    assert not any(named in line for line in machine.missing(prometheus=False))
    (tree / "cgroup.controllers").write_text("cpuset pids")
    (line,) = [line for line in machine.missing(prometheus=False) if named in line]
    assert line.endswith("available: cpu, memory.")
