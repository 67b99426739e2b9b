# SPDX-License-Identifier: Apache-2.0
"""What the lab is built from, and the files its components are started with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from pilothouse.errors import LabUnavailable
from pilothouse.lab import build, fake, machine, monitoring, worker
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Site
from pilothouse.lab.controlplane import IDENTITIES, MANIFESTS
from pilothouse.lab.lab import PORTS, Wish
from pilothouse.lab.layout import Layout, Worker
from pilothouse.lab.part import PARTS


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(
        layout=Layout(tmp_path),
        binaries=Binaries(folder=tmp_path / "bin", origin={}),
        ports={name: 20_000 + i for i, name in enumerate(PORTS)},
    )


WORKERS = [Worker(number=n, cpu_millicores=500, memory_mib=512) for n in (1, 2, 3)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.module)
def test_every_part_pins_its_modules(part: build.Part) -> None:
    text = (part.folder / "go.mod").read_text()
    assert "latest" not in text
    assert not part.released or (part.folder / "go.sum").stat().st_size > 0


def test_kubernetes_pins_each_staging_module_to_the_same_release() -> None:
    lines = (PARTS[0].folder / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if "=>" in line]
    assert len(replaced) == 33
    assert set(replaced) == {"v0.36.4"}


def test_half_a_release_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "kubelet").touch()
    with pytest.raises(LabUnavailable, match="kube-apiserver"):
        build.obtain(tmp_path / "cache", given=given)


def test_release_binaries_are_taken_and_the_manifest_says_so(tmp_path: Path) -> None:
    given, cache = tmp_path / "given", tmp_path / "cache"
    given.mkdir()
    cache.mkdir()
    for part in PARTS:
        for name in part.binaries:
            (given / name).write_bytes(b"binary")
    own = PARTS[-1]
    manifest: dict[str, dict[str, str]] = {}
    for part in PARTS[:-1]:
        assert build._take(part, given, cache, manifest)
    assert set(manifest) == {n for p in PARTS[:-1] for n in p.binaries}
    assert all(entry["origin"] == f"taken from {given}" for entry in manifest.values())
    assert not own.released


def test_change_of_a_source_file_makes_a_new_key(tmp_path: Path) -> None:
    part = PARTS[-1]
    assert build._key(part, "go1.26") == build._key(part, "go1.26")
    assert build._key(part, "go1.26") != build._key(part, "go1.27")


def test_worker_advertises_its_share_and_reserves_the_rest(site: Site) -> None:
    component = worker.kubelet(site, WORKERS[0], 7)
    path = next(f for f in component.command if f.startswith("--config=")).partition("=")[2]
    config = json.loads(Path(path).read_text())
    reserved = int(config["systemReserved"]["cpu"].removesuffix("m"))
    assert reserved + 500 == (os.cpu_count() or 1) * 1000
    assert component.command[:2] == ("nsenter", "--target=7")
    assert config["makeIPTablesUtilChains"] is False


def test_workers_share_no_address_bridge_or_cgroup() -> None:
    for attribute in ("address", "bridge", "cgroup", "subnet", "name"):
        assert len({getattr(w, attribute) for w in WORKERS}) == len(WORKERS)


def test_prometheus_scrapes_every_worker_and_keeps_the_usual_names(site: Site) -> None:
    monitoring.prometheus(site, WORKERS, ["fake-0001"])
    config = yaml.safe_load((site.layout.run / "prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert {"node", "pods", "kube-state-metrics", "apiserver"} < set(jobs)
    targets = [t for c in jobs["node"]["static_configs"] for t in c["targets"]]
    assert targets == [f"{w.address}:9100" for w in WORKERS]


def test_fake_nodes_are_tainted_and_marked() -> None:
    nodes = [json.loads(text) for text in fake.nodes(3)]
    assert [n["metadata"]["name"] for n in nodes] == ["fake-0001", "fake-0002", "fake-0003"]
    assert all(n["spec"]["taints"] == [fake.FAKE_TAINT] for n in nodes)


@pytest.mark.parametrize("name", ["audit-policy.yaml", "roles.yaml", "kwok.yaml", "rules.yaml"])
def test_manifests_are_yaml(name: str) -> None:
    assert list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def test_roles_of_the_lab_have_no_wildcards() -> None:
    text = (MANIFESTS / "roles.yaml").read_text()
    for document in yaml.safe_load_all(text):
        for rule in document.get("rules", ()):
            for key in ("apiGroups", "resources", "verbs"):
                assert "*" not in rule.get(key, ())
    users = {subject for _, (subject, _) in IDENTITIES.items()}
    assert {"lab-kwok", "lab-prometheus"} < users


@pytest.mark.parametrize(("workers", "fakes"), [(-1, 0), (10, 0), (3, 10_001)])
def test_wish_outside_its_bounds_is_refused(workers: int, fakes: int) -> None:
    with pytest.raises(LabUnavailable, match="must be between"):
        Wish(workers=workers, fake_nodes=fakes).check()


def test_machine_without_root_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabUnavailable, match=r"needs root.*kind.*kwokctl.*--kubeconfig"):
        machine.require(prometheus=False)


def test_workers_together_get_less_than_the_machine() -> None:
    cpu, _ = machine.share(3)
    assert 3 * cpu <= (os.cpu_count() or 1) * 1000 or cpu == 100
