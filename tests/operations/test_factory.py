"""Factory: a Backend is given only where it can keep its word; everything else is refused, and nothing is left open."""

from __future__ import annotations

import base64
import json
import pathlib
import threading
from typing import Any

import pytest

from dispatch_kubeflow.backend import Settings, factory
from dispatch_kubeflow.backend.requests.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS
from dispatch_kubeflow.machine import Context, ErrInvalid

from .wire import status_body
from .world import LIMIT, World, cancelled, ended, refused, soon, start


def make(world: World, **settings: Any) -> Any:
    return factory(world.settings(**settings), ctx=soon())


# C7, C8.


@pytest.mark.rule(
    "input.settings-unknown-key",
    "input.settings-missing-key",
    "input.settings-null",
    "input.settings-type",
    "input.settings-rule",
    "input.settings-shape",
)
@pytest.mark.parametrize(
    ("change", "rule", "key"),
    [
        ({"naem": "x"}, "input.settings-unknown-key", "naem"),
        ({"name": ...}, "input.settings-missing-key", "name"),
        ({"namespace": None}, "input.settings-null", "namespace"),
        ({"read_only": "yes"}, "input.settings-type", "read_only"),
        ({"call_bound": 30}, "input.settings-rule", "call_bound"),
        ({"call_bound": True}, "input.settings-type", "call_bound"),
        ({"request_timeout": 0}, "input.settings-rule", "request_timeout"),
        ({"runtimes": []}, "input.settings-rule", "runtimes"),
        ({"runtimes": ["Nope/x"]}, "input.settings-rule", "runtimes"),
        ({"queue": "q"}, "input.settings-rule", "queue"),
        ({"mode": "both"}, "input.settings-rule", "mode"),
    ],
)
def test_settings_that_break_a_rule_name_key_value_and_rule(
    world: World, change: dict[str, Any], rule: str, key: str
) -> None:
    settings = {**world.settings(), **change}
    settings = {name: value for name, value in settings.items() if value is not ...}
    with refused(rule, key=key) as caught:
        factory(settings)
    assert key in str(caught[0])
    assert world.wire.calls() == []


def test_settings_in_a_file_are_refused_with_their_line(world: World) -> None:
    path = world.folder / "settings.yaml"
    path.write_text("name: gpu\nnamespace: team-a\nruntimes: [TrainingRuntime/x]\ncall_bound: 3\n")
    with refused("input.settings-rule", key="call_bound", line=4):
        factory(path)


@pytest.mark.rule("input.settings-shape")
@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "a: 1\na: 2\n"])
def test_a_file_that_holds_no_settings_is_refused(world: World, text: str) -> None:
    path = world.folder / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ErrInvalid) as raised:
        factory(path)
    assert raised.value.row.startswith("input.settings-")


@pytest.mark.rule("input.kubeconfig")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        '{"clusters": [], "contexts": [], "users": [], "current-context": "x"}',
        '{"clusters": 1, "contexts": 2, "users": 3, "current-context": "x"}',
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_invalid(world: World, text: str) -> None:
    path = world.folder / "broken"
    path.write_text(text)
    with refused("input.kubeconfig"):
        factory(world.settings(kubeconfig=str(path)))


def _config(world: World, **user: Any) -> str:
    path = pathlib.Path(world.kubeconfig())
    config = json.loads(path.read_text())
    config["users"] = [{"name": "u", "user": user}]
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.rule("input.kubeconfig")
def test_an_auth_provider_is_refused_by_its_name(world: World) -> None:
    with refused("input.kubeconfig", rule="oidc"):
        make(world, kubeconfig=_config(world, **{"auth-provider": {"name": "oidc", "config": {}}}))
    assert world.wire.calls() == []


def test_a_kubeconfig_that_does_not_exist_is_invalid(world: World) -> None:
    with refused("input.kubeconfig", value="absent"):
        make(world, kubeconfig=str(world.folder / "absent"))


@pytest.mark.rule("request.token-failed")
def test_a_token_that_cannot_be_had_is_unauthorized_and_nothing_is_sent(world: World) -> None:
    with refused("request.token-failed"):
        make(world, kubeconfig=_config(world, tokenFile=str(world.folder / "no-token")))
    assert world.wire.calls() == []


def test_tls_straight_to_the_cluster_works(world: World) -> None:
    path = pathlib.Path(world.kubeconfig(url=world.server.url))
    config = json.loads(path.read_text())
    authority = base64.b64encode(world.server.authority.certificate).decode()
    config["clusters"][0]["cluster"]["certificate-authority-data"] = authority
    path.write_text(json.dumps(config))
    with factory(world.settings(kubeconfig=str(path)), ctx=soon()) as backend:
        assert backend.find("job", ctx=soon()).objects == ()


