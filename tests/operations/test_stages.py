"""Which refusal comes first: contract section 4. Each stage by itself, then every two neighbours at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from dispatch_kubeflow.backend import ObjectRef, Stream
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine import Context, DispatchError, ErrInvalid

from .world import LIMIT, NAMESPACE, World, cancelled, ended, refused, soon, spec, start

UID = "11111111-1111-1111-1111-111111111111"
WRITES = ("start", "open", "hold", "release", "stop", "stop_job")
READS = ("find", "watch", "output", "ceased", "capabilities")


def ref(**changes: str) -> ObjectRef:
    given = {"backend": "gpu", "namespace": NAMESPACE, "kind": "TrainJob", "name": "job-1", "uid": UID, **changes}
    return ObjectRef(**given)


def call(backend: Backend, name: str, ctx: Context | None = None, **changes: Any) -> Any:
    """One call with arguments that are valid but for the changes."""
    ctx = soon() if ctx is None else ctx
    job, target = changes.get("job_id", "job"), changes.get("ref", ref())
    match name:
        case "start":
            return backend.start(job, changes.get("attempt", 1), changes.get("spec", spec()), ctx=ctx)
        case "open" | "stop" | "ceased":
            return getattr(backend, name)(target, ctx=ctx)
        case "hold" | "release":
            return getattr(backend, name)(target, changes.get("instance", 1), ctx=ctx)
        case "output":
            return backend.output(job, changes.get("stream", Stream.STDOUT), tail=changes.get("tail"), ctx=ctx)
        case "capabilities":
            return backend.capabilities(changes.get("spec"), ctx=ctx)
        case _:
            return getattr(backend, name)(job, ctx=ctx)


def sent(world: World) -> list[str]:
    return world.wire.calls()


# Stage 1.


@pytest.mark.rule("backend.closed")
@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_any_call_on_a_closed_backend_is_unreachable(world: World, name: str) -> None:
    backend = world.backend()
    backend.close()
    backend.close()
    with refused("backend.closed"):
        call(backend, name)
    assert sent(world) == []


@pytest.mark.rule("backend.read-only")
@pytest.mark.parametrize("name", WRITES)
def test_any_write_on_a_read_only_backend_is_refused(world: World, name: str) -> None:
    backend = world.backend(read_only=True)
    with refused("backend.read-only"):
        call(backend, name)
    assert sent(world) == []


def _observer(world: World, *, lacking: str = "create") -> tuple[Backend, str]:
    """A Backend of a user who may read everything and write all but one verb on TrainJobs."""
    token = world.cluster.user("observer", _rules(world, without=lacking))
    return world.backend(token=token), token


def _rules(world: World, *, without: str = "") -> list[dict[str, Any]]:
    every = ["create", "patch", "delete", "get", "list", "watch"]
    return [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainingruntimes"], "verbs": every},
        {
            "apiGroups": ["trainer.kubeflow.org"],
            "resources": ["trainjobs"],
            "verbs": [verb for verb in every if verb != without],
        },
    ]


@pytest.mark.rule("backend.observe-only-start")
def test_start_on_an_observe_only_backend_names_the_missing_gate(world: World) -> None:
    backend, _ = _observer(world)
    with refused("backend.observe-only-start", missing_gate="create trainjobs.trainer.kubeflow.org"):
        call(backend, "start")
    assert sent(world) == []


@pytest.mark.rule("backend.observe-only-write")
@pytest.mark.parametrize("name", [name for name in WRITES if name != "start"])
def test_any_other_write_on_an_observe_only_backend_is_read_only(world: World, name: str) -> None:
    backend, _ = _observer(world, lacking="delete")
    with refused("backend.observe-only-write", missing_gate="delete trainjobs"):
        call(backend, name)
    assert sent(world) == []


def test_an_observe_only_backend_observes(world: World) -> None:
    backend, _ = _observer(world)
    assert call(backend, "find").objects == ()
    assert backend.capabilities().hold.answer == "no"
    assert "create trainjobs" in backend.capabilities().hold.reason


class Minutes:
    """A clock that tests move; waiting is the system's."""

    def __init__(self, backend: Backend) -> None:
        self._clock = backend._adapter.clock
        self.moved = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.moved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_a_missing_gate_is_looked_at_again_once_a_minute_and_then_the_backend_writes(world: World) -> None:
    backend, _ = _observer(world)
    minutes = backend._adapter.clock = Minutes(backend)
    world.cluster.user("observer", _rules(world))
    with refused("backend.observe-only-start"):
        call(backend, "start")
    assert sent(world) == []
    minutes.moved = 61
    assert start(backend).name == "job-1"


