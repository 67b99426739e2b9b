# SPDX-License-Identifier: Apache-2.0
"""The lab's links, routes and kernel settings, by the ``ip`` command.

Nothing here lets a packet leave the machine: both ranges are blackholed first, bridges masquerade
nothing, and forwarding is switched on only for packets between the workers' bridges.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path
from typing import Any

from pilothouse.errors import LabFailed, LabUnavailable
from pilothouse.lab.layout import BRIDGE, POD_RANGE, ROUTE_PROTOCOL, SERVICE_RANGE
from pilothouse.lab.ledger import Ledger, Linked, Routed, Tuned

# The first is ours; the kubelets set the others to what they are, or to what they want them to be.
KERNEL_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "vm/overcommit_memory": "",
    "vm/panic_on_oom": "",
    "kernel/panic": "",
    "kernel/panic_on_oops": "",
    "kernel/keys/root_maxkeys": "",
    "kernel/keys/root_maxbytes": "",
    "net/ipv4/conf/all/route_localnet": "",
}
# A kubelet takes six, a lab about forty, and the usual limit is 128 for everything root runs.
KERNEL_LEAST = {"fs/inotify/max_user_instances": 512}


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabFailed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _listed(*arguments: str) -> list[dict[str, Any]]:
    found = json.loads(ip("-json", *arguments) or "[]")
    return [row for row in found if isinstance(row, dict)]


def check_ranges() -> None:
    """Refuse to start where somebody else already uses our addresses."""
    ours = [ipaddress.ip_network(POD_RANGE), ipaddress.ip_network(SERVICE_RANGE)]
    for route in _listed("route", "show", "table", "all"):
        target = str(route.get("dst", "default"))
        mine = str(route.get("dev", "")).startswith(BRIDGE) or is_ours(route)
        if target == "default" or ":" in target or mine:
            continue
        if any(ipaddress.ip_network(target, strict=False).overlaps(own) for own in ours):
            raise LabUnavailable(
                f"This machine already has a route to {target} (dev {route.get('dev', 'none')}), "
                f"which the lab's ranges {POD_RANGE} and {SERVICE_RANGE} overlap. "
                "Use another machine, or any cluster with --kubeconfig."
            )


def is_ours(route: dict[str, Any]) -> bool:
    return str(route.get("protocol", "")) == ROUTE_PROTOCOL


def blackhole(ledger: Ledger, target: str) -> None:
    ledger.append(Routed(range=target))
    ip("route", "replace", "blackhole", target, "proto", ROUTE_PROTOCOL)


def bridge(ledger: Ledger, name: str, address: str) -> None:
    """A bridge with one address; pods are plugged into it later."""
    ledger.append(Linked(name=name))
    ip("link", "add", name, "type", "bridge")
    ip("address", "add", address, "dev", name)
    ip("link", "set", name, "up")


def tune(ledger: Ledger) -> None:
    """Remember kernel settings that change while the lab runs, and change ours."""
    for name, wanted in KERNEL_SETTINGS.items():
        path = Path("/proc/sys") / name
        if not path.exists():
            continue
        before = path.read_text().strip()
        ledger.append(Tuned(path=str(path), before=before))
        if wanted and before != wanted:
            path.write_text(wanted)
    for name, least in KERNEL_LEAST.items():
        path = Path("/proc/sys") / name
        before = path.read_text().strip() if path.exists() else ""
        if before.isdigit() and int(before) < least:
            ledger.append(Tuned(path=str(path), before=before))
            path.write_text(str(least))


def restore(settings: list[Tuned]) -> None:
    """The first entry of a path is what it was before any lab."""
    done: set[str] = set()
    for setting in settings:
        path = Path(setting.path)
        if setting.path in done or not path.is_relative_to("/proc/sys"):
            continue
        done.add(setting.path)
        if path.exists() and path.read_text().strip() != setting.before:
            path.write_text(setting.before)


def links() -> list[str]:
    """Our bridges and whatever is still plugged into them, the plugged first."""
    rows = _listed("link", "show")
    plugged = [str(r["ifname"]) for r in rows if str(r.get("master", "")).startswith(BRIDGE)]
    bridges = [str(r["ifname"]) for r in rows if str(r["ifname"]).startswith(BRIDGE)]
    return plugged + bridges


def remove_links() -> None:
    for name in links():
        # A veth goes with its other end, maybe before its turn comes.
        subprocess.run(["ip", "link", "delete", name], capture_output=True)


def routes() -> list[str]:
    return [str(route["dst"]) for route in _listed("route", "show") if is_ours(route)]


def remove_routes() -> None:
    for target in routes():
        subprocess.run(["ip", "route", "delete", "blackhole", target], capture_output=True)
