# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pilothouse.clients import from_kubeconfig, from_pod
from pilothouse.errors import MissingFile, UnknownName, UserError


def a_kubeconfig(path: Path, *, user: dict[str, object] | None = None, **changes: object) -> Path:
    document: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(document | changes))
    return path


def test_current_context_is_used(tmp_path: Path) -> None:
    access = from_kubeconfig(a_kubeconfig(tmp_path / "config"))
    assert access.server == "https://10.0.0.1:6443"
    assert access.headers() == {"Authorization": "Bearer secret"}
    assert access.context == "lab"


def test_token_file_is_read_again_for_every_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    access = from_kubeconfig(a_kubeconfig(tmp_path / "config", user={"tokenFile": "token"}))
    assert access.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two\n")
    assert access.headers() == {"Authorization": "Bearer two"}


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="none"):
        from_kubeconfig(tmp_path / "none")


def test_unknown_context_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match='Did you mean "lab"'):
        from_kubeconfig(a_kubeconfig(tmp_path / "config"), context="lap")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"current-context": ""}, "no current context"),
        ({"clusters": []}, "which is not there"),
        ({"kind": "List"}, "not a kubeconfig"),
        ({"clusters": [{"name": "c", "cluster": {"server": "ftp://x"}}]}, "https address"),
        (
            {"users": [{"name": "u", "user": {"exec": {"command": "aws"}}}]},
            "running a program",
        ),
        (
            {"users": [{"name": "u", "user": {"client-key-data": "%%%"}}]},
            "not valid base64",
        ),
    ],
)
def test_kubeconfig_that_cannot_be_used_says_why(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        from_kubeconfig(a_kubeconfig(tmp_path / "config", **changes))


def test_text_that_is_no_yaml_says_so(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a: [")
    with pytest.raises(UserError, match="not valid YAML"):
        from_kubeconfig(tmp_path / "config")


def test_process_outside_a_pod_is_told_to_name_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="--kubeconfig"):
        from_pod(tmp_path)


def test_folder_is_taken_for_a_pods_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("authority")
    access = from_kubeconfig(tmp_path)
    assert access.server == "https://[fd00::1]:443"
    assert access.authority == b"authority"
    (tmp_path / "token").write_text("rotated\n")
    assert access.headers() == {"Authorization": "Bearer rotated"}
