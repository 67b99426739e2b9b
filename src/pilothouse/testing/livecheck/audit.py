# SPDX-License-Identifier: Apache-2.0
"""What the API server wrote down: our writes, and the objects as they were at that moment."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
ACCOUNT = "system:serviceaccount:pilothouse-system:pilothouse-"
ACTUATOR, JANITOR = f"{ACCOUNT}actuator", f"{ACCOUNT}janitor"
READS = ("get", "list", "watch")
OWN = ("leases", "events", "tickets")
OUT_OF_SERVICE = ("pilothouse.dev/out-of-service", "pilothouse.dev/avoid", "pilothouse.dev/power")
SWITCH, FENCE = "pilothouse-switch", "pilothouse-fence"
ACTING = "pilothouse.dev/acting"
EPOCH, HOLDER = "pilothouse.dev/epoch", "pilothouse.dev/holder"
SIGNED = re.compile(r"pilothouse:(\d+:[^:]+):")
HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One write of ours, as the API server logged it."""

    user: str
    verb: str
    resource: str  # "pods/eviction"
    namespace: str
    name: str
    code: int
    intent: str
    at: float  # Unix seconds, when it arrived
    signer: str = ""  # "7:host_1_ab": epoch and name of the leader that sent it
    request: Json = field(default_factory=dict)
    response: Json = field(default_factory=dict)

    @property
    def action(self) -> str:
        return self.intent.rpartition(".")[0]

    @property
    def succeeded(self) -> bool:
        return self.code < 300


@dataclass(frozen=True, slots=True)
class Version:
    """An object from some moment on."""

    at: float
    thing: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A disruption budget as its controller saw it."""

    at: float
    budget: str  # "shop/cart"
    current: int
    desired: int
    selector: Mapping[str, str]


@dataclass(slots=True)
class Scene:
    """The objects around our writes, as everybody's writes to them were logged."""

    namespaces: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    pods: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    budgets: list[Health] = field(default_factory=list)
    flips: list[tuple[float, bool]] = field(default_factory=list)  # when, and whether to on
    fences: list[tuple[float, str]] = field(default_factory=list)  # when, and to which signer
    tickets: dict[str, Json] = field(default_factory=dict)  # as last written, forgotten ones too

    def namespace(self, name: str, at: float) -> Json | None:
        return _as_of(self.namespaces.get(name, ()), at)

    def pod(self, namespace: str, name: str, at: float) -> Json | None:
        return _as_of(self.pods.get(f"{namespace}/{name}", ()), at)

    def off_since(self, at: float) -> float | None:
        """Since when the switch was off at some moment; None while it was on."""
        since = None
        for moment, acting in self.flips:
            if moment > at:
                break
            since = None if acting else moment if since is None else since
        return since

    def fence(self, at: float) -> str:
        """Who might write at some moment; empty before the first that the log knows."""
        return next((signer for moment, signer in reversed(self.fences) if moment <= at), "")

    def workload_of(self, deed: Deed) -> str:
        """The workload a write concerns: what was scaled, or whoever made the pod."""
        if deed.resource.startswith("pods/"):
            pod = self.pod(deed.namespace, deed.name, deed.at) or {}
            return f"{deed.namespace}/{maker_of(pod)}"
        if deed.resource.endswith("/scale"):
            return f"{deed.namespace}/{deed.name}"
        if deed.resource == "horizontalpodautoscalers":
            target = (deed.response.get("spec") or {}).get("scaleTargetRef") or {}
            return f"{deed.namespace}/{target.get('name', '')}"
        return ""


def _as_of(versions: Sequence[Version], at: float) -> Json | None:
    place = bisect_right([v.at for v in versions], at)
    return versions[place - 1].thing if place else None


def maker_of(pod: Json) -> str:
    """A Deployment is known by its ReplicaSets' names, less the hash of the template."""
    meta = pod.get("metadata") or {}
    owner = controller_of(pod)
    if owner is None:
        return str(meta.get("name", ""))
    suffix = f"-{(meta.get('labels') or {}).get(HASH, '')}"
    return str(owner["name"]).removesuffix(suffix)