def test_a_look_again_that_finds_the_gate_still_missing_refuses_and_waits_another_minute(world: World) -> None:
    backend, _ = _observer(world)
    minutes = backend._adapter.clock = Minutes(backend)
    minutes.moved = 61
    with refused("backend.observe-only-start"):
        call(backend, "start")
    looked = len(sent(world))
    assert looked == 6
    with refused("backend.observe-only-start"):
        call(backend, "start")
    assert len(sent(world)) == looked


def test_a_look_again_that_fails_leaves_the_old_answer(world: World) -> None:
    backend, _ = _observer(world)
    backend._adapter.clock = minutes = Minutes(backend)
    world.cluster.user("observer", _rules(world))
    world.wire.refuse("POST", "selfsubjectaccessreviews", 500, "InternalError")
    minutes.moved = 61
    with refused("backend.observe-only-start"):
        call(backend, "start")
    assert world.names(TRAIN_JOBS) == []


def test_a_wrong_call_is_not_worth_a_look_again(world: World) -> None:
    backend, _ = _observer(world)
    backend._adapter.clock = minutes = Minutes(backend)
    minutes.moved = 61
    with refused("backend.observe-only-start"):
        call(backend, "start", job_id="NOT valid")
    assert sent(world) == []


@pytest.mark.rule("backend.forked")
def test_a_backend_refuses_to_be_used_across_a_fork(world: World) -> None:
    backend = world.backend()
    backend._adapter.running._process = os.getpid() + 1  # what a child finds
    with refused("backend.forked"):
        call(backend, "find")
    backend.close()
    backend._adapter.running._process = os.getpid()
    assert call(backend, "find").objects == ()


# Stage 2.


@pytest.mark.rule("input.hold-without-deadline")
@pytest.mark.parametrize("name", ["open", "hold", "release"])
def test_a_hold_family_call_without_a_deadline_is_invalid(world: World, name: str) -> None:
    backend = world.backend()
    with refused("input.hold-without-deadline"):
        call(backend, name, Context.background())
    with pytest.raises(ErrInvalid):
        getattr(backend, name)(ref(), *([] if name == "open" else [1]))
    assert sent(world) == []


@pytest.mark.rule("input.instance-zero", "input.instance-range")
@pytest.mark.parametrize("name", ["hold", "release"])
@pytest.mark.parametrize("instance", [0, -1, True, 2**63, "1", None, 1.0])
def test_a_hold_instance_counts_from_one(world: World, name: str, instance: Any) -> None:
    backend = world.backend()
    rule = "input.instance-zero" if instance == 0 and instance is not False else "input.instance-range"
    with refused(rule):
        call(backend, name, instance=instance)
    assert sent(world) == []


@pytest.mark.rule("input.job-id")
@pytest.mark.parametrize("name", ["start", "find", "watch", "stop_job", "output"])
@pytest.mark.parametrize("job_id", ["", "UPPER", "-a", "a-", "1a", "a" * 40, "a.b", 7, None])
def test_an_invalid_job_id_is_refused_before_anything_is_sent(world: World, name: str, job_id: Any) -> None:
    backend = world.backend()
    with refused("input.job-id"):
        call(backend, name, job_id=job_id)
    assert sent(world) == []


@pytest.mark.rule("input.attempt")
@pytest.mark.parametrize("attempt", [0, -1, 1_000_000, True, "1", None])
def test_an_attempt_counts_from_one_to_999999(world: World, attempt: Any) -> None:
    backend = world.backend()
    with refused("input.attempt"):
        call(backend, "start", attempt=attempt)