# C13, A13.


@pytest.mark.rule("factory.group-version-absent", "request.group-version-absent")
@pytest.mark.parametrize("path", ["/apis/trainer.kubeflow.org/v1alpha1$", "/apis/jobset.x-k8s.io/v1alpha2$"])
def test_a_group_version_that_is_not_served_is_unsupported(world: World, path: str) -> None:
    world.wire.answer("GET", path, 404, b"404 page not found\n")
    with refused("factory.group-version-absent", group_version=path.split("/")[2]):
        make(world)


@pytest.mark.rule("request.no-answer", "request.direct-other", "request.log-invalid", "request.forbidden")
@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (503, "ServiceUnavailable", "request.no-answer"),
        (500, "InternalError", "request.no-answer"),
        (401, "Unauthorized", "request.unauthenticated"),
        (403, "Forbidden", "request.forbidden"),
        (400, "BadRequest", "request.log-invalid"),
        (405, "MethodNotAllowed", "request.direct-other"),
        (410, "Gone", "request.direct-other"),
    ],
)
def test_discovery_maps_plainly_and_a_503_is_never_not_served(
    world: World, status: int, reason: str, rule: str
) -> None:
    world.wire.refuse("GET", "/apis/trainer.kubeflow.org/v1alpha1$", status, reason)
    with refused(rule, status=status):
        make(world)


# C14.


def _dry_run(world: World, **changes: Any) -> None:
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "probe", "labels": changes.get("labels", {})},
        "spec": {"suspend": changes.get("suspend", False)},
    }

    def named(seen: Any) -> None:
        body["metadata"] = {**body["metadata"], "name": seen.body["metadata"]["name"]}  # type: ignore[dict-item]

    world.wire.on(
        "POST",
        "dryRun=All",
        before=named,
        forward=False,
        answer=lambda: (201, {"Content-Type": "application/json"}, json.dumps(body).encode()),
    )


@pytest.mark.rule("factory.queueless-managed")
@pytest.mark.parametrize(
    ("changes", "seen"),
    [({"suspend": True}, "suspended"), ({"labels": {"kueue.x-k8s.io/queue-name": "default"}}, "queue default")],
)
def test_a_cluster_that_manages_jobs_without_a_queue_is_unsupported(
    world: World, changes: dict[str, Any], seen: str
) -> None:
    _dry_run(world, **changes)
    with refused("factory.queueless-managed", seen=seen):
        make(world)


def test_the_dry_run_creates_nothing(world: World) -> None:
    world.backend()
    assert world.names(TRAIN_JOBS) == []


def test_a_dry_run_that_is_denied_is_unauthorized(world: World) -> None:
    world.wire.refuse("POST", "dryRun=All", 403, "Forbidden")
    with refused("request.forbidden"):
        make(world)


@pytest.mark.rule("factory.namespace-absent")
def test_a_namespace_that_does_not_exist_is_named(world: World) -> None:
    with refused("factory.namespace-absent", key="namespace", value="nowhere"):
        make(world, namespace="nowhere")


def test_a_connection_that_cannot_be_made_says_to_where_and_why(world: World) -> None:
    with refused("request.unsent", why="127.0.0.1:9: ") as caught:
        make(world, kubeconfig=world.kubeconfig(url="http://127.0.0.1:9"))
    assert "Connection refused" in str(caught[0])


def test_a_refusal_shows_what_the_server_said(world: World) -> None:
    world.wire.refuse("POST", "dryRun=All", 403, "Forbidden", "quota of the day is spent")
    with refused("request.forbidden", why="quota of the day is spent") as caught:
        make(world)
    assert "quota of the day is spent" in str(caught[0])


@pytest.mark.rule("factory.queueless-managed")
def test_without_a_runtime_the_test_waits_for_the_first_start_that_finds_one(world: World) -> None:
    runtime = world.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    assert runtime is not None
    world.cluster.delete(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    backend = world.backend()
    with refused("runtime.absent"):
        start(backend)
    kept = {key: runtime["metadata"].get(key) for key in ("name", "labels")}
    world.cluster.create(CLUSTER_TRAINING_RUNTIMES, {"metadata": kept, "spec": runtime["spec"]})
    _dry_run(world, suspend=True)
    with refused("factory.queueless-managed"):
        start(backend)
    assert world.left() == {}
    world.wire.rules.clear()
    start(backend)


def test_a_read_only_backend_skips_the_dry_run(world: World) -> None:
    _dry_run(world, suspend=True)
    with make(world, read_only=True) as backend:
        assert backend.capabilities().hold.answer == "no"


# C15, and the reviews.


@pytest.mark.rule("factory.read-permission-missing")
def test_every_missing_read_permission_is_named(world: World) -> None:
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]}]
    with refused("factory.read-permission-missing") as caught:
        make(world, token=world.cluster.user("narrow", rules))
    missing = caught[0].details["missing"]
    for each in ("list pods", "watch jobs.batch", "get jobsets.jobset.x-k8s.io", "get configmaps"):
        assert each in missing
    assert "trainjobs" not in missing


