# SPDX-License-Identifier: Apache-2.0
"""How a cluster is reached: from a kubeconfig, or from inside a pod.

Only ways that need no other program are supported: client certificates, tokens and token files.
A kubeconfig that runs a command to get a token is refused with a sentence, never run.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pilothouse.errors import ClusterUnreachable, MissingFile, UnknownName, UserError

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address and credentials of one API server."""

    server: str  # https://host:port
    authority: bytes | None  # PEM; None: the system's
    certificate: bytes | None = None  # PEM
    key: bytes | None = None
    token: str = ""
    token_file: Path | None = None  # read again for every request: it is rotated
    insecure: bool = False
    context: str = ""

    def headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise ClusterUnreachable(
                    f"The token file {self.token_file} cannot be read: {error.strerror}."
                ) from None
        return {"Authorization": f"Bearer {token}"} if token else {}

    def tls(self) -> ssl.SSLContext:
        """A context for the API server; keys touch the disk only while they are loaded."""
        context = ssl.create_default_context(
            cadata=self.authority.decode() if self.authority else None
        )
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            with tempfile.TemporaryDirectory() as folder:
                pair = Path(folder) / "pair.pem"
                pair.touch(mode=0o600)
                pair.write_bytes(self.certificate + b"\n" + self.key)
                context.load_cert_chain(pair)
        return context


def from_kubeconfig(path: Path, context: str = "") -> Access:
    """Read one context of a kubeconfig; its current one when none is named.

    A folder is taken for what Kubernetes mounts into a pod: the service account's token and CA.
    """
    if path.is_dir():
        return from_pod(path)
    document = _read(path)
    name = context or str(document.get("current-context") or "")
    contexts = _named(document, "contexts", "context")
    if not name:
        raise UserError(f"{path} has no current context. Set one, or name one.")
    if name not in contexts:
        raise UnknownName.among(f"context of {path}", name, sorted(contexts))
    chosen = contexts[name]
    cluster = _entry(path, document, "clusters", "cluster", str(chosen.get("cluster", "")))
    user = _entry(path, document, "users", "user", str(chosen.get("user", "")))
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise UserError(f'{path}: the server must be an https address, but is "{server}".')
    _refuse_programs(path, user)
    token_file = user.get("tokenFile")
    return Access(
        server=server,
        authority=_secret(path, cluster, "certificate-authority"),
        certificate=_secret(path, user, "client-certificate"),
        key=_secret(path, user, "client-key"),
        token=str(user.get("token") or ""),
        token_file=_beside(path, str(token_file)) if token_file else None,
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        context=name,
    )


def from_pod(folder: Path = IN_CLUSTER) -> Access:
    """The service account of the pod we run in."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise UserError(
            f"{folder} is no pod's service account: it has no token, or KUBERNETES_SERVICE_HOST is "
            "not set. Name a kubeconfig: --kubeconfig FILE."
        )
    try:
        authority = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise MissingFile(f"{folder / 'ca.crt'} cannot be read: {error.strerror}.") from None
    address = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{address}:{port}",
        authority=authority,
        token_file=folder / "token",
        context="in-cluster",
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise MissingFile(f"The kubeconfig {path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"The kubeconfig {path} is not valid YAML: {reason}.") from None
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise UserError(f"{path} is not a kubeconfig: it has no kind: Config.")
    return document


def _named(document: Mapping[str, Any], group: str, inner: str) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for entry in document.get(group) or ():
        if isinstance(entry, dict) and isinstance(entry.get(inner), dict):
            found[str(entry.get("name"))] = entry[inner]
    return found


def _entry(
    path: Path, document: Mapping[str, Any], group: str, inner: str, name: str
) -> Mapping[str, Any]:
    known = _named(document, group, inner)
    if name not in known:
        raise UserError(f'{path}: its context names the {inner} "{name}", which is not there.')
    return known[name]


def _refuse_programs(path: Path, user: Mapping[str, Any]) -> None:
    for way in ("exec", "auth-provider"):
        if way in user:
            raise UserError(
                f"{path} gets its credentials by running a program ({way}), which pilothouse does "
                "not do. Make a service account token: kubectl create token NAME."
            )


def _secret(path: Path, entry: Mapping[str, Any], name: str) -> bytes | None:
    """Inline data wins over a file, as in kubectl."""
    if data := entry.get(f"{name}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            raise UserError(f"{path}: {name}-data is not valid base64.") from None
    if file := entry.get(name):
        source = _beside(path, str(file))
        try:
            return source.read_bytes()
        except OSError as error:
            raise MissingFile(f"{path}: {name} {source}: {error.strerror}.") from None
    return None


def _beside(path: Path, file: str) -> Path:
    """Paths in a kubeconfig are relative to it."""
    return Path(file) if Path(file).is_absolute() else path.parent / file