@pytest.mark.rule(
    "input.reference-malformed", "input.reference-kind", "input.reference-no-uid", "input.reference-other-backend"
)
@pytest.mark.parametrize("name", ["open", "hold", "release", "stop", "ceased"])
@pytest.mark.parametrize(
    ("reference", "rule"),
    [
        ("http://gpu/team-a/TrainJob/job-1?uid=u", "input.reference-malformed"),
        (17, "input.reference-malformed"),
        (ref(name="../x"), "input.reference-malformed"),
        (ref(kind="Secret"), "input.reference-kind"),
        (ref(uid=""), "input.reference-no-uid"),
        ("kubeflow://gpu/team-a/TrainJob/job-1", "input.reference-no-uid"),
        (ref(backend="other"), "input.reference-other-backend"),
    ],
)
def test_a_reference_that_is_not_ours_is_invalid(world: World, name: str, reference: Any, rule: str) -> None:
    backend = world.backend()
    with refused(rule):
        call(backend, name, ref=reference)
    assert sent(world) == []


@pytest.mark.rule("input.extension-missing", "input.runtime-ref-kind", "input.runtime-ref-name")
@pytest.mark.parametrize("name", ["start", "capabilities"])
@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"extensions": {"dispatch/Image": "x"}}, "input.extension-missing"),
        ({"extensions": {"kubeflow/RuntimeRef": {"kind": "TrainingRuntime", "name": "x"}}}, "input.extension-missing"),
        ({"ref": {"kind": "Runtime", "name": "x"}}, "input.runtime-ref-kind"),
        ({"ref": {"kind": "TrainingRuntime", "name": "X_x"}}, "input.runtime-ref-name"),
        ({"env": {"DISPATCH_X": "1"}}, "input.env-reserved-dispatch"),
        ({"env": {"PET_NNODES": "1"}}, "input.env-reserved-torch"),
        ({"env": {f"V{i}": "" for i in range(129)}}, "input.env-limits"),
        ({"command": ["x"] * 129}, "input.command-limits"),
        ({"args": ["x" * 1_048_577]}, "input.args-limits"),
        ({"nodes": 0}, "input.nodes-range"),
    ],
)
def test_a_specification_over_a_limit_is_invalid(world: World, name: str, changes: dict[str, Any], rule: str) -> None:
    backend = world.backend()
    if "ref" in changes:
        changes = {"extensions": {"dispatch/Image": "x", "kubeflow/RuntimeRef": changes["ref"]}}
    with refused(rule):
        call(backend, name, spec=spec(**changes))
    assert sent(world) == []


def test_secrets_of_a_specification_do_not_appear_in_its_refusal(world: World) -> None:
    backend = world.backend()
    with refused("input.args-limits") as caught:
        call(backend, "start", spec=spec(args=["hunter2" * 200_000]))
    assert "hunter2" not in str(caught[0]) + repr(dict(caught[0].details))


# Stage 3.


@pytest.mark.rule("support.extension")
@pytest.mark.parametrize("name", ["start", "capabilities"])
def test_another_extension_is_unsupported(world: World, name: str) -> None:
    backend = world.backend()
    with refused("support.extension", key="acme/Thing"):
        call(backend, name, spec=spec(extensions={**spec().extensions, "acme/Thing": 1}))
    assert sent(world) == []


@pytest.mark.rule("support.runtime-not-allowed")
@pytest.mark.parametrize("name", ["start", "capabilities"])
def test_a_runtime_outside_runtimes_is_unsupported(world: World, name: str) -> None:
    backend = world.backend(runtimes=["TrainingRuntime/mine"])
    with refused("support.runtime-not-allowed", value="ClusterTrainingRuntime/torch-distributed"):
        call(backend, name, spec=spec())
    assert sent(world) == []


@pytest.mark.rule("support.hold-capability")
def test_hold_and_release_where_hold_is_not_yes_give_the_capabilitys_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dispatch_kubeflow.backend.objects.found import Capability

    backend = world.backend()
    monkeypatch.setattr(Backend, "_hold_capability", lambda _: Capability("no", "the queue lists it for some flavors"))
    for name in ("hold", "release"):
        with refused("support.hold-capability", capability="some flavors"):
            call(backend, name)
    assert sent(world) == []


@pytest.mark.rule("support.namespace")
@pytest.mark.parametrize("name", ["open", "hold", "release", "stop", "ceased"])
def test_a_reference_outside_the_namespace_is_not_found(world: World, name: str) -> None:
    backend = world.backend()
    with refused("support.namespace", value=NAMESPACE):
        call(backend, name, ref=ref(namespace="team-b"))
    assert sent(world) == []


