"""Stop, StopJob and orphans."""

from __future__ import annotations

from dispatch_kubeflow.backend import ObjectRef
from tests.operations.world import refused

from .scene import FOREVER, Scene, soon

ORPHAN = {"propagationPolicy": "Orphan"}


def everything(scene: Scene) -> list[str]:
    """Names of whatever a job could have left."""
    kept = {"steered", "kube-root-ca.crt"}
    kinds = (scene.train_jobs, scene.runtimes, scene.job_sets, scene.jobs, scene.pods, scene.config_maps)
    return [name for kind in kinds for name in scene.names(kind) if name not in kept and not name.endswith("-notes")]


def orphan(scene: Scene) -> None:
    """The TrainJob of a running job goes, and nothing with it."""
    scene.cluster.api.expect("DELETE", f"{scene.train_jobs}/job-1", ORPHAN)
    scene.wait(scene.train_jobs, "job-1", lambda seen: seen is None)
    for kind in (scene.job_sets, scene.runtimes):
        scene.wait(kind, "job-1", lambda seen: seen is not None and "ownerReferences" not in seen["metadata"])


def test_a_running_job_is_stopped_and_all_of_it_goes(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    backend.stop(scene.run(backend), ctx=soon())
    scene.seen(backend, lambda found: not found.objects)
    scene.wait(scene.config_maps, "job-1-runtime-snapshot", lambda seen: seen is None)
    assert everything(scene) == []


def test_a_gated_job_is_stopped(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    backend.stop(scene.start(backend), ctx=soon())
    assert scene.names(scene.train_jobs) == []


def test_what_is_gone_or_anothers_is_a_success(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    backend.stop(ObjectRef("gpu", scene.namespace, "TrainJob", "job-1", "another"), ctx=soon())
    assert scene.names(scene.train_jobs) == ["job-1"]
    backend.stop(ref, ctx=soon())
    backend.stop(ref, ctx=soon())


def in_the_foreground(scene: Scene) -> None:
    """A user deletes the TrainJob in the foreground: its copy goes first, and then the deletion can't end."""
    scene.cluster.api.expect("DELETE", f"{scene.train_jobs}/job-1", {"propagationPolicy": "Foreground"})
    scene.wait(scene.runtimes, "job-1", lambda seen: seen is None)


def test_a_foreground_deletion_that_cannot_end_is_ended_by_stop_job(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    in_the_foreground(scene)
    change = {"metadata": {"finalizers": None}}
    refusal = scene.cluster.api.send(
        "PATCH", f"{scene.train_jobs}/job-1", change, content_type="application/merge-patch+json"
    )
    assert refusal.status == 403
    backend.stop_job("job", ctx=soon())
    assert everything(scene) == []


def test_a_foreground_deletion_that_cannot_end_is_ended_by_stop(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    in_the_foreground(scene)
    backend.stop(ref, ctx=soon())
    scene.wait(scene.train_jobs, "job-1", lambda seen: seen is None)


def test_what_a_relabelled_trainjob_would_make_anew_is_left_until_its_labels_are_right(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.run(backend)
    label = "dispatch-kubeflow.io/backend"
    scene.cluster.api.merge(f"{scene.train_jobs}/job-1", {"metadata": {"labels": {label: None}}})
    with refused("stop.left-kept", instead=str(ref)):
        backend.stop_job("job", ctx=soon())
    scene.running()
    scene.cluster.api.merge(f"{scene.train_jobs}/job-1", {"metadata": {"labels": {label: "gpu"}}})
    backend.stop_job("job", ctx=soon())
    assert everything(scene) == []


def test_a_part_is_not_stopped_while_the_whole_lives(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.run(backend)
    with refused("stop.owner-lives", instead=str(ref)):
        backend.stop(scene.pod_refs()[0], ctx=soon())


def test_stop_job_sees_every_attempt_gone(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    scene.start(backend, attempt=2)
    scene.start(backend, job="other")
    backend.stop_job("job", ctx=soon())
    assert scene.names(scene.pods) == []
    assert scene.names(scene.train_jobs) == ["other-1"]


def test_stop_job_waits_for_pods_that_hang_and_names_them(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    scene.run(backend)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(3))
    assert caught[0].details["left"]
    scene.annotate_pods(stops="0s")
    backend.stop_job("job", ctx=soon())
    assert everything(scene) == []


def test_what_outlives_its_train_job_is_an_orphan_and_stop_job_takes_it(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    orphan(scene)
    assert ("JobSet", "job-1", "orphaned") in scene.found(backend)
    backend.stop_job("job", ctx=soon())
    assert everything(scene) == []


def test_an_orphan_is_stopped_by_itself(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    orphan(scene)
    (job_set,) = [each for each in backend.find("job", ctx=soon()).objects if each.ref.kind == "JobSet"]
    backend.stop(job_set.ref, ctx=soon())
    scene.wait(scene.job_sets, "job-1", lambda seen: seen is None)
    scene.cluster.wait_list(scene.pods, lambda pods: not pods)


def test_pods_that_hang_beyond_their_job_are_orphans(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    backend.stop(scene.run(backend), ctx=soon())

    def pods_alone(kinds: set[str]) -> bool:
        return kinds == {"Pod"}

    view = scene.seen(backend, lambda found: pods_alone({each.ref.kind for each in found.objects}))
    assert [each.state for each in view.objects] == ["orphaned", "orphaned"]
    scene.annotate_pods(stops="0s")
    backend.stop_job("job", ctx=soon())


def test_a_name_whose_pods_hang_is_not_opened_again(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    backend.stop(scene.run(backend), ctx=soon())
    scene.wait(scene.job_sets, "job-1", lambda seen: seen is None)
    scene.wait(scene.runtimes, "job-1", lambda seen: seen is None)
    scene.wait(scene.config_maps, "job-1-runtime-snapshot", lambda seen: seen is None)
    again = scene.start(backend)
    with refused("open.pods-remain"):
        backend.open(again, ctx=soon())
    scene.annotate_pods(stops="0s")
    scene.cluster.wait_list(scene.pods, lambda pods: not pods)
    backend.open(again, ctx=soon())
    scene.running()
