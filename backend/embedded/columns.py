"""What `kubectl get` shows of an object: the server makes the table, by a definition's columns or its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]
Cell = str | int | None

_TOKEN = re.compile(r"\.(\w[\w-]*)|\[(-?\d+):?\]|\[\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\]")
_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and type, whether it is for wide tables only, and what it shows of an object."""

    name: str
    cell: Callable[[Object, datetime], Cell]
    type: str = "string"
    format: str = ""
    priority: int = 0

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


def columns(kind: str, printed: Sequence[Object] | None) -> tuple[Column, ...]:
    """The columns of a kind: `printed` are those of its definition, None for a built-in kind."""
    if printed is not None:
        own = [_of_definition(each) for each in printed] or [Column("Age", _age, "date")]
        return (_NAME, *own)
    return (_NAME, *_OWN.get(kind, (Column("Age", _age),)))


def age(since: str | None, now: datetime) -> str:
    """How long ago a moment was, as kubectl says it: `90s`, `5m`, `3h`, `2d`."""
    if not since:
        return "<unknown>"
    seconds = max(int((now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds()), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _two(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def _two(many: int, unit: str, rest: int, smaller: str) -> str:
    return f"{many}{unit}{rest}{smaller}" if rest else f"{many}{unit}"


def found(obj: Any, path: str) -> Any:
    """What a definition's JSON path leads to: fields, `[-1:]`, and `[?(@.type=="X")]`."""
    for field, index, key, wanted in _TOKEN.findall(path):
        if field:
            obj = obj.get(field) if isinstance(obj, Mapping) else None
        elif index:
            obj = obj[int(index)] if isinstance(obj, list) and obj else None
        else:
            obj = next((each for each in obj or () if str(each.get(key)) == wanted), None)
    return obj


def _of_definition(described: Object) -> Column:
    path, shown = described["jsonPath"], described["type"]

    def cell(obj: Object, now: datetime) -> Cell:
        value = found(obj, path)
        if value is None:
            return None
        if shown == "date":
            return age(str(value), now)
        if shown == "integer":
            return int(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return Column(described["name"], cell, shown, priority=described.get("priority", 0))


def _age(obj: Object, now: datetime) -> Cell:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _text(path: str, otherwise: str = _NONE) -> Callable[[Object, datetime], Cell]:
    return lambda obj, _: str(found(obj, path) or otherwise)


def _wide(name: str, cell: Callable[[Object, datetime], Cell]) -> Column:
    return Column(name, cell, priority=1)


def _statuses(pod: Object) -> list[Any]:
    return list(found(pod, ".status.containerStatuses") or [])


def _pod_ready(pod: Object, _: datetime) -> Cell:
    ready = sum(bool(each.get("ready")) for each in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or [])}"


def _pod_status(pod: Object, _: datetime) -> Cell:
    reason = str(found(pod, ".status.reason") or found(pod, ".status.phase") or "Unknown")
    for status in _statuses(pod):
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            ended = state["terminated"]
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if found(pod, ".status.reason") == "NodeLost" else "Terminating"
    return reason


def _pod_restarts(pod: Object, _: datetime) -> Cell:
    return str(sum(each.get("restartCount", 0) for each in _statuses(pod)))


def _job_status(job: Object, _: datetime) -> Cell:
    held = {each["type"] for each in found(job, ".status.conditions") or [] if each["status"] == "True"}
    if "deletionTimestamp" in job["metadata"] and not held & {"Complete", "Failed"}:
        return "Terminating"
    return next(
        (kind for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet") if kind in held),
        "Running",
    )


def _job_completions(job: Object, _: datetime) -> Cell:
    done = found(job, ".status.succeeded") or 0
    wanted = found(job, ".spec.completions")
    return f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {found(job, '.spec.parallelism') or 1}"


def _job_duration(job: Object, now: datetime) -> Cell:
    began, ended = found(job, ".status.startTime"), found(job, ".status.completionTime")
    if not began:
        return ""
    return age(began, datetime.fromisoformat(ended).astimezone(UTC) if ended else now)


def _containers(field: str) -> Callable[[Object, datetime], Cell]:
    return lambda job, _: ",".join(str(each.get(field)) for each in found(job, ".spec.template.spec.containers") or ())


def _selector(path: str) -> Callable[[Object, datetime], Cell]:
    return lambda obj, _: ",".join(f"{key}={value}" for key, value in (found(obj, path) or {}).items()) or _NONE


def _node_status(node: Object, _: datetime) -> Cell:
    ready = found(node, '.status.conditions[?(@.type=="Ready")].status')
    said = "Ready" if ready == "True" else "NotReady" if ready else "Unknown"
    return f"{said},SchedulingDisabled" if found(node, ".spec.unschedulable") else said


def _node_roles(node: Object, _: datetime) -> Cell:
    prefix = "node-role.kubernetes.io/"
    return ",".join(sorted(key.removeprefix(prefix) for key in node["metadata"].get("labels") or {}
                           if key.startswith(prefix))) or _NONE  # fmt: skip


def _node_address(kind: str) -> Callable[[Object, datetime], Cell]:
    return _text(f'.status.addresses[?(@.type=="{kind}")].address')


def _data(obj: Object, _: datetime) -> Cell:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _ports(service: Object, _: datetime) -> Cell:
    return (
        ",".join(f"{each['port']}/{each.get('protocol', 'TCP')}" for each in found(service, ".spec.ports") or ())
        or _NONE
    )


def _event_object(event: Object, _: datetime) -> Cell:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _last_seen(event: Object, now: datetime) -> Cell:
    return age(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"), now)


_NAME = Column("Name", lambda obj, _: str(obj["metadata"].get("name", "")), format="name")
_AGE = Column("Age", _age)
_CREATED = Column("Created At", lambda obj, _: obj["metadata"].get("creationTimestamp"), "date")
_OWN: dict[str, tuple[Column, ...]] = {
    "Pod": (
        Column("Ready", _pod_ready), Column("Status", _pod_status), Column("Restarts", _pod_restarts), _AGE,
        _wide("IP", _text(".status.podIP")), _wide("Node", _text(".spec.nodeName")),
        _wide("Nominated Node", _text(".status.nominatedNodeName")), _wide("Readiness Gates", lambda *_: _NONE),
    ),
    "Job": (
        Column("Status", _job_status), Column("Completions", _job_completions), Column("Duration", _job_duration), _AGE,
        _wide("Containers", _containers("name")), _wide("Images", _containers("image")),
        _wide("Selector", _selector(".spec.selector.matchLabels")),
    ),
    "Node": (
        Column("Status", _node_status), Column("Roles", _node_roles), _AGE,
        Column("Version", _text(".status.nodeInfo.kubeletVersion", "")),
        _wide("Internal-IP", _node_address("InternalIP")), _wide("External-IP", _node_address("ExternalIP")),
        _wide("OS-Image", _text(".status.nodeInfo.osImage", "<unknown>")),
        _wide("Kernel-Version", _text(".status.nodeInfo.kernelVersion", "<unknown>")),
        _wide("Container-Runtime", _text(".status.nodeInfo.containerRuntimeVersion", "<unknown>")),
    ),
    "Namespace": (Column("Status", _text(".status.phase", "")), _AGE),
    "ConfigMap": (Column("Data", _data), _AGE),
    "Secret": (Column("Type", _text(".type")), Column("Data", _data), _AGE),
    "Service": (
        Column("Type", _text(".spec.type")), Column("Cluster-IP", _text(".spec.clusterIP")),
        Column("External-IP", lambda *_: _NONE), Column("Port(s)", _ports), _AGE,
        _wide("Selector", _selector(".spec.selector")),
    ),
    "Event": (
        Column("Last Seen", _last_seen), Column("Type", _text(".type", "")), Column("Reason", _text(".reason", "")),
        Column("Object", _event_object), Column("Message", _text(".message", "")),
    ),
    **dict.fromkeys(("Role", "ClusterRole", "CustomResourceDefinition"), (_CREATED,)),
    **dict.fromkeys(
        ("RoleBinding", "ClusterRoleBinding"),
        (Column("Role", lambda obj, _: f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"), _AGE),
    ),
}  # fmt: skip
