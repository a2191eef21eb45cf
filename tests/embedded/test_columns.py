"""The tables that kubectl prints: columns of a definition and of the server's own, as the real apiserver gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded.columns import age, columns, found

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MADE = "2026-01-01T23:59:00Z"


def cells(kind: str, obj: dict[str, Any], printed: Any = None) -> dict[str, Any]:
    whole = {"metadata": {"name": "x", "creationTimestamp": MADE}, **obj}
    return {column.name: column.cell(whole, NOW) for column in columns(kind, printed)}


@pytest.mark.parametrize(
    ("ago", "said"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"),
     (11_100, "3h5m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"), (183_600, "2d3h"),
     (691_200, "8d"), (-5, "0s")],
)  # fmt: skip
def test_an_age_is_said_as_kubectl_says_it(ago: int, said: str) -> None:
    assert age((NOW - timedelta(seconds=ago)).isoformat(), NOW) == said


def test_an_unknown_age_is_said_so() -> None:
    assert age(None, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("path", "value"),
    [(".a.b", 1), (".c[-1:].t", "two"), ('.c[?(@.t=="one")].v', True), (".c[0].t", "one"), (".a.x", None),
     ('.c[?(@.t=="three")].v', None), (".x[-1:].t", None), (".a.b.c", None)],
)  # fmt: skip
def test_a_definitions_path(path: str, value: Any) -> None:
    assert found({"a": {"b": 1}, "c": [{"t": "one", "v": True}, {"t": "two"}]}, path) == value


def test_a_definitions_columns_are_read_by_their_types() -> None:
    printed = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"},
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    shown = cells("JobSet", {"spec": {"suspend": False}, "status": {"restarts": 3}}, printed)
    assert shown == {"Name": "x", "State": None, "Suspended": "false", "Restarts": 3, "Age": "60s"}
    assert [column.priority for column in columns("JobSet", printed)] == [0, 0, 0, 1, 0]


def test_a_definition_without_columns_shows_the_age() -> None:
    assert cells("TrainingRuntime", {}, ()) == {"Name": "x", "Age": "60s"}


def pod(*states: dict[str, Any], **more: Any) -> dict[str, Any]:
    statuses = [{"state": state, "ready": "running" in state, "restartCount": 1} for state in states]
    return {
        "spec": {"containers": [{}] * len(states), "nodeName": "n"},
        "status": {"containerStatuses": statuses, **more},
    }


@pytest.mark.parametrize(
    ("described", "ready", "status"),
    [
        (pod({"running": {}}, phase="Running"), "1/1", "Running"),
        (pod({"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending"), "0/1", "ImagePullBackOff"),
        (pod({"terminated": {"exitCode": 0, "reason": "Completed"}}, phase="Succeeded"), "0/1", "Completed"),
        (pod({"terminated": {"exitCode": 3}}, phase="Failed"), "0/1", "ExitCode:3"),
        (pod(phase="Failed", reason="Evicted"), "0/0", "Evicted"),
        ({"spec": {}, "status": {}}, "0/0", "Unknown"),
    ],
)
def test_a_pods_row(described: dict[str, Any], ready: str, status: str) -> None:
    shown = cells("Pod", described)
    assert (shown["Ready"], shown["Status"]) == (ready, status)
    assert shown["Nominated Node"] == shown["Readiness Gates"] == "<none>"


@pytest.mark.parametrize(("reason", "status"), [("", "Terminating"), ("NodeLost", "Unknown")])
def test_a_pod_that_is_being_deleted(reason: str, status: str) -> None:
    described = {**pod({"running": {}}, reason=reason), "metadata": {"name": "x", "deletionTimestamp": MADE}}
    assert cells("Pod", described)["Status"] == status


@pytest.mark.parametrize(
    ("condition", "status"), [("Complete", "Complete"), ("Suspended", "Suspended"), ("Other", "Running")]
)
def test_a_jobs_row(condition: str, status: str) -> None:
    described = {
        "spec": {
            "completions": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "node", "image": "i"}]}},
        },
        "status": {
            "succeeded": 1,
            "startTime": MADE,
            "completionTime": "2026-01-01T23:59:30Z",
            "conditions": [{"type": condition, "status": "True"}],
        },
    }
    shown = cells("Job", described)
    assert (shown["Status"], shown["Completions"], shown["Duration"]) == (status, "1/2", "30s")
    assert (shown["Containers"], shown["Images"], shown["Selector"]) == ("node", "i", "a=b")


def test_a_job_without_completions_that_has_not_begun_and_is_being_deleted() -> None:
    described = {"spec": {"parallelism": 3}, "metadata": {"name": "x", "deletionTimestamp": MADE}}
    shown = cells("Job", described)
    assert (shown["Status"], shown["Completions"], shown["Duration"]) == ("Terminating", "0/1 of 3", "")


@pytest.mark.parametrize(
    ("ready", "unschedulable", "status"),
    [("True", False, "Ready"), ("Unknown", False, "NotReady"), ("True", True, "Ready,SchedulingDisabled"),
     (None, False, "Unknown")],
)  # fmt: skip
def test_a_nodes_row(ready: str | None, unschedulable: bool, status: str) -> None:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    described = {
        "metadata": {"name": "x", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": conditions, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }
    shown = cells("Node", described)
    assert (shown["Status"], shown["Roles"], shown["Internal-IP"]) == (status, "worker", "10.0.0.1")


def test_the_rows_of_other_kinds() -> None:
    assert cells("ConfigMap", {"data": {"a": "b"}})["Data"] == 1
    assert cells("Namespace", {"status": {"phase": "Active"}})["Status"] == "Active"
    service = cells("Service", {"spec": {"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 80}]}})
    assert (service["Cluster-IP"], service["Port(s)"], service["Selector"]) == ("None", "80/TCP", "<none>")
    event = cells("Event", {"involvedObject": {"kind": "Job", "name": "j"}, "reason": "Made", "lastTimestamp": MADE})
    assert (event["Last Seen"], event["Object"], event["Reason"]) == ("60s", "job/j", "Made")
    assert cells("RoleBinding", {"roleRef": {"kind": "Role", "name": "r"}})["Role"] == "Role/r"
    assert cells("Role", {}) == {"Name": "x", "Created At": MADE}
    assert cells("Lease", {}) == {"Name": "x", "Age": "60s"}
