# SPDX-License-Identifier: Apache-2.0
"""Writes ``deploy/manifests`` from the chart, so that there is one source of both.

    python -m deploy.render [--check] [--helm COMMAND]

The observer is two files, because the roles alone are what a person needs who runs the loop from a
laptop. Every template below ``templates/acting`` and ``templates/placement`` is the manifest of the
same name, but for the hooks, which mean something to Helm alone. The other way round, the chart has
its copies of the scheduler's profiles from ``deploy/scheduler``: Helm reads nothing outside of it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from pilothouse.home import home

HERE = Path(__file__).parent
CHART = HERE / "charts" / "pilothouse"
ROLES = HERE / "manifests" / "observer-rbac.yaml"
REST = HERE / "manifests" / "observer.yaml"
PROFILES = HERE / "scheduler"
HOOKS = "removal.yaml"
# The switch stands at enabled, as for somebody who says --enforce on a command line of their own.
ACTING = ("acting.enabled=true", "acting.enforce=safety", "acting.nodeAgent.enabled=true")
# The user is whoever applies it to fill in, like the image.
PLACEMENT = (
    "placement.enabled=true",
    "placement.user=user.example:80",
    "placement.scheduler.enabled=true",
)
KUBERNETES_VERSION = "1.36"
HEADER = """# SPDX-License-Identifier: Apache-2.0
# Written by `make manifests` from deploy/charts/pilothouse. Do not edit: change the chart.
"""
WHO = frozenset(
    {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
)


def render(helm: str, *values: str) -> str:
    """The chart as ``helm template`` gives it."""
    command = [helm, "template", "pilothouse", str(CHART), "--namespace", "pilothouse-system"]
    command += ["--kube-version", KUBERNETES_VERSION]  # a helm of one's own build knows no release
    for value in values:
        command += ["--set", value]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def profiles() -> dict[Path, str]:
    """What the chart's copies of the profiles should hold."""
    return {CHART / "profiles" / path.name: path.read_text() for path in PROFILES.glob("*.yaml")}


def manifests(helm: str) -> dict[Path, str]:
    """What the files should hold."""
    # Helm orders by kind; the namespace comes first by itself.
    observer = [text for _, text in documents(render(helm, "namespace.create=true"))]
    who = [d for d in observer if yaml.safe_load(d)["kind"] in WHO]
    rest = [d for d in observer if yaml.safe_load(d)["kind"] not in WHO]
    files = {ROLES: who, REST: rest}
    for source, text in documents(render(helm, *ACTING, *PLACEMENT)):
        if source.parent.name in ("acting", "placement") and source.name != HOOKS:
            files.setdefault(HERE / "manifests" / source.name, []).append(text)
    return {path: HEADER + "---\n".join(texts) for path, texts in files.items()}


def documents(rendered: str) -> list[tuple[Path, str]]:
    """Each document with the template it comes from."""
    found = []
    for text in ("\n" + rendered).split("\n---\n"):
        lines = text.strip().splitlines()
        kept = [line for line in lines if not line.startswith("# Source:")]
        if any(line.strip() and not line.startswith("#") for line in kept):
            source = next(line for line in lines if line.startswith("# Source:"))
            found.append((Path(source.removeprefix("# Source: ")), "\n".join(kept).strip() + "\n"))
    return found


def found_helm() -> str | None:
    """The machine's, else the one that was built beside the lab."""
    built = home() / "lab" / "bin" / "helm"
    return shutil.which("helm") or (str(built) if built.exists() else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether they are fresh")
    parser.add_argument("--helm", default=found_helm(), help="the helm command")
    arguments = parser.parse_args()
    if arguments.helm is None:
        print("There is no helm. Build it: pilothouse lab build --helm.", file=sys.stderr)
        return 1
    stale = renewed(profiles(), check=arguments.check)  # first: the chart is rendered with them
    stale += renewed(manifests(arguments.helm), check=arguments.check)
    if arguments.check:
        for path in stale:
            print(f"{path} is not what it is written from. Run: make manifests", file=sys.stderr)
        return 1 if stale else 0
    return 0


def renewed(wanted: dict[Path, str], *, check: bool) -> list[Path]:
    """Which files held something else; now they hold this, unless that is only checked."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in [] if check else stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path])
    return stale


if __name__ == "__main__":
    sys.exit(main())
