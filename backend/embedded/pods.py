"""What only pods have: their logs, their eviction, their binding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatch_kubeflow.backend.embedded.bodies import decoded
from dispatch_kubeflow.backend.embedded.errors import (
    FieldError,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    not_found,
)
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.embedded.routes import Route, is_true
from dispatch_kubeflow.backend.embedded.store import Store, Write
from dispatch_kubeflow.backend.requests.resources import NODES, PODS

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What a pods/log request asks for, checked."""

    tail_lines: int | None = None
    follow: bool = False
    since_time: datetime | None = None
    since_seconds: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    previous: bool = False


LogProvider = Callable[[Object, str, LogQuery], "Iterator[bytes] | None"]
"""Gives a container's log as its kubelet would, blocking between pieces of a followed one; raises `ApiError` as a
kubelet refuses, 500 when the node cannot be reached."""


def log(store: Store, provider: LogProvider, route: Route) -> Answer:
    """GET pods/log."""
    query = _log_query(route)
    pod = store.get(PODS, route.namespace, route.name)
    container = _container(pod, route.query.get("container", ""))
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        # Kubernetes has nowhere to ask yet, and answers without a body.
        return Answer(204, content_type="")
    if store.find(NODES, None, node) is None:
        raise not_found("", "pods", node)
    chunks = provider(pod, container, query)
    if chunks is None:
        return Answer(204, content_type="")
    return Answer(200, content_type="text/plain", chunks=chunks)


def evict(store: Store, route: Route, request: Request, how: Write) -> Answer:
    """POST pods/eviction: the condition first, then a graceful delete."""
    options = _body(request.body, "Eviction").get("deleteOptions") or {}
    with store.lock:
        pod = store.get(PODS, route.namespace, route.name)
        status = dict(pod.get("status") or {})
        wanted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": store.now(),
        }
        others = [item for item in status.get("conditions") or [] if item.get("type") != "DisruptionTarget"]
        how.dry_run = bool(options.get("dryRun"))
        preconditions = options.get("preconditions") or {}
        status["conditions"] = [*others, wanted]
        if not how.dry_run and preconditions.get("uid") in (None, pod["metadata"]["uid"]):
            store.patch(PODS, route.namespace, route.name, {"status": status}, "merge", "status", write=how)
        store.delete(
            PODS,
            route.namespace,
            route.name,
            uid=preconditions.get("uid"),
            grace_seconds=options.get("gracePeriodSeconds"),
            write=how,
        )
    return _success()


def bind(store: Store, route: Route, request: Request, how: Write) -> Answer:
    """POST pods/binding, a scheduler's word."""
    target = (_body(request.body, "Binding").get("target") or {}).get("name", "")
    with store.lock:
        pod = store.get(PODS, route.namespace, route.name)
        if pod["metadata"].get("deletionTimestamp"):
            raise conflict(
                "", "pods/binding", route.name, f"pod {route.name} is being deleted, cannot be assigned to a host"
            )
        assigned = pod["spec"].get("nodeName")
        if assigned:
            raise conflict("", "pods/binding", route.name, f'pod {route.name} is already assigned to node "{assigned}"')
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": store.now()}
        status = pod.setdefault("status", {})
        conditions = [item for item in status.get("conditions") or [] if item.get("type") != "PodScheduled"]
        status["conditions"] = [*conditions, bound]
        store.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": target}}, "binding", write=how)
    return _success()


def _success() -> Answer:
    return of_object({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _body(body: bytes, kind: str) -> Mapping[str, Any]:
    try:
        value, _ = decoded(body)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from None
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    return value


def _log_query(route: Route) -> LogQuery:
    query, faults = route.query, list[FieldError]()
    tail = _number(query, "tailLines")
    limit = _number(query, "limitBytes")
    since = _number(query, "sinceSeconds")
    moment = query.get("sinceTime")
    if tail is not None and tail < 0:
        faults.append(invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        faults.append(invalid_value("limitBytes", limit, "must be greater than 0"))
    if since is not None and moment:
        faults.append(forbidden_field("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif since is not None and since < 1:
        faults.append(invalid_value("sinceSeconds", since, "must be greater than 0"))
    if "stream" in query:
        faults.append(forbidden_field("stream", "may not be specified"))
    if faults:
        raise invalid("", "PodLogOptions", route.name, faults)
    try:
        since_time = datetime.fromisoformat(moment) if moment else None
    except ValueError:
        raise bad_request(
            f'parsing time "{moment}" as "2006-01-02T15:04:05Z07:00": cannot parse "{moment}" as "2006"'
        ) from None
    return LogQuery(
        tail,
        is_true(query.get("follow")),
        since_time,
        since,
        limit,
        is_true(query.get("timestamps")),
        is_true(query.get("previous")),
    )


def _number(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _container(pod: Object, asked: str) -> str:
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    main = [item["name"] for item in spec.get("containers") or []]
    initial = [item["name"] for item in spec.get("initContainers") or []]
    if asked:
        if asked not in main + initial:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(main) == 1 and not initial:
        return str(main[0])
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in main:
        return str(default)
    choices = f"choose one of: [{' '.join(main)}]"
    if initial:
        choices += f" or one of the init containers: [{' '.join(initial)}]"
    raise bad_request(f"a container name must be specified for pod {name}, {choices}")