def test_a_review_that_is_forbidden_is_unauthorized(world: World) -> None:
    world.wire.refuse("POST", "selfsubjectaccessreviews", 403, "Forbidden")
    with refused("request.forbidden"):
        make(world)


def test_a_review_without_an_answer_is_unreachable(world: World) -> None:
    world.wire.lose_answer("POST", "selfsubjectaccessreviews", nth=9)
    with refused("request.no-answer"):
        make(world)


def test_a_review_answered_with_a_status_of_success_is_no_answer(world: World) -> None:
    world.wire.answer("POST", "selfsubjectaccessreviews", 201, status_body(201, "Created"))
    with refused("request.no-answer"):
        make(world)


# The context.


@pytest.mark.rule("context.deadline", "context.cancelled")
def test_factory_honours_its_context(world: World) -> None:
    with refused("context.deadline"):
        factory(world.settings(), ctx=ended())
    with refused("context.cancelled"):
        factory(world.settings(), ctx=cancelled())
    world.wire.hang("POST", "selfsubjectaccessreviews")
    with refused("request.no-answer"):
        factory(world.settings(), ctx=Context.with_timeout(0.3))


def test_a_factory_that_fails_leaves_no_thread(world: World) -> None:
    before = threading.active_count()
    world.wire.refuse("GET", "/apis/trainer.kubeflow.org/v1alpha1$", 503, "ServiceUnavailable", times=5)
    for _ in range(5):
        with refused("request.no-answer"):
            make(world)
    world.until(lambda: threading.active_count() <= before + 2)


def test_settings_of_every_form_are_taken(world: World) -> None:
    settings = world.settings()
    path = world.folder / "s.yaml"
    path.write_text(json.dumps({**settings, "kubeconfig": settings["kubeconfig"]}))
    for given in (settings, Settings.parse(settings), path, str(path)):
        with factory(given, ctx=soon()) as backend:
            assert backend.name == "gpu"
            assert backend.settings.namespace == "team-a"
    assert LIMIT > 0


def test_capabilities_with_a_specification_makes_the_runtime_read_and_nothing_else(world: World) -> None:
    from .world import spec

    backend = world.backend()
    yes = backend.capabilities(spec(), ctx=soon())
    assert (yes.hold.answer, yes.output_read.answer, yes.ceased.answer) == ("yes", "yes", "yes")
    assert world.wire.calls() == ["GET /apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"]
    world.wire.seen.clear()
    backend.capabilities(ctx=soon())
    assert world.wire.calls() == []


@pytest.mark.rule("record.invalid", "record.unsupported", "record.rejected", "record.outcome-unknown")
@pytest.mark.rule("record.unreachable", "record.anything-else")
def test_each_error_that_start_raises_is_recorded_as_the_page_says(world: World) -> None:
    from dispatch_kubeflow.machine.record import Recorded, record_start

    from .world import spec

    backend = world.backend()
    world.wire.refuse("POST", "/trainjobs$", 422, "Invalid", nth=1)
    world.wire.lose_request("POST", "/trainjobs$", nth=2)
    world.wire.lose_request("POST", "/trainingruntimes$", nth=3)
    recorded = []
    for changes in ({"nodes": 0}, {"extensions": {**spec().extensions, "a/b": 1}}, {}, {}, {}):
        try:
            start(backend, **changes)
        except Exception as error:  # noqa: BLE001 - whatever Start raises is what is recorded
            recorded.append((type(error).__name__, record_start(error)))
    assert recorded == [
        ("ErrInvalid", Recorded.REFUSED),
        ("ErrUnsupported", Recorded.REFUSED),
        ("ErrRejected", Recorded.REFUSED),
        ("ErrOutcomeUnknown", Recorded.UNKNOWN),
        ("ErrUnreachable", Recorded.UNKNOWN),
    ]
    assert record_start(ValueError("another's")) is Recorded.UNKNOWN