def controller_of(pod: Json) -> Json | None:
    owners: list[Json] = (pod.get("metadata") or {}).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def read_log(lines: Iterable[str]) -> tuple[list[Deed], Scene]:
    """Our writes in the order in which they arrived, and the scene they were made on."""
    deeds: list[Deed] = []
    scene = Scene()
    events = [event for line in lines if _is_over(event := json.loads(line))]
    for event in sorted(events, key=lambda e: _unix(_ended(e))):
        place = event.get("objectRef") or {}
        user = event["user"].get("username", "")
        if event["verb"] in READS or is_dry_run(event):
            continue
        if user in (ACTUATOR, JANITOR) and not _is_own(place):
            deeds.append(_deed(event, user, place))
        if _code(event) < 300:
            _note(scene, event, place)
    return sorted(deeds, key=lambda d: d.at), scene


def is_dry_run(event: Json) -> bool:
    """Whether the server only judged it; other words of an address may look like the option."""
    return _options(event).get("dryRun") == ["All"]


def signer_of(event: Json) -> str:
    """Epoch and name of the leader that signed a write; empty: none of ours did."""
    signed = SIGNED.match(_options(event).get("fieldManager", [""])[0])
    return signed[1] if signed else ""


def _options(event: Json) -> dict[str, list[str]]:
    return parse_qs(urlsplit(event.get("requestURI", "")).query)


def _is_own(place: Json) -> bool:
    """What a loop keeps of itself: no action of its own, so no deed."""
    kind = place.get("resource")
    return kind in OWN or (kind, place.get("name")) == ("serviceaccounts", FENCE)


def _is_over(event: Json) -> bool:
    return event.get("stage") == "ResponseComplete"


def _ended(event: Json) -> str:
    return str(event.get("stageTimestamp") or event["requestReceivedTimestamp"])


def _code(event: Json) -> int:
    return int((event.get("responseStatus") or {}).get("code", 0))


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _deed(event: Json, user: str, place: Json) -> Deed:
    parts = (place.get("resource", ""), place.get("subresource", ""))
    return Deed(
        user=user,
        verb=event["verb"],
        resource="/".join(part for part in parts if part),
        namespace=place.get("namespace", ""),
        name=place.get("name", ""),
        code=_code(event),
        intent=event["auditID"],
        at=_unix(event["requestReceivedTimestamp"]),
        signer=signer_of(event),
        request=event.get("requestObject") or {},
        response=event.get("responseObject") or {},
    )


def _note(scene: Scene, event: Json, place: Json) -> None:
    """Keep what one successful write says about an object."""
    thing, at = event.get("responseObject") or {}, _unix(_ended(event))
    meta = thing.get("metadata") or {}
    name, resource = meta.get("name", ""), place.get("resource")
    if not name or event["verb"] == "delete":
        return
    if resource == "namespaces" and not place.get("subresource"):
        scene.namespaces[name].append(Version(at, thing))
    elif resource == "pods" and not place.get("subresource"):
        scene.pods[f"{meta['namespace']}/{name}"].append(Version(at, thing))
    elif resource == "tickets":
        scene.tickets[name] = thing
    elif resource == "serviceaccounts" and name == SWITCH:
        scene.flips.append((at, (meta.get("annotations") or {}).get(ACTING) == "enabled"))
    elif resource == "serviceaccounts" and name == FENCE:
        notes = meta.get("annotations") or {}
        scene.fences.append((at, f"{notes.get(EPOCH)}:{notes.get(HOLDER)}"))
    elif resource == "poddisruptionbudgets" and place.get("subresource") == "status":
        status, selector = thing["status"], thing["spec"].get("selector") or {}
        scene.budgets.append(
            Health(
                at=at,
                budget=f"{meta['namespace']}/{name}",
                current=int(status.get("currentHealthy", 0)),
                desired=int(status.get("desiredHealthy", 0)),
                selector=selector.get("matchLabels") or {},
            )
        )
