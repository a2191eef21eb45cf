"""A job from Start to its end, by the public calls, and why it ended or waits."""

from __future__ import annotations

import pytest

from dispatch_kubeflow.machine import ErrOutcomeUnknown, ErrRejected
from tests.operations.world import refused
from tests.real.api import has

from .scene import FOREVER, Scene, soon


def test_a_started_job_is_gated_and_has_no_pods(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    scene.wait(scene.train_jobs, "job-1", has("Suspended"))
    scene.wait(scene.jobs, "job-1-node-0", has("Suspended"))
    assert scene.found(backend) == [("TrainJob", "job-1", "gated")]
    assert scene.names(scene.pods) == []
    job = scene.train_job()
    assert (job["metadata"]["uid"], job["spec"]["suspend"]) == (ref.uid, True)


def test_what_start_wrote_is_what_the_cluster_keeps_with_every_option_given(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    checkpoint = {"claim": "checkpoints", "path": "/checkpoint"}
    ref = scene.start(
        backend,
        args=["--epochs", "3"],
        env={"LEVEL": "debug", "EMPTY": ""},
        procs_per_node=2,
        resources={"requests": {"cpu": "0.5", "memory": "1.5Gi"}, "limits": {"nvidia.com/gpu": "1"}},
        deadline_seconds=3600,
        extensions={"dispatch/SharedCheckpoint": checkpoint},
    )
    (seen,) = backend.find("job", ctx=soon()).objects
    assert (seen.ref, seen.state, seen.drift) == (ref, "gated", ())


def test_an_opened_job_runs_and_succeeds(scene: Scene) -> None:
    scene.steer({"kubelet.test/runs": "0s"})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    ended = scene.ended(backend)
    assert ended.cause is not None
    assert (ended.cause.kind, ended.cause.exit_code, ended.gate_lifted) == ("succeeded", None, True)


def test_a_running_jobs_pods_are_counted(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    view = scene.seen(backend, lambda found: found.objects[0].pods.running == 2)
    (seen,) = view.objects
    assert (seen.state, seen.pods.total, seen.cause, seen.failing) == ("opened", 2, None, False)


ENDS = {
    "exit code": ({"kubelet.test/exit.1": "3"}, "application", 3),
    "out of memory": ({"kubelet.test/exit.1": "137", "kubelet.test/reason.1": "OOMKilled"}, "out-of-memory", 137),
    "killed by something": ({"kubelet.test/exit.1": "137"}, "unknown", 137),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_pod_that_fails_ends_the_job_with_its_cause(scene: Scene, how: str) -> None:
    annotations, cause, code = ENDS[how]
    scene.steer({**FOREVER, "kubelet.test/runs.1": "0s", **annotations})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    ended = scene.ended(backend)
    assert ended.cause is not None
    assert (ended.cause.kind, ended.cause.exit_code) == (cause, code)


def test_a_deadline_ends_the_job_with_its_jobset_and_its_job_kept(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend, deadline_seconds=2)
    backend.open(ref, ctx=soon())
    jobset = scene.wait(scene.job_sets, "job-1", lambda seen: seen is not None)
    ended = scene.ended(backend)
    assert ended.cause is not None
    assert (ended.cause.kind, ended.pods.total, ended.failing) == ("deadline", 0, False)
    assert "activeDeadlineSeconds" not in scene.train_job()["spec"]
    assert scene.wait(scene.job_sets, "job-1", has("Failed"))["metadata"]["uid"] == jobset["metadata"]["uid"]
    (found,) = backend.find("job", ctx=soon()).objects
    assert (found.state, found.cause and found.cause.kind) == ("ended", "deadline")
    backend.stop(ref, ctx=soon())


def test_an_image_that_cannot_be_pulled_is_what_the_job_waits_for(scene: Scene) -> None:
    scene.steer({"kubelet.test/waits": "ImagePullBackOff"})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    view = scene.seen(backend, lambda found: found.objects[0].waiting is not None)
    waiting, cause = view.objects[0].waiting, view.objects[0].cause
    assert waiting is not None
    assert cause is not None
    assert (waiting.reason, cause.kind, view.objects[0].state) == ("ImagePullBackOff", "image", "opened")


def test_pods_that_fit_no_node_are_what_the_job_waits_for(scene: Scene) -> None:
    scene.steer(FOREVER, selector={"scene": "no-such-node"})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    view = scene.seen(backend, lambda found: found.objects[0].waiting is not None)
    waiting, cause = view.objects[0].waiting, view.objects[0].cause
    assert waiting is not None
    assert cause is not None
    assert (waiting.reason, cause.kind) == ("Unschedulable", "no-capacity")


def test_an_ended_job_is_neither_opened_nor_held_and_its_release_does_not_train_again(scene: Scene) -> None:
    scene.steer({"kubelet.test/runs": "0s"})
    backend = scene.backend()
    ref = scene.start(backend)
    backend.open(ref, ctx=soon())
    scene.ended(backend)
    with refused("object.hold-ended"):
        backend.hold(ref, 1, ctx=soon())
    with pytest.raises(ErrRejected):
        backend.open(ref, ctx=soon())
    assert len(scene.names(scene.pods)) == 2


def test_the_same_attempt_is_started_once(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    scene.wait(scene.job_sets, "job-1", lambda seen: seen is not None)
    with refused("start.exists"):
        scene.start(backend)
    assert [each.ref for each in backend.find("job", ctx=soon()).objects] == [ref]


def test_the_copy_of_another_is_not_used(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    other = scene.cluster.api.get(f"{scene.runtimes}/steered")
    scene.cluster.api.post(scene.runtimes, {**other, "metadata": {"name": "job-1"}})
    with refused("start.copy-differs"):
        scene.start(backend)
    assert scene.names(scene.train_jobs) == []


def test_a_runtime_that_is_not_there_is_unsupported(scene: Scene) -> None:
    backend = scene.backend()
    with refused("runtime.absent"):
        scene.start(backend)
    assert scene.names(scene.runtimes) == []


def test_a_job_set_left_by_another_keeps_the_name(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    scene.cluster.api.expect("DELETE", f"{scene.train_jobs}/job-1", {"propagationPolicy": "Orphan"})
    scene.wait(scene.job_sets, "job-1", lambda seen: "ownerReferences" not in (seen or {"metadata": {}})["metadata"])
    scene.wait(scene.train_jobs, "job-1", lambda seen: seen is None)
    with refused("start.leftover"):
        scene.start(backend)
    with pytest.raises(ErrOutcomeUnknown):
        scene.start(backend)
    assert scene.names(scene.train_jobs) == []


def test_the_copy_is_owned_by_its_train_job_and_goes_with_it(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    copy = scene.cluster.api.get(f"{scene.runtimes}/job-1")
    assert [owner["uid"] for owner in copy["metadata"]["ownerReferences"]] == [ref.uid]
    backend.stop(ref, ctx=soon())
    scene.wait(scene.runtimes, "job-1", lambda seen: seen is None)
