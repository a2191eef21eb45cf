"""Backends that may only look, by settings or by what RBAC objects grant their user."""

from __future__ import annotations

import pytest

from dispatch_kubeflow.machine import DispatchError, ErrReadOnly
from tests.operations.world import refused
from tests.real.api import Object

from .scene import FOREVER, Scene, soon

_TRAINER = "trainer.kubeflow.org"
READS = ["get", "list", "watch"]
WRITES = ["create", "patch", "delete"]


def rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def reads() -> list[Object]:
    """What a Backend must be able to read, and nothing else."""
    return [
        rule(_TRAINER, ["trainjobs", "trainingruntimes"], READS),
        rule("jobset.x-k8s.io", ["jobsets"], READS),
        rule("batch", ["jobs"], READS),
        rule("", ["pods"], READS),
        rule("", ["configmaps"], ["get"]),
    ]


def writes(*, without: str = "") -> list[Object]:
    """The write gates, and what Stop of orphans and notes need beside them."""
    verbs = [each for each in WRITES if each != without]
    notes = rule("", ["configmaps"], ["create", "patch", "delete"])
    return [rule(_TRAINER, ["trainjobs"], verbs), rule(_TRAINER, ["trainingruntimes"], WRITES), notes]


def test_a_read_only_backend_finds_and_refuses_to_write(scene: Scene) -> None:
    scene.steer(FOREVER)
    ref = scene.start(scene.backend())
    reader = scene.backend(read_only=True)
    assert scene.found(reader) == [("TrainJob", "job-1", "gated")]
    for write in (
        lambda: scene.start(reader, attempt=2),
        lambda: reader.open(ref, ctx=soon()),
        lambda: reader.hold(ref, 1, ctx=soon()),
        lambda: reader.release(ref, 1, ctx=soon()),
        lambda: reader.stop(ref, ctx=soon()),
        lambda: reader.stop_job("job", ctx=soon()),
    ):
        with pytest.raises(ErrReadOnly):
            write()
    assert scene.train_job()["spec"]["suspend"] is True


def test_what_the_page_asks_of_a_role_is_enough_for_a_whole_life(scene: Scene) -> None:
    scene.steer(FOREVER)
    user = scene.cluster.user([*reads(), *writes()], namespace=scene.namespace)
    backend = scene.backend(user)
    assert backend.capabilities().hold.answer == "yes"
    ref = scene.run(backend)
    backend.hold(ref, 1, ctx=soon())
    scene.at_rest()
    backend.release(ref, 1, ctx=soon())
    scene.running()
    backend.stop_job("job", ctx=soon())
    assert scene.found(backend) == []


@pytest.mark.parametrize("lacking", WRITES)
def test_a_backend_without_a_write_gate_only_observes_and_names_it(scene: Scene, lacking: str) -> None:
    scene.steer(FOREVER)
    ref = scene.start(scene.backend())
    user = scene.cluster.user([*reads(), *writes(without=lacking)], namespace=scene.namespace)
    observer = scene.backend(user)
    assert scene.found(observer) == [("TrainJob", "job-1", "gated")]
    gate = f"{lacking} trainjobs.trainer.kubeflow.org"
    with refused("backend.observe-only-start", missing_gate=gate):
        scene.start(observer, attempt=2)
    with refused("backend.observe-only-write", missing_gate=gate):
        observer.open(ref, ctx=soon())
    assert observer.capabilities().hold.answer == "no"


def test_every_missing_read_is_named_before_anything_is_done(scene: Scene) -> None:
    user = scene.cluster.user([rule(_TRAINER, ["*"], ["*"])], namespace=scene.namespace)
    with refused("factory.read-permission-missing") as caught:
        scene.backend(user)
    missing = caught[0].details["missing"]
    for each in ("list pods", "watch jobs.batch", "get jobsets.jobset.x-k8s.io", "get configmaps"):
        assert each in missing
    assert "trainjobs" not in missing


def test_a_user_without_any_right_is_told_so(scene: Scene) -> None:
    with pytest.raises(DispatchError) as caught:
        scene.backend(scene.cluster.user([], namespace=scene.namespace))
    assert caught.value.row == "factory.read-permission-missing"


def test_output_and_ceased_are_capabilities_of_their_own_permissions(scene: Scene) -> None:
    scene.steer(FOREVER)
    user = scene.cluster.user([*reads(), *writes()], namespace=scene.namespace)
    narrow = scene.backend(user)
    found = narrow.capabilities()
    assert (found.output_read.answer, found.ceased.answer) == ("no", "no")
    with refused("support.output-capability"):
        list(narrow.output("job", ctx=soon()))
    scene.cluster.grant(user.name, [rule("", ["pods/log"], ["get"])], namespace=scene.namespace)
    scene.cluster.grant(user.name, [rule("", ["nodes"], ["get"])])
    found = scene.backend(user).capabilities()
    assert (found.output_read.answer, found.ceased.answer) == ("yes", "yes")


def test_an_orphan_that_may_not_be_deleted_is_named(scene: Scene) -> None:
    scene.steer(FOREVER)
    user = scene.cluster.user([*reads(), *writes()], namespace=scene.namespace)
    backend = scene.backend(user)
    scene.run(backend)
    scene.cluster.api.expect("DELETE", f"{scene.train_jobs}/job-1", {"propagationPolicy": "Orphan"})
    scene.wait(scene.train_jobs, "job-1", lambda seen: seen is None)
    scene.wait(scene.job_sets, "job-1", lambda seen: seen is not None and "ownerReferences" not in seen["metadata"])
    (job_set,) = [each for each in backend.find("job", ctx=soon()).objects if each.ref.kind == "JobSet"]
    with refused("stop.orphan-denied", status=403):
        backend.stop(job_set.ref, ctx=soon())
    assert scene.names(scene.job_sets) == ["job-1"]


def test_a_right_taken_away_later_is_unauthorized_at_the_call(scene: Scene) -> None:
    scene.steer(FOREVER)
    user = scene.cluster.user([*reads(), *writes()], namespace=scene.namespace)
    backend = scene.backend(user)
    scene.start(backend)
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}/rolebindings"
    for name in scene.names(bindings):
        scene.cluster.api.send("DELETE", f"{bindings}/{name}")
    with refused("request.forbidden", status=403):
        backend.find("job", ctx=soon())