@pytest.mark.rule("support.orphan")
@pytest.mark.parametrize("name", ["open", "hold", "release"])
@pytest.mark.parametrize("kind", ["JobSet", "Job", "Pod", "TrainingRuntime"])
def test_an_orphan_has_neither_gate_nor_hold(world: World, name: str, kind: str) -> None:
    backend = world.backend()
    with refused("support.orphan"):
        call(backend, name, ref=ref(kind=kind))
    assert sent(world) == []


@pytest.mark.rule("support.stderr")
def test_output_has_no_stderr(world: World) -> None:
    backend = world.backend()
    with refused("support.stderr"):
        call(backend, "output", stream=Stream.STDERR)


@pytest.mark.rule("support.output-capability")
def test_output_where_it_is_not_to_be_read_is_unsupported(world: World) -> None:
    backend = world.backend(output_read=False)
    with refused("support.output-capability", capability="output_read"):
        call(backend, "output")
    assert backend.capabilities().output_read.answer == "no"


def _without(group: str, resource: str) -> list[dict[str, Any]]:
    """Every right but those on one resource."""
    rest = {
        "": ["pods", "configmaps", "nodes", "pods/log"],
        "trainer.kubeflow.org": ["*"],
        "jobset.x-k8s.io": ["*"],
        "batch": ["*"],
    }
    rest[group] = [each for each in rest[group] if each != resource]
    return [{"apiGroups": [each], "resources": names, "verbs": ["*"]} for each, names in rest.items()]


@pytest.mark.rule("support.ceased-capability", "support.output-capability")
def test_output_and_ceased_without_permission_are_unsupported(world: World) -> None:
    backend = world.backend(token=world.cluster.user("nodeless", _without("", "nodes")))
    with refused("support.ceased-capability", capability="nodes"):
        call(backend, "ceased")
    logless = world.backend(token=world.cluster.user("logless", _without("", "pods/log")))
    with refused("support.output-capability", capability="pods/log"):
        call(logless, "output")


# Stage 4.


@pytest.mark.rule("context.deadline-hold-family")
@pytest.mark.parametrize("name", ["open", "hold", "release"])
def test_a_hold_family_call_after_its_deadline_is_rejected_in_the_pages_words(world: World, name: str) -> None:
    backend = world.backend()
    with refused("context.deadline-hold-family") as caught:
        call(backend, name, ended())
    assert "the call's deadline passed before the request was sent" in str(caught[0])
    assert sent(world) == []


@pytest.mark.rule("context.deadline")
@pytest.mark.parametrize("name", ["start", "find", "watch", "stop", "stop_job", "output", "ceased"])
def test_any_other_call_after_its_deadline_is_unreachable(world: World, name: str) -> None:
    backend = world.backend()
    with refused("context.deadline"):
        call(backend, name, ended())
    assert sent(world) == []


@pytest.mark.rule("context.cancelled")
@pytest.mark.parametrize("name", [*WRITES, "find", "watch", "output", "ceased"])
def test_a_cancelled_call_is_unreachable(world: World, name: str) -> None:
    backend = world.backend()
    with refused("context.cancelled"):
        call(backend, name, cancelled())
    assert sent(world) == []


# Stage 5, by the first request of a call.


@pytest.mark.rule("request.deadline-hold-family", "request.deadline")
@pytest.mark.parametrize(("name", "rule"), [("open", "request.outcome-unknown"), ("find", "request.no-answer")])
def test_a_deadline_in_a_sent_request_is_no_answer(world: World, name: str, rule: str) -> None:
    backend = world.backend()
    if name == "open":
        target = start(backend)
        world.wire.hang("PATCH", "/trainjobs/")
        with refused(rule):
            backend.open(target, ctx=soon(0.5))
    else:
        world.wire.hang("GET", "/trainingruntimes")
        with refused(rule):
            call(backend, name, soon(0.3))


