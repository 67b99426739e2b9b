# SPDX-License-Identifier: Apache-2.0
"""Certificates and kubeconfigs for everybody in the lab, by the ``openssl`` command.

Every component has an identity of its own, so that the API server's roles and its audit log can
tell them apart. Keys live below the lab's run folder and die with it.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pilothouse.errors import LabFailed
from pilothouse.lab.layout import API_ADDRESS, API_PORT, CLUSTER

DAYS = "365"


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabFailed(f"openssl {arguments[0]}: {done.stderr.strip()[-400:]}")


@dataclass(frozen=True, slots=True)
class Authority:
    """One certificate authority and the folder of what it signed."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def establish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", DAYS, "-subj", f"/CN={self.name}"),
            *("-addext", "keyUsage=critical,keyCertSign,digitalSignature"),
            *("-keyout", str(self.key), "-out", str(self.certificate)),
        )

    def sign(
        self, file: str, *, common_name: str, groups: tuple[str, ...] = (), names: str = ""
    ) -> tuple[Path, Path]:
        """A key and a certificate for it; ``names`` are what a server is called by."""
        certificate, key = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={common_name}"
        usage = "serverAuth,clientAuth" if names else "clientAuth"
        extra = ("-addext", f"subjectAltName={names}") if names else ()
        _openssl(
            *("req", "-x509", "-CA", str(self.certificate), "-CAkey", str(self.key)),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", DAYS, "-subj", subject, "-addext", f"extendedKeyUsage={usage}"),
            *("-addext", "basicConstraints=critical,CA:FALSE", *extra),
            *("-keyout", str(key), "-out", str(certificate)),
        )
        return certificate, key


def key_pair(private: Path, public: Path) -> None:
    """The pair that service account tokens are signed with."""
    _openssl(
        "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(private)
    )
    _openssl("pkey", "-in", str(private), "-pubout", "-out", str(public))


def write_kubeconfig(path: Path, *, authority: Path, certificate: Path, key: Path) -> None:
    """A kubeconfig that carries its secrets, readable by its owner alone. JSON is YAML too."""
    import base64

    def inline(source: Path) -> str:
        return base64.b64encode(source.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CLUSTER,
        "clusters": [
            {
                "name": CLUSTER,
                "cluster": {
                    "server": f"https://{API_ADDRESS}:{API_PORT}",
                    "certificate-authority-data": inline(authority),
                },
            }
        ],
        "users": [
            {
                "name": CLUSTER,
                "user": {
                    "client-certificate-data": inline(certificate),
                    "client-key-data": inline(key),
                },
            }
        ],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": CLUSTER}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2) + "\n")
