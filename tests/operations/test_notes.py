"""Notes: what watch writes down, when it is complete, and that it never changes what a call gives."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects.found import Found
from dispatch_kubeflow.backend.objects.notes import End, Notes, PodNote
from dispatch_kubeflow.backend.operations import note_keeper
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.operations.note_store import joined
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS, JOB_SETS, PODS, TRAIN_JOBS
from dispatch_kubeflow.machine import DispatchError

from .world import LIMIT, NAMESPACE, World, refused, soon, start

NOTES = r"/configmaps"


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_keeper, "BETWEEN_WRITES", 0.02)
    monkeypatch.setattr(note_keeper, "AGAIN", 0.05)


@contextmanager
def watched(backend: Backend, job: str = "job") -> Iterator[Iterator[Found]]:
    ctx = soon(30)
    views = backend.watch(job, ctx=ctx)
    next(views)
    try:
        yield views
    finally:
        ctx.cancel()
        with pytest.raises(DispatchError):
            list(views)


def stored(world: World, name: str = "job-1") -> dict[str, Any] | None:
    found = world.get(CONFIG_MAPS, f"{name}-notes")
    return None if found is None else json.loads(found["data"]["notes"])


def settled(world: World) -> dict[str, Any]:
    """The stored notes, once they are settled for the TrainJob as it stands."""
    return when(world, lambda notes: notes.get("settled") == world.trainjob()["metadata"]["generation"])


def when(world: World, wanted: Any, name: str = "job-1") -> dict[str, Any]:
    """The stored notes, once they are as wanted."""

    def found() -> dict[str, Any] | None:
        notes = stored(world, name)
        return notes if notes is not None and wanted(notes) else None

    return world.until(found, f"the notes are {stored(world, name)}")  # type: ignore[no-any-return]


def opened(world: World) -> tuple[Backend, ObjectRef]:
    backend = world.backend()
    return backend, start(backend)


def test_notes_have_our_labels_and_no_owner_and_belong_to_the_trainjob(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        notes = when(world, lambda notes: notes["from_start"])
    assert notes["trainjob"] == ref.uid
    metadata = world.get(CONFIG_MAPS, "job-1-notes")["metadata"]  # type: ignore[index]
    assert "ownerReferences" not in metadata
    assert metadata["labels"]["dispatch-kubeflow.io/job"] == "job"


def test_each_pod_is_noted_with_its_node_and_the_boot_it_ran_in(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        notes = when(world, lambda notes: len([pod for pod in notes.get("pods", []) if "boot_id" in pod]) == 2)
    assert {pod["node"] for pod in notes["pods"]} == {"node-0", "node-1"}
    assert all(pod["node_uid"] and pod["system_uuid"] for pod in notes["pods"])


def test_notes_are_not_settled_while_pods_may_come(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        when(world, lambda notes: len(notes.get("pods", [])) == 2 and "settled" not in notes)


def test_a_hold_settles_them_and_a_release_unsettles_them(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        backend.hold(ref, 1, ctx=soon())
        assert settled(world)["settled"] == 3
        world.until(lambda: not world.names(PODS))
        world.until(lambda: _done(lambda: backend.release(ref, 1, ctx=soon())))
        when(world, lambda notes: "settled" not in notes and len(notes["pods"]) == 4)


def _done(call: Any) -> bool:
    try:
        call()
    except DispatchError:
        return False
    return True


def test_a_watch_that_begins_again_after_a_pause_notes_a_gap(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        when(world, lambda notes: len(notes.get("pods", [])) == 2)
    with watched(backend):
        when(world, lambda notes: notes.get("gap"))


def test_a_watch_that_begins_again_while_the_gate_is_closed_has_none(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    with watched(backend):
        backend.open(ref, ctx=soon())
        notes = when(world, lambda notes: len(notes.get("pods", [])) == 2)
    assert notes["from_start"]
    assert "gap" not in notes


def test_a_watch_that_begins_again_where_they_were_settled_has_none(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        backend.hold(ref, 1, ctx=soon())
        settled(world)
    other = world.backend()
    with watched(other):
        world.until(lambda: other._adapter.hub.notes(ref.uid))
        notes = other._adapter.hub.notes(ref.uid)
        assert notes is not None
        assert (notes.gap, len(notes.pods)) == (False, 2)


def test_a_watch_that_begins_on_an_open_gate_says_so(world: World) -> None:
    backend, ref = opened(world)
    backend.open(ref, ctx=soon())
    world.running()
    with watched(backend):
        notes = when(world, lambda notes: len(notes.get("pods", [])) == 2)
    assert "from_start" not in notes


def test_a_second_watcher_of_another_job_reads_whether_the_gate_was_closed(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend, job="other"):
        world.until(lambda: backend._adapter.hub._session.look("job"))  # type: ignore[union-attr]
        world.until(lambda: backend._adapter.hub._session.look("job").listing.trainjobs)  # type: ignore[union-attr]
        with watched(backend):
            assert when(world, lambda notes: notes["from_start"])["trainjob"] == ref.uid


def test_a_job_that_is_started_under_watch_is_noted_from_its_birth(world: World) -> None:
    backend = world.backend()
    with watched(backend):
        ref = start(backend)
        backend.open(ref, ctx=soon())
        notes = when(world, lambda notes: len(notes.get("pods", [])) == 2)
    assert notes["from_start"]


def test_events_that_were_lost_are_a_gap(world: World) -> None:
    backend, ref = opened(world)
    expired = {"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}}
    lost = world.wire.answer("GET", r"/pods\?.*watch=1", 200, json.dumps(expired).encode() + b"\n", nth=2)
    world.wire.answer("GET", r"/pods\?.*watch=1", 200, b"", before=lambda _: lost.hit.wait(0.3))
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
        backend.open(ref, ctx=soon())
        when(world, lambda notes: notes.get("gap"))


def test_a_read_only_backend_keeps_none(world: World) -> None:
    opened(world)
    reader = world.backend(read_only=True)
    with watched(reader):
        world.until(lambda: reader._adapter.hub._session.look("job").listing.jobsets)  # type: ignore[union-attr]
    assert reader._adapter.hub._keeper is not None
    assert not reader._adapter.hub._keeper._running
    assert stored(world) is None


@pytest.mark.parametrize(("status", "reason"), [(401, "Unauthorized"), (403, "Forbidden"), (500, "InternalError")])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_notes_that_cannot_be_kept_change_no_view(world: World, method: str, status: int, reason: str) -> None:
    backend, ref = opened(world)
    refusal = world.wire.refuse(method, NOTES, status, reason, times=999)
    with watched(backend) as views:
        assert refusal.hit.wait(LIMIT)
        backend.open(ref, ctx=soon())
        next(view for view in views if view.objects[0].pods.running == 2)
    world.until(lambda: backend._adapter.hub.notes(ref.uid))


def test_a_write_that_fails_is_made_again(world: World) -> None:
    backend, _ = opened(world)
    failed = world.wire.lose_request("POST", NOTES)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    assert failed.hit.is_set()


def test_nodes_that_may_not_be_read_are_asked_for_once(world: World) -> None:
    backend, ref = opened(world)
    world.wire.refuse("GET", r"/nodes/", 403, "Forbidden", times=999)
    with watched(backend):
        backend.open(ref, ctx=soon())
        when(world, lambda notes: len(notes.get("pods", [])) == 2)
        backend.hold(ref, 1, ctx=soon())
        settled(world)
    assert len([path for path in world.wire.calls() if "/nodes/" in path]) == 1


def test_two_backends_write_one_set_of_notes_and_neither_undoes_the_other(world: World) -> None:
    backend, ref = opened(world)
    other = world.backend()
    with watched(backend), watched(other):
        backend.open(ref, ctx=soon())
        world.running()
        backend.hold(ref, 1, ctx=soon())
        settled(world)
        notes = when(world, lambda notes: all("ends" in pod for pod in notes["pods"]))
    assert notes["from_start"]
    assert len(notes["pods"]) == 2


def test_notes_deleted_by_somebody_are_written_anew(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
        world.cluster.delete(CONFIG_MAPS, "job-1-notes", NAMESPACE)
        backend.open(ref, ctx=soon())
        assert when(world, lambda notes: len(notes.get("pods", [])) == 2)["from_start"]


def test_the_next_start_forgets_what_this_backend_wrote(world: World) -> None:
    backend, _ = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    start(backend, attempt=2)
    assert stored(world) is None


def test_the_next_start_of_another_process_leaves_them_to_the_next_watch(world: World) -> None:
    backend, _ = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    backend.close()
    other = world.backend()
    world.wire.seen.clear()
    start(other, attempt=2)
    assert len(world.wire.seen) == 7
    with watched(other):
        when(world, lambda notes: notes["from_start"], "job-2")
        world.until(lambda: stored(world) is None)


def test_a_start_whose_notes_cannot_be_deleted_is_still_a_start(world: World) -> None:
    backend, _ = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    world.wire.refuse("DELETE", NOTES, 403, "Forbidden")
    assert start(backend, attempt=2).name == "job-2"


def test_notes_older_than_a_day_are_swept(world: World) -> None:
    backend, _ = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    backend.stop_job("job", ctx=soon())
    yesterday = (datetime.now(UTC) - timedelta(hours=25)).isoformat()
    world.cluster.patch(CONFIG_MAPS, "job-1-notes", {"data": {"written": yesterday}}, NAMESPACE)
    start(backend, job="other")
    with watched(backend, job="other"):
        when(world, lambda notes: notes["from_start"], "other-1")
    backend.close()
    later = world.backend()
    with watched(later, job="other"):
        world.until(lambda: stored(world) is None)
    assert stored(world, "other-1") is not None


def test_close_writes_what_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_keeper, "BETWEEN_WRITES", 999.0)
    backend, ref = opened(world)
    views = backend.watch("job", ctx=soon(30))
    next(views)
    when(world, lambda notes: notes["from_start"])
    backend.open(ref, ctx=soon())
    world.until(lambda: len((backend._adapter.hub.notes(ref.uid) or Notes(1, "x")).pods) == 2)
    assert "pods" not in (stored(world) or {})
    backend.close()
    assert len(stored(world)["pods"]) == 2  # type: ignore[index]
    with refused("read.stopped-watching"):
        list(views)


# A failed TrainJob, whose JobSet would be made again.


@pytest.fixture
def failed(tmp_path: pathlib.Path) -> Iterator[tuple[World, ObjectRef]]:
    """A job that failed under a watch, which has ended since."""
    world = World(tmp_path, Script(run=0.0, exit_code=3))
    backend = world.backend()
    ref = start(backend, nodes=1)
    with watched(backend):
        backend.open(ref, ctx=soon())
        when(world, lambda notes: "under" in notes)
    yield world, ref
    world.close()


def test_a_watch_that_begins_while_the_ended_jobset_is_still_there_has_missed_nothing(
    failed: tuple[World, ObjectRef],
) -> None:
    world, ref = failed
    other = world.backend()
    with watched(other):
        world.until(lambda: other._adapter.hub.notes(ref.uid))
        other.stop_job("job", ctx=soon())
        world.until(lambda: other.ceased(ref, ctx=soon()).ceased)


def test_a_watch_that_begins_on_another_jobset_of_the_name_may_have_missed_pods(
    failed: tuple[World, ObjectRef],
) -> None:
    world, _ = failed
    before = world.get(JOB_SETS, "job-1")["metadata"]["uid"]  # type: ignore[index]
    world.cluster.delete(JOB_SETS, "job-1", NAMESPACE)
    world.until(lambda: (world.get(JOB_SETS, "job-1") or {"metadata": {"uid": before}})["metadata"]["uid"] != before)
    with watched(world.backend()):
        when(world, lambda notes: notes.get("gap"))


def test_events_lost_while_the_ended_jobset_is_still_there_leave_no_gap(failed: tuple[World, ObjectRef]) -> None:
    world, ref = failed
    other = world.backend()
    with watched(other):
        world.until(lambda: other._adapter.hub.notes(ref.uid))
        keeper = other._adapter.hub._keeper
        assert keeper is not None
        (book,) = [book for books in keeper._books.values() for book in books.values()]
        assert not keeper._may_have_missed(book)


@pytest.mark.parametrize("jobset", [None, "another"])
def test_notes_under_a_jobset_say_nothing_without_it(jobset: str | None) -> None:
    under = Notes(1, "uid", from_start=True, under="this")
    assert under.complete_under("this")
    assert not under.complete_under(jobset)
    assert not under.with_gap().complete_under("this")


# Two watchers' notes, joined.

COMPLETE = Notes(1, "uid", from_start=True, settled=3)
GAP = Notes(1, "uid", from_start=True, gap=True)


@pytest.mark.parametrize(
    ("ours", "theirs", "generation", "expected"),
    [
        (GAP, None, 3, GAP),
        (GAP, COMPLETE, 3, COMPLETE),
        (GAP, COMPLETE, 4, GAP),
        (GAP, msgspec.structs.replace(COMPLETE, settled=0), None, msgspec.structs.replace(COMPLETE, settled=0)),
        (GAP, msgspec.structs.replace(COMPLETE, settled=None), 3, GAP),
        (COMPLETE, GAP, 3, COMPLETE),
    ],
)
def test_completeness_is_taken_over_only_for_the_trainjob_as_it_stands(
    ours: Notes, theirs: Notes | None, generation: int | None, expected: Notes
) -> None:
    assert joined(ours, theirs, generation) == expected


def test_what_the_other_saw_of_a_pod_is_taken_over() -> None:
    end = End("node", "containerd://1")
    ours = msgspec.structs.replace(GAP, pods=(PodNote("1", "one", node="n", node_uid="u"),))
    boot = PodNote("1", "one", node="n", node_uid="u", boot_id="b", system_uuid="s", provider_id="p", ends=(end,))
    theirs = msgspec.structs.replace(GAP, pods=(boot, PodNote("2", "two", gone=True, never_bound=True)))
    assert joined(ours, theirs, None).pods == theirs.pods


def test_a_boot_on_another_node_object_is_not_taken_over() -> None:
    ours = msgspec.structs.replace(GAP, pods=(PodNote("1", "one", node="n", node_uid="u"),))
    theirs = msgspec.structs.replace(GAP, pods=(PodNote("1", "one", node="n", node_uid="other", boot_id="b"),))
    assert joined(ours, theirs, None).pods == ours.pods


def test_a_pod_that_one_saw_on_a_node_was_bound() -> None:
    ours = msgspec.structs.replace(GAP, pods=(PodNote("1", "one", gone=True, never_bound=True),))
    theirs = msgspec.structs.replace(GAP, pods=(PodNote("1", "one", node="n"),))
    (pod,) = joined(ours, theirs, None).pods
    assert (pod.never_bound, pod.node, pod.gone) == (False, "n", True)


def test_a_name_that_is_not_ours_is_left_alone(world: World) -> None:
    backend = world.backend()
    start(backend)
    body = world.trainjob()
    metadata = {**body["metadata"], "name": "by-hand"}
    kept = {key: metadata[key] for key in ("name", "labels", "annotations")}
    world.cluster.create(TRAIN_JOBS, {**body, "metadata": kept}, NAMESPACE)
    with watched(backend):
        when(world, lambda notes: notes["from_start"])
    assert world.get(CONFIG_MAPS, "by-hand-notes") is None


def test_a_trainjob_that_takes_over_the_name_has_notes_of_its_own(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        when(world, lambda notes: notes["trainjob"] == ref.uid)
        body = world.trainjob()
        kept = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
        world.cluster.take_down("kube-controller-manager")  # or it collects the runtime copy
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
        world.cluster.create(TRAIN_JOBS, {**body, "metadata": kept}, NAMESPACE)
        another = world.trainjob()["metadata"]["uid"]
        notes = when(world, lambda notes: notes["trainjob"] == another)
    assert notes["from_start"]
    assert another != ref.uid


@pytest.mark.parametrize("plural", ["jobs", "pods"])
def test_notes_are_settled_later_where_that_cannot_be_seen_at_once(world: World, plural: str) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        when(world, lambda notes: len(notes.get("pods", [])) == 2)
        # The streams' own lists are behind; the next lists of the kind are those that settle.
        failed = world.wire.lose_request("GET", rf"/{plural}\?labelSelector=jobset", times=1)
        backend.hold(ref, 1, ctx=soon())
        settled(world)
    assert failed.hit.is_set()


def test_a_jobset_that_cannot_be_read_settles_nothing(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        failed = world.wire.lose_request("GET", r"/jobsets/job-1$")
        backend.hold(ref, 1, ctx=soon())
        settled(world)
    assert failed.hit.is_set()


def test_a_pod_that_was_not_noted_settles_nothing(world: World) -> None:
    backend, ref = opened(world)
    with watched(backend):
        backend.open(ref, ctx=soon())
        world.running()
        when(world, lambda notes: len(notes.get("pods", [])) == 2)
        stranger = {**world.cluster.list(PODS, NAMESPACE)[0]}
        metadata = {**stranger["metadata"], "name": "stranger", "uid": "stranger"}
        items = {"items": [{**stranger, "metadata": metadata}], "metadata": {"resourceVersion": "9"}}
        body = {"apiVersion": "v1", "kind": "PodList", **items}
        shown = world.wire.answer("GET", r"/pods\?labelSelector=jobset", 200, body)
        backend.hold(ref, 1, ctx=soon())
        assert shown.hit.wait(LIMIT)
        settled(world)