@pytest.mark.rule("request.unsent")
def test_a_server_that_is_not_there_was_sent_nothing(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    world.wire.server.shutdown()
    world.wire.server.server_close()
    backend._adapter.door._sender._connections.close()
    for name in ("open", "stop"):
        with refused("request.unsent") as caught:
            call(backend, name, ref=target)
        assert caught[0].__cause__ is not None


@pytest.mark.rule("request.token-failed")
def test_a_token_file_that_went_empty_is_unauthorized_and_nothing_is_sent(world: World) -> None:
    import json
    import pathlib

    path = pathlib.Path(world.kubeconfig())
    config = json.loads(path.read_text())
    token = world.folder / "token"
    token.write_text(world.admin)
    config["users"] = [{"name": "u", "user": {"tokenFile": str(token)}}]
    path.write_text(json.dumps(config))
    backend = world.backend(kubeconfig=str(path))
    assert call(backend, "find").objects == ()
    token.write_text("\n")
    world.wire.seen.clear()
    for name in ("find", "start", "open"):
        with refused("request.token-failed"):
            call(backend, name)
    assert sent(world) == []


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (401, "Unauthorized", "request.unauthenticated"),
        (403, "Forbidden", "request.forbidden"),
        (404, "NotFound", "request.path-not-found"),
        (409, "Conflict", "request.read-conflict"),
        (410, "Expired", "request.expired"),
        (400, "BadRequest", "request.invalid"),
        (405, "MethodNotAllowed", "request.invalid"),
        (406, "NotAcceptable", "request.invalid"),
        (413, "RequestEntityTooLarge", "request.invalid"),
        (415, "UnsupportedMediaType", "request.invalid"),
        (422, "Invalid", "request.invalid"),
        (429, "TooManyRequests", "request.no-answer"),
        (500, "InternalError", "request.no-answer"),
        (503, "ServiceUnavailable", "request.no-answer"),
    ],
)
@pytest.mark.rule("request.unauthenticated", "request.forbidden", "request.expired", "request.invalid")
def test_a_reads_status_is_told_by_its_row(world: World, status: int, reason: str, rule: str) -> None:
    backend = world.backend()
    target = start(backend)
    world.wire.refuse("GET", "/trainjobs/job-1", status, reason)
    with refused(rule, status=status):
        backend.hold(target, 1, ctx=soon())


# Two at once: the earlier stage decides.


def test_closed_comes_before_wrong_input(world: World) -> None:
    backend = world.backend()
    backend.close()
    with refused("backend.closed"):
        call(backend, "hold", Context.background(), instance=0)


def test_read_only_comes_before_wrong_input(world: World) -> None:
    backend = world.backend(read_only=True)
    with refused("backend.read-only"):
        call(backend, "start", job_id="NOT")


def test_wrong_input_comes_before_what_is_unsupported(world: World) -> None:
    backend = world.backend()
    with refused("input.instance-zero"):
        call(backend, "hold", instance=0, ref=ref(kind="Pod"))
    with refused("input.tail"):
        call(backend, "output", stream=Stream.STDERR, tail=-1)
    with refused("input.nodes-range"):
        call(backend, "start", spec=spec(nodes=0, extensions={**spec().extensions, "acme/Thing": 1}))


def test_what_is_unsupported_comes_before_an_ended_context(world: World) -> None:
    backend = world.backend()
    with refused("support.orphan"):
        call(backend, "open", ended(), ref=ref(kind="Pod"))
    with refused("support.stderr"):
        call(backend, "output", cancelled(), stream=Stream.STDERR)


def test_another_namespace_comes_before_an_orphan(world: World) -> None:
    with refused("support.namespace"):
        call(world.backend(), "open", ref=ref(kind="Pod", namespace="team-b"))


def test_a_missing_deadline_comes_before_a_wrong_reference(world: World) -> None:
    with refused("input.hold-without-deadline"):
        call(world.backend(), "open", Context.background(), ref="nonsense")


def test_an_ended_context_comes_before_any_request(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("GET", ".", 500, "InternalError", times=99)
    with refused("context.deadline"):
        call(backend, "find", ended())


def test_iterators_refuse_when_they_are_made(world: World) -> None:
    backend = world.backend()
    for name in ("watch", "output"):
        with refused("input.job-id"):
            call(backend, name, job_id="NOT")
        with refused("context.deadline"):
            call(backend, name, ended())


def test_every_error_of_a_closed_door_has_the_sentinels_class(world: World) -> None:
    backend = world.backend()
    calls: list[Callable[[], Any]] = [
        lambda: call(backend, "hold", instance=0),
        lambda: call(backend, "output", stream=Stream.STDERR),
        lambda: call(backend, "find", ended()),
    ]
    for each in calls:
        with pytest.raises(DispatchError) as raised:
            each()
        assert type(raised.value).__name__ == raised.value.sentinel
        assert raised.value.operation in {"hold", "output", "find"}
    assert LIMIT > 0
