# SPDX-License-Identifier: Apache-2.0
"""What ``up`` says about a live cluster before it has seen one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilothouse.cli import live, main
from pilothouse.clients.lease import Leadership


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    document = {
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


def test_exercise_needs_a_live_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--exercise", "harbor", "--no-serve"]) == 2
    assert "Give --kubeconfig FILE" in capsys.readouterr().err


def test_exercise_is_refused_on_anything_but_the_lab(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["up", "--kubeconfig", str(kubeconfig), "--no-serve", "--exercise"]
    assert main([*arguments, "harbor"]) == 2
    assert "leads to https://127.0.0.1:1" in capsys.readouterr().err
    assert main([*arguments, "harbour"]) == 2
    assert 'Did you mean "harbor"' in capsys.readouterr().err


def test_usage_from_prometheus_needs_its_address(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\nobserve: {usage: prometheus}\n"
    )
    arguments = ["up", "--config", str(config), "--kubeconfig", str(kubeconfig), "--no-serve"]
    assert main(arguments) == 2
    assert "--prometheus URL" in capsys.readouterr().err


class Rivals(Leadership):
    """Somebody else holds the lease for two looks."""

    looks = 2

    @property
    def rival(self) -> str:
        self.looks -= 1
        return "other_1_abc" if self.looks >= 0 else ""


def test_standing_by_says_who_and_says_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STAND_BY_SECONDS", 0.0)
    said: list[str] = []
    live.stand_by(Rivals(), said.append)
    assert [line.partition(":")[0] for line in said] == ["Standing by", "Going on"]
    said.clear()
    live.stand_by(Leadership(), said.append)  # nobody is known to hold it
    assert said == []
